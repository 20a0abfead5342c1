"""Documents of the verbs that run where the GPU is: doctor, collect, attach, sweep."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from collectors.collect import RunResult
from collectors.doctor import Check
from collectors.sweep.manifest import State


class Doctor(TypedDict):
    """What works on this machine."""

    checks: list[Check]
    peaks: dict[str, Any] | None


class Collect(TypedDict):
    """Runs that were measured, or would be."""

    out: str
    runs: list[RunResult]


class Attached(TypedDict):
    """Where the run of a process lies that was measured while it ran."""

    folder: str


class PlannedRun(TypedDict):
    """A run of a sweep's plan."""

    run_id: str
    state: Literal["done", "planned"]


class SweepPlan(TypedDict):
    """What a sweep would measure."""

    out: str
    runs: list[PlannedRun]


class Sweep(TypedDict):
    """What became of a sweep."""

    file: str
    out: str
    summary: dict[str, Any]
    runs: list[State]
