"""What a report holds of single instructions: how often each ran, and what it asked of memory.

Reports have it where the section SourceCounters was collected (``--set full`` does), with lines of
the source where the program was compiled with ``-lineinfo``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.readers.ncu.report import DEMANGLED, EXECUTED, MANGLED, has_instructions, opened
from perfml.readers.source import Source
from perfml.util.machine_code import Calls, Place, functions_in, inlined_calls
from perfml.util.scoreboards import Scoreboards

SAMPLES = "smsp__pcsamp_sample_count"
STALLED = "smsp__pcsamp_warps_issue_stalled_"
"""Before the reason for which a sampled warp waited at an instruction."""

_COUNTERS = (
    EXECUTED,
    "thread_inst_executed",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "smsp__branch_targets_threads_divergent",
    SAMPLES,
)
SCOREBOARDS = "scoreboards"
"""Key of a table's ``attrs``: what its instructions wait for, where the report has the code."""
_NOT_ISSUED = "_not_issued"
_TARGET = re.compile(r"0x[0-9a-f]{6,16}")


@dataclass(frozen=True)
class Wanted:
    """Kernels whose instructions are asked for, by name as in a Kernels table.

    `launches` are places in the report, from 0, of the launches that count; None for all.
    """

    kernels: Collection[str]
    launches: Collection[int] | None = None


def instructions(source: Source, *wanted: Wanted) -> list[dict[str, pd.DataFrame]]:
    """Return for each of `wanted` the instructions of its kernels, each as it was first launched.

    A table has one row an instruction, in order: ``offset`` (bytes from the start of the code),
    ``sass``, ``file`` and ``line`` (missing without ``-lineinfo``), ``callers`` (the places that
    inlined code was called from, the innermost first), and the counters under Nsight Compute's
    names, 0 where an instruction has none. Kernels without counters of instructions are left out.
    Raises `MissingExtraError` without the package ``ncu-report``, `InputError` if the report is
    damaged.
    """
    found: list[dict[str, pd.DataFrame]] = [{} for _ in wanted]
    linked: dict[str, str] = {}
    with opened(source) as results:
        for place, launch in enumerate(results):
            name = launch.name(DEMANGLED)
            asking = [
                tables
                for each, tables in zip(wanted, found, strict=True)
                if name in each.kernels
                and name not in tables
                and (each.launches is None or place in each.launches)
            ]
            table = _table(launch) if asking else None
            if table is not None:
                linked[name] = launch.name(MANGLED)
                for tables in asking:
                    tables[name] = table
    code = functions_in(source.data, set(linked.values())) if linked else {}
    lined = {name for tables in found for name, table in tables.items() if table["file"].any()}
    calls = inlined_calls(source.data, {linked[name] for name in lined}) if lined else {}
    for tables in found:
        for name, table in tables.items():
            callers = _callers(table, calls.get(linked[name], {}))
            table["callers"] = pd.Series(callers, index=table.index, dtype=object)
            if linked[name] in code:
                table.attrs[SCOREBOARDS] = Scoreboards(code[linked[name]])
    return found


def _table(launch: Any) -> pd.DataFrame | None:
    if not has_instructions(launch):
        return None
    stalls = (
        name
        for name in launch.metric_names()
        if name.startswith(STALLED) and not name.endswith(_NOT_ISSUED)
    )
    columns: dict[str, dict[int, float]] = {}
    for name in (*_COUNTERS, *stalls):
        metric = launch.metric_by_name(name)
        if metric is not None and metric.has_correlation_ids():
            columns[name] = _by_address(metric)
    addresses = sorted(set().union(*columns.values()))
    places = [launch.source_info(address) for address in addresses]
    first, last = addresses[0], addresses[-1]

    def text(address: int) -> str:
        """Return an instruction; targets within the kernel as offsets, which do not change."""
        sass = " ".join((launch.sass_by_pc(address) or "").split())
        return _TARGET.sub(lambda at: _offset(at.group(), first, last), sass)

    table: dict[str, list[Any]] = {
        "offset": [address - first for address in addresses],
        "sass": [text(address) for address in addresses],
        "file": [place.file_name() if place is not None else None for place in places],
        "line": [place.line() if place is not None else np.nan for place in places],
    }
    for name, values in columns.items():
        table[name] = [values.get(address, 0.0) for address in addresses]
    return pd.DataFrame(table)


def _callers(table: pd.DataFrame, calls: Calls) -> list[tuple[Place, ...]]:
    """Return what called each instruction's line; a place holds from its offset to the next."""
    known = np.array(sorted(calls), dtype=np.int64)
    places = np.searchsorted(known, table["offset"].to_numpy(dtype=np.int64), side="right") - 1
    return [calls[int(known[place])][1:] if place >= 0 else () for place in places]


def _offset(target: str, first: int, last: int) -> str:
    address = int(target, 16)
    return f"{address - first:#x}" if first <= address <= last else target


def _by_address(metric: Any) -> dict[int, float]:
    ids = metric.correlation_ids()
    return {ids.as_uint64(n): metric.as_double(n) for n in range(metric.num_instances())}
