"""Read what ``ncu --csv`` prints: the raw page (a row a launch) and the details page.

Both may lie between the output of the profiled program. Numbers are read as
English writes them, units are scaled a column, and the columns are whatever was collected.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from perfml.errors import InputError
from perfml.readers.ncu.find_table import has_table
from perfml.readers.ncu.findings import rules_frame
from perfml.readers.ncu.launch_columns import IDENTITY, assemble
from perfml.readers.ncu.launches import Launches, needed, require_times, to_base, to_kernels
from perfml.readers.ncu.table import Table
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

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
        from perfml.readers.ncu.details import details_page

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
    from perfml.readers.ncu.details import rules_of

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
