"""Read what ``ncu --csv`` prints: the raw page (a row a launch) and the details page.

Both may lie between the output of the profiled program. Numbers follow the locale of the machine
that exported, units are scaled a column, and the columns are whatever was collected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.metrics.expressions import Array
from perfml.readers._ncu_launches import (
    BLOCK,
    DEVICE_NAME,
    GRID,
    Launches,
    needed,
    shape_of,
    to_kernels,
)
from perfml.readers._ncu_table import Table, dimensions
from perfml.readers._ncu_text import has_table
from perfml.readers._options import ReadOptions
from perfml.readers._source import Source
from perfml.readers._units import to_base
from perfml.tables import Kernels

NAME = "ncu-csv"

_TEXT = ("ID", "Process ID", "Process Name", "Kernel Name", "Block Size", "Grid Size", "CC")


def recognises(source: Source) -> bool:
    """Tell whether the beginning holds ncu's header, or its messages before it."""
    return has_table(source.head)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read an export of ncu.

    Raises
    ------
    InputError
        If it holds no kernels, is cut or damaged, or its numbers can be read in two ways.
    """
    options = options or ReadOptions()
    table = Table(source)
    if table.page.units is None:
        from perfml.readers._ncu_details import details_page

        found = details_page(table, options)
    else:
        found = raw_page(table, options)
    return to_kernels(found, source, options, NAME)


def raw_page(table: Table, options: ReadOptions) -> Launches:
    """Read a page with one row a launch and one column a metric."""
    header = table.page.header
    wanted = needed()
    metrics = [name for name in header if name in wanted or (options.raw and "__" in name)]
    table.load([*_TEXT, DEVICE_NAME, *metrics, *table.ranges_in()])
    units = dict(zip(header, table.page.units or (), strict=True))
    numeric = [(name, units[name]) for name in metrics if name in wanted]
    convention = table.convention(numeric, options)
    counters: dict[str, Any] = {}
    for name in metrics:
        factor, _ = to_base(units[name])
        try:
            values = table.numbers(name, convention)
        except InputError:
            if name in wanted:
                raise
            # The raw columns hold words too, such as a scheduling policy.
            counters[name] = table.column(name).to_pandas().astype("string")
            continue
        counters[name] = values if factor == 1.0 else values * factor
    return assemble(table, pd.DataFrame(counters, index=range(len(table))))


def assemble(table: Table, counters: pd.DataFrame) -> Launches:
    """Add what is no metric: names, shapes, devices, ranges, and what ncu said."""
    ranges = table.ranges()
    warnings = list(table.page.notices.warnings)
    identity = pd.DataFrame(
        {
            "kernel": _kernels(table, ranges),
            "grid": _shape(table, "Grid Size", counters, GRID),
            "block": _shape(table, "Block Size", counters, BLOCK),
            "device": _device(table),
            "compute_capability": _capability(table),
        }
    )
    facts: dict[str, Any] = {}
    notices = table.page.notices
    if notices.program is not None:
        facts["process"] = notices.program
    elif "Process Name" in table:
        facts["process"] = ", ".join(_distinct(table, "Process Name"))
    if notices.passes is not None:
        facts["passes"] = notices.passes
    if table.page.skipped:
        warnings.append(
            f"{table.page.skipped} lines among the rows are no rows of the table "
            "and were left out: output of the program, it seems."
        )
    _check_ids(table, warnings)
    return Launches(identity, counters, ranges, facts, warnings)


def _kernels(table: Table, ranges: list[tuple[str, ...]]) -> pd.Series[str]:
    """Return kernel names without the range that ``--print-nvtx-rename`` puts before them."""
    if "Kernel Name" not in table:
        msg = "the table has no column Kernel Name"
        cure = "Export again with: ncu --import FILE.ncu-rep --csv --page raw"
        raise InputError(msg, where=str(table.source.path), cure=cure)
    names = table.mapped("Kernel Name", str)
    plain = [
        name[len(path[-1]) + 1 :] if path and name.startswith(f"{path[-1]}/") else name
        for name, path in zip(names, ranges, strict=True)
    ]
    for row, name in enumerate(plain):
        if not name:
            msg = "a launch has no kernel name"
            where = f"{table.source.path}:{table.page.line(row)}"
            raise InputError(msg, where=where, cure="Export the profile again.")
    return pd.Series(plain, dtype="string")


def _shape(
    table: Table, name: str, counters: pd.DataFrame, parts: tuple[str, str, str]
) -> pd.Series[str]:
    if name in table:
        return pd.Series(table.mapped(name, dimensions), dtype="string")
    return shape_of(counters, parts)


def _device(table: Table) -> pd.Series[str]:
    if DEVICE_NAME not in table:
        return pd.Series(pd.NA, index=range(len(table)), dtype="string")
    return pd.Series(table.mapped(DEVICE_NAME, lambda text: text or None), dtype="string")


def _capability(table: Table) -> pd.Series[str]:
    if "CC" not in table:
        return pd.Series(pd.NA, index=range(len(table)), dtype="string")
    cells = table.mapped("CC", lambda text: text.replace(",", ".") or None)
    return pd.Series(cells, dtype="string")


def _distinct(table: Table, name: str) -> list[str]:
    return [text for text in dict.fromkeys(table.mapped(name, str)) if text]


def _check_ids(table: Table, warnings: list[str]) -> None:
    """Look for launches that are missing or doubled: ncu counts them up from 0.

    Raises
    ------
    InputError
        If the ids start again within a process.
    """
    ids = _integers(table, "ID")
    processes = table.mapped("Process ID", str) if "Process ID" in table else [""] * len(ids)
    steps = np.diff(ids)
    for row in np.flatnonzero(steps <= 0):
        if processes[row] == processes[row + 1]:
            msg = "the launch ids start again: two exports in one file"
            where = f"{table.source.path}:{table.page.line(int(row) + 1)}"
            cure = "Split the file before this line, and ingest the parts."
            raise InputError(msg, where=where, found=f"id {ids[row + 1]:.0f}", cure=cure)
    number = len(set(processes))
    if number > 1:
        warnings.append(f"Launches of {number} processes are read as one run.")
    lost = int((steps[steps > 0] - 1).sum())
    if lost:
        warnings.append(
            f"{lost} launch ids are missing between the first and the last: "
            "unless the export was filtered, rows are lost."
        )


def _integers(table: Table, name: str) -> Array:
    texts = table.column(name).to_pylist()
    try:
        return np.array([int(text) for text in texts], dtype=float)
    except ValueError:
        row = next(row for row, text in enumerate(texts) if not text.isdigit())
        msg = f"column {name} needs a whole number"
        where = f"{table.source.path}:{table.page.line(row)}"
        raise InputError(
            msg, where=where, found=repr(texts[row][:60]), cure="Export the profile again."
        ) from None
