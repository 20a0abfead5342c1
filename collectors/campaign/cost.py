"""What a sweep will cost in device time, from constants that were measured on an H200.

The constants are of YOLOv4-Tiny under torch 2.11, Nsight Compute 2025.3.1 and the published
metrics (``datasets/h200-yolov4-tiny/README.md`` tells how they were taken), and of
``benchmarks/sweep_speedup.py`` on two H200s of one host (``benchmarks/results/sweep-*.json``).

Here to change: the constants, after measuring again, and how they add up over GPUs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from collectors._runs import Run
from perfml.metrics import load_catalogue

LAUNCH_S = 0.147
"""Seconds a launch of YOLOv4-Tiny at batch 1 with the published metrics, 8 passes.

Large batches can take longer: up to 0.74 s at batch 8 under cuDNN, in 10 passes.
"""
ALONE = {1: 0.0127, 3: 0.0887, 8: 0.139}
"""Passes to seconds a launch in kernel replay, of a small CUDA program on one GPU."""
BESIDE = {1: 0.0139, 3: 0.1537, 8: 0.2645}
"""The same while a second profiler works on the other GPU of the host; means of the two."""
APPLICATION_S = 0.005
"""Seconds a launch and pass in application replay, besides the program's starts.

120 launches of a small program took 21.7 s in 8 passes, about 2.1 s of each for the start.
"""
START_S = 10.0
"""Seconds of one start of YOLOv4-Tiny under the profiler: 273 launches took 90 s in 8 passes."""
RUN_S = 12.4
"""Seconds a built-in run takes besides: the timing pass, two starts of torch, the conversion.

Mean of two sweeps' medians, each of twelve runs of cublas and cudnn at batch 1.
"""
BESIDE_RUN_S = 0.7
"""How much longer that takes beside a second run: 1.5 and -0.1 in these two sweeps."""
COMPILED_S = 29.0
"""`RUN_S` where torch compiles first, in both of its starts: two runs took 28.5 and 29."""
TWINS = 75 / 89
"""Share of the launches of an iteration that deduplication leaves (cuBLAS, the convolutions)."""

_CONVOLUTIONS = {
    ("cublas", "fp32"): 89,
    ("cublas", "tf32"): 85,
    ("cublas", "fp16"): 82,
    ("cudnn", "fp32"): 61,
    ("cudnn", "tf32"): 92,
    ("cudnn", "fp16"): 101,
    ("inductor", "fp32"): 42,
    ("inductor", "fp16"): 43,
}
"""Launches of one iteration in the 21 convolutions of YOLOv4-Tiny at batch 1."""
_OTHERS = 25
_LAYERS = 21


@dataclass(frozen=True)
class Estimate:
    """Device time of a sweep before it ran.

    Attributes
    ----------
    seconds
        GPU seconds of the runs it knows something about, one at a time.
    launches
        Profiled launches of these runs.
    unknown
        Ids of runs it knows nothing about: programs, and workloads that were never measured.
    beside_s
        Seconds that all of them take longer if a second run is measured on another GPU of the
        host at the same time.
    longest_s
        Seconds of the longest run.
    """

    seconds: float
    launches: int
    unknown: tuple[str, ...]
    beside_s: float = 0.0
    longest_s: float = 0.0

    def wall_s(self, gpus: int) -> float:
        """Return the seconds on some GPUs of one host.

        Two at once were measured. Each further one is taken to cost as much as the second, which
        for many passes comes to profilers that take turns.
        """
        shared = (self.seconds + (gpus - 1) * self.beside_s) / gpus
        return max(self.longest_s, shared)


def launches_of(run: Run) -> int | None:
    """Return how many launches a run will profile, or None if nobody has measured that."""
    if run.workload != "yolov4-tiny" or "--cfg" in run.settings.workload_options:
        return None
    convolutions = _CONVOLUTIONS.get((run.backend or "", run.precision or ""))
    if convolutions is None:
        return None
    if run.backend == "cublas":
        # im2col and GEMM once an image
        convolutions = round(convolutions * _cublas_growth(run.batch or 1))
    wanted, others = 1.0, _OTHERS
    if run.settings.layers is not None:
        names = [f"conv_{number:02d}" for number in range(1, _LAYERS + 1)]
        wanted = sum(bool(re.fullmatch(run.settings.layers, name)) for name in names) / _LAYERS
        others = 0 if wanted else _OTHERS
    per_iteration = convolutions * wanted + others
    if run.settings.dedupe:
        return round(per_iteration * TWINS)
    return round(per_iteration * run.settings.metric_iterations)


def _cublas_growth(batch: int) -> float:
    """Launches at a batch over those at batch 1: 432 in place of 89 were counted at batch 8."""
    return 1 + (432 / 89 - 1) * (batch - 1) / 7


def launch_seconds(run: Run, gpus: int = 1) -> float:
    """Return the seconds a launch takes in kernel replay, on one of some GPUs that all profile."""
    passes = _passes(run.settings.metrics)
    alone = _between(ALONE, passes)
    return LAUNCH_S / ALONE[8] * (alone + (gpus - 1) * (_between(BESIDE, passes) - alone))


def _between(measured: Mapping[int, float], passes: int) -> float:
    """Return the value on the lines through the measured ones, the last of which goes on."""
    points = sorted(measured.items())
    place = next((i for i, (count, _) in enumerate(points[1:]) if passes <= count), len(points) - 2)
    (left, low), (right, high) = points[place : place + 2]
    return low + (passes - left) * (high - low) / (right - left)


@functools.lru_cache
def _passes(metrics: tuple[str, ...]) -> int:
    from perfml.metrics.passes import load_passes

    asked = load_catalogue().select(metrics) if metrics else ()
    return load_passes().estimate(asked).passes if asked else 1


def profiling_seconds(run: Run, launches: int, gpus: int = 1) -> float:
    """Return the seconds a run spends under the profiler.

    Application replay was measured on one GPU only, so it is not made longer for several.
    """
    if run.settings.replay == "application":
        return _passes(run.settings.metrics) * (START_S + launches * APPLICATION_S)
    return launches * launch_seconds(run, gpus)


def seconds_of(run: Run, gpus: int = 1) -> float | None:
    """Return the seconds a run will take on one of some GPUs of a host that all measure.

    None if nothing is known about it.
    """
    launches = launches_of(run)
    if launches is None:
        return None
    fixed = COMPILED_S if run.backend == "inductor" else RUN_S
    return fixed + (gpus - 1) * BESIDE_RUN_S + profiling_seconds(run, launches, gpus)


def estimate(runs: Mapping[str, Run]) -> Estimate:
    """Return what runs, by their ids, will cost."""
    seconds, beside, longest, launches, unknown = 0.0, 0.0, 0.0, 0, []
    for run_id, run in runs.items():
        alone, two = seconds_of(run), seconds_of(run, gpus=2)
        if alone is None or two is None:
            unknown.append(run_id)
            continue
        launches += launches_of(run) or 0
        seconds += alone
        beside += two - alone
        longest = max(longest, alone)
    return Estimate(seconds, launches, tuple(unknown), beside, longest)
