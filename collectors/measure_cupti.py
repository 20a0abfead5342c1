"""Measure one run through CUPTI: times and counters in one start of the program.

The first iterations are timed without counters, the ones after them carry a counter pass each
(`collectors.profilers.cupti`). A built-in workload repeats its iteration until everything is
measured; a program's own iterations are taken as they come. Of a program of which some launches are
asked for, those are counted on the spot, and nothing else is repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from collectors.checks import require_right
from collectors.execution import Job
from collectors.manifest import MeasurementRecord, TimingRecord
from collectors.profilers import cupti, timing
from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.process import ProfilerError
from collectors.timing_passes import workload_says
from perfml.errors import did_you_mean
from perfml.util.words import count

TIMED_ITERATIONS = 3
"""Of a program; a built-in workload is timed as often as is asked."""


@dataclass(frozen=True)
class Measured:
    """What measuring gave for the manifest; `about` is what the workload says of itself."""

    timing: TimingRecord
    about: dict[str, Any]
    counters: MeasurementRecord
    iterations: bool = False  # whether the program marks its iterations by ranges


def chosen_kernels(names: Iterable[str], wanted: str) -> list[str]:
    """Return the kernels that a name means: that are called so, or whose name has or matches it.

    Raises `ProfilerError` if there is none.
    """
    from perfml.kernel_names import function_name, kernels_called

    known = list(dict.fromkeys(names))
    called = [wanted] if wanted in known else kernels_called(known, wanted)
    if not called:
        short = list(dict.fromkeys(map(function_name, known)))
        msg = f"the program launches no kernel that is called {wanted}"
        cure = did_you_mean(wanted, short, "Name one of these, or a regular expression.")
        raise ProfilerError(msg, where="--kernel", found=", ".join(short[:8]), cure=cure)
    return called


def _chosen_launches(job: Job) -> tuple[timing.Timing, tuple[str, ...]]:
    """Time a program, and write the times of the launches that are asked for; return their kernels.

    What is not asked for has no row: what happens between two of them is not known of the run.
    """
    settings, table = job.subject.settings, job.folder / "timing.csv"
    assert settings.kernel is not None
    traced = timing.trace(
        job.subject.command("timing", job.folder), library(COUNTERS), **job.limits
    )
    kernels = [launch for launch in traced.launches if launch.bytes is None]
    names = chosen_kernels((launch.kernel for launch in kernels), settings.kernel)
    of_them = [launch for launch in kernels if launch.kernel in names]
    first, end = settings.chosen
    if not of_them[first:end]:
        msg = "the kernel has no such launch"
        has = f"{count(len(of_them), 'launch', 'launches')}, 0 to {len(of_them) - 1}"
        cure = "Count from 0, as ncu --launch-skip does."
        raise ProfilerError(msg, where=f"--launches {settings.launches}", found=has, cure=cure)
    timing.write_timing(of_them[first:end], table, starts=False)
    return replace(traced, launches=tuple(of_them[first:end])), tuple(names)


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
    timed = None
    if settings.kernel is not None:
        timed, kernels = _chosen_launches(job)
        first = settings.chosen[0]
        numbers = first, first + len(timed.launches)
        options = replace(options, kernels=kernels, launches=numbers, region=timed.region)
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
    seconds = profile.seconds if timed is None else timed.seconds
    record = timing.timing_record("cupti-activity", table, seconds, profile.command, mapped=mapped)
    return Measured(record, about, _measured(profile, options), profile.iterations)


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
