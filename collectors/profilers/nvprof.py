"""nvprof, for GPUs up to compute capability 7.2: one run for metrics, one for times.

The metrics come as CSV with a row a launch: an exported database numbers them without their names.
The times come as an exported database, which has the NVTX ranges. `perfml ingest` joins the two by
launch order. nvprof is not part of CUDA 13, and no GPU that it supports was at hand: the commands
are tested, their result is not.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.profilers.gpu import NVPROF_LAST
from collectors.profilers.process import Finished, ProfilerError, last_lines, run

METRICS_FILE, TRACE_FILE = "metrics.csv", "trace.nvvp"
ALL = "all"
"""nvprof's own word for every metric that the GPU has."""
_INSTALL = (
    "Install a CUDA Toolkit before 13 and put nvprof on the PATH. For compute capability 7.5 and "
    "newer use --profiler ncu."
)
_NON_ZERO = re.compile(r"Application returned non-zero code (-?\d+)")


@dataclass(frozen=True)
class NvprofOptions:
    """What nvprof is asked for: its own metric names, or `ALL` alone.

    With `region_only`, only launches between cudaProfilerStart and cudaProfilerStop.
    """

    metrics: tuple[str, ...]
    region_only: bool = False
    executable: str = "nvprof"


@dataclass(frozen=True)
class Programs:
    """The argument list of the program under the counters, and under the pass that times it.

    They may differ in their iterations.
    """

    metrics: Sequence[str]
    trace: Sequence[str]


def metrics_command(options: NvprofOptions, program: Sequence[str], folder: Path) -> list[str]:
    """Return the argument list of the run that reads counters."""
    return [
        options.executable,
        *_common(options),
        *("--metrics", ",".join(options.metrics)),
        *("--print-gpu-trace", "--csv", "--log-file", str(folder / METRICS_FILE)),
        *program,
    ]


def trace_command(options: NvprofOptions, program: Sequence[str], folder: Path) -> list[str]:
    """Return the argument list of the run that times kernels and records NVTX ranges."""
    export = ["--export-profile", str(folder / TRACE_FILE)]
    return [options.executable, *_common(options), *export, *program]


def _common(options: NvprofOptions) -> list[str]:
    region = ["--profile-from-start", "off"] if options.region_only else []
    return [*region, "--force-overwrite"]


def require(capability: str, *, launched: bool = False) -> None:
    """Raise `ProfilerError` unless nvprof is here and supports a GPU of a capability (``"6.1"``).

    With `launched` it will run on another machine, whose PATH is unknown here.
    """
    major, _, minor = capability.partition(".")
    if (int(major), int(minor or 0)) > NVPROF_LAST:
        msg = "nvprof does not support this GPU"
        found = f"compute capability {capability}"
        cure = "It ends at compute capability 7.2; use --profiler ncu."
        raise ProfilerError(msg, where="--profiler nvprof", found=found, cure=cure)
    _require_installed("nvprof", launched=launched)


def _require_installed(executable: str, *, launched: bool) -> None:
    if not launched and shutil.which(executable) is None:
        msg = "nvprof is not installed, or not on the PATH"
        raise ProfilerError(msg, cure=_INSTALL)


def pass_commands(options: NvprofOptions, programs: Programs, folder: Path) -> list[list[str]]:
    """Return the argument lists of both passes, in the order in which they run."""
    return [
        metrics_command(options, programs.metrics, folder),
        trace_command(options, programs.trace, folder),
    ]


def profile(
    options: NvprofOptions,
    programs: Programs,
    *,
    folder: Path,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> list[tuple[str, ...]]:
    """Run both passes into `folder`; return the argument lists, or raise a `ProfilerError`."""
    _require_installed(options.executable, launched=bool(launcher))
    commands = []
    passes = zip(pass_commands(options, programs, folder), (METRICS_FILE, TRACE_FILE), strict=True)
    for words, name in passes:
        command = [*launcher, *words]
        ended = run(command, log=log, timeout_s=timeout_s, env={**(env or {}), "LC_ALL": "C"})
        problem = _explain(ended, timeout_s, folder / name)
        if problem is not None:
            with log.open("a", encoding="utf-8") as whole:
                whole.write(_log(folder / name))
            raise problem
        commands.append(tuple(command))
    return commands


def _explain(ended: Finished, timeout_s: float, export: Path) -> ProfilerError | None:
    """Return what went wrong; the wordings are those of public nvprof logs, not recorded here."""
    text = ended.output + _log(export)
    own = last_lines(ended.output, without="==") or "no output"
    if ended.timed_out:
        msg = f"the profiled program did not end within {timeout_s:.0f} s and was killed"
        return ProfilerError(msg, cure="Profile fewer iterations or metrics, or raise --timeout.")
    if "ERR_NVGPUCTRPERM" in text:
        msg = "this user may not read the GPU's performance counters"
        cure = "Run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0."
        return ProfilerError(msg, cure=cure)
    if "not supported on devices with compute capability" in text:
        msg = "nvprof does not support this GPU"
        return ProfilerError(msg, cure="Use --profiler ncu.")
    died = _NON_ZERO.search(text)
    if died or ended.returncode != 0:
        code = died.group(1) if died else ended.returncode
        msg = f"the program failed under the profiler with exit status {code}"
        cure = "Run it without perfml first; its whole output is in log.txt."
        return ProfilerError(msg, found=own, cure=cure)
    if not _holds_results(export):
        msg = "nvprof ended normally but left no export"
        cure = "Check that the program launches kernels and that the disk has room."
        return ProfilerError(msg, where=str(export), found=own, cure=cure)
    return None


def _log(export: Path) -> str:
    """Return the messages of a pass whose output goes to a log file, where there are any."""
    if export.suffix != ".csv" or not export.is_file():
        return ""
    return export.read_text(encoding="utf-8", errors="replace")


def _holds_results(export: Path) -> bool:
    """Tell whether a pass left more than nvprof's messages."""
    if not export.is_file() or export.stat().st_size == 0:
        return False
    return export.suffix != ".csv" or '"Kernel"' in _log(export)
