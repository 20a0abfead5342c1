"""Say why CUPTI did not measure a program, and what to do about it."""

from __future__ import annotations

from collectors.profilers.counter_record import CounterRecord
from collectors.profilers.ncu_failures import PERMISSION
from collectors.profilers.process import ProfilerError


class UnableError(ProfilerError):
    """CUPTI does not measure this program here; another profiler may."""


class GraphError(UnableError):
    """The program replays CUDA graphs, of which CUPTI measures no single kernel."""


def check_record(record: CounterRecord) -> None:
    """Raise what a process met while it was measured.

    Raises `GraphError` if an iteration replays a CUDA graph. Raises `UnableError` if CUPTI refused.
    Raises `ProfilerError` if the process ended before it wrote its last line.
    """
    if record.graph:
        msg = "an iteration replays a CUDA graph, of which CUPTI measures no single kernel"
        raise GraphError(
            msg, cure="Turn graphs off for the measurement, or use --profiler ncu, which can."
        )
    for said in record.errors:
        if said.startswith("the iterations launch different kernels"):
            continue
        what, cure = next(words for code, words in _REASONS.items() if code in said)
        raise UnableError(what, found=said, cure=cure)
    if not record.ended and not record.complete:
        msg = "the measured process ended without finishing its record"
        cure = (
            "Let it end normally, or repeat until all is measured (3 iterations and one a pass). "
            "It was killed, or left by _exit as children of Python's multiprocessing do."
        )
        raise ProfilerError(msg, found=f"{len(record.rows)} launches measured", cure=cure)


_REASONS = {
    "INSUFFICIENT_PRIVILEGES": (
        "this user may not read the GPU's performance counters",
        PERMISSION,
    ),
    "MULTIPLE_SUBSCRIBERS": (
        "another tool is attached to the program through CUPTI",
        "Turn it off (torch.profiler, Nsight Systems), or use --profiler ncu.",
    ),
    "OUT_OF_MEMORY": (
        "there is not enough memory for the counters",
        "Measure fewer metrics (--metrics published), or a smaller batch.",
    ),
    "LEGACY_PROFILER_NOT_SUPPORTED": (
        "CUPTI's Range Profiler does not support this GPU",
        "Use --profiler ncu, or nvprof for a GPU before compute capability 7.0.",
    ),
    "HARDWARE_BUSY": (
        "another tool holds the GPU's performance counters",
        "Stop it (DCGM and other profilers read counters too: dcgmi profile --pause), then again.",
    ),
    "": (
        "CUPTI cannot measure this program",
        "Use --profiler ncu, which measures launch by launch.",
    ),
}
"""What CUPTI's errors mean, and the cure; the first that is part of an error, the last of any."""
