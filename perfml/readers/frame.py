"""From what a reader found to the Kernels table: ranges become iterations and layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.coded_ranges import CodedRanges
from perfml.readers.occurrences import count_within, layer_column, occurrences, text_column
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, validate_kernels
from perfml.util.typing import Ints

MOST_NESTED = 500
"""Ranges within ranges; more are those of a program that begins ranges and never ends them."""


def kernels_frame(
    launches: pd.DataFrame | Mapping[str, Any],
    ranges: Sequence[Sequence[str]] | CodedRanges,
    *,
    instances: Sequence[int] | Ints | None = None,
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
    coded = ranges if isinstance(ranges, CodedRanges) else CodedRanges.of(ranges)
    found = coded.split()
    layers, layer, iterations = found.layers, found.codes, found.iterations
    require_depth(
        max(map(len, layers), default=0),
        f"ranges around kernel {next(iter(launches['kernel']), None)}",
    )
    occurrence = occurrences(iterations, layer, layers, instances)
    iteration, again = (iterations, occurrence) if found.numbered else (occurrence, 0 * occurrence)
    # one frame of finished columns: setting them one by one costs more than reading a report
    cells: dict[str, Any] = {
        str(name): column.array if isinstance(column, pd.Series) else column
        for name, column in launches.items()
    }
    cells |= {
        "iteration": iteration,
        "layer": layer_column(layer, layers, again).array,
        "kernel_index": count_within(iteration),
    }
    return validate_kernels(pd.DataFrame(_known(_typed(cells, len(layer))), copy=False))


def require_depth(nested: int, where: str) -> None:
    """Raise `InputError` if ranges are nested more than `MOST_NESTED` deep."""
    if nested > MOST_NESTED:
        msg = f"the NVTX ranges are nested {nested} deep"
        cure = "Let the program end each range that it begins, and profile it again."
        raise InputError(msg, where=where, cure=cure)


_ZERO_SIZE = re.compile(r"\b0\b")
_ABOVE_ZERO = ("threads", "registers_per_thread")


def _known(cells: dict[str, Any]) -> dict[str, Any]:
    """Return columns in which sizes of launches that were not recorded are missing.

    Profilers write 0 for the sizes of kernels that a CUDA graph launched. No launch has a grid or
    block without threads, nor a thread without registers. Shared memory of 0 bytes is known only
    where the sizes are.
    """
    unknown = np.zeros(len(cells["kernel"]), dtype=bool)
    for name in ("grid", "block"):
        codes, texts = pd.factorize(cells[name])
        zero = np.array([bool(_ZERO_SIZE.search(str(text))) for text in texts], dtype=bool)
        if zero.any():
            rows = np.append(zero, False)[codes]
            cells[name] = pd.Series(cells[name]).mask(rows).array
            unknown |= rows
    for name in (*_ABOVE_ZERO, "shared_memory_per_block"):
        if name in cells:
            values = np.asarray(cells[name], dtype=float)
            rows = (values == 0) & (unknown | (name in _ABOVE_ZERO))
            if rows.any():
                cells[name] = np.where(rows, np.nan, values)
    return cells


_TEXTS = {*KERNEL_COLUMNS, "time_source", "phase"} - {
    "batch",
    "iteration",
    "kernel_index",
    "time_us",
}
_NUMBERS = ("time_us", *(name for name in KERNEL_OPTIONAL if name not in _TEXTS))


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
