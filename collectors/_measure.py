"""Measure one run into a folder: the timing pass, the counters, and what they were taken on."""

from __future__ import annotations

import json
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors._checked import checked_first, require_right
from collectors._run_folder import LOG_FILE, RUN_FILE, now
from collectors._runs import Run
from collectors.dedupe import Twins, find_twins
from collectors.profilers import ncu, nvprof, timing
from collectors.profilers._gpu import NCU_FIRST, NVPROF_LAST, Gpu
from collectors.profilers._inject import ACTIVITY, library
from collectors.profilers._process import Finished, ProfilerError, run
from perfml._ranges import ITERATION
from perfml._version import __version__

TIMING_FILE, METRICS_NAME = "timing.csv", "metrics"
CACHE = "cache"
_XLA_RANGE = "XlaModule:"
UNATTRIBUTED_LIMIT = 0.05
"""A run with a larger share of its time outside every layer says so."""


@dataclass(frozen=True)
class Place:
    """Where and under what limits runs are measured.

    Attributes
    ----------
    gpu
        The GPU of this machine; None if the launcher goes to another one.
    launcher
        Goes in front of every command.
    timeout_s
        Limit of each command.
    ncu_version
        Tells Nsight Compute's version; who measures many runs need not ask it each time.
    """

    gpu: Gpu | None
    launcher: tuple[str, ...] = ()
    timeout_s: float = 1800.0
    ncu_version: Callable[[], str] = ncu.version


@dataclass(frozen=True)
class _Timed:
    """What the timing pass told: for the manifest, and for the profiler's filters."""

    record: dict[str, Any]
    about: dict[str, Any]
    region_only: bool
    iterations: tuple[str, ...] = ()
    twins: Twins | None = None


def choose_profiler(asked: str, gpu: Gpu | None) -> str:
    """Return ``ncu`` or ``nvprof``.

    Raises
    ------
    ProfilerError
        If the one asked for does not support the GPU.
    """
    if gpu is None:
        return "ncu" if asked == "auto" else asked
    if asked == "auto":
        if gpu.capability < NCU_FIRST:
            return "nvprof"
        old = gpu.capability <= NVPROF_LAST and shutil.which("ncu") is None
        return "nvprof" if old and shutil.which("nvprof") else "ncu"
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


def planned_commands(subject: Run, place: Place, folder: Path) -> list[list[str]]:
    """Return the commands that `measure` would run, as far as they are known beforehand."""
    profiler = choose_profiler(subject.settings.profiler, place.gpu)
    first = [*place.launcher, *subject.command("timing", folder / "timing")]
    program = subject.command("profile", folder / "profile")
    if profiler == "nvprof":
        options = nvprof.NvprofOptions(subject.settings.metrics, subject.built_in)
        second = [
            nvprof.metrics_command(options, program, folder),
            nvprof.trace_command(options, program, folder),
        ]
        if checked_first(subject):
            second.insert(0, subject.command("check", folder / "check"))
        return [[*place.launcher, *each] for each in second]
    chosen = _ncu_options(subject, _Timed({}, {}, region_only=subject.built_in))
    report = folder / f"{METRICS_NAME}.ncu-rep"
    profile = [*place.launcher, *ncu.profile_command(chosen, program, report)]
    return [first, profile, [*place.launcher, *ncu.table_command(chosen, report)]]


def measure(subject: Run, folder: Path, place: Place) -> dict[str, Any]:
    """Measure a run into `folder`; return its manifest.

    Parameters
    ----------
    subject
        The run.
    folder
        An empty folder; gets ``timing.csv``, the profiler's exports and ``log.txt``.
    place
        Where to run.

    Returns
    -------
    dict
        The document for ``run.json``.

    Raises
    ------
    ProfilerError
        If a profiler is missing or refused, or the program failed.
    """
    started = now()
    log = folder / LOG_FILE
    profiler = choose_profiler(subject.settings.profiler, place.gpu)
    if profiler == "ncu":
        tool_version = None if place.launcher else place.ncu_version()
        timed = _timing(subject, folder, place, log)
        measured = _with_ncu(subject, folder, place, log, timed)
    else:
        tool_version = None
        about = _checked(subject, folder, place, log) if checked_first(subject) else {}
        timed = _Timed({"source": "nvprof"}, about, region_only=subject.built_in)
        measured = _with_nvprof(subject, folder, place, log)
    shutil.rmtree(folder / CACHE, ignore_errors=True)
    gpu = place.gpu
    about = timed.about
    about.pop("mode", None)
    about.pop("timing", None)
    surroundings = about.get("environment") or {}
    warnings = [*timed.record.pop("warnings", []), *measured.pop("warnings", [])]
    return {
        **about,
        "run_id": subject.run_id,
        "workload": subject.workload,
        "backend": subject.backend,
        "precision": subject.precision,
        "batch": subject.batch,
        "program": list(subject.program) or None,
        "layer_map": subject.layer_map,
        "iterations": subject.settings.iterations if subject.built_in else None,
        "metric_iterations": subject.settings.metric_iterations,
        "seed": subject.settings.seed if subject.built_in else None,
        "device": gpu.name if gpu else surroundings.get("gpu"),
        "compute_capability": (
            gpu.compute_capability if gpu else surroundings.get("compute_capability")
        ),
        "driver": gpu.driver if gpu else surroundings.get("driver"),
        "profiler": profiler,
        "profiler_version": tool_version,
        "perfml": __version__,
        "python": platform.python_version(),
        "launcher": list(place.launcher) or None,
        "started": started,
        "ended": now(),
        "timing": timed.record,
        "warnings": warnings,
        **measured,
    }


def _timing(subject: Run, folder: Path, place: Place, log: Path) -> _Timed:
    if subject.built_in:
        return _own_timing(subject, folder, place, log)
    if subject.settings.timing == "ncu":
        record = {"source": "ncu", "why": "asked for with --timing ncu"}
        return _Timed(record, {}, region_only=False)
    try:
        library(ACTIVITY)
    except ProfilerError as error:
        if subject.settings.timing == "cupti":
            raise
        why = f"times are Nsight Compute's, serialised and with cold caches: {error.what}"
        record = {"source": "ncu", "why": why, "warnings": [why]}
        return _Timed(record, {}, region_only=False)
    found = _traced(subject, folder, place, log)
    if any(name.startswith(_XLA_RANGE) for each in found.launches for name in each.ranges):
        # XLA tries kernels out when it compiles; the second time it has compiled already
        found = _traced(subject, folder, place, log)
    timing.write_timing(found.launches, folder / TIMING_FILE)
    record = {
        "source": "cupti-activity",
        "seconds": round(found.seconds, 3),
        "command": list(found.command),
        **_attribution(folder / TIMING_FILE, mapped=subject.layer_map is not None),
    }
    record["warnings"] = [*found.warnings, *record["warnings"]]
    names = dict.fromkeys(
        name
        for launch in found.launches
        for name in launch.ranges
        if ITERATION.fullmatch(name.strip())
    )
    twins = None
    if subject.settings.dedupe:
        twins = find_twins(
            folder / TIMING_FILE, iteration=next(iter(names), None), layers=subject.settings.layers
        )
    return _Timed(record, {}, found.region, tuple(names), twins)


def _traced(subject: Run, folder: Path, place: Place, log: Path) -> timing.Timing:
    return timing.trace(
        subject.program,
        log=log,
        timeout_s=place.timeout_s,
        launcher=place.launcher,
        env=subject.environment(folder / CACHE),
    )


def _own_timing(subject: Run, folder: Path, place: Place, log: Path) -> _Timed:
    """Let a built-in workload check and time itself."""
    aside = folder / "timing"
    ended = _run_workload(subject, "timing", aside, place, log)
    about = _read_object(aside / RUN_FILE)
    if not (aside / TIMING_FILE).is_file():
        msg = "the workload ended normally but left no times"
        raise ProfilerError(msg, where=str(aside), cure="log.txt has what it printed.")
    shutil.move(aside / TIMING_FILE, folder / TIMING_FILE)
    for document in sorted(aside.glob("*.json")):
        if document.name != RUN_FILE:  # what a workload keeps with its run, such as truth.json
            shutil.move(document, folder / document.name)
    shutil.rmtree(aside)
    record = {
        "source": "torch.profiler",
        "seconds": round(ended.seconds, 3),
        "command": list(ended.command),
        **_attribution(folder / TIMING_FILE),
    }
    twins = None
    if subject.settings.dedupe:
        twins = find_twins(
            folder / TIMING_FILE,
            iteration="iter_0",
            layers=subject.settings.layers,
            shapes=about.get("layers"),
        )
    return _Timed(record, about, region_only=True, twins=twins)


def _checked(subject: Run, folder: Path, place: Place, log: Path) -> dict[str, Any]:
    """Let a workload check itself where no timing pass does it."""
    aside = folder / "check"
    _run_workload(subject, "check", aside, place, log)
    about = _read_object(aside / RUN_FILE)
    shutil.rmtree(aside)
    return about


def _run_workload(subject: Run, mode: str, aside: Path, place: Place, log: Path) -> Finished:
    command = [*place.launcher, *subject.command(mode, aside)]
    try:
        ended = run(command, log=log, timeout_s=place.timeout_s, env=subject.environment())
    except OSError as error:
        msg = f"{command[0]} cannot be started"
        raise ProfilerError(msg, found=str(error), cure="Check --launcher.") from error
    require_right(aside)
    timing.check_ended(ended, place.timeout_s)
    return ended


def _attribution(table: Path, *, mapped: bool = False) -> dict[str, Any]:
    share, launches = timing.unattributed_share(table)
    warnings = []
    if share > UNATTRIBUTED_LIMIT and not mapped:
        warnings.append(
            f"{share:.1%} of the kernel time lies outside every layer; "
            "set NVTX ranges around it, or give a layer map"
        )
    return {
        "launches": launches,
        "unattributed_share": None if mapped else round(share, 6),
        "warnings": warnings,
    }


def _ncu_options(subject: Run, timed: _Timed) -> ncu.NcuOptions:
    from perfml.metrics import load_catalogue

    settings = subject.settings
    request = load_catalogue().ncu_request(settings.metrics)
    return ncu.NcuOptions(
        metrics=tuple(dict.fromkeys([*request, *settings.raw_metrics])),
        region_only=timed.region_only,
        include=_include(subject, timed),
        replay=settings.replay,
        cache_control=settings.cache_control,
    )


def _include(subject: Run, timed: _Timed) -> tuple[str, ...]:
    """Return the NVTX filters: the first iterations, and the wanted layers in them."""
    settings = subject.settings
    if timed.twins is not None:
        return timed.twins.filters()
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


def _with_ncu(subject: Run, folder: Path, place: Place, log: Path, timed: _Timed) -> dict[str, Any]:
    options = _ncu_options(subject, timed)
    aside = folder / "profile"
    found = ncu.profile(
        options,
        subject.command("profile", aside),
        folder=folder,
        log=log,
        timeout_s=place.timeout_s,
        launcher=place.launcher,
        env=subject.environment(folder / CACHE),
        name=METRICS_NAME,
    )
    shutil.rmtree(aside, ignore_errors=True)
    warnings = []
    if found.missing:
        warnings.append(f"this GPU did not deliver {', '.join(found.missing)}")
    per_launch = found.seconds_per_launch
    return {
        "clock_control": "none",
        "cache_control": options.cache_control,
        "replay": options.replay,
        "dedupe": timed.twins.as_dict() if timed.twins else None,
        "metrics_requested": list(options.measured),
        "metrics_missing": list(found.missing),
        "launches_profiled": found.launches,
        "passes": found.passes,
        "profiling_seconds": round(found.seconds, 3),
        "conversion_seconds": round(found.conversion_seconds, 3),
        "seconds_per_launch": round(per_launch, 5) if per_launch == per_launch else None,
        "commands": [list(each) for each in found.commands],
        "warnings": warnings,
    }


def _with_nvprof(subject: Run, folder: Path, place: Place, log: Path) -> dict[str, Any]:
    if place.gpu is not None:
        nvprof.require(place.gpu.compute_capability, launched=bool(place.launcher))
    options = nvprof.NvprofOptions(_nvprof_names(subject), region_only=subject.built_in)
    aside = folder / "profile"
    commands = nvprof.profile(
        options,
        subject.command("profile", aside),
        folder=folder,
        log=log,
        timeout_s=place.timeout_s,
        launcher=place.launcher,
        env=subject.environment(folder / CACHE),
    )
    shutil.rmtree(aside, ignore_errors=True)
    return {
        "metrics_requested": list(options.metrics),
        "commands": [list(each) for each in commands],
    }


def _nvprof_names(subject: Run) -> tuple[str, ...]:
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    names = catalogue.select(subject.settings.metrics)
    return tuple(name for name in names if catalogue[name].nvprof_unit)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = "the workload ended normally but left no description"
        raise ProfilerError(msg, where=str(path), found=str(error)[:200]) from error
    if not isinstance(found, dict):
        msg = "the workload's description is no JSON object"
        raise ProfilerError(msg, where=str(path), found=type(found).__name__)
    return found
