"""Ranges of the host's threads: which of them each kernel was launched in.

A kernel runs later than the call that launches it, so a launch belongs to the ranges that were
open on its thread when its API call began, not to those open when it ran on the GPU.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

FOREVER = 1 << 63
"""End of a range that was never closed."""


@dataclass(frozen=True)
class Range:
    """An NVTX range; ``thread`` is None if it holds for every thread of the process."""

    start: int
    end: int
    name: str
    thread: int | None
    domain: int


@dataclass(frozen=True)
class Launch:
    """When and by which thread a kernel was launched; None for an unknown thread."""

    time: int
    thread: int | None


def default_domain(ranges: Sequence[Range]) -> tuple[list[Range], list[str]]:
    """Keep the program's own ranges: those of the default domain, if there are any.

    Libraries annotate their work in domains of their own, which are no layers.
    """
    own = [each for each in ranges if each.domain == 0]
    others = len(ranges) - len(own)
    if not own or not others:
        return list(ranges), []
    return own, [f"{others} NVTX ranges of libraries' own domains were left out."]


def locate(
    launches: Sequence[Launch], ranges: Sequence[Range]
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the names of the ranges around each launch, and a number for the innermost one.

    Ranges are sorted by start. Names are outermost first; outside every range they are empty, and
    the number, an index of `ranges`, is -1.
    """
    paths: list[tuple[str, ...]] = [()] * len(launches)
    instances = [-1] * len(launches)
    active: dict[int, Range] = {}
    ends: list[tuple[int, int]] = []
    upcoming = 0
    for index in sorted(range(len(launches)), key=lambda index: launches[index].time):
        launch = launches[index]
        while upcoming < len(ranges) and ranges[upcoming].start <= launch.time:
            active[upcoming] = ranges[upcoming]
            heapq.heappush(ends, (ranges[upcoming].end, upcoming))
            upcoming += 1
        while ends and ends[0][0] < launch.time:
            active.pop(heapq.heappop(ends)[1])
        around = [
            number
            for number, each in active.items()
            if each.thread is None or launch.thread is None or each.thread == launch.thread
        ]
        paths[index] = tuple(ranges[number].name for number in around)
        instances[index] = around[-1] if around else -1
    return paths, instances
