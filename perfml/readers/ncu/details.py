"""Read ncu's details page: a row a metric of a launch, between rows of rule results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfml.errors import InputError
from perfml.readers.ncu.findings import PRINTED_KINDS, Rule
from perfml.readers.ncu.launch_columns import IDENTITY, assemble
from perfml.readers.ncu.launches import DURATIONS, Launches, needed, require_times, to_base
from perfml.readers.ncu.printed import LABELS, add_warp_size, metric_of
from perfml.readers.ncu.table import Codes, Table
from perfml.readers.source import ReadOptions
from perfml.util.words import count

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
