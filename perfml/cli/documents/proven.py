"""The document of the verb prove."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

Microseconds = Annotated[float, "microseconds"]
Number = float | None
"""A number, null where it is not defined."""


class ExaminedDevice(TypedDict):
    """The device of the experiments."""

    multiprocessors: int
    l2_bytes: int
    empty_us: Annotated[float, "microseconds that a launch of an empty kernel takes in a batch"]


class IntervalOf(TypedDict):
    """What the intervals are over."""

    level: float
    over: str


class SkippedLaunch(TypedDict):
    """A launch that cannot be run under other conditions."""

    kernel: str
    reason: str


class ConditionResponse(TypedDict):
    """How the time answers to one condition."""

    condition: str
    ratio: Annotated[float, "time over that of its control"]
    low: float
    high: float
    amount: Annotated[Number, "of the resource that is left; null where it is not known"]
    elasticity: Annotated[Number, "log of the ratio over log of 1 / amount"]


class CauseVerdict(TypedDict):
    """What the experiment says of a cause (--cause)."""

    cause: str
    verdict: Literal["proven", "refuted", "not decided"]
    share: Annotated[Number, "of the time at the limits that the cause predicts"]
    low: Number
    high: Number
    likelihood: Annotated[
        Number, "how often a limit with such a share was right on recorded kernels"
    ]


class LimitShares(TypedDict):
    """Shares of the time; they add up to 1. Null where fewer multiprocessors were refused."""

    launch: float
    multiprocessor: Number
    warps: Number
    memory_latency: Number
    dram: Number
    l2: Number
    fixed: Number


class ProvenLaunch(TypedDict):
    """A launch, what limits it and how it answered."""

    ranges: list[str]
    kernel: str
    grid: str
    block: str
    time_us: Microseconds
    limit: Annotated[str | None, "that makes half of the time; null where none does"]
    shares: LimitShares
    verdict: CauseVerdict | None
    responses: list[ConditionResponse]


class ProvenFinding(TypedDict):
    """The first cause of an explanation (--explained), and what the experiment says of it."""

    layer: Annotated[str, "of the slower side"]
    cause: str
    certainty: Annotated[str, "by counters"]
    verdict: Annotated[CauseVerdict | None, "null where the layer was not examined"]
    sentence: str


class Prove(TypedDict):
    """Launches under experiments, the longest first."""

    device: ExaminedDevice
    interval: IntervalOf
    left: Annotated[int, "launches that the time limit left open"]
    shortened: Annotated[int, "long launches with fewer rounds or conditions"]
    skipped: list[SkippedLaunch]
    findings: list[ProvenFinding]
    launches: list[ProvenLaunch]
