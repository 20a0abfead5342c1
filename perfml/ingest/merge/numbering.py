"""Number the distinct values of columns, so that grouping compares integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.util.typing import Floats

Codes = npt.NDArray[np.int64]


def numbered(column: pd.Series[Any]) -> Codes:
    """Number the distinct values of a column from -1; missing values share one number."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64)
    return np.asarray(pd.factorize(column)[0], dtype=np.int64)


def combined(parts: Sequence[Codes]) -> Codes:
    """Number the distinct combinations of columns' numbers (from -1), in order of appearance."""
    codes = np.zeros(len(parts[0]), dtype=np.int64)
    for part in parts:
        width = int(part.max(initial=0)) + 2
        # renumber after every column, so that the product of cardinalities cannot overflow
        codes = np.asarray(pd.factorize(codes * width + part + 1)[0], dtype=np.int64)
    return codes


def launch_numbers(kernels: pd.DataFrame) -> Floats:
    """Return how many launches each row of a Kernels table stands for."""
    if "launches" not in kernels.columns:
        return np.ones(len(kernels))
    return kernels["launches"].fillna(1).to_numpy(dtype=float)
