"""What a row of an ncu table says about a launch beside its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import CodedRanges, text_column
from perfml.readers.ncu.launches import (
    BLOCK,
    DEVICE_NAME,
    GRID,
    STREAM,
    Launches,
    measured_as_one,
    shape_of,
    streams_of,
)
from perfml.readers.ncu.table import Table, dimensions

IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Kernel Name",
    "Block Size",
    "Grid Size",
    "CC",
    DEVICE_NAME,
    STREAM,
)
"""Columns of both pages that are no metric; not every version of ncu has all of them."""

_RANGE = "range"
"""What ncu calls the result of a range replay, which has no grid of its own."""


def assemble(table: Table, counters: dict[str, Any]) -> Launches:
    """Add what is no metric: names, shapes, devices, ranges, and what ncu said."""
    ranges = table.ranges()
    warnings = list(table.page.notices.warnings)
    identity = {
        "kernel": _kernels(table, ranges),
        "grid": _shape(table, "Grid Size", counters, GRID),
        "block": _shape(table, "Block Size", counters, BLOCK),
        "device": _texts(table, DEVICE_NAME),
        "compute_capability": _texts(table, "CC", lambda text: text.replace(",", ".") or None),
        **streams_of(table.texts(STREAM, str) if STREAM in table else ()),
    }
    facts: dict[str, Any] = {}
    notices = table.page.notices
    if notices.program is not None:
        facts["process"] = notices.program
    elif "Process Name" in table:
        names = _texts(table, "Process Name").dropna().unique()
        facts["process"] = ", ".join(map(str, names))
    if notices.passes is not None:
        facts["passes"] = notices.passes
    if table.page.skipped:
        warnings.append(
            f"{table.page.skipped} lines among the rows were left out: output of the "
            "program, it seems."
        )
    whole = int((identity["kernel"] == _RANGE).sum()) if "Grid Size" not in table else 0
    if whole:
        warnings.append(measured_as_one(whole))
    _check_ids(table, warnings)
    return Launches(identity, counters, ranges, facts, warnings)


def _kernels(table: Table, ranges: CodedRanges) -> pd.Series[str]:
    """Return kernel names without the range that ``--print-nvtx-rename`` puts before them."""
    if "Kernel Name" not in table:
        msg = "the table has no column Kernel Name"
        cure = "Export again with: ncu --import FILE.ncu-rep --csv --page raw"
        raise InputError(msg, where=str(table.source.path), cure=cure)
    codes, names = table.coded("Kernel Name")
    places: npt.NDArray[Any] = codes
    plain = names
    if any("/" in name for name in names):
        last, ends = ranges.innermost()
        places, pairs = pd.factorize(codes * len(ends) + last)
        plain = [
            names[pair // len(ends)].removeprefix(f"{end}/" if end else "")
            for pair in pairs.tolist()
            for end in [ends[pair % len(ends)]]
        ]
    if not all(plain):
        row = int(np.flatnonzero(places == plain.index(""))[0])
        msg = "a launch has no kernel name"
        where = f"{table.source.path}:{table.line(row)}"
        raise InputError(msg, where=where, cure="Export the profile again.")
    return text_column(places, plain)


def _shape(
    table: Table, name: str, counters: dict[str, Any], parts: tuple[str, ...]
) -> pd.Series[str]:
    if name in table:
        return table.texts(name, dimensions)
    return shape_of(counters, parts, len(table))


def _texts(
    table: Table, name: str, function: Callable[[str], str | None] = lambda text: text or None
) -> pd.Series[str]:
    if name not in table:
        return text_column(np.zeros(len(table), dtype=np.int64), [None])
    return table.texts(name, function)


def _check_ids(table: Table, warnings: list[str]) -> None:
    """Look for launches that are missing or doubled: ncu counts them up from 0.

    Raises `InputError` if the ids start again within a process.
    """
    ids = table.whole_numbers("ID")
    processes = table.whole_numbers("Process ID")
    steps = np.diff(ids)
    for row in np.flatnonzero(steps <= 0):
        if processes[row] == processes[row + 1]:
            msg = "the launch ids start again: two exports in one file"
            where = f"{table.source.path}:{table.line(int(row) + 1)}"
            cure = "Split the file before this line, and ingest the parts."
            raise InputError(msg, where=where, found=f"id {ids[row + 1]:.0f}", cure=cure)
    if (processes[1:] != processes[:-1]).any():
        number = len(np.unique(processes))
        warnings.append(f"Launches of {number} processes are read as one run.")
    lost = int((steps[steps > 0] - 1).sum())
    if lost:
        warnings.append(
            f"{lost} launch ids are missing between the first and the last: "
            "unless the export was filtered, rows are lost."
        )
