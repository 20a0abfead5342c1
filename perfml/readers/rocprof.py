"""Read what rocprofv3 and rocprofiler-compute write: kernels, and counters of kernels.

- ``rocprofv3 --kernel-trace``: a row a dispatch, with its sizes (``kernel_trace.csv``);
- ``rocprofv3 --pmc``: a row a dispatch and counter (``counter_collection.csv``);
- rocprofiler-compute: a row a dispatch, a column a counter (``pmc_perf.csv``);
- ``rocprof`` of ROCm 5 and 6: a row a dispatch (``results.csv``);
- ``--stats`` of both: a row a kernel, with the sum over its calls (``results.stats.csv``).

The columns are those of "Using rocprofv3" in AMD's documentation of ROCprofiler-SDK, and of
rocprofv2, to which rocprofiler-compute keeps. No recorded file is here. An AMD grid counts
work-items, and is divided by the workgroup here. Counters keep AMD's names, which no rule knows.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT
from perfml.account.audit import AUDIT, Audit, Fact
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import NOTHING, Spans, busy_share
from perfml.chips.lookup import AMD_GPU
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import timed_columns
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, Kernels
from perfml.util.words import count

NAME = "rocprofv3"

_TABLES = (
    ("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Workgroup_Size_X", "Grid_Size_X"),
    ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"),
    ("Dispatch_ID", "GPU_ID", "Kernel_Name"),
    ("KernelName", "gpu-id", "grd"),
    (_SUMS := ("Name", "Calls", "TotalDurationNs", "AverageNs")),
)
_NO_KERNEL = re.compile(r"(?:__hip|hip|hsa|rccl|nccl|roctx|omp)[A-Z_]\w*|[A-Z]+(?:_[A-Z]+)+")
"""What rows of sums are called that are of API calls or domains; their files look the same."""
_NO_COUNTERS = frozenset(
    name.lower()
    for name in (
        *("Dispatch_ID", "GPU_ID", "Queue_ID", "Queue_Index", "PID", "TID", "Grid_Size", "GRD"),
        *("Workgroup_Size", "WGR", "LDS_Per_Workgroup", "LDS", "Scratch_Per_Workitem", "SCR"),
        *("Arch_VGPR", "Accum_VGPR", "ACCUM_VGPR", "SGPR", "Wave_Size", "SIG", "OBJ", "Kernel_ID"),
        *("Kernel_Name", "Start_Timestamp", "End_Timestamp", "Correlation_ID", "Node"),
        *("DispatchNs", "CompleteNs", "DurationNs"),
    )
)
"""Columns of a row a dispatch that say what was launched, in lower case."""
_PASS = re.compile(r"_\d+$")
"""Ending of a column that another pass has, too, as rocprofiler-compute joins them."""
_OF_VERSION_1 = {
    "Index": "Dispatch_ID",
    "KernelName": "Kernel_Name",
    "gpu-id": "GPU_ID",
    "queue-id": "Queue_ID",
    "queue-index": "Queue_Index",
    "BeginNs": "Start_Timestamp",
    "EndNs": "End_Timestamp",
    **{name: name.upper() for name in ("pid", "tid", "grd", "wgr", "lds", "scr", "sig", "obj")},
    "arch_vgpr": "Arch_VGPR",
    "accum_vgpr": "Accum_VGPR",
    "vgpr": "Arch_VGPR",
    "sgpr": "SGPR",
}
"""What columns of the first rocprof are called later."""
_LONGEST = 10**15
"""Nanoseconds, eleven days: a longer kernel is a damaged number."""
_CURE = "Record it again: rocprofv3 --kernel-trace --output-format csv -- COMMAND"


@dataclass(frozen=True)
class Dispatch:
    """A kernel that was dispatched.

    Times are nanoseconds, None where the profiler did not time it. `registers` are the vector
    registers of a work-item, `shared` the bytes of LDS of a workgroup. `grid` and `block` are
    work-items in three directions, None where only all `threads` are known. `number` is the
    dispatch's own in its `process`, None where the file has none.
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
    device: str = AMD_GPU
    number: int | None = None
    process: object = None
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        timed = (
            self.start is None or self.end is None or self.start <= self.end < self.start + _LONGEST
        )
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
    """Tell whether the beginning is that of one of the tables."""
    first = source.head_text().lstrip().partition("\n")[0].replace('"', "").strip().split(",")
    return any(set(columns) <= set(first) for columns in _TABLES)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read kernels in order of start; there are no ranges.

    Raises `InputError` if a line is damaged, or there are no kernels.
    """
    del options
    found: dict[object, Dispatch] = {}
    sums: list[tuple[str, float, int]] = []
    line = 2
    try:
        for cells in csv.DictReader(io.StringIO(source.text())):
            row = {_OF_VERSION_1.get(name, name): cell for name, cell in cells.items()}
            if None in row.values() or None in row:
                msg = "more or fewer cells than columns"
                raise ValueError(msg)
            if "TotalDurationNs" in row:
                sums.append(_sum(row))
            elif "Counter_Name" in row:
                key = row.get("Process_Id"), row["Dispatch_Id"]
                found.setdefault(key, _dispatch(row)).count(
                    row["Counter_Name"], row["Counter_Value"]
                )
            else:
                found[line] = one = _dispatch(row)
                for name, value in row.items() if "Dispatch_ID" in row else ():
                    if value and _PASS.sub("", name).lower() not in _NO_COUNTERS:
                        one.count(name, value)
            line += 1
    except (csv.Error, LookupError, TypeError, ArithmeticError, ValueError) as error:
        raise _damaged(error, "line of the kernel trace", f"{source.path}:{line}") from error
    return _summed(source, sums) if sums else dispatched(source, list(found.values()))


def _sum(row: Mapping[str, str]) -> tuple[str, float, int]:
    """Return kernel, mean time in microseconds, and calls of a row of sums."""
    calls, total = int(row["Calls"]), int(row["TotalDurationNs"])
    if not row["Name"] or not 0 < calls < _LONGEST or not 0 <= total < _LONGEST:
        msg = f"{row['Name'][:40]}, {total} ns in {calls} calls"
        raise ValueError(msg)
    return row["Name"].removesuffix(".kd"), total / calls / 1e3, calls


def _summed(source: Source, sums: Sequence[tuple[str, float, int]]) -> Kernels:
    """Return a table of means over launches."""
    kept = [each for each in sums if not _NO_KERNEL.fullmatch(each[0])]
    if not kept:
        msg = "these sums are of API calls, and of no kernels"
        cure = "Give the results.stats.csv or kernel_stats.csv beside it."
        raise InputError(msg, where=str(source.path), found=sums[0][0][:80], cure=cure)
    frame = pd.DataFrame(kept, columns=["kernel", "time_us", "launches"])
    frame = frame.assign(device=AMD_GPU, time_source="rocprofv3")
    total = int(frame["launches"].sum())
    note = f"{count(len(frame), 'row is a mean', 'rows are means')} over {total:,} launches."
    provenance = {**source.provenance(NAME, "rocprof"), "device": AMD_GPU}
    return Kernels(kernels_frame(frame, [()] * len(frame)), provenance, (note,))


def _damaged(error: Exception, what: str, where: str) -> InputError:
    said = f"{type(error).__name__}: {error}"[:120]
    return InputError(f"a {what} cannot be read", where=where, found=said, cure=_CURE)


def _dispatch(row: Mapping[str, str]) -> Dispatch:
    def known(*names: str) -> int | None:
        text = next((row[name] for name in names if row.get(name)), None)
        # "Agent 4", or a number by itself in older versions; some tables have parts of a nanosecond
        return None if text is None else int(text.split()[-1].partition(".")[0])

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
        number=known("Dispatch_Id"),
        process=row.get("Process_Id"),
    )


def dispatched(
    source: Source,
    dispatches: Sequence[Dispatch],
    form: str = NAME,
    copies: Spans = NOTHING,
    ways: Sequence[str] = (),
) -> Kernels:
    """Return the table of some dispatches, read in the format `form`.

    `copies` are what else kept devices busy, `ways` what each is called. Raises `InputError`
    if there are no dispatches.
    """
    if not dispatches:
        msg = "this kernel trace holds no kernels"
        raise InputError(msg, where=str(source.path), cure=_CURE)
    timed = all(dispatch.start is not None and dispatch.end is not None for dispatch in dispatches)
    rows = sorted(dispatches, key=lambda each: each.start or 0)
    counters = sorted({name for row in rows for name in row.counters})
    shapes = [row.shapes() for row in rows]
    launches = pd.DataFrame(
        {
            "kernel": [row.kernel for row in rows],
            "grid": [grid for grid, _ in shapes],
            "block": [block for _, block in shapes],
            "device": [row.device for row in rows],
            "time_us": math.nan,
            "launches": 1,
            "registers_per_thread": [row.registers for row in rows],
            "shared_memory_per_block": [row.shared for row in rows],
            "threads": [row.threads for row in rows],
            **{name: [row.counters.get(name, math.nan) for row in rows] for name in counters},
        }
    )
    provenance, warnings = source.provenance(form, "rocprofv3"), []
    provenance["device"] = ", ".join(dict.fromkeys(launches["device"]))
    if counters:
        warnings.append("The counters keep AMD's names; no advice rests on these columns.")
    if timed:
        numbers = [(row.agent, row.start, row.end, row.queue) for row in rows]
        agent, start, end, queue = np.array(numbers, dtype=np.int64).T
        spans, copies = Spans(agent, start, end).after(start[0]), copies.after(start[0])
        launches = launches.assign(**timed_columns(spans, queue, "rocprofv3", copies))
        audit = Audit(tuple(_missing(rows)))
        if audit.facts:
            provenance[AUDIT] = audit.to_dict()
            warnings += audit.sentences
        provenance["kernels_busy"] = busy_share(spans)
        ran = [*kernels_of(launches["kernel"], spans, queue), *moves_of(ways, copies)]
        account = account_without_host(ran, unknown=audit.unknown)
        # with counters kernels run one by one: what passes between them is the profiler's
        if account is not None and not counters:
            provenance[ACCOUNT] = replace(account, amd=True).to_dict()
    else:
        warnings.append("The profiler did not time the kernels; record with --kernel-trace too.")
    return Kernels(kernels_frame(launches, [()] * len(rows)), provenance, tuple(warnings))


def _missing(dispatches: Sequence[Dispatch]) -> Iterator[Fact]:
    """Yield how many dispatches lack between the first and the last one of the processes."""
    numbers: dict[object, set[int]] = {}
    for dispatch in dispatches:
        if dispatch.number is not None:
            numbers.setdefault(dispatch.process, set()).add(dispatch.number)
    of = sum(max(held) - min(held) + 1 for held in numbers.values())
    count = of - sum(map(len, numbers.values()))
    if count:
        yield Fact("missing_dispatches", count, of)
