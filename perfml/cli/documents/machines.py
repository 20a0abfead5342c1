"""Documents of the verbs that run where the GPU is: doctor, collect, sweep."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Check(TypedDict):
    """What works on this machine, or the cure."""

    name: str
    status: str
    found: str
    cure: str


class Doctor(TypedDict):
    """What works on this machine."""

    checks: list[Check]
    peaks: dict[str, Any] | None


class CollectedRun(TypedDict):
    """What became of one run."""

    run_id: str
    status: Literal["done", "kept", "failed", "busy", "planned"]
    folder: str
    message: str
    commands: list[list[str]]
    warnings: list[str]
    record: dict[str, Any] | None


class Collect(TypedDict):
    """Runs that were measured, or would be."""

    out: str
    runs: list[CollectedRun]


class PlannedRun(TypedDict):
    """A run of a sweep's plan."""

    run_id: str
    state: Literal["done", "planned"]


class SweepPlan(TypedDict):
    """What a sweep would measure."""

    out: str
    runs: list[PlannedRun]


class SweepRun(TypedDict):
    """What the manifest knows of a run."""

    run_id: str
    state: Literal["pending", "running", "done", "failed"]
    message: str
    launches: int | None
    attempts: int
    worker: str
    host: str
    gpu: str
    since: float
    seconds: float


class Sweep(TypedDict):
    """What became of a sweep."""

    file: str
    out: str
    summary: dict[str, Any]
    runs: list[SweepRun]
