"""Compare perfml's clock with HolisticTraceAnalysis on a folder of Chrome traces.

    python -m studies.clock.hta FOLDER --hta PYTHON

PYTHON is the interpreter of an environment with HolisticTraceAnalysis. Both count what the host
launched in the steps that the trace has, or else everything: HTA counts nothing else. Prints a
row a trace, in microseconds, with the largest difference as part of the wall.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perfml.account.audit import audited
from perfml.account.intervals import difference, intersection, union
from perfml.account.origins import Origins
from perfml.account.recording import Activity, DeviceKind
from perfml.account.steps import PROFILER_STEP, find_steps
from perfml.errors import PerfmlError
from perfml.kernel_names import kernel_traits
from perfml.readers.chrome_trace import ChromeTrace
from perfml.readers.source import Source
from perfml.readers.torch_events import Events

DMA = "dma_request"
"""Copies of Meta's MTIA, which have no API call: HTA puts them into steps by their own time."""
PARTS = ("wall", "idle", "compute", "communication", "exposed")
_HTA = """
import json, sys, tempfile
from hta.trace_analysis import TraceAnalysis
with tempfile.TemporaryDirectory() as folder:
    traces = {0: sys.argv[1]}
    trace = TraceAnalysis(trace_files=traces, trace_dir=folder, include_last_profiler_step=True)
    row = trace.get_temporal_breakdown(visualize=False).iloc[0]
    kinds, _ = trace.get_gpu_kernel_breakdown(visualize=False)
    sums = dict(zip(kinds["kernel_type"], map(float, kinds["sum"])))
    talks = {kind: us for kind, us in sums.items() if "COMMUNICATION" in kind}
    print("HTA" + json.dumps({
        "wall": float(row["kernel_time(us)"]), "idle": float(row["idle_time(us)"]),
        "compute": float(row["compute_time(us)"]), "communication": sum(talks.values()),
        "exposed": sum(us for kind, us in talks.items() if "COMPUTATION" not in kind)}))
"""


def of_hta(path: Path, python: str) -> dict[str, float]:
    """Return what HolisticTraceAnalysis counts; nothing where it fails."""
    command = [python, "-W", "ignore", "-c", _HTA, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line[3:] for line in done.stdout.splitlines() if line.startswith('HTA{"')]
    return dict(json.loads(rows[0])) if rows else {}


def of_perfml(path: Path) -> list[dict[str, float]]:
    """Return what perfml counts on each device; nothing where the trace has no kernels."""
    try:
        recording, _ = audited(Events(ChromeTrace(Source(path), "")).recording())
    except PerfmlError:
        return []
    if not recording.activities:
        return []
    steps = find_steps(recording)
    marked = any(PROFILER_STEP.fullmatch(span.name) for span in recording.host)
    origins = Origins(recording, steps).all(recording.activities)
    devices: dict[int, list[Activity]] = {}
    for activity, origin in zip(recording.activities, origins, strict=True):
        called = origin.call is not None or activity.name.startswith(DMA)
        inside = called and steps.of(origin.time) >= 0
        if activity.end > activity.start and (inside or not marked):
            devices.setdefault(activity.device, []).append(activity)
    return [_counted(held) for _, held in sorted(devices.items())]


def _counted(activities: Sequence[Activity]) -> dict[str, float]:
    times = np.array([(each.start, each.end) for each in activities]).T / 1e3
    kernel = np.array([each.kind is DeviceKind.KERNEL for each in activities])
    talks = np.array([kernel_traits(each.name).does == "communication" for each in activities])
    busy, compute, talking = (
        union(*times[:, rows]) for rows in (kernel | ~kernel, kernel & ~talks, kernel & talks)
    )
    wall = float(busy.end[-1] - busy.start[0])
    return {
        "wall": wall,
        "idle": wall - busy.length_us,
        "compute": compute.length_us,
        "communication": talking.length_us,
        "exposed": difference(talking, intersection(talking, compute)).length_us,
    }


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the largest difference as part of the wall."""
    return max(abs(one[part] - other[part]) for part in PARTS) / max(one["wall"], 1.0)


def main() -> None:
    """Print a table of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta", required=True, help="interpreter with HolisticTraceAnalysis")
    given = parser.parse_args()
    print(f"{'trace':44}" + "".join(f"{part:>30}" for part in PARTS) + "  apart")
    for path in sorted(given.folder.rglob("*.json*")):
        own, theirs = of_perfml(path), of_hta(path, given.hta)
        name = path.name[:43]
        if not own or not theirs:
            print(f"{name:44}  perfml: {len(own)} devices; HTA: {'read' if theirs else 'no'}")
            continue
        near = min(own, key=lambda counted: apart(counted, theirs))
        cells = "".join(f"{near[part]:15,.0f}{theirs[part]:15,.0f}" for part in PARTS)
        print(f"{name:44}{cells}  {apart(near, theirs):.2%}")


if __name__ == "__main__":
    main()
