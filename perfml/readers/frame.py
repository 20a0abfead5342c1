"""From what a reader found to the Kernels table: ranges become iterations and layers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import InputError
from perfml.readers.occurrences import count_within, layer_column, occurrences, text_column
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, validate_kernels
from perfml.util.ranges import ITERATION

MOST_NESTED = 500
"""Ranges within ranges; more are those of a program that begins ranges and never ends them."""


@dataclass(frozen=True)
class CodedRanges:
    """Range paths of many launches, each distinct one once.

    Attributes
    ----------
    codes
        A number for each launch's ranges, shape (n,).
    paths
        The range names that a number stands for, outermost first.
    """

    codes: npt.NDArray[np.int64]
    paths: list[tuple[str, ...]]


def split_range(path: Sequence[str]) -> tuple[int | None, tuple[str, ...]]:
    """Split nested range names, outermost first, into an iteration and a layer name.

    Returns
    -------
    iteration
        From the first range called like ``iter_3``; None without one.
    layer
        The other names.

    Examples
    --------
    >>> split_range(["iter_3", "conv_01"])
    (3, ('conv_01',))
    >>> split_range(["model", "block", "conv"])
    (None, ('model', 'block', 'conv'))
    """
    iteration = _iteration(path[0]) if path else None
    if iteration is not None:  # as nearly always: the iteration is outermost
        return iteration, tuple(path[1:])
    layer: list[str] = []
    for name in path:
        number = _iteration(name) if iteration is None else None
        if number is not None:
            iteration = number
        else:
            layer.append(name)
    return iteration, tuple(layer)


@functools.lru_cache(maxsize=1 << 16)
def _iteration(name: str) -> int | None:
    """Return the number of an iteration's range; names recur in every launch."""
    match = ITERATION.fullmatch(name.strip())
    return int(match.group(1)) if match is not None else None


def kernels_frame(
    launches: pd.DataFrame | Mapping[str, Any],
    ranges: Sequence[Sequence[str]] | CodedRanges,
    *,
    instances: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Make a Kernels table of launches in launch order.

    A layer is a range path and its occurrence, so the same path entered again is another
    occurrence: the n-th one within an iteration is called ``path#n`` (from the second on). Without
    iteration ranges the occurrences *are* the iterations.

    Parameters
    ----------
    launches
        One row a launch, in launch order: ``kernel`` and ``time_us`` at least, any other column of
        the Kernels table, and metrics. A table, or columns of one length.
    ranges
        Names of the ranges around each launch, outermost first; empty outside every range.
    instances
        Where the source tells them apart, a number for the range instance each launch ran in.
        Without it, consecutive launches in one path count as one occurrence.

    Returns
    -------
    DataFrame
        A valid Kernels table; run columns that are not in `launches` are missing values.

    Raises
    ------
    InputError
        If ranges are nested more than `MOST_NESTED` deep.
    """
    # Launches share few range paths: each distinct one is split once.
    coded = ranges if isinstance(ranges, CodedRanges) else _coded(ranges)
    codes, paths = coded.codes, coded.paths
    outermost = {name: _iteration(name) for name in {path[0] for path in paths if path}}
    split = [
        (number, path[1:])
        if path and (number := outermost[path[0]]) is not None
        else split_range(path)
        for path in paths
    ]
    distinct: dict[tuple[str, ...], int] = {}
    of_path = [distinct.setdefault(layer, len(distinct)) for _, layer in split]
    layers, layer = list(distinct), np.array(of_path, dtype="int64")[codes]
    nested = max(map(len, layers), default=0)
    if nested > MOST_NESTED:
        msg = f"the NVTX ranges are nested {nested} deep"
        cure = "Let the program end each range that it begins, and profile it again."
        where = f"ranges around kernel {next(iter(launches['kernel']))}"
        raise InputError(msg, where=where, cure=cure)
    numbered = any(iteration is not None for iteration, _ in split)
    iterations = np.array([iteration or 0 for iteration, _ in split], dtype="int64")[codes]
    occurrence = occurrences(iterations, layer, layers, instances)
    iteration = iterations if numbered else occurrence
    # one frame of finished columns: setting them one by one costs more than reading a report
    cells: dict[str, Any] = {
        str(name): column.array if isinstance(column, pd.Series) else column
        for name, column in launches.items()
    }
    cells |= {
        "iteration": iteration,
        "layer": layer_column(layer, layers, occurrence if numbered else occurrence * 0).array,
        "kernel_index": count_within(iteration),
    }
    return validate_kernels(pd.DataFrame(_typed(cells, len(codes)), copy=False))


_TEXTS = {*KERNEL_COLUMNS, "time_source"} - {"batch", "iteration", "kernel_index", "time_us"}
_NUMBERS = ("time_us", *(name for name in KERNEL_OPTIONAL if name != "time_source"))


def _typed(cells: dict[str, Any], rows: int) -> dict[str, Any]:
    """Give columns the order and the types of a Kernels table; absent ones hold missing values."""
    text = pd.StringDtype()
    nothing = text_column(np.zeros(rows, dtype=np.int64), [None]).array
    typed: dict[str, Any] = {}
    for name in dict.fromkeys((*KERNEL_COLUMNS, *KERNEL_OPTIONAL, *cells)):
        column = cells.get(name)
        if column is None:
            if name in KERNEL_COLUMNS:
                typed[name] = nothing.copy()
                if name == "time_us":
                    typed[name] = np.full(rows, np.nan)
                elif name == "batch":
                    absent = np.ones(rows, dtype=bool)
                    typed[name] = pd.arrays.IntegerArray(absent.astype("int64"), absent)
        elif name in _TEXTS:
            typed[name] = column if column.dtype == text else pd.array(column, dtype=text)
        elif name == "batch":
            typed[name] = pd.to_numeric(column).astype("Int64")
        elif name in _NUMBERS:
            typed[name] = pd.to_numeric(column)
        else:
            typed[name] = column
    return typed


def _coded(ranges: Sequence[Sequence[str]]) -> CodedRanges:
    numbers: dict[tuple[str, ...], int] = {}
    codes = [numbers.setdefault(tuple(path), len(numbers)) for path in ranges]
    return CodedRanges(np.array(codes, dtype="int64"), list(numbers))
