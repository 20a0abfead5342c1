"""Time a run without counters: in the first process, and again in fresh ones where asked for.

Two processes of one program differ by more than the repeats of either (addresses, clocks, the
order of allocations), so an interval that is to hold for the next process needs several.

Here to change: how a process is timed, and what its table is called
(`perfml.ingest.processes` reads them by that name).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from collectors.checks import require_right
from collectors.execution import Job
from collectors.manifest import TimingRecord
from collectors.profilers import sm_clock, timing
from collectors.profilers.process import Finished, ProfilerError, run

TIMING_FILE = "timing.csv"


def time_again(job: Job, record: TimingRecord) -> TimingRecord:
    """Time a run in as many further processes as its settings ask for: ``timing_2.csv``, ...

    Returns
    -------
    TimingRecord
        That of the first process with the number of processes, or with a warning that there was
        no timing pass to repeat.

    Raises
    ------
    ProfilerError
        If a process fails.
    """
    processes = job.subject.settings.processes
    if processes == 1:
        return record
    if record.source == "ncu":
        warning = f"timed in one process, not {processes}: {record.source} took the times itself"
        return replace(record, warnings=(*record.warnings, warning))
    for number in range(2, processes + 1):
        table = job.folder / f"timing_{number}.csv"
        if job.subject.built_in:
            aside = job.folder / "timing"
            run_workload(job, "timing", aside)
            keep_times(aside, table)
            shutil.rmtree(aside)
        else:
            timing.write_timing(traced(job).launches, table)
    return replace(record, processes=processes)


def with_clock(job: Job, record: TimingRecord) -> TimingRecord:
    """Add the SM clock; a profiler that took the times itself may have set another one."""
    if record.source == "ncu" or job.context.gpu is None:
        return record
    return replace(record, sm_clock_mhz=sm_clock.measured(job.subject.environment()))


def traced(job: Job) -> timing.Timing:
    """Run a program of the user's once, and record its launches."""
    return timing.trace(job.subject.program, **job.limits)


def run_workload(job: Job, mode: str, aside: Path) -> Finished:
    """Let a built-in workload check or time itself into a folder of its own."""
    command = [*job.context.launcher, *job.subject.command(mode, aside)]
    timeout_s = job.context.timeout_s
    try:
        ended = run(command, log=job.log, timeout_s=timeout_s, env=job.subject.environment())
    except OSError as error:
        msg = f"{command[0]} cannot be started"
        raise ProfilerError(msg, found=str(error), cure="Check --launcher.") from error
    require_right(aside)
    timing.check_ended(ended, timeout_s)
    return ended


def keep_times(aside: Path, table: Path) -> None:
    """Move the times that a built-in workload left to where they belong."""
    if not (aside / TIMING_FILE).is_file():
        msg = "the workload ended normally but left no times"
        raise ProfilerError(msg, where=str(aside), cure="log.txt has what it printed.")
    shutil.move(aside / TIMING_FILE, table)
