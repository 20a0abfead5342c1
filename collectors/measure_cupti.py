"""Measure one run through CUPTI: times and counters in one start of the program.

The first iterations are timed without counters, the ones after them carry a counter pass each
(`collectors.profilers.cupti`). A built-in workload repeats its iteration until everything is
measured; a program's own iterations are taken as they come.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from collectors.checks import require_right
from collectors.execution import Job
from collectors.manifest import MeasurementRecord, TimingRecord
from collectors.profilers import cupti, timing
from collectors.profilers.process import ProfilerError
from collectors.timing_passes import workload_says

TIMED_ITERATIONS = 3
"""Of a program; a built-in workload is timed as often as is asked."""


@dataclass(frozen=True)
class Measured:
    """What measuring gave for the manifest; `about` is what the workload says of itself."""

    timing: TimingRecord
    about: dict[str, Any]
    counters: MeasurementRecord


def measure_with_cupti(job: Job) -> Measured:
    """Measure a run into ``timing.csv`` and ``metrics.csv`` of its folder.

    Raises an `UnableError` where another profiler may still measure the program, and a
    `ProfilerError` if it fails.
    """
    subject, settings = job.subject, job.subject.settings
    aside = job.folder / "counters"
    options = cupti.CuptiOptions(
        metrics=settings.ncu_metrics,
        sets=settings.metric_iterations,
        timed=settings.iterations if subject.built_in else TIMED_ITERATIONS,
        layers=settings.layers,
    )
    command = subject.command("counters", aside)
    driver = job.context.gpu.driver if job.context.gpu else ""
    try:
        profile = cupti.profile(
            options,
            command,
            folder=job.folder,
            driver=driver,
            tell=job.context.tell,
            agrees=job.context.agrees,
            **job.limits,
        )
    except ProfilerError:
        require_right(aside)
        shutil.rmtree(aside, ignore_errors=True)
        raise
    about = workload_says(aside, job.folder) if subject.built_in else {}
    table = job.folder / "timing.csv"
    if not table.is_file() and any(launch.bytes is None for launch in profile.timed):
        timing.write_timing(profile.timed, table)
    shutil.rmtree(aside, ignore_errors=True)
    mapped = subject.layer_map is not None
    timed = timing.timing_record(
        "cupti-activity", table, profile.seconds, profile.command, mapped=mapped
    )
    return Measured(timed, about, _measured(profile, options))


def _measured(profile: cupti.CuptiProfile, options: cupti.CuptiOptions) -> MeasurementRecord:
    warnings = list(profile.warnings)
    if profile.missing:
        warnings.append(f"this GPU did not deliver {', '.join(profile.missing)}")
    return MeasurementRecord(
        profiler_version=profile.measurement.machine.cupti,
        clock_control="none",
        cache_control="none",
        caches=profile.measurement.caches,
        replay=profile.measurement.replay,
        metrics_requested=tuple(options.metrics),
        metrics_missing=tuple(profile.missing),
        launches_profiled=len(profile.rows),
        passes=profile.measurement.passes,
        runs=profile.measurement.runs,
        profiling_seconds=round(profile.seconds, 3),
        seconds_per_launch=round(profile.seconds / len(profile.rows), 5),
        commands=(tuple(profile.command),),
        warnings=tuple(warnings),
    )
