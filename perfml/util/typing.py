"""Types that many rooms use: arrays by what they hold, facts beside a table, progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, what)``."""


class SharedDict(dict[str, Any]):
    """Facts beside a table that nothing changes."""

    def __deepcopy__(self, memo: object) -> SharedDict:
        return self


class SharedList(list[Any]):
    """Notes beside a table that nothing changes."""

    def __deepcopy__(self, memo: object) -> SharedList:
        return self
