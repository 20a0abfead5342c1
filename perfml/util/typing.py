"""Names for types that many rooms use: arrays by what they hold, and how progress is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, what)``."""
