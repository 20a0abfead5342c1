"""Read what rocprofv3 and rocprofiler-compute write as CSV: kernels, and counters of kernels.

- ``rocprofv3 --kernel-trace``: a row a dispatch, with its sizes (``kernel_trace.csv``);
- ``rocprofv3 --pmc``: a row a dispatch and counter (``counter_collection.csv``);
- rocprofiler-compute: a row a dispatch, a column a counter (``pmc_perf.csv``).

The columns are those of "Using rocprofv3" in AMD's documentation of ROCprofiler-SDK, and of the
files of rocprofv2 that rocprofiler-compute keeps to; no recorded file is here. An AMD grid counts
work-items, and is divided by the workgroup here. Counters keep AMD's names, which no rule knows.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.timeline import Spans, busy_share, timeline_columns
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, Kernels

NAME = "rocprofv3-csv"

_TRACED = ("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Workgroup_Size_X", "Grid_Size_X")
_COUNTED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
_WIDE = ("Dispatch_ID", "GPU_ID", "Kernel_Name")
_FACTS = frozenset(
    (
        *("Dispatch_ID", "GPU_ID", "Queue_ID", "Queue_Index", "PID", "TID", "Grid_Size", "GRD"),
        *("Workgroup_Size", "WGR", "LDS_Per_Workgroup", "LDS", "Scratch_Per_Workitem", "SCR"),
        *("Arch_VGPR", "Accum_VGPR", "ACCUM_VGPR", "SGPR", "Wave_Size", "SIG", "OBJ", "Kernel_ID"),
        *("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Correlation_ID", "Node"),
    )
)
"""Columns of a row a dispatch that are no counters."""
_LONGEST = 10**15
"""Nanoseconds, eleven days: a longer kernel is a damaged number."""
_CURE = "Record it again: rocprofv3 --kernel-trace --output-format csv -- COMMAND"


@dataclass(frozen=True)
class Dispatch:
    """A kernel that was dispatched.

    Attributes
    ----------
    kernel
        Its name.
    agent, queue
        Their numbers.
    start, end
        Nanoseconds; None where the profiler did not time it.
    registers, shared, threads
        Vector registers of a work-item, bytes of LDS of a workgroup, and work-items.
    grid, block
        Sizes in three directions, workgroups and work-items; None where only totals are known.
    counters
        Values by AMD's names.
    """

    kernel: str
    agent: int
    queue: int
    start: int | None
    end: int | None
    registers: float
    shared: float
    threads: float
    grid: str | None = None
    block: str | None = None
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        timed = self.start is None or self.end is None or 0 <= self.end - self.start < _LONGEST
        numbers = (self.agent, self.queue, self.start or 0)
        if not self.kernel or not timed or not self.threads >= 0 or max(map(abs, numbers)) >= 2**62:
            msg = f"{self.kernel[:40]} from {self.start} to {self.end}, {self.threads} work-items"
            raise ValueError(msg)


def recognises(source: Source) -> bool:
    """Tell whether the first line has the columns of one of the tables."""
    first = source.head_text().partition("\n")[0].replace('"', "").strip().split(",")
    return any(set(columns) <= set(first) for columns in (_TRACED, _COUNTED, _WIDE))


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read kernels in order of start; there are no ranges.

    Raises `InputError` if a line is damaged, or there are no kernels.
    """
    del options
    where, line = str(source.path), 2
    found: dict[object, Dispatch] = {}
    try:
        for row in csv.DictReader(io.StringIO(source.text())):
            if "Counter_Name" in row:
                key = row.get("Process_Id"), row["Dispatch_Id"]
                one = found.setdefault(key, _dispatch(row))
                name, value = counter(row["Counter_Name"], row["Counter_Value"])
                one.counters[name] = one.counters.get(name, 0.0) + value
            elif "Dispatch_ID" in row:
                found[line] = _dispatch(row)
            else:
                found[line] = _traced(row)
            line += 1
    except (
        csv.Error,
        LookupError,
        TypeError,
        ArithmeticError,
        ValueError,
        AttributeError,
    ) as error:
        msg = "a line of the kernel trace cannot be read"
        said = f"{type(error).__name__}: {error}"[:120]
        raise InputError(msg, where=f"{where}:{line}", found=said, cure=_CURE) from error
    return dispatched(source, NAME, list(found.values()))


def dispatched(source: Source, form: str, dispatches: Sequence[Dispatch]) -> Kernels:
    """Return the table of some dispatches, read in the format `form`.

    Raises `InputError` if there are none.
    """
    if not dispatches:
        msg = "this kernel trace holds no kernels"
        raise InputError(msg, where=str(source.path), cure=_CURE)
    timed = all(each.start is not None and each.end is not None for each in dispatches)
    rows = sorted(dispatches, key=lambda each: each.start or 0) if timed else list(dispatches)
    names = list(dict.fromkeys(name for each in rows for name in each.counters))
    launches: dict[str, object] = {
        "kernel": [each.kernel for each in rows],
        "grid": [each.grid for each in rows],
        "block": [each.block for each in rows],
        "launches": np.ones(len(rows), dtype=np.int64),
        "registers_per_thread": [each.registers for each in rows],
        "shared_memory_per_block": [each.shared for each in rows],
        "threads": [each.threads for each in rows],
        **{name: [each.counters.get(name, math.nan) for each in rows] for name in names},
    }
    provenance = source.provenance(form, "rocprofv3")
    warnings = []
    if names:
        warnings.append(
            "The counters keep AMD's names: they are columns of the table, and no advice rests on "
            "them."
        )
    if timed:
        numbers = [(each.agent, each.start, each.end, each.queue) for each in rows]
        agent, start, end, queue = np.array(numbers, dtype=np.int64).T
        spans = Spans(agent, start - start[0], end - start[0])
        nothing = Spans(*np.zeros((3, 0), dtype=np.int64))
        launches |= {
            "time_us": np.where(end > start, (end - start) / 1e3, np.nan),
            "time_source": ["rocprofv3"] * len(rows),
            **timeline_columns(spans, queue, nothing),
        }
        provenance["kernels_busy"] = busy_share(spans)
    else:
        launches["time_us"] = np.full(len(rows), np.nan)
        warnings.append("The profiler did not time the kernels; record with --kernel-trace too.")
    frame = kernels_frame(pd.DataFrame(launches), [()] * len(rows))
    return Kernels(frame, provenance, tuple(warnings))


def sizes(grid: Sequence[int], block: Sequence[int]) -> tuple[str, str, float]:
    """Return workgroups and work-items as a table has them, and all work-items.

    Raises `ValueError` if a size is none.
    """
    if min(block) < 1 or not 0 <= min(grid) <= max(grid) < 2**62:
        msg = f"{block} of {grid}"
        raise ValueError(msg)
    blocks = [-(-size // part) for size, part in zip(grid, block, strict=True)]
    texts = (f"({', '.join(map(str, part))})" for part in (blocks, block))
    return *texts, float(math.prod(grid))


def counter(name: str, value: str | float | None) -> tuple[str, float]:
    """Return a counter; raise `ValueError` if it has no name of its own, or no finite value."""
    found = number(value)
    if found is None or not name or name in KERNEL_COLUMNS or name in KERNEL_OPTIONAL:
        msg = f"counter {name!r} is {value!r}"
        raise ValueError(msg)
    return name, found


def _traced(row: Mapping[str, str]) -> Dispatch:
    block = [int(row[f"Workgroup_Size_{axis}"]) for axis in "XYZ"]
    grid = [int(row[f"Grid_Size_{axis}"]) for axis in "XYZ"]
    shapes = sizes(grid, block)
    return Dispatch(
        row["Kernel_Name"].strip(),
        # "Agent 4", or a number by itself in older versions
        int(row["Agent_Id"].split()[-1]),
        int(row["Queue_Id"]),
        int(row["Start_Timestamp"]),
        int(row["End_Timestamp"]),
        float(int(row["VGPR_Count"])),
        float(int(row["LDS_Block_Size"])),
        shapes[2],
        *shapes[:2],
    )


def _dispatch(row: Mapping[str, str]) -> Dispatch:
    """Return a dispatch of which sizes are totals; its counters, where they are columns."""

    def whole(*names: str) -> int | None:
        text = next((row[name] for name in names if row.get(name)), None)
        return None if text is None else int(text.split()[-1])

    def known(*names: str) -> float:
        value = whole(*names)
        return math.nan if value is None else float(value)

    wide = "Counter_Name" not in row
    others = [(name, text) for name, text in row.items() if wide and name not in _FACTS]
    counters = dict(counter(name, text) for name, text in others if text)
    return Dispatch(
        row["Kernel_Name"].strip(),
        whole("Agent_Id", "GPU_ID") or 0,
        whole("Queue_Id", "Queue_ID") or 0,
        whole("Start_Timestamp"),
        whole("End_Timestamp"),
        known("VGPR_Count", "Arch_VGPR"),
        known("LDS_Block_Size", "LDS_Per_Workgroup", "LDS"),
        float(whole("Grid_Size", "GRD") or 0),
        counters=counters,
    )
