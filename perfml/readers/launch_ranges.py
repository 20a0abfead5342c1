"""Ranges of the host's threads: which of them each kernel was launched in.

A kernel runs later than the call that launches it, so a launch belongs to the ranges that were
open on its thread when its API call began, not to those open when it ran on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.readers.frame import CodedRanges, require_depth
from perfml.util.ranges import Path
from perfml.util.typing import Ints

FOREVER = np.iinfo(np.int64).max
"""End of a range that was never closed."""
NOWHERE = -1
"""The thread of a range that holds for every thread, and of a launch nobody knows the thread of."""
_CELLS = 1 << 24
"""Launches times ranges around them that are looked at together."""


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


@dataclass(frozen=True)
class RangeTable:
    """Ranges in order of their starts, the longer ones first.

    Attributes
    ----------
    start, end, thread, name
        Shape (n,): nanoseconds, `NOWHERE` or a thread's id, and an index of `names`.
    names
        What ranges are called.
    """

    start: Ints
    end: Ints
    thread: Ints
    name: Ints
    names: Sequence[str]

    def take(self, rows: Ints) -> RangeTable:
        """Return some of the ranges."""
        return RangeTable(
            self.start[rows], self.end[rows], self.thread[rows], self.name[rows], self.names
        )


def default_domain(ranges: Sequence[Range]) -> tuple[list[Range], list[str]]:
    """Keep the program's own ranges: those of the default domain, if there are any.

    Libraries annotate their work in domains of their own, which are no layers.
    """
    own = [span for span in ranges if span.domain == 0]
    others = len(ranges) - len(own)
    if not own or not others:
        return list(ranges), []
    return own, [of_libraries(others)]


def of_libraries(ranges: int) -> str:
    """Return the warning that ranges of libraries were left out."""
    return f"{ranges} NVTX ranges of libraries' own domains were left out."


def locate(
    launches: Sequence[Launch], ranges: Sequence[Range]
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the names of the ranges around each launch, and a number for the innermost one.

    Ranges are sorted by start. Names are outermost first; outside every range they are empty, and
    the number, an index of `ranges`, is -1.
    """
    numbers: dict[str, int] = {}
    rows = [
        (
            span.start,
            span.end,
            NOWHERE if span.thread is None else span.thread,
            numbers.setdefault(span.name, len(numbers)),
        )
        for span in ranges
    ]
    start, end, thread, name = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    table = RangeTable(start, end, thread, name, list(numbers))
    threads = [NOWHERE if launch.thread is None else launch.thread for launch in launches]
    times = np.array([launch.time for launch in launches], dtype=np.int64)
    coded, instances = located(times, np.array(threads, dtype=np.int64), table)
    return [coded.around[code] for code in coded.outer.tolist()], instances.tolist()


def located(times: Ints, threads: Ints, ranges: RangeTable) -> tuple[CodedRanges, Ints]:
    """Return the ranges around each launch, and the row of the innermost one, else -1.

    Parameters
    ----------
    times, threads
        When and by which thread each launch was made, shape (n,).
    ranges
        Those of the launches' process.

    Raises
    ------
    InputError
        If a launch lies in more ranges than can be meant.
    """
    codes, instances = np.zeros(len(times), dtype=np.int64), np.full(len(times), -1)
    paths: dict[Path, int] = {(): 0}
    for launches, mine in _by_thread(threads, ranges):
        held = _with_launches(times[launches], ranges, mine)
        tracks = _tracks(ranges.start[held], ranges.end[held])
        require_depth(_depth(times[launches], ranges, held), "the NVTX ranges")
        step = max(1, _CELLS // max(1, len(tracks)))
        for first in range(0, len(launches) if len(held) else 0, step):
            rows = launches[first : first + step]
            around = _around(times[rows], ranges, [held[track] for track in tracks])
            codes[rows] = _coded(around, ranges, paths)
            instances[rows] = around.max(axis=1)
    return CodedRanges(codes, list(paths), np.zeros_like(codes), [()]), instances


def _by_thread(threads: Ints, ranges: RangeTable) -> Iterator[tuple[Ints, Ints]]:
    """Yield the launches of each thread, and the ranges that may hold them."""
    anywhere = ranges.thread == NOWHERE
    for thread in np.unique(threads).tolist():
        mine = anywhere | (ranges.thread == thread) | (thread == NOWHERE)
        yield np.flatnonzero(threads == thread), np.flatnonzero(mine)


def _with_launches(times: Ints, ranges: RangeTable, mine: Ints) -> Ints:
    """Return those ranges in which a launch was made."""
    ordered = np.sort(times)
    first = np.searchsorted(ordered, ranges.start[mine], side="left")
    return mine[np.searchsorted(ordered, ranges.end[mine], side="right") > first]


def _depth(times: Ints, ranges: RangeTable, held: Ints) -> int:
    """Return in how many ranges a launch lies at most."""
    begun = np.searchsorted(ranges.start[held], times, side="right")
    ended = np.searchsorted(np.sort(ranges.end[held]), times, side="left")
    return int((begun - ended).max(initial=0))


def _tracks(start: Ints, end: Ints) -> list[Ints]:
    """Return ranges, sorted by start, as few rows of which no two overlap.

    A range goes where the one that ended longest ago left room, first come first served: which one
    that is follows from the order of all starts and ends, so that nothing is done one by one.
    """
    count = len(start)
    by_end = np.argsort(end, kind="stable")
    ended = np.searchsorted(end[by_end], start, side="left")
    # a row more is needed whenever more ranges are open than ever before
    rows = np.maximum.accumulate(np.arange(count) - ended + 1)
    opens = np.diff(rows, prepend=0) > 0
    place = np.arange(count) - rows  # of the range whose room is taken, in order of ends
    before = np.where(opens, np.arange(count), by_end[np.maximum(place, 0)])
    while not np.array_equal(again := before[before], before):
        before = again
    order = np.argsort(before, kind="stable")
    cuts = np.flatnonzero(np.diff(before[order])) + 1
    return np.split(order, cuts) if count else []


def _around(times: Ints, ranges: RangeTable, tracks: Sequence[Ints]) -> Ints:
    """Return the rows of the ranges around each launch in ascending order, after -1 for none."""
    around = np.full((len(times), len(tracks)), -1)
    for column, track in enumerate(tracks):
        place = np.searchsorted(ranges.start[track], times, side="right") - 1
        found = track[np.maximum(place, 0)]
        around[:, column] = np.where((place >= 0) & (ranges.end[found] >= times), found, -1)
    around.sort(axis=1)
    return around


def _coded(around: Ints, ranges: RangeTable, paths: dict[Path, int]) -> Ints:
    """Return a number for the path of each launch; new ones are added to `paths`."""
    names = len(ranges.names) + 1
    codes, known = np.zeros(len(around), dtype=np.int64), [()]
    for column in around.T:
        name = np.where(column >= 0, ranges.name[np.maximum(column, 0)] + 1, 0)
        codes, pairs = pd.factorize(codes * names + name)
        known = [
            (*known[pair // names], *((ranges.names[pair % names - 1],) if pair % names else ()))
            for pair in pairs.tolist()
        ]
    return np.array([paths.setdefault(path, len(paths)) for path in known])[codes]
