"""Measure one run through nvprof: a start for the metrics, and another for the times.

nvprof replays every kernel for its metrics, so that pass profiles few iterations; the times come
from as many as are timed with any other profiler.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from collectors.checks import require_right
from collectors.execution import Job
from collectors.manifest import MeasurementRecord
from collectors.profilers import nvprof, timing
from collectors.run_folder import RUN_FILE, read_object
from collectors.run_spec import Run


def nvprof_commands(job: Job) -> list[list[str]]:
    """Return the argument lists that `measure_with_nvprof` runs, without a launcher."""
    return nvprof.pass_commands(_options(job.subject), _programs(job), job.folder)


def measure_with_nvprof(job: Job) -> MeasurementRecord:
    """Measure a run into ``metrics.csv`` and ``trace.nvvp`` of its folder, or raise."""
    options = _options(job.subject)
    commands = nvprof.profile(options, _programs(job), folder=job.folder, **job.limits)
    shutil.rmtree(_aside(job), ignore_errors=True)
    return MeasurementRecord(metrics_requested=options.metrics, commands=tuple(commands))


def checked(job: Job) -> dict[str, Any]:
    """Let a workload check itself, as no timing pass does it; return what it says, or raise."""
    aside = job.folder / "check"
    try:
        timing.trace(job.subject.command("check", aside), None, **job.limits)
    finally:
        require_right(aside)
    about = read_object(aside / RUN_FILE)
    shutil.rmtree(aside)
    return about


def _aside(job: Job) -> Path:
    return job.folder / "profile"


def _programs(job: Job) -> nvprof.Programs:
    subject, aside = job.subject, _aside(job)
    timed = subject.command("profile", aside, iterations=subject.settings.iterations)
    return nvprof.Programs(metrics=subject.command("profile", aside), trace=timed)


def _options(subject: Run) -> nvprof.NvprofOptions:
    return nvprof.NvprofOptions(_metric_names(subject), region_only=subject.built_in)


def _metric_names(subject: Run) -> tuple[str, ...]:
    from perfml.metrics import load_catalogue

    if nvprof.ALL in subject.settings.metrics:
        return (nvprof.ALL,)
    catalogue = load_catalogue()
    names = catalogue.select(subject.settings.metrics)
    return tuple(name for name in names if catalogue[name].nvprof_unit)
