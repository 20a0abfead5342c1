"""What ``run.json`` says of a run, as types: each step gives its part, nobody changes another's.

Readers (`perfml.ingest.run_labels.read_manifest`) take the file as plain
JSON: perfml reads runs where nothing is collected, and never imports this package there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

OF_MODES = ("mode", "timing", "counters")
"""What a workload says of its own steps, which are no facts of the run."""


class _Part:
    """A part of the document: its fields, but for the warnings."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values, without what is not known."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            name: _listed(value)
            for name, value in values.items()
            if value is not None and name != "warnings"
        }


@dataclass(frozen=True)
class TimingRecord(_Part):
    """Where a run's times come from."""

    source: str  # `torch.profiler`, `cupti-activity`, `ncu` or `nvprof`
    seconds: float | None = None  # wall-clock time of the timing pass
    command: tuple[str, ...] | None = None  # its argument list
    launches: int | None = None  # timed launches
    # Share of their time outside every layer; None where a layer map will tell
    unattributed_share: float | None = None
    processes: int | None = None  # how many processes were timed, where there were several
    # seen_share, windows: of a server: part of the time in which launches were recorded, in how
    # many windows
    seen_share: float | None = None
    windows: int | None = None
    why: str | None = None  # why there was no pass without counters
    step_us: tuple[float, ...] | None = None  # iterations without a profiler, one after another
    # Clock of the multiprocessors right after it (`collectors.profilers.sm_clock`)
    sm_clock_mhz: float | None = None
    warnings: tuple[str, ...] = ()  # sentences for the user; they become the run's


@dataclass(frozen=True)
class MeasurementRecord(_Part):
    """What a profiler measured of a run, and what it cost."""

    # metrics_requested, metrics_missing: the profiler's names; those that this GPU did not deliver
    metrics_requested: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]  # the argument lists that were run
    profiler_version: str | None = None
    metrics_missing: tuple[str, ...] | None = None
    # clock_control, cache_control, caches, replay: how launches were repeated
    clock_control: str | None = None
    cache_control: str | None = None
    caches: str | None = None
    replay: str | None = None
    # launches_profiled, passes, runs: how many
    launches_profiled: int | None = None
    passes: int | None = None
    runs: int | None = None
    # profiling_seconds, conversion_seconds, seconds_per_launch: wall-clock times
    profiling_seconds: float | None = None
    conversion_seconds: float | None = None
    seconds_per_launch: float | None = None
    warnings: tuple[str, ...] = ()  # sentences for the user; they become the run's


@dataclass(frozen=True)
class RunRecord:
    """A finished run."""

    facts: dict[str, Any]  # what the run is: JSON values by key
    workload: dict[str, Any]  # what a built-in workload says of itself: layers, environment, checks
    # timing, measurement: what the two passes say
    timing: TimingRecord
    measurement: MeasurementRecord
    notes: tuple[str, ...] = ()  # further sentences for the user

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything the user has to see."""
        own = self.workload.get("warnings", ())
        return (*self.notes, *own, *self.timing.warnings, *self.measurement.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Return the document for ``run.json``."""
        said = {name: value for name, value in self.workload.items() if name not in OF_MODES}
        return {
            **said,
            **self.facts,
            "timing": self.timing.as_dict(),
            **self.measurement.as_dict(),
            "warnings": list(self.warnings),
        }


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if isinstance(value, tuple) else value
