"""Read the kernel trace of rocprofv3 (``rocprofv3 --kernel-trace --output-format csv``).

Its columns are those of "Kernel naming and filtering using rocprofv3" in AMD's documentation of
ROCprofiler-SDK; an AMD grid counts work-items, and is divided by the workgroup here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.timeline import Spans, busy_share, timeline_columns
from perfml.tables import Kernels

NAME = "rocprofv3-csv"

_NAMED = ("Kernel_Name", "Start_Timestamp", "End_Timestamp")
_AXES = "XYZ"
_LONGEST = 10**15
"""Nanoseconds, eleven days: a longer kernel is a damaged number."""
_CURE = "Record it again: rocprofv3 --kernel-trace --output-format csv -- COMMAND"


def recognises(source: Source) -> bool:
    """Tell whether the first line has the columns of a kernel trace."""
    first = source.head_text().partition("\n")[0]
    return all(f'"{name}"' in first for name in (*_NAMED, "Workgroup_Size_X", "Grid_Size_X"))


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a kernel trace in order of start; it has neither ranges nor counters.

    Raises `InputError` if a line is damaged, or it holds no kernels.
    """
    del options
    where = str(source.path)
    rows: list[dict[str, object]] = []
    try:
        for row in csv.DictReader(io.StringIO(source.text())):
            rows.append(_row(row))
    except (csv.Error, LookupError, TypeError, ValueError, AttributeError) as error:
        msg = "a line of the kernel trace cannot be read"
        place, found = f"{where}:{len(rows) + 2}", f"{type(error).__name__}: {error}"[:120]
        raise InputError(msg, where=place, found=found, cure=_CURE) from error
    if not rows:
        msg = "this kernel trace holds no kernels"
        raise InputError(msg, where=where, cure=_CURE)
    table = pd.DataFrame(rows).sort_values("start", kind="stable", ignore_index=True)
    numbers = table[["agent", "start", "end", "queue"]].to_numpy(np.int64)
    first = numbers[0, 1]
    spans = Spans(numbers[:, 0], numbers[:, 1] - first, numbers[:, 2] - first)
    launches = table[["kernel", "grid", "block", "registers_per_thread"]].assign(
        shared_memory_per_block=table["shared"],
        time_us=np.where(spans.end > spans.start, (spans.end - spans.start) / 1e3, np.nan),
        time_source="rocprofv3",
        launches=1,
        **timeline_columns(spans, numbers[:, 3], Spans(*np.zeros((3, 0), dtype=np.int64))),
    )
    provenance = {
        **source.provenance(NAME, "rocprofv3"),
        "kernels_busy": busy_share(spans),
    }
    return Kernels(kernels_frame(launches, [()] * len(table)), provenance)


def _row(row: Mapping[str, str]) -> dict[str, object]:
    block = [int(row[f"Workgroup_Size_{axis}"]) for axis in _AXES]
    grid = [int(row[f"Grid_Size_{axis}"]) for axis in _AXES]
    start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
    name = row["Kernel_Name"].strip()
    # "Agent 4", or a number by itself in older versions
    agent, queue = int(row["Agent_Id"].split()[-1]), int(row["Queue_Id"])
    registers, shared = int(row["VGPR_Count"]), int(row["LDS_Block_Size"])
    counts = (agent, queue, registers, shared, *grid)
    within = 0 <= end - start < _LONGEST and abs(start) < 10**18
    if not name or not within or min(block) < 1 or max(map(abs, counts)) > 2**62:
        msg = f"{name[:40]}, {block} of {grid} from {start} to {end}"
        raise ValueError(msg)
    blocks = [-(-size // part) for size, part in zip(grid, block, strict=True)]
    return {
        "kernel": name,
        "grid": f"({', '.join(map(str, blocks))})",
        "block": f"({', '.join(map(str, block))})",
        "registers_per_thread": float(registers),
        "shared": float(shared),
        "agent": agent,
        "queue": queue,
        "start": start,
        "end": end,
    }
