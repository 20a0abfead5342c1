"""Measure one run into a folder: the timing pass, the counters, and what they were taken on."""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import sys
from dataclasses import dataclass, replace
from typing import Any

from collectors.checks import checked_first, require_right
from collectors.execution import ExecutionContext, Job
from collectors.manifest import MeasurementRecord, RunRecord, TimingRecord
from collectors.measure_cupti import Measured, measure_with_cupti
from collectors.profilers import cupti, lines, ncu, nvprof, timing
from collectors.profilers.cupti_failures import UnableError
from collectors.profilers.gpu import NCU_FIRST, NVPROF_LAST, Gpu
from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.process import ProfilerError
from collectors.run_folder import RUN_FILE, now, read_object
from collectors.run_spec import Run
from collectors.timing_passes import (
    TIMING_FILE,
    bare_steps,
    time_again,
    traced,
    with_clock,
)
from perfml import __version__
from perfml.util.ranges import ITERATION

METRICS_NAME = "metrics"


@dataclass(frozen=True)
class _Timed:
    """What the timing pass told: for the manifest, and for the profiler's filters."""

    record: TimingRecord
    about: dict[str, Any]
    region_only: bool
    iterations: tuple[str, ...] = ()


def choose_profiler(asked: str, gpu: Gpu | None) -> str:
    """Return ``cupti``, ``ncu`` or ``nvprof``; raise if that asked for does not support the GPU."""
    if gpu is None:
        return "ncu" if asked == "auto" else asked
    if asked == "auto":
        if gpu.capability < NCU_FIRST:
            return "nvprof"
        old = gpu.capability <= NVPROF_LAST and shutil.which("ncu") is None
        if old and shutil.which("nvprof"):
            return "nvprof"
        with contextlib.suppress(UnableError):
            cupti.require(gpu)
            return "cupti"
        return "ncu"
    if asked == "cupti":
        cupti.require(gpu)
    if asked == "ncu" and gpu.capability < NCU_FIRST:
        msg = "Nsight Compute does not support this GPU"
        raise ProfilerError(
            msg,
            where="--profiler ncu",
            found=f"{gpu.name}, compute capability {gpu.compute_capability}",
            cure="Use --profiler nvprof; Nsight Compute begins at compute capability 7.0.",
        )
    if asked == "nvprof":
        nvprof.require(gpu.compute_capability, launched=True)
    return asked


def planned_commands(job: Job) -> list[list[str]]:
    """Return the commands that `measure` would run, as far as they are known beforehand."""
    subject, launcher, folder = job.subject, job.context.launcher, job.folder
    profiler = choose_profiler(subject.settings.profiler, job.context.gpu)
    first = [*launcher, *subject.command("timing", folder / "timing")]
    program = subject.command("profile", folder / "profile")
    if profiler == "nvprof":
        second = _nvprof_commands(job)
        if checked_first(subject):
            second.insert(0, subject.command("check", folder / "check"))
        return [[*launcher, *each] for each in second]
    chosen = _ncu_options(subject, _Timed(TimingRecord(""), {}, region_only=subject.built_in))
    report = folder / f"{METRICS_NAME}.ncu-rep"
    profile = [*launcher, *ncu.profile_command(chosen, program, report)]
    return [first, profile, [*launcher, *ncu.table_command(chosen, report)]]


def measure(job: Job) -> RunRecord:
    """Measure a run into its folder; return what ``run.json`` says, or raise a `ProfilerError`."""
    subject, context = job.subject, job.context
    started = now()
    profiler = profiler_for(subject, context.gpu)
    if subject.settings.kernel is not None:
        _require_chosen(subject, profiler)
    notes: list[str] = []
    measured = None
    if profiler == "cupti":
        try:
            measured = measure_with_cupti(job)
        except UnableError as error:
            if subject.settings.profiler == "cupti" or subject.settings.kernel is not None:
                raise
            notes.append(f"measured by Nsight Compute, launch by launch: {error.what}")
            profiler = "ncu"
    if measured is None and profiler == "ncu":
        timed = _timing(job)
        counters = _with_ncu(job, timed)
        measured = Measured(timed.record, timed.about, counters, bool(timed.iterations))
    elif measured is None:
        if subject.settings.lines:
            msg = "lines are sampled through CUPTI, which does not support GPUs that need nvprof"
            raise ProfilerError(msg, where="--lines", cure="Leave --lines out.")
        if context.gpu is not None:
            nvprof.require(context.gpu.compute_capability, launched=bool(context.launcher))
        about = _checked(job) if checked_first(subject) else {}
        measured = Measured(TimingRecord("nvprof"), about, _with_nvprof(job))
    sampled = None
    if subject.settings.lines:
        aside = job.folder / "lines"
        sampled = lines.sample(subject.command("profile", aside), **job.limits)
        shutil.rmtree(aside, ignore_errors=True)
    again = time_again(job, measured.timing)
    if measured.iterations:
        again = replace(again, step_us=bare_steps(job) or None)
    timing_record = with_clock(job, again)
    shutil.rmtree(job.cache, ignore_errors=True)
    facts = _facts(subject, context, measured.about.get("environment") or {})
    if sampled is not None:
        facts["hot_lines"] = lines.hottest(sampled)
        lines.write_lines(sampled, job.folder / lines.LINES_FILE)
    facts |= {"profiler": profiler, "profiler_version": None, "started": started, "ended": now()}
    return RunRecord(facts, measured.about, timing_record, measured.counters, tuple(notes))


def _require_chosen(subject: Run, profiler: str) -> None:
    """Raise `ProfilerError` where launches cannot be chosen by kernel and number."""
    settings = subject.settings
    if subject.built_in:
        msg = "launches are chosen of a program"
        raise ProfilerError(msg, where="--kernel", cure="Use --layer with a built-in workload.")
    if profiler != "cupti":
        first, end = settings.chosen
        many = "" if settings.launches is None else f" --launch-skip {first}"
        many += f" --launch-count {end - first}" if end < sys.maxsize else ""
        msg = f"{profiler} cannot choose launches for perfml"
        cure = f"Run: ncu --set full -k regex:{settings.kernel}{many} -o report COMMAND; then "
        raise ProfilerError(msg, where="--kernel", cure=f"{cure}perfml advise report.ncu-rep")


def _facts(subject: Run, context: ExecutionContext, surroundings: dict[str, Any]) -> dict[str, Any]:
    """Return what the run is; a launcher may have gone to another GPU than this machine's."""
    gpu = context.gpu
    return {
        "run_id": subject.run_id,
        "workload": subject.workload,
        "backend": subject.backend,
        "precision": subject.precision,
        "batch": subject.batch,
        "program": list(subject.program) or None,
        "layer_map": subject.layer_map,
        "options": subject.settings.as_dict(),
        "iterations": subject.settings.iterations if subject.built_in else None,
        "metric_iterations": subject.settings.metric_iterations,
        "seed": subject.settings.seed if subject.built_in else None,
        "device": gpu.name if gpu else surroundings.get("gpu"),
        "compute_capability": (
            gpu.compute_capability if gpu else surroundings.get("compute_capability")
        ),
        "driver": gpu.driver if gpu else surroundings.get("driver"),
        "perfml": __version__,
        "python": platform.python_version(),
        "launcher": list(context.launcher) or None,
    }


def profiler_for(subject: Run, gpu: Gpu | None) -> str:
    """Return the profiler of a run: ``auto`` keeps to Nsight Compute where an option is its own."""
    settings = subject.settings
    asked = settings.profiler
    own = settings.timing == "ncu" or settings.replay != "kernel"
    if asked == "auto" and own and choose_profiler("auto", gpu) == "cupti":
        return "ncu"
    return choose_profiler(asked, gpu)


def _timing(job: Job) -> _Timed:
    subject, table = job.subject, job.folder / TIMING_FILE
    mapped = subject.layer_map is not None
    if subject.settings.timing == "ncu" and not subject.built_in:
        record = TimingRecord("ncu", why="asked for with --timing ncu")
        return _Timed(record, {}, region_only=False)
    why = ""
    try:
        library(COUNTERS)
    except ProfilerError as error:
        if subject.settings.timing == "cupti":
            raise
        why = f"times are Nsight Compute's, serialised and with cold caches: {error.what}"
        if not subject.built_in:
            return _Timed(TimingRecord("ncu", why=why, warnings=(why,)), {}, region_only=False)
    found, about = traced(job, table)
    if cupti.compiled_by_xla(launch.ranges for launch in found.launches):
        found, about = traced(job, table)
    if not table.is_file():
        return _Timed(TimingRecord("ncu", why=why, warnings=(why,)), about, region_only=True)
    told = found.seconds, found.command
    record = timing.timing_record(
        "cupti-activity", table, *told, mapped=mapped, warnings=found.warnings
    )
    if subject.built_in:
        return _Timed(record, about, region_only=True)
    names = dict.fromkeys(
        name
        for launch in found.launches
        for name in launch.ranges
        if ITERATION.fullmatch(name.strip())
    )
    return _Timed(record, {}, found.region, tuple(names))


def _ncu_options(subject: Run, timed: _Timed) -> ncu.NcuOptions:
    settings = subject.settings
    return ncu.NcuOptions(
        metrics=settings.ncu_metrics,
        region_only=timed.region_only,
        include=_include(subject, timed),
        replay=settings.replay,
        cache_control=settings.cache_control,
    )


def _include(subject: Run, timed: _Timed) -> tuple[str, ...]:
    """Return the NVTX filters: the first iterations, and the wanted layers in them."""
    settings = subject.settings
    iterations = timed.iterations
    few = list(iterations[: settings.metric_iterations])
    limited = len(iterations) > len(few)
    if settings.layers is None:
        return tuple(f"{name}/" for name in few) if limited else ()
    outer = "iter_[0-9]+"
    if not subject.built_in:
        outer = "|".join(re.escape(name) for name in few)
    prefix = f"({outer})/" if outer else ""
    return (f"regex:{prefix}({settings.layers})/",)


def _with_ncu(job: Job, timed: _Timed) -> MeasurementRecord:
    options = _ncu_options(job.subject, timed)
    aside = job.folder / "profile"
    command = job.subject.command("profile", aside)
    found = ncu.profile(options, command, folder=job.folder, name=METRICS_NAME, **job.limits)
    shutil.rmtree(aside, ignore_errors=True)
    warnings = []
    if found.missing:
        warnings.append(f"this GPU did not deliver {', '.join(found.missing)}")
    per_launch = found.seconds_per_launch
    return MeasurementRecord(
        profiler_version=None if job.context.launcher else ncu.version(),
        clock_control="none",
        cache_control=options.cache_control,
        replay=options.replay,
        metrics_requested=options.metrics,
        metrics_missing=tuple(found.missing),
        launches_profiled=found.launches,
        passes=found.passes,
        profiling_seconds=round(found.seconds, 3),
        conversion_seconds=round(found.conversion_seconds, 3),
        seconds_per_launch=round(per_launch, 5) if per_launch == per_launch else None,
        commands=tuple(tuple(command) for command in found.commands),
        warnings=tuple(warnings),
    )


def _nvprof_commands(job: Job) -> list[list[str]]:
    """Return the argument lists that `_with_nvprof` runs, without a launcher."""
    return nvprof.pass_commands(_nvprof_options(job.subject), _nvprof_programs(job), job.folder)


def _with_nvprof(job: Job) -> MeasurementRecord:
    """Measure a run into ``metrics.csv`` and ``trace.nvvp`` of its folder, or raise."""
    options = _nvprof_options(job.subject)
    commands = nvprof.profile(options, _nvprof_programs(job), folder=job.folder, **job.limits)
    shutil.rmtree(job.folder / "profile", ignore_errors=True)
    return MeasurementRecord(metrics_requested=options.metrics, commands=tuple(commands))


def _checked(job: Job) -> dict[str, Any]:
    """Let a workload check itself, as no timing pass does it; return what it says, or raise."""
    aside = job.folder / "check"
    try:
        timing.trace(job.subject.command("check", aside), None, **job.limits)
    finally:
        require_right(aside)
    about = read_object(aside / RUN_FILE)
    shutil.rmtree(aside)
    return about


def _nvprof_programs(job: Job) -> nvprof.Programs:
    subject, aside = job.subject, job.folder / "profile"
    timed = subject.command("profile", aside, iterations=subject.settings.iterations)
    return nvprof.Programs(metrics=subject.command("profile", aside), trace=timed)


def _nvprof_options(subject: Run) -> nvprof.NvprofOptions:
    return nvprof.NvprofOptions(_nvprof_metrics(subject), region_only=subject.built_in)


def _nvprof_metrics(subject: Run) -> tuple[str, ...]:
    from perfml.metrics import load_catalogue

    if nvprof.ALL in subject.settings.metrics:
        return (nvprof.ALL,)
    catalogue = load_catalogue()
    names = catalogue.select(subject.settings.metrics)
    return tuple(name for name in names if catalogue[name].nvprof_unit)
