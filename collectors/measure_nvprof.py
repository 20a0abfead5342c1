"""Measure one run through nvprof: a start for the metrics, and another for the times.

nvprof replays every kernel for its metrics, so that pass profiles few iterations; the times come
from as many as are timed with any other profiler.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from collectors.manifest import MeasurementRecord
from collectors.profilers import nvprof
from collectors.run_spec import Run


def nvprof_commands(subject: Run, folder: Path) -> list[list[str]]:
    """Return the argument lists that `measure_with_nvprof` runs, without a launcher."""
    return nvprof.pass_commands(_options(subject), _programs(subject, folder), folder)


def measure_with_nvprof(
    subject: Run,
    folder: Path,
    *,
    log: Path,
    timeout_s: float,
    launcher: tuple[str, ...],
    cache: Path,
) -> MeasurementRecord:
    """Measure a run into ``metrics.csv`` and ``trace.nvvp`` of a folder.

    Parameters
    ----------
    subject
        The run.
    folder
        Gets nvprof's files.
    log
        What the program prints is appended.
    timeout_s
        Limit of each start of the program.
    launcher
        Goes in front of the command.
    cache
        Where JAX may keep what it compiled.

    Returns
    -------
    MeasurementRecord
        For the manifest.

    Raises
    ------
    ProfilerError
        If nvprof is missing or refused, the program failed, or an export is missing.
    """
    options = _options(subject)
    commands = nvprof.profile(
        options,
        _programs(subject, folder),
        folder=folder,
        log=log,
        timeout_s=timeout_s,
        launcher=launcher,
        env=subject.environment(cache),
    )
    shutil.rmtree(_aside(folder), ignore_errors=True)
    return MeasurementRecord(metrics_requested=options.metrics, commands=tuple(commands))


def _aside(folder: Path) -> Path:
    return folder / "profile"


def _programs(subject: Run, folder: Path) -> nvprof.Programs:
    aside = _aside(folder)
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
