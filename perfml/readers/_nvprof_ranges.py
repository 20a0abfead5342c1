"""NVTX ranges of an exported nvprof profile: which of them each launch ran in."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_INSTANT, _START, _END = 1, 2, 4
"""Bits of a marker's flags (CUPTI's CUpti_ActivityFlag, MARKER_*)."""

_THREAD = 2
"""CUpti_ActivityObjectKind of a range that belongs to one thread (push and pop)."""

FOREVER = 1 << 63


@dataclass(frozen=True)
class Marker:
    """A record of CUPTI_ACTIVITY_KIND_MARKER: a range's start or its end."""

    time: int
    flags: int
    id: int
    object_kind: int
    object_id: bytes
    name: str | None
    domain: int


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


def pair(markers: Sequence[Marker]) -> tuple[list[Range], list[str]]:
    """Pair the starts and ends of ranges by their id.

    Returns
    -------
    ranges
        In order of their starts. A range without an end stays open.
    warnings
        Sentences about starts without end and ends without start.
    """
    opened: dict[int, Marker] = {}
    ranges: list[Range] = []
    orphans = 0
    for marker in sorted(markers, key=lambda marker: marker.time):
        if marker.flags & _START:
            if marker.id in opened:
                ranges.append(_range(opened[marker.id], FOREVER))
            opened[marker.id] = marker
        elif marker.flags & _END:
            start = opened.pop(marker.id, None)
            if start is None:
                orphans += 1
            else:
                ranges.append(_range(start, marker.time))
    unended = len(opened)
    ranges.extend(_range(marker, FOREVER) for marker in opened.values())
    warnings = []
    if unended:
        warnings.append(f"{unended} NVTX ranges have no end; they are taken to last to the end.")
    if orphans:
        warnings.append(f"{orphans} NVTX range ends have no start and were left out.")
    return sorted(ranges, key=lambda each: (each.start, -each.end)), warnings


def _range(marker: Marker, end: int) -> Range:
    thread = None
    if marker.object_kind == _THREAD and len(marker.object_id) >= 8:
        thread = struct.unpack_from("<I", marker.object_id, 4)[0]
    return Range(marker.time, end, marker.name or "(unnamed)", thread, marker.domain)


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

    Parameters
    ----------
    launches
        Any order.
    ranges
        Sorted by start.

    Returns
    -------
    paths
        Names, outermost first; empty outside every range.
    instances
        Index of the innermost range, -1 outside every range.
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
