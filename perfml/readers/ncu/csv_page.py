"""Read what ``ncu --csv`` prints: the raw page (a row a launch) and the details page.

Both may lie between the output of the profiled program. Numbers are read as
English writes them, units are scaled a column, and the columns are whatever was collected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfml.errors import InputError
from perfml.readers.frame import CodedRanges, text_column
from perfml.readers.ncu.find_table import has_table
from perfml.readers.ncu.findings import PRINTED_KINDS, Rule, rules_frame
from perfml.readers.ncu.launches import (
    BLOCK,
    DEVICE_NAME,
    DURATIONS,
    GRID,
    STREAM,
    Launches,
    measured_as_one,
    needed,
    require_times,
    shape_of,
    streams_of,
    to_base,
    to_kernels,
)
from perfml.readers.ncu.printed import LABELS, OF_PEAK, add_warp_size, metric_of
from perfml.readers.ncu.table import Codes, Table, dimensions
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from perfml.util.words import count

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


NAME = "ncu-csv"

_SAVED_AGAIN = re.compile(rb"(?m)^ID,Process ID,|^\d{1,9}\.0,\d{1,12}\.0,")
"""Of a page that went through pandas: ids such as ``0.0``, which would be no rows of it."""


def recognises(source: Source) -> bool:
    """Tell whether the beginning holds ncu's header, or its messages before it."""
    return has_table(source.head) and len(set(map(len, _SAVED_AGAIN.findall(source.head)))) < 2


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read an export of ncu.

    Raises `InputError` if it holds no kernels, is cut or damaged, or its numbers can be read in two
    ways.
    """
    options = options or ReadOptions()
    table = Table(source)
    if table.page.units is None:
        found = details_page(table, options)
    else:
        found = raw_page(table, options)
    return to_kernels(found, source, options, NAME)


def rules(source: Source) -> pd.DataFrame:
    """Return every result of Nsight Compute's rules (see `_ncu_rules.Rule` for the columns).

    The raw page has none, so its table is empty. Raises `InputError` if the export is damaged, or
    holds no kernels.
    """
    table = Table(source)
    if table.page.units is not None:
        return rules_frame([])

    return rules_frame(rules_of(table))


def raw_page(table: Table, options: ReadOptions) -> Launches:
    """Read a page with one row a launch and one column a metric."""
    header = table.page.header
    wanted = needed()
    metrics = [name for name in header if name in wanted or (options.raw and "__" in name)]
    units = dict(zip(header, table.page.units or (), strict=True))
    require_times({name: units[name] for name in metrics}, str(table.source.path))
    numeric = [(name, units[name]) for name in metrics if name in wanted]
    table.load([*IDENTITY, *metrics, *table.ranges_in()], numeric)
    table.require_english([(name, table.column(name), unit) for name, unit in numeric])
    counters: dict[str, Any] = {}
    for name in metrics:
        factor, _ = to_base(units[name])
        try:
            values = table.numbers(name)
        except InputError:
            if name in wanted:
                raise
            # The raw columns hold words too, such as a scheduling policy.
            counters[name] = table.column(name).to_pandas().astype("string")
            continue
        counters[name] = values if factor == 1.0 else values * factor
    return assemble(table, counters)


_NAME, _UNIT, _VALUE = "Metric Name", "Metric Unit", "Metric Value"
_SECTION = "Section Name"
_RULE = ("Rule Name", "Rule Type", "Rule Description")
_SPEEDUP = ("Estimated Speedup Type", "Estimated Speedup")
_FEW = 3
"""Launches from which on it is telling that the last one has fewer metrics than all others."""


def details_page(table: Table, options: ReadOptions) -> Launches:
    """Read a page with one row a metric.

    Raises `InputError` if a value cannot be read, or no row holds a metric.
    """
    starts, launch = _load(table)
    said = _rules(table, launch)
    labelled, counters = _counters(table, launch, len(starts), options)
    unfinished = _unfinished(table, launch)
    table.take(starts)
    found = assemble(table, counters)
    found.warnings += unfinished
    if labelled:
        found.warnings.append(
            "The details page shows what its sections show; export with --page raw to have every "
            "metric that was collected."
        )
    found.rules = said
    return found


def rules_of(table: Table) -> list[Rule]:
    """Return every rule result of the page, launch by launch."""
    _, launch = _load(table)
    return _rules(table, launch)


def _load(table: Table) -> tuple[Codes, Codes]:
    """Parse what the page has; return the first row of each launch, and each row's launch."""
    header = table.page.header
    if missing := [name for name in ("Kernel Name", _NAME, _UNIT, _VALUE) if name not in header]:
        msg = f"the details page has no column {missing[0]}"
        cure = "Export again with: ncu --import FILE.ncu-rep --csv --page details"
        raise InputError(msg, where=str(table.source.path), cure=cure)
    table.load([*IDENTITY, _SECTION, _NAME, _UNIT, _VALUE, *_RULE, *_SPEEDUP, *table.ranges_in()])
    return _launches(table)


def _launches(table: Table) -> tuple[Codes, Codes]:
    """Return the first row of each launch, and the launch of each row."""
    ids = table.whole_numbers("ID")
    first = np.ones(len(ids), dtype=bool)
    first[1:] = np.diff(ids) != 0
    first[1:] |= np.diff(table.whole_numbers("Process ID")) != 0
    return np.flatnonzero(first), np.cumsum(first) - 1


def _unfinished(table: Table, launch: Codes) -> list[str]:
    """Warn if the last launch has fewer metrics than any other: a cut between two rows."""
    counts = np.bincount(launch[table.mapped(_NAME, bool)])
    if len(counts) < _FEW or counts[-1] >= counts[:-1].min():
        return []
    last, fewest = count(int(counts[-1]), "metric"), counts[:-1].min()
    return [f"The last launch has {last}, the others {fewest} or more: is the file cut?"]


def _counters(
    table: Table, launch: Codes, count: int, options: ReadOptions
) -> tuple[bool, dict[str, Any]]:
    """Return one column a metric in base units, and whether metrics went by their labels."""
    wanted = needed()
    labelled = False
    places: dict[str, int] = {}

    def place(label: str) -> int:
        nonlocal labelled
        name = metric_of(label)
        labelled = labelled or label in LABELS
        if name not in wanted and not (options.raw and label):
            return -1
        return places.setdefault(name, len(places))

    codes = table.mapped(_NAME, place)
    for name in set(DURATIONS) & set(places):
        rows = np.flatnonzero(codes == places[name])
        for unit in set(table.column(_UNIT).take(rows).to_pylist()):
            require_times({name: unit or ""}, str(table.source.path))
    factors = table.mapped(_UNIT, lambda unit: to_base(unit)[0])
    percent = table.mapped(_UNIT, lambda unit: unit == "%")
    codes = np.where((codes == places.get(OF_PEAK)) & ~percent, -1, codes)
    if not table.mapped(_NAME, bool).any():
        msg = "no metrics on the details page"
        cure = "Export again with --page raw."
        raise InputError(msg, where=str(table.source.path), found="only rules", cure=cure)
    needful = np.isin(codes, [code for name, code in places.items() if name in wanted])
    texts = table.column(_VALUE)
    parts = ((percent & needful, "%"), (~percent & needful, ""))
    table.require_english([(_VALUE, texts.filter(pa.array(part)), unit) for part, unit in parts])
    columns: dict[str, Any] = {}
    rows = np.flatnonzero(needful)
    values = table.numbers(_VALUE, rows) * factors[rows]
    matrix = np.full((count, len(places)), np.nan)
    # A metric shown in two sections has one value: written backwards, the first one stays.
    matrix[launch[rows][::-1], codes[rows][::-1]] = values[::-1]
    for name, code in places.items():
        if name in wanted:
            columns[name] = matrix[:, code]
            continue
        rows = np.flatnonzero(codes == code)
        cells = np.full(count, None, dtype=object)
        cells[launch[rows][::-1]] = table.column(_VALUE).take(rows).to_pylist()[::-1]
        columns[name] = pd.Series(cells, dtype="string")
    add_warp_size(columns, count)
    return labelled, columns


def _rules(table: Table, launch: Codes) -> list[Rule]:
    if not set(_RULE) <= set(table.page.header):
        return []
    rows = np.flatnonzero(pc.not_equal(table.column(_RULE[0]), "").to_numpy())

    def texts(name: str) -> list[str]:
        if name not in table:
            return [""] * len(rows)
        return [text or "" for text in table.column(name).take(rows).to_pylist()]

    columns = [texts(name) for name in ("Kernel Name", _SECTION, *_RULE, *_SPEEDUP)]
    found = []
    for row, cells in zip(rows, zip(*columns, strict=True), strict=True):
        kernel, section, rule, kind, message, scope, speedup = cells
        estimate = pd.to_numeric(speedup.replace(",", "."), errors="coerce")
        found.append(
            Rule(
                int(launch[row]),
                kernel,
                rule,
                section,
                PRINTED_KINDS.get(kind, "none"),
                message,
                float(estimate) if pd.notna(estimate) else None,
                scope or None,
            )
        )
    return found
