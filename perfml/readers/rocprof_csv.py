"""Read what rocprofv3 and rocprofiler-compute write as CSV: kernels, and counters of kernels.

- ``rocprofv3 --kernel-trace``: a row a dispatch, with its sizes (``kernel_trace.csv``);
- ``rocprofv3 --pmc``: a row a dispatch and counter (``counter_collection.csv``);
- rocprofiler-compute: a row a dispatch, a column a counter (``pmc_perf.csv``).

The columns are those of "Using rocprofv3" in AMD's documentation of ROCprofiler-SDK, and of
rocprofv2, to which rocprofiler-compute keeps; no recorded file is here. An AMD grid counts
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
from perfml.readers.timeline import Spans, busy_share, timed_columns
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, Kernels

NAME = "rocprofv3-csv"

_TABLES = (
    ("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Workgroup_Size_X", "Grid_Size_X"),
    ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"),
    ("Dispatch_ID", "GPU_ID", "Kernel_Name"),
)
_NO_COUNTERS = frozenset(
    (
        *("Dispatch_ID", "GPU_ID", "Queue_ID", "Queue_Index", "PID", "TID", "Grid_Size", "GRD"),
        *("Workgroup_Size", "WGR", "LDS_Per_Workgroup", "LDS", "Scratch_Per_Workitem", "SCR"),
        *("Arch_VGPR", "Accum_VGPR", "ACCUM_VGPR", "SGPR", "Wave_Size", "SIG", "OBJ", "Kernel_ID"),
        *("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Correlation_ID", "Node"),
    )
)
"""Columns of a row a dispatch that say what was launched."""
_LONGEST = 10**15
"""Nanoseconds, eleven days: a longer kernel is a damaged number."""
_CURE = "Record it again: rocprofv3 --kernel-trace --output-format csv -- COMMAND"


@dataclass(frozen=True)
class Dispatch:
    """A kernel that was dispatched.

    Times are nanoseconds, None where the profiler did not time it. `registers` are the vector
    registers of a work-item, `shared` the bytes of LDS of a workgroup. `grid` and `block` are
    work-items in three directions, None where only all `threads` are known.
    """

    kernel: str
    agent: int
    queue: int
    start: int | None
    end: int | None
    registers: float
    shared: float
    threads: float
    grid: Sequence[int] | None = None
    block: Sequence[int] | None = None
    device: str = "AMD GPU"
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        timed = self.start is None or self.end is None or 0 <= self.end - self.start < _LONGEST
        sizes = (self.agent, self.queue, self.start or 0, *(self.grid or ()))
        whole = min(self.block or (1,)) >= 1 and min(self.grid or (0,)) >= 0 and self.threads >= 0
        if not self.kernel or not timed or not whole or max(map(abs, sizes)) >= 2**62:
            msg = f"{self.kernel[:40]}, {self.block} of {self.grid}, {self.start} to {self.end}"
            raise ValueError(msg)

    def count(self, name: str, value: str | float | None) -> None:
        """Add to a counter what a part of the chip counted; raise `ValueError` if it is none."""
        found = number(value)
        if found is None or not name or name in KERNEL_COLUMNS or name in KERNEL_OPTIONAL:
            msg = f"counter {name!r} is {value!r}"
            raise ValueError(msg)
        self.counters[name] = self.counters.get(name, 0.0) + found

    def shapes(self) -> tuple[str | None, str | None]:
        """Return workgroups and work-items of one, as a table has them."""
        if self.grid is None or self.block is None:
            return None, None
        blocks = [-(-size // part) for size, part in zip(self.grid, self.block, strict=True)]
        return f"({', '.join(map(str, blocks))})", f"({', '.join(map(str, self.block))})"


def recognises(source: Source) -> bool:
    """Tell whether the first line has the columns of one of the tables."""
    first = source.head_text().partition("\n")[0].replace('"', "").strip().split(",")
    return any(set(columns) <= set(first) for columns in _TABLES)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read kernels in order of start; there are no ranges.

    Raises `InputError` if a line is damaged, or there are no kernels.
    """
    del options
    found: dict[object, Dispatch] = {}
    line = 2
    try:
        for row in csv.DictReader(io.StringIO(source.text())):
            if None in row.values() or None in row:
                msg = "more or fewer cells than columns"
                raise ValueError(msg)
            if "Counter_Name" in row:
                key = row.get("Process_Id"), row["Dispatch_Id"]
                found.setdefault(key, _dispatch(row)).count(
                    row["Counter_Name"], row["Counter_Value"]
                )
            else:
                found[line] = one = _dispatch(row)
                for name in row.keys() - _NO_COUNTERS if "Dispatch_ID" in row else ():
                    if row[name]:
                        one.count(name, row[name])
            line += 1
    except (csv.Error, LookupError, TypeError, ArithmeticError, ValueError) as error:
        msg = "a line of the kernel trace cannot be read"
        where, said = f"{source.path}:{line}", f"{type(error).__name__}: {error}"[:120]
        raise InputError(msg, where=where, found=said, cure=_CURE) from error
    return dispatched(source, NAME, list(found.values()))


def _dispatch(row: Mapping[str, str]) -> Dispatch:
    def known(*names: str) -> int | None:
        text = next((row[name] for name in names if row.get(name)), None)
        # "Agent 4", or a number by itself in older versions
        return None if text is None else int(text.split()[-1])

    def or_nan(*names: str) -> float:
        value = known(*names)
        return math.nan if value is None else float(value)

    grid = block = None
    if "Grid_Size_X" in row:
        grid, block = (
            [int(row[f"{what}_Size_{axis}"]) for axis in "XYZ"] for what in ("Grid", "Workgroup")
        )
    return Dispatch(
        row["Kernel_Name"].strip(),
        known("Agent_Id", "GPU_ID") or 0,
        known("Queue_Id", "Queue_ID") or 0,
        known("Start_Timestamp"),
        known("End_Timestamp"),
        or_nan("VGPR_Count", "Arch_VGPR"),
        or_nan("LDS_Block_Size", "LDS_Per_Workgroup", "LDS"),
        float(math.prod(grid) if grid else known("Grid_Size", "GRD") or 0),
        grid,
        block,
    )


def dispatched(source: Source, form: str, dispatches: Sequence[Dispatch]) -> Kernels:
    """Return the table of some dispatches, read in the format `form`.

    Raises `InputError` if there are none.
    """
    if not dispatches:
        msg = "this kernel trace holds no kernels"
        raise InputError(msg, where=str(source.path), cure=_CURE)
    timed = all(each.start is not None and each.end is not None for each in dispatches)
    rows = sorted(dispatches, key=lambda each: each.start or 0)
    counters = sorted({name for each in rows for name in each.counters})
    shapes = [each.shapes() for each in rows]
    launches = pd.DataFrame(
        {
            "kernel": [each.kernel for each in rows],
            "grid": [grid for grid, _ in shapes],
            "block": [block for _, block in shapes],
            "device": [each.device for each in rows],
            "time_us": math.nan,
            "launches": 1,
            "registers_per_thread": [each.registers for each in rows],
            "shared_memory_per_block": [each.shared for each in rows],
            "threads": [each.threads for each in rows],
            **{name: [each.counters.get(name, math.nan) for each in rows] for name in counters},
        }
    )
    provenance, warnings = source.provenance(form, "rocprofv3"), []
    provenance["device"] = ", ".join(dict.fromkeys(launches["device"]))
    if counters:
        warnings.append("The counters keep AMD's names; no advice rests on these columns.")
    if timed:
        numbers = [(each.agent, each.start, each.end, each.queue) for each in rows]
        agent, start, end, queue = np.array(numbers, dtype=np.int64).T
        spans = Spans(agent, start - start[0], end - start[0])
        launches = launches.assign(**timed_columns(spans, queue, "rocprofv3"))
        provenance["kernels_busy"] = busy_share(spans)
    else:
        warnings.append("The profiler did not time the kernels; record with --kernel-trace too.")
    return Kernels(kernels_frame(launches, [()] * len(rows)), provenance, tuple(warnings))
