"""Unions and intersections of time intervals: how long a device was busy, whatever overlapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals of time in ascending order.

    Attributes
    ----------
    start, end
        Shape (n,), in microseconds; ``start[i] <= end[i] < start[i + 1]``.
    """

    start: Floats
    end: Floats

    @property
    def length_us(self) -> float:
        """The length of all of them together, in microseconds."""
        return float((self.end - self.start).sum())

    def before(self, times: npt.NDArray[Any]) -> Floats:
        """Return how much of them lies before each of some times, shape as `times`."""
        if not self.start.size:
            return np.zeros(len(times))
        length = self.end - self.start
        total = np.concatenate([[0.0], np.cumsum(length)])
        place = np.searchsorted(self.start, times, side="right")
        last = np.maximum(place - 1, 0)
        inside = np.clip(times - self.start[last], 0, length[last])
        return np.where(place > 0, total[last] + inside, 0.0)


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """Return the union of intervals as disjoint ones.

    Parameters
    ----------
    start, end
        Shape (n,), in microseconds, in any order. Intervals with a NaN are left out.

    Raises
    ------
    ValueError
        If an interval ends before it starts.
    """
    starts, ends = np.asarray(start, dtype=float), np.asarray(end, dtype=float)
    known = ~(np.isnan(starts) | np.isnan(ends))
    starts, ends = starts[known], ends[known]
    if bool((ends < starts).any()):
        msg = "an interval ends before it starts"
        raise ValueError(msg)
    if starts.size == 0:
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], ends[last])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the time that lies in both unions."""
    first = np.searchsorted(other.end, one.start, side="right")
    last = np.searchsorted(other.start, one.end, side="left")
    pairs = np.maximum(last - first, 0)
    rows = np.repeat(np.arange(one.start.size), pairs)
    # the first of the other's intervals that each of one's meets, and those after it
    columns = np.arange(rows.size) - np.repeat(np.cumsum(pairs) - pairs - first, pairs)
    start = np.maximum(one.start[rows], other.start[columns])
    end = np.minimum(one.end[rows], other.end[columns])
    kept = start < end
    return Intervals(start[kept], end[kept])


def alone_us(start: Floats, end: Floats, rank: npt.NDArray[np.int_]) -> Floats:
    """Return how long each interval lasts while none that is counted before it does, shape (n,).

    Those of a lower `rank` count before others; of one rank the one that began first. So the sum is
    the length of the union.
    """
    alone = np.zeros(len(start))
    covered = Intervals(np.empty(0), np.empty(0))
    for number in np.unique(rank):
        rows = np.flatnonzero(rank == number)
        rows = rows[np.argsort(start[rows], kind="stable")]
        over = np.maximum.accumulate(end[rows])
        begins = np.minimum(np.maximum(start[rows], np.r_[start[rows[0]], over[:-1]]), end[rows])
        hidden = covered.before(end[rows]) - covered.before(begins)
        alone[rows] = end[rows] - begins - hidden
        covered = union(np.r_[covered.start, start[rows]], np.r_[covered.end, end[rows]])
    return alone


def difference(one: Intervals, other: Intervals) -> Intervals:
    """Return the time of one union that the other leaves out."""
    if one.start.size == 0 or other.start.size == 0:
        return one
    rest_start = np.concatenate(([-np.inf], other.end))
    rest_end = np.concatenate((other.start, [np.inf]))
    return intersection(one, Intervals(rest_start, rest_end))


def within(one: Intervals, start: float, end: float) -> Intervals:
    """Return the part of a union between two times."""
    starts, ends = np.clip(one.start, start, end), np.clip(one.end, start, end)
    kept = ends > starts
    return Intervals(starts[kept], ends[kept])
