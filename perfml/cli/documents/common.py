"""Types that documents of several verbs share."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

Microseconds = Annotated[float, "microseconds"]
MaybeMicroseconds = Annotated[float | None, "microseconds; null where not known"]
Number = float | None
Warnings = Annotated[list[str], "sentences that a person should see"]
Interval = Annotated[list[float] | None, "low and high; null without repeats"]


class Failed(TypedDict):
    """What is wrong, where, what was found, and what to do."""

    what: str
    where: str | None
    found: str | None
    cure: str | None


class Move(TypedDict):
    """What is copied one way, or filled."""

    us: Microseconds
    bytes: Number


class Device(TypedDict):
    """The account of one device: wall = computing + copying + idle."""

    device: int
    launches: int
    wall_us: Annotated[Microseconds, "from the first kernel's start to the last one's end"]
    kernels_us: Annotated[Microseconds, "the sum of the kernels' times"]
    computing_us: Annotated[Microseconds, "at least one kernel ran"]
    copying_us: Annotated[Microseconds, "memory was copied or filled and no kernel ran"]
    idle_us: Annotated[Microseconds, "neither a kernel nor a copy ran"]
    gap_us: Annotated[Microseconds, "median of what was idle before a launch"]
    longest_us: Annotated[Microseconds, "the longest of it"]


class Timeline(TypedDict):
    """What the clock shows of the usual iteration, from its first kernel to its last."""

    devices: Annotated[list[Device], "the one that worked longest first"]
    as_graph_us: Annotated[Microseconds, "about what it would take as one CUDA graph"]
    moved: NotRequired[
        Annotated[dict[str, Move], "copies and fills while no kernel runs, where they are known"]
    ]
