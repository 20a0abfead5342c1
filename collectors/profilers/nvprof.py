"""nvprof, for GPUs up to compute capability 7.2: one run for metrics, one for times.

Both exports are SQLite databases that `perfml ingest` reads. nvprof is not part of CUDA 13, and
no GPU that it supports was at hand: the commands are tested, their result is not.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.profilers._gpu import NVPROF_LAST
from collectors.profilers._process import Finished, ProfilerError, last_lines, run

METRICS_FILE, TRACE_FILE = "metrics.nvvp", "trace.nvvp"
_INSTALL = (
    "Install a CUDA Toolkit before 13 and put nvprof on the PATH; for compute capability 7.5 and "
    "newer use --profiler ncu."
)
_NON_ZERO = re.compile(r"Application returned non-zero code (-?\d+)")


@dataclass(frozen=True)
class NvprofOptions:
    """What nvprof is asked for.

    Attributes
    ----------
    metrics
        nvprof's own metric names.
    region_only
        Only launches between cudaProfilerStart and cudaProfilerStop.
    executable
        Name or path of ``nvprof``.
    """

    metrics: tuple[str, ...]
    region_only: bool = False
    executable: str = "nvprof"


def metrics_command(options: NvprofOptions, program: Sequence[str], folder: Path) -> list[str]:
    """Return the argument list of the run that reads counters."""
    return [
        options.executable,
        *("--metrics", ",".join(options.metrics)),
        *_common(options, folder / METRICS_FILE),
        *program,
    ]


def trace_command(options: NvprofOptions, program: Sequence[str], folder: Path) -> list[str]:
    """Return the argument list of the run that times kernels and records NVTX ranges."""
    return [options.executable, *_common(options, folder / TRACE_FILE), *program]


def _common(options: NvprofOptions, export: Path) -> list[str]:
    region = ["--profile-from-start", "off"] if options.region_only else []
    return [*region, "--force-overwrite", "--export-profile", str(export)]


def require(capability: str, executable: str = "nvprof", *, launched: bool = False) -> None:
    """Raise `ProfilerError` unless nvprof is here and supports a GPU of this capability.

    Parameters
    ----------
    capability
        Compute capability, like ``"6.1"``.
    executable
        Name or path of nvprof.
    launched
        Whether it will run on another machine, whose PATH is unknown here.
    """
    major, _, minor = capability.partition(".")
    if (int(major), int(minor or 0)) > NVPROF_LAST:
        msg = "nvprof does not support this GPU"
        found = f"compute capability {capability}"
        cure = "It ends at compute capability 7.2; use --profiler ncu."
        raise ProfilerError(msg, where="--profiler nvprof", found=found, cure=cure)
    if not launched and shutil.which(executable) is None:
        msg = f"{executable} is not installed, or not on the PATH"
        raise ProfilerError(msg, cure=_INSTALL)


def profile(
    options: NvprofOptions,
    program: Sequence[str],
    *,
    folder: Path,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> list[tuple[str, ...]]:
    """Run both passes into `folder`; return the argument lists.

    Raises
    ------
    ProfilerError
        If nvprof is missing or refused, the program failed, or an export is missing.
    """
    commands = []
    for build, name in ((metrics_command, METRICS_FILE), (trace_command, TRACE_FILE)):
        command = [*launcher, *build(options, program, folder)]
        try:
            ended = run(command, log=log, timeout_s=timeout_s, env={**(env or {}), "LC_ALL": "C"})
        except OSError as error:
            msg = f"{command[0]} cannot be started"
            raise ProfilerError(msg, found=str(error), cure=_INSTALL) from error
        problem = _explain(ended, timeout_s, folder / name)
        if problem is not None:
            raise problem
        commands.append(tuple(command))
    return commands


def _explain(ended: Finished, timeout_s: float, export: Path) -> ProfilerError | None:
    """Return what went wrong; the wordings are those of public nvprof logs, not recorded here."""
    text = ended.output
    own = last_lines(text, without="==") or "no output"
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
    if not export.is_file() or export.stat().st_size == 0:
        msg = "nvprof ended normally but left no export"
        cure = "Check that the program launches kernels and that the disk has room."
        return ProfilerError(msg, where=str(export), found=own, cure=cure)
    return None
