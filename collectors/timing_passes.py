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
from collectors.manifest import TimingRecord
from collectors.place import Place
from collectors.profilers import timing
from collectors.profilers.process import Finished, ProfilerError, run
from collectors.run_spec import Run

TIMING_FILE = "timing.csv"
CACHE = "cache"
_UNDER_PROFILER = ("ncu", "nvprof")


def time_again(
    subject: Run, folder: Path, place: Place, log: Path, record: TimingRecord
) -> TimingRecord:
    """Time a run in as many further processes as its settings ask for.

    Parameters
    ----------
    subject
        The run.
    folder
        Gets ``timing_2.csv``, ``timing_3.csv``, ...
    place
        Where to run.
    log
        What the processes print is appended.
    record
        Of the first process.

    Returns
    -------
    TimingRecord
        With the number of processes, or a warning that there was no timing pass to repeat.

    Raises
    ------
    ProfilerError
        If a process fails.
    """
    processes = subject.settings.processes
    if processes == 1:
        return record
    if record.source in _UNDER_PROFILER:
        warning = f"timed in one process, not {processes}: {record.source} took the times itself"
        return replace(record, warnings=(*record.warnings, warning))
    for number in range(2, processes + 1):
        table = folder / f"timing_{number}.csv"
        if subject.built_in:
            aside = folder / "timing"
            run_workload(subject, "timing", aside, place, log)
            keep_times(aside, table)
            shutil.rmtree(aside)
        else:
            timing.write_timing(traced(subject, folder, place, log).launches, table)
    return replace(record, processes=processes)


def traced(subject: Run, folder: Path, place: Place, log: Path) -> timing.Timing:
    """Run a program of the user's once, and record its launches."""
    return timing.trace(
        subject.program,
        log=log,
        timeout_s=place.timeout_s,
        launcher=place.launcher,
        env=subject.environment(folder / CACHE),
    )


def run_workload(subject: Run, mode: str, aside: Path, place: Place, log: Path) -> Finished:
    """Let a built-in workload check or time itself into a folder of its own."""
    command = [*place.launcher, *subject.command(mode, aside)]
    try:
        ended = run(command, log=log, timeout_s=place.timeout_s, env=subject.environment())
    except OSError as error:
        msg = f"{command[0]} cannot be started"
        raise ProfilerError(msg, found=str(error), cure="Check --launcher.") from error
    require_right(aside)
    timing.check_ended(ended, place.timeout_s)
    return ended


def keep_times(aside: Path, table: Path) -> None:
    """Move the times that a built-in workload left to where they belong."""
    if not (aside / TIMING_FILE).is_file():
        msg = "the workload ended normally but left no times"
        raise ProfilerError(msg, where=str(aside), cure="log.txt has what it printed.")
    shutil.move(aside / TIMING_FILE, table)
