"""Time a run without counters: in the first process, and again in fresh ones where asked for.

Two processes of one program differ by more than the repeats of either (addresses, clocks, the
order of allocations), so an interval that is to hold for the next process needs several.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectors.checks import require_right
from collectors.execution import Job
from collectors.manifest import TimingRecord
from collectors.profilers import sm_clock, timing
from collectors.profilers.inject import BARE, COUNTERS, library
from collectors.profilers.process import ProfilerError, run
from collectors.run_folder import RUN_FILE, read_object
from perfml.util.files import temporary_folder

TIMING_FILE = "timing.csv"
WARM_UP = 3
"""Iterations without a profiler that are not kept where there are twice as many."""
_UNDER_PROFILER = ("ncu", "nvprof")


def time_again(job: Job, record: TimingRecord) -> TimingRecord:
    """Time a run in as many further processes as its settings ask for: ``timing_2.csv``, ...

    Returns the first process's record with the number of processes, or with a warning that there
    was no timing pass to repeat.
    """
    processes = job.subject.settings.processes
    if processes == 1:
        return record
    if record.source in _UNDER_PROFILER:
        warning = f"timed in one process, not {processes}: {record.source} took the times itself"
        return replace(record, warnings=(*record.warnings, warning))
    for number in range(2, processes + 1):
        table = job.folder / f"timing_{number}.csv"
        traced(job, table)
    return replace(record, processes=processes)


def with_clock(job: Job, record: TimingRecord) -> TimingRecord:
    """Add the SM clock; a profiler that took the times itself may have set another one."""
    if record.source in _UNDER_PROFILER or job.context.gpu is None:
        return record
    return replace(record, sm_clock_mhz=sm_clock.measured(job.subject.environment()))


def traced(job: Job, table: Path) -> tuple[timing.Timing, dict[str, Any]]:
    """Run a program once and write its times into a table; return them and what it says.

    Where no library can be built, a built-in workload runs without: its own may time its layers.
    There are no launches where a workload timed itself or nobody did.
    """
    built_in = job.subject.built_in
    aside = job.folder / "timing"
    command = job.subject.command("timing", aside)
    try:
        injected = library(COUNTERS)
    except ProfilerError:
        if not built_in:
            raise
        injected = None
    own = aside / TIMING_FILE
    try:
        found = timing.trace(command, injected, own=own if built_in else None, **job.limits)
    except ProfilerError:
        require_right(aside)
        raise
    if found.launches:
        timing.write_timing(found.launches, table)
    elif own.is_file():
        shutil.move(own, table)
    about = workload_says(aside, job.folder) if built_in else {}
    shutil.rmtree(aside, ignore_errors=True)
    return found, about


def bare_steps(job: Job) -> tuple[float, ...]:
    """Run a program once more without a profiler; return what its iterations take, microseconds.

    Nothing but its ranges is followed. Those of the process that has most of them, without the
    first ones where there are enough; none where the program says no numbers.
    """
    with temporary_folder("bare") as folder:
        limits = job.limits
        env = {**limits["env"], BARE: str(folder)}
        env["NVTX_INJECTION64_PATH"] = str(library(COUNTERS))
        command = [*limits["launcher"], *job.subject.command("timing", job.folder)]
        ended = run(command, log=job.log, timeout_s=limits["timeout_s"], env=env)
        timing.check_ended(ended, limits["timeout_s"])
        return steps_of(folder)


def steps_of(folder: Path) -> tuple[float, ...]:
    """Return the steps that the library wrote (``injected/bare.h``), microseconds."""
    found = [
        tuple(map(float, path.read_text(encoding="utf-8").split()))
        for path in sorted(folder.glob("*.steps"))
    ]
    steps = max(found, key=len, default=())
    return steps[WARM_UP:] if len(steps) > 2 * WARM_UP else steps


def workload_says(aside: Path, folder: Path) -> dict[str, Any]:
    """Return a built-in workload's description; keep the documents it left with the run."""
    about = read_object(aside / RUN_FILE)
    for path in sorted(aside.iterdir()):
        if path.suffix in (".json", ".csv") and path.name != RUN_FILE:
            shutil.move(path, folder / path.name)
    return about
