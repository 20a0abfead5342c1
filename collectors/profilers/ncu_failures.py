"""Say in one message why Nsight Compute gave no result, and what to do about it.

The patterns were recorded from Nsight Compute 2025.3.1 (tests/data/fake_tools) unless a line says
that the wording is NVIDIA's documentation's.
"""

from __future__ import annotations

import re
from pathlib import Path

from collectors.profilers.process import Finished, ProfilerError, last_lines, signal_of

_EXIT = re.compile(r"The application returned an error code \((-?\d+)\)")
PERMISSION = (
    "Give this user the right to read counters, or run as root. As root, put the line "
    "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/nvidia.conf and "
    "reboot. In a container add --cap-add=SYS_ADMIN."
)
_UNSUPPORTED = (
    "Install the ncu that supports this GPU; ncu --list-chips shows what yours supports. "
    "Up to compute capability 7.2, --profiler nvprof measures too."
)
_REASONS: tuple[tuple[str, str, str], ...] = (
    # documented wordings: they need machines that were not at hand
    (r"ERR_NVGPUCTRPERM", "this user may not read the GPU's performance counters", PERMISSION),
    (
        r"[Rr]esource was unavailable|ResourceUnavailable",
        "another tool holds the GPU's performance counters",
        "Stop it (DCGM and other profilers read counters too: dcgmi profile --pause), then again.",
    ),
    (
        r"[Pp]rofiling is not supported on|[Uu]nsupported GPU|not supported on the target device",
        "this Nsight Compute does not support this GPU",
        _UNSUPPORTED,
    ),
    (
        r"Failed to initialize the profiler|LibraryNotLoaded|driver is not compatible",
        "Nsight Compute cannot reach the GPU's counters here",
        "Sandboxes such as gVisor, and older drivers, hide them; perfml doctor says more.",
    ),
    # recorded
    (
        r"Another tool/injection might be loaded since (?P<name>\w+) is set",
        "a library is injected into CUDA programs here: CUDA_INJECTION64_PATH is set",
        "Unset it, so that Nsight Compute can load its own.",
    ),
    (
        r"Metric (?P<name>\S+) is not supported in range replay",
        "a metric cannot be measured over a range",
        "Leave it out, or use --replay kernel.",
    ),
    (
        r"does not exist or is not an executable",
        "the program cannot be started",
        "Check its path and that it is executable.",
    ),
)


def explain(
    ended: Finished, *, timeout_s: float, launches: int, report: Path
) -> ProfilerError | None:
    """Return what went wrong in a profiling run, or None if it left a report.

    `launches` is how many were told to be measured, `report` where the report should be.
    """
    text = ended.output
    if ended.timed_out:
        return _timed_out(text, timeout_s, launches)
    if ended.flooded:
        msg = "the program printed more than perfml keeps"
        return ProfilerError(msg, found=last_lines(text, 1), cure="Let it print less.")
    for pattern, what, cure in _REASONS:
        match = re.search(pattern, text)
        if match:
            line = next((line for line in text.splitlines() if match.group(0) in line), "")
            return ProfilerError(what, found=line.removeprefix("==ERROR== ")[:240], cure=cure)
    died = _EXIT.search(text)
    if died:
        code = int(died.group(1))
        msg = f"the program failed under the profiler with exit status {code}{_signal(code)}"
        cure = "Run it without perfml first; its whole output is in log.txt."
        return ProfilerError(msg, found=last_lines(text) or "no output", cure=cure)
    if "No kernels were profiled" in text:
        msg = "no kernel launch was profiled"
        return ProfilerError(
            msg,
            found=last_lines(text, 1) or "the program ended normally",
            cure="Either it launches none on the GPU, or none within the chosen ranges. Or it "
            "never calls cudaProfilerStart, and only such a region was to be measured.",
        )
    if ended.returncode != 0:
        msg = f"the profiler ended with exit status {ended.returncode}{_signal(ended.returncode)}"
        errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        found = errors[0].removeprefix("==ERROR== ") if errors else last_lines(text, 2, without="$")
        return ProfilerError(msg, found=found[:240] or "no output", cure="log.txt has the rest.")
    if not report.is_file() or report.stat().st_size == 0:
        msg = "the profiler ended normally but left no report"
        cure = "Check that the disk has room; log.txt has what was printed."
        return ProfilerError(msg, where=report.name, found=last_lines(text, 1), cure=cure)
    return None


def _timed_out(text: str, timeout_s: float, launches: int) -> ProfilerError:
    msg = f"the profiled program did not end within {timeout_s:.0f} s and was killed"
    if "Backing up device memory in system memory" in text:
        cure = (
            "Let it reserve less device memory, which is saved and restored for every pass. "
            "Or use --replay application, which needs no copy."
        )
    else:
        cure = "Profile fewer iterations or metrics, or raise --timeout."
    return ProfilerError(msg, found=f"{launches} launches measured", cure=cure)


def _signal(code: int) -> str:
    """Name the signal behind a status; Nsight Compute reports signals 6 and 11 as these codes."""
    return signal_of(-code if code in (6, 11) else code)
