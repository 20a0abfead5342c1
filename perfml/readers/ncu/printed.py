"""From labels and values as Nsight Compute prints them to a Kernels table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from perfml.errors import InputError
from perfml.readers.ncu.findings import Rule
from perfml.readers.ncu.launches import Launches, needed, require_times, to_base, to_kernels
from perfml.readers.numbers import EXPORT, BadNumberError, english, to_numbers
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

Cell = tuple[str, str]
"""A value as it is printed, and its unit; empty for none."""


@dataclass
class PrintedLaunch:
    """A launch, or the mean of several, whose values stand under their labels.

    It begins in `line` of the file, from 1; `grid` and `block` are as ``(x, y, z)``, None where the
    text has none.
    """

    kernel: str
    line: int
    grid: str | None = None
    block: str | None = None
    capability: str | None = None
    launches: int = 1
    cells: dict[str, Cell] = field(default_factory=dict)


def kernels_of(
    printed: Sequence[PrintedLaunch],
    source: Source,
    options: ReadOptions,
    form: str,
    *,
    facts: dict[str, Any],
    warnings: list[str],
    rules: Sequence[Rule] = (),
) -> Kernels:
    """Return the Kernels table of launches whose values were read as text.

    Raises `InputError` if a value that is needed is no number, a duration is in a unit that is no
    time, or numbers are not in English.
    """
    wanted = needed()
    cells = [{metric_of(label): cell for label, cell in item.cells.items()} for item in printed]
    names = dict.fromkeys(name for row in cells for name in row if name in wanted)
    columns = {name: [row.get(name) for row in cells] for name in names}
    for name, column in columns.items():
        for unit in {cell[1] for cell in column if cell is not None}:
            require_times({name: unit}, str(source.path))
    counters = _numbers(columns, printed, source)
    add_warp_size(counters, len(printed))
    identity = {
        "kernel": pd.Series([item.kernel for item in printed], dtype="string"),
        "grid": pd.Series([item.grid for item in printed], dtype="string"),
        "block": pd.Series([item.block for item in printed], dtype="string"),
        "device": pd.Series([None] * len(printed), dtype="string"),
        "compute_capability": pd.Series([item.capability for item in printed], dtype="string"),
    }
    found = Launches(identity, counters, [()] * len(printed), facts, warnings, rules)
    kernels = to_kernels(found, source, options, form)
    counts = np.array([item.launches for item in printed], dtype=np.int64)
    return replace(kernels, frame=kernels.frame.assign(launches=counts))


def _numbers(
    columns: dict[str, list[Cell | None]],
    printed: Sequence[PrintedLaunch],
    source: Source,
) -> dict[str, Any]:
    """Return one column a metric in base units, NaN where a launch lacks it."""
    texts = {
        name: pa.chunked_array([pa.array([cell and cell[0] for cell in column], pa.string())])
        for name, column in columns.items()
    }
    units = {name: {cell[1] for cell in column if cell} for name, column in columns.items()}
    _, doubtful = english(
        [(name, text, "%" if units[name] == {"%"} else "") for name, text in texts.items()]
    )
    if doubtful is not None:
        msg = f"{doubtful[0]} is not in English, or can be read in two ways"
        raise InputError(msg, where=str(source.path), found=repr(doubtful[1][:60]), cure=EXPORT)
    counters: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values = to_numbers(text)
        except BadNumberError as error:
            msg = f"{name} is no number"
            where = f"{source.path}:{printed[error.row].line}"
            found = repr(error.text)[:60]
            raise InputError(msg, where=where, found=found, cure=EXPORT) from None
        factors = [to_base(cell[1])[0] if cell is not None else 1.0 for cell in columns[name]]
        counters[name] = values * np.array(factors)
    return counters


LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "Memory [%]": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "SM [%]": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "Mem Busy": "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
    "Max Bandwidth": "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
    "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Issued Instructions": "smsp__inst_issued.sum",
    "Branch Efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct",
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Threads": "launch__thread_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
}
"""Only labels that mean one metric in whatever section they stand."""

OF_PEAK = LABELS["Memory Throughput"]
"""What that label means where its unit is per cent; bytes a second stand under it, too."""

_THREADS = "smsp__thread_inst_executed_per_inst_executed"
_THREADS_LABEL = "Avg. Active Threads Per Warp"
_WARP = 32.0


def metric_of(label: str) -> str:
    """Return ncu's name of what a section calls `label`; the label itself if it is not known.

    Examples
    --------
    >>> metric_of("Duration"), metric_of("dram__bytes.sum")
    ('gpu__time_duration.sum', 'dram__bytes.sum')
    """
    return f"{_THREADS}.ratio" if label == _THREADS_LABEL else LABELS.get(label, label)


def add_warp_size(columns: dict[str, Any], rows: int) -> None:
    """Add what the number of active threads is a part of, which no section shows."""
    if f"{_THREADS}.ratio" in columns:
        columns[f"{_THREADS}.max_rate"] = np.full(rows, _WARP)
