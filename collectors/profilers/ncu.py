"""Nsight Compute: counters of every kernel launch, as a report and as CSV.

The report is made first and converted afterwards, so that what the program prints never mixes
with the table. The CSV keeps Nsight Compute's own units, named in its second line: with
``--print-units base`` it rounds percentages to two decimals, without it to six (2025.3.1).

What a launch costs, measured on an H200 with 2025.3.1 and the published metrics (8 passes, YOLOv4-
Tiny under PyTorch): 0.145 to 0.154 s in kernel replay, 3 to 5 % less with ``cache_control="none"``.
One metric in one pass costs 0.004 s, the seven instrumented ``smsp__sass`` metrics together 0.008
s: what is dear is going over a launch again, about 0.09 s for the first repeat and 0.01 s for
each further pass. Application replay took 0.33 s (273 launches, 8 starts of the program). So the
way to measure faster is to measure fewer launches: one iteration instead of all, or the layers of
interest.
"""

from __future__ import annotations

import csv
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collectors.profilers.ncu_failures import explain
from collectors.profilers.process import Finished, ProfilerError, ask, last_lines, run

_PASSES = re.compile(r"- (\d+) pass(?:es)?\b|Application replay pass (\d+)")
_VERSION = re.compile(r"Version ([\d.]+)")
_PATIENCE_S, _CONVERSION_S = 60.0, 600.0


@dataclass(frozen=True)
class NcuOptions:
    """What Nsight Compute is asked for."""

    metrics: tuple[str, ...]  # Nsight Compute's metric names
    region_only: bool = False  # only launches between cudaProfilerStart and cudaProfilerStop
    # NVTX filters, any of which lets a launch through (`iter_0/conv_03/`)
    include: tuple[str, ...] = ()
    # `kernel` repeats each launch on the spot, `application` runs the whole program once a pass
    replay: str = "kernel"
    # `all` flushes the caches before every pass, `none` leaves them as they are
    cache_control: str = "all"
    executable: str = "ncu"  # name or path of `ncu`


@dataclass(frozen=True)
class Profile:
    """What a profiling run gave, and what it cost."""

    # report, table: the `.ncu-rep` file and the CSV made from it
    report: Path
    table: Path
    launches: int  # rows of the table
    passes: int  # the most passes a launch was measured in
    seconds: float  # wall-clock time of the profiled program
    # From the first finished launch to the last, over the launches between; without the program's
    # own start. NaN for a single launch.
    seconds_per_launch: float
    missing: tuple[str, ...]  # requested metrics that this GPU did not deliver
    commands: tuple[tuple[str, ...], ...]  # the argument lists that were run
    # Wall-clock time from the report to the CSV, in which the GPU has nothing to do
    conversion_seconds: float


@dataclass
class _Progress:
    """Follows Nsight Compute's messages: one a finished launch."""

    times: list[float] = field(default_factory=list)
    passes: int = 0
    pending: str = ""

    def __call__(self, text: str) -> None:
        whole, newline, self.pending = (self.pending + text).rpartition("\n")
        for match in _PASSES.finditer(whole + newline):
            self.times.append(time.monotonic())
            self.passes = max(self.passes, int(match.group(1) or match.group(2)))

    def per_launch(self, launches: int) -> float:
        if launches < 2 or len(self.times) < 2:
            return float("nan")
        return (self.times[-1] - self.times[0]) / (launches - 1)


def profile_command(options: NcuOptions, program: Sequence[str], report: Path) -> list[str]:
    """Return the argument list that profiles `program` into `report`."""
    command = [options.executable, "--metrics", ",".join(options.metrics)]
    # clocks are left alone: on a shared machine locking them would change everybody's
    command += ["--nvtx", "--clock-control", "none", "--cache-control", options.cache_control]
    command += ["--replay-mode", options.replay]
    # a report with the machine code of torch's libraries is 17 MB larger
    command += ["--import-sass", "no", "--target-processes", "all"]
    command += ["--disable-extra-suffixes"]  # else every .avg brings its .max, .min and .sum
    if options.region_only:
        command += ["--profile-from-start", "off"]
    for expression in options.include:
        command += ["--nvtx-include", expression]
    return [*command, "--force-overwrite", "--export", str(report), *program]


def table_command(options: NcuOptions, report: Path) -> list[str]:
    """Return the argument list that turns `report` into CSV on standard output."""
    return [options.executable, "--import", str(report), "--csv", "--page", "raw"]


def version(executable: str = "ncu") -> str:
    """Return Nsight Compute's version.

    Raises `ProfilerError` if it is not installed or does not say.
    """
    found = shutil.which(executable)
    if found is None:
        raise _absent(executable)
    answer = ask([found, "--version"], timeout_s=_PATIENCE_S)
    if answer.timed_out:
        msg = f"Nsight Compute did not tell its version within {_PATIENCE_S:.0f} s"
        raise ProfilerError(msg, where=found, cure=_INSTALL)
    match = _VERSION.search(answer.output)
    if match is None:
        msg = "this is not Nsight Compute: it does not tell its version"
        said = answer.output.strip()[:200]
        raise ProfilerError(msg, where=found, found=said or "no output", cure=_INSTALL)
    return match.group(1)


def profile(
    options: NcuOptions,
    program: Sequence[str],
    *,
    # folder, name: where the two files go
    folder: Path,
    log: Path,  # what the program and the profiler print is appended to it
    timeout_s: float,  # limit for the profiled program; it and its children are killed then
    launcher: Sequence[str] = (),  # goes in front of the command (`srun --gres=gpu:1`)
    env: dict[str, str] | None = None,  # variables for the program
    name: str = "metrics",
) -> Profile:
    """Profile a program into ``NAME.ncu-rep`` and ``NAME.csv`` in `folder`.

    Raises `ProfilerError` if the profiler is missing or refused, the program failed, or there is no
    usable result; the message names the cure.
    """
    report, table = folder / f"{name}.ncu-rep", folder / f"{name}.csv"
    if not launcher and shutil.which(options.executable) is None:
        raise _absent(options.executable)
    command = [*launcher, *profile_command(options, program, report)]
    progress = _Progress()
    spoken = {**(env or {}), "LC_ALL": "C"}
    ended = run(command, log=log, timeout_s=timeout_s, env=spoken, watch=progress)
    problem = explain(ended, timeout_s=timeout_s, launches=len(progress.times), report=report)
    if problem is not None:
        raise problem
    conversion = [*launcher, *table_command(options, report)]
    converting = _convert(conversion, table, log)
    launches, missing, passes = read_outline(table, options.metrics)
    return Profile(
        report,
        table,
        launches,
        passes or progress.passes,
        ended.seconds,
        progress.per_launch(launches),
        missing,
        (tuple(command), tuple(conversion)),
        converting,
    )


def read_outline(table: Path, metrics: Sequence[str]) -> tuple[int, tuple[str, ...], int]:
    """Return a raw-page CSV's launches, the metrics it lacks and the passes, or raise."""
    try:
        with table.open(newline="", encoding="utf-8", errors="replace") as lines:
            rows = csv.reader(line for line in lines if not line.startswith("=="))
            header = next(rows, [])
            if "Kernel Name" not in header:
                msg = "Nsight Compute's output is not the table that was asked for"
                found = ",".join(header)[:120] or "nothing"
                raise ProfilerError(msg, where=table.name, found=found, cure=_INSTALL)
            next(rows, None)
            body = [row for row in rows if len(row) == len(header)]
    except csv.Error as error:
        msg = "Nsight Compute's table cannot be read"
        cure = "The disk may be full; otherwise collect again."
        raise ProfilerError(msg, where=table.name, found=str(error), cure=cure) from error
    place = {name: number for number, name in enumerate(header)}
    missing = tuple(name for name in metrics if not _delivered(name, place, body))
    if not body or len(missing) == len(metrics):
        msg = "Nsight Compute measured nothing of what was asked for"
        raise ProfilerError(
            msg,
            where=table.name,
            found=f"{len(body)} launches, {len(missing)} of {len(metrics)} metrics missing",
            cure="See which metrics the GPU has with: ncu --query-metrics-mode all",
        )
    passes = place.get("profiler__replayer_passes")
    counts = [row[passes] for row in body] if passes is not None else []
    return len(body), missing, max((int(count) for count in counts if count.isdigit()), default=0)


def _delivered(name: str, place: dict[str, int], body: list[list[str]]) -> bool:
    column = place.get(name)
    return column is not None and any(row[column] not in ("", "n/a", "(!) n/a") for row in body)


def _convert(command: Sequence[str], table: Path, log: Path) -> float:
    """Run the conversion with standard output in `table` alone; return its seconds."""
    ended = run(command, log=log, timeout_s=_CONVERSION_S, env={"LC_ALL": "C"}, output=table)
    if ended.timed_out or ended.flooded:
        msg = f"Nsight Compute did not convert its report within {_CONVERSION_S:.0f} s"
        raise ProfilerError(msg, where=table.name, cure="Profile fewer launches.")
    if ended.returncode != 0:
        said = last_lines(table.read_text(encoding="utf-8", errors="replace"), 2, without="$")
        msg = "Nsight Compute cannot read its own report"
        cure = "The disk may be full; otherwise collect again."
        raise ProfilerError(msg, where=table.name, found=said[:200] or "no output", cure=cure)
    return ended.seconds


_INSTALL = (
    "Install Nsight Compute (part of the CUDA Toolkit) and put ncu on the PATH, "
    "for example /usr/local/cuda/bin."
)


def _absent(executable: str) -> ProfilerError:
    msg = f"{executable} is not installed, or not on the PATH"
    return ProfilerError(msg, cure=_INSTALL)


__all__ = ["Finished", "NcuOptions", "Profile", "profile", "profile_command", "table_command"]
