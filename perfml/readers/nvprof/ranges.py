"""NVTX ranges of an exported nvprof profile: its markers, put together in pairs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.readers.launch_ranges import FOREVER, Range

_INSTANT, _START, _END = 1, 2, 4
"""Bits of a marker's flags (CUPTI's CUpti_ActivityFlag, MARKER_*)."""

_THREAD = 2
"""CUpti_ActivityObjectKind of a range that belongs to one thread (push and pop)."""


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


def pair(markers: Sequence[Marker]) -> tuple[list[Range], list[str]]:
    """Pair the starts and ends of ranges by their id.

    Ranges are in order of their starts; one without an end stays open. Warnings are sentences about
    starts without end and ends without start.
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
