"""What a sweep will cost in device time, from constants that were measured on an H200.

The constants are of YOLOv4-Tiny under torch 2.11, Nsight Compute 2025.3.1 and the published
metrics; ``datasets/h200-yolov4-tiny/README.md`` tells how they were taken.

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
"""Seconds a launch with the published metrics in kernel replay, 8 passes."""
SHARED = 0.26 / 2 / LAUNCH_S
"""Share of the profiling of all GPUs of a host that cannot overlap.

Two profilers on two GPUs of one host took 0.26 s a launch each, where one alone takes 0.147 (the
published metrics, a TMPDIR and 16 processors for each): together they are hardly faster than one.
"""
RUN_S = 14.0
"""Seconds a built-in run takes besides: the timing pass, two starts of torch, the conversion.

12.4 to 16.7 in the six runs of cublas and cudnn at batch 1; the two of inductor took 28.5 and 29.
"""
COMPILED_S = 29.0
"""The same where torch compiles first, in both of its starts."""
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
        GPU seconds of the runs it knows something about.
    launches
        Profiled launches of these runs.
    unknown
        Ids of runs it knows nothing about: programs, and workloads that were never measured.
    profiling_s
        The part of `seconds` in which a profiler repeats launches.
    """

    seconds: float
    launches: int
    unknown: tuple[str, ...]
    profiling_s: float = 0.0

    def wall_s(self, gpus: int) -> float:
        """Return the seconds on some GPUs of one host, whose profilers nearly take turns."""
        if gpus < 2:
            return self.seconds
        return max(self.seconds / gpus, self.profiling_s * SHARED)


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


def launch_seconds(run: Run) -> float:
    """Return the seconds a launch takes: fewer passes for fewer metrics."""
    return _launch_seconds(run.settings.metrics)


@functools.lru_cache
def _launch_seconds(metrics: tuple[str, ...]) -> float:
    from perfml.metrics.passes import load_passes, seconds_per_launch

    published = load_passes().estimate(load_catalogue().select(["published"])).passes
    passes = load_passes().estimate(metrics).passes if metrics else 1
    return LAUNCH_S * seconds_per_launch(passes) / seconds_per_launch(published)


def seconds_of(run: Run) -> float | None:
    """Return the GPU seconds a run will take, or None if nothing is known about it."""
    launches = launches_of(run)
    if launches is None:
        return None
    fixed = COMPILED_S if run.backend == "inductor" else RUN_S
    return fixed + launches * launch_seconds(run)


def estimate(runs: Mapping[str, Run]) -> Estimate:
    """Return what runs, by their ids, will cost."""
    seconds, profiling, launches, unknown = 0.0, 0.0, 0, []
    for run_id, run in runs.items():
        count, needed = launches_of(run), seconds_of(run)
        if count is None or needed is None:
            unknown.append(run_id)
            continue
        launches += count
        seconds += needed
        profiling += count * launch_seconds(run)
    return Estimate(seconds, launches, tuple(unknown), profiling)
