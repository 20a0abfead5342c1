"""What a device did in a time on the clock, in microseconds that add up.

    wall = computing + copying + both + idle

It is of a recording, from the start of a device's first operation (kernel, copy or fill) to the end
of its last one, or of a step of it (`perfml.account.build`). Nothing else subtracts two times.
Devices are never added up: each has an account of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.intervals import (
    Floats,
    Intervals,
    alone_us,
    difference,
    intersection,
    union,
    within,
)
from perfml.util.json_values import json_object
from perfml.util.typing import Ints


@dataclass(frozen=True)
class Spans:
    """Operations of devices: kernels, copies and fills.

    Attributes
    ----------
    device
        Its number, shape (n,).
    start, end
        When each operation began and ended, nanoseconds, shape (n,).
    """

    device: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Spans:
        """Return operations of device, start and end of each."""
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    def __getitem__(self, rows: slice | Ints | npt.NDArray[np.bool_]) -> Spans:
        return Spans(self.device[rows], self.start[rows], self.end[rows])

    def after(self, origin: int) -> Spans:
        """Return the same counted from another time on."""
        return Spans(self.device, self.start - origin, self.end - origin)

    @property
    def start_us(self) -> Floats:
        """When each began, from the first one on; microseconds, shape (n,)."""
        return (self.start - (self.start.min() if len(self) else 0)) / 1e3

    @property
    def length_us(self) -> Floats:
        """How long each took, NaN where that is less than the clock shows; shape (n,)."""
        return np.where(self.end > self.start, (self.end - self.start) / 1e3, np.nan)

    def on(self, device: int) -> tuple[Floats, Floats]:
        """Return start and end of what has a length on a device, microseconds."""
        rows = (self.device == device) & (self.end > self.start)
        return self.start[rows] / 1e3, self.end[rows] / 1e3


NOTHING = Spans.of([])


class Busy:
    """When a device ran kernels, and when it copied.

    Parameters
    ----------
    kernels, copies
        Start and end of each, microseconds.
    device
        Its number.
    """

    def __init__(
        self, kernels: tuple[Floats, Floats], copies: tuple[Floats, Floats], device: int
    ) -> None:
        self.device = device
        self.starts, self.ends = kernels
        self.computing, self.copying = union(*kernels), union(*copies)

    @property
    def ends_at(self) -> tuple[float, float]:
        """The start of the first operation and the end of the last one."""
        busy = [each for each in (self.computing, self.copying) if each.start.size]
        return min(float(b.start[0]) for b in busy), max(float(b.end[-1]) for b in busy)

    def idle(self, start: float, end: float) -> Intervals:
        """Return when the device had nothing to do between two times."""
        between = Intervals(np.array([start]), np.array([end]))
        return difference(difference(between, self.computing), self.copying)

    def time(self, start: float, end: float) -> DeviceTime:
        """Return the account of the device between two times."""
        one, other = within(self.computing, start, end), within(self.copying, start, end)
        both = intersection(one, other).length_us
        alone = one.length_us - both, other.length_us - both
        begun = (self.starts >= start) & (self.starts < end)
        gaps = self.idle(start, end)
        lengths = gaps.end - gaps.start if gaps.start.size else np.zeros(1)
        return DeviceTime(
            int(begun.sum()),
            float((self.ends - self.starts)[begun].sum()),
            *alone,
            max(end - start - sum(alone) - both, 0.0),
            float(np.median(lengths)),
            float(lengths.max()),
            self.device,
            both,
        )


def recorded_times(kernels: Spans, copies: Spans = NOTHING) -> dict[int, DeviceTime]:
    """Return the account of every device, from its first operation's start to its last one's end.

    Operations without a length are those whose times are not known, and count for nothing.
    """
    times = {}
    for device in sorted({*kernels.device.tolist(), *copies.device.tolist()}):
        busy = Busy(kernels.on(device), copies.on(device), device)
        if busy.computing.start.size or busy.copying.start.size:
            times[device] = busy.time(*busy.ends_at)
    return times


def idle_before(kernels: Spans, copies: Spans = NOTHING) -> Floats:
    """Return how long a device was idle since its kernel before, when each kernel began.

    Copies and fills between them are no idle time, wherever between them they lie. Microseconds,
    shape (n,); 0 for a kernel that began before the last one ended, NaN for the first operation
    of a device.
    """
    idle = np.full(len(kernels), np.nan)
    for number in np.unique(kernels.device):
        rows = np.flatnonzero(kernels.device == number)
        rows = rows[np.argsort(kernels.start[rows], kind="stable")]
        start = kernels.start[rows] / 1e3
        over = np.maximum.accumulate(np.maximum(kernels.end[rows], kernels.start[rows])) / 1e3
        moving = union(*copies.on(number))
        first = min([math.inf, *moving.start[:1].tolist()])
        since = np.minimum(np.concatenate([[first], over[:-1]]), start)
        known = rows[1:] if first >= start[0] else rows
        gaps = start - since - (moving.before(start) - moving.before(since))
        idle[known] = gaps[len(rows) - len(known) :]
    return np.where(np.abs(idle) < _NO_TIME, 0.0, idle)


def exposed_us(kernels: Spans, moves: Spans) -> Floats:
    """Return how long each copy or fill lasts beside no kernel and no earlier one, shape (n,)."""
    start, end = (np.r_[getattr(kernels, s), getattr(moves, s)] / 1e3 for s in ("start", "end"))
    return alone_us(start, end, np.repeat([0, 1], [len(kernels), len(moves)]))[len(kernels) :]


def busy_share(kernels: Spans) -> float | None:
    """Return which part of the time from the first launch to the last one kernels were running.

    It is 0 to 1, averaged over devices weighted by their time; None if no time passed.
    """
    times = recorded_times(kernels).values()
    total = sum(each.wall_us for each in times)
    return sum(each.busy_us for each in times) / total if total > 0 else None


_NO_TIME = 1e-6
"""Microseconds that rounding leaves."""

RECORDED = "recorded_iteration"
"""Column of the iteration that a launch ran in, where every launch counts as one of its own."""

OFTEN = "launches_an_iteration"
"""Column of how often the kernel of such a launch is launched in a recorded iteration."""


def repeat_keys(launches: pd.DataFrame) -> list[str]:
    """Return the columns that tell the repeats of a program apart."""
    iteration = RECORDED if RECORDED in launches.columns else "iteration"
    wanted = ["run_id", "process", iteration]
    if "device_id" not in launches.columns:
        # numbered devices run at one time, each with its own account
        wanted.append("device")
    return [name for name in wanted if name in launches.columns]


@dataclass(frozen=True)
class DeviceTime:
    """The account of one device over a recording or a step of it.

    Attributes
    ----------
    launches
        Kernels, or CUDA graphs traced as a whole; of a mean of steps no whole number.
    kernels_us
        The sum of their times.
    computing_us
        While at least one of them ran, and no copy.
    copying_us
        While memory was copied or filled and no kernel ran.
    idle_us
        None of it.
    gap_us
        Median of its idle times.
    longest_us
        The longest of it.
    device
        Which of the devices of a profile.
    both_us
        While kernels ran and memory was copied.
    """

    launches: float
    kernels_us: float
    computing_us: float
    copying_us: float
    idle_us: float
    gap_us: float = 0.0
    longest_us: float = 0.0
    device: int = 0
    both_us: float = 0.0

    JSON: ClassVar = (
        *("launches", "kernels_us", "computing_us", "copying_us", "idle_us", "gap_us"),
        *("longest_us", "device", "wall_us", "both_us"),
    )
    to_dict = json_object

    @property
    def busy_us(self) -> float:
        """While the device worked: computing, copying, or both."""
        return self.computing_us + self.copying_us + self.both_us

    @property
    def wall_us(self) -> float:
        """The time on the clock."""
        return self.busy_us + self.idle_us

    @classmethod
    def mean(cls, times: Sequence[DeviceTime]) -> DeviceTime:
        """Return the mean of several times of one device."""
        rows = np.array([dataclasses.astuple(each) for each in times], dtype=float)
        names = (field.name for field in dataclasses.fields(cls))
        means = dict(zip(names, rows.mean(axis=0).tolist(), strict=True))
        return cls(**{**means, "device": times[0].device})


def device_of(launches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the number of each launch's device, 0 where the table does not say, shape (n,)."""
    if "device_id" not in launches.columns:
        return np.zeros(len(launches), dtype=np.int64)
    return launches["device_id"].fillna(0).to_numpy(dtype=np.int64)


def on_busiest_device(launches: pd.DataFrame) -> pd.DataFrame:
    """Return, of each run, the launches of the device whose kernels take longest.

    A sum over kernels of several devices is no time that anybody waits for.
    """
    device = device_of(launches)
    if not len(device) or (device == device[0]).all():
        return launches
    number = launches["launches"].fillna(1) if "launches" in launches.columns else 1.0
    time = (launches["time_us"] * number).to_numpy(dtype=float)
    run = launches.groupby("run_id", sort=False, dropna=False).ngroup().to_numpy()
    sums = pd.Series(time).groupby([run, device]).sum()
    longest = np.array([device for _, device in sums.groupby(level=0).idxmax()])
    kept: pd.DataFrame = launches[device == longest[run]]
    return kept.reset_index(drop=True)


def group_times(
    group: npt.ArrayLike, start_us: npt.ArrayLike, time_us: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Return how long a device was busy with each of n groups of launches, and over which time.

    Parameters
    ----------
    group
        Shape (m,): the number of each launch's group, from 0 on. Launches of two devices belong to
        two groups, as devices are never added up.
    start_us, time_us
        Shape (m,): when each launch began, and how long it ran.

    Returns
    -------
    tuple
        Shape (n,) each: the length of the union of a group's launches, and from its first start to
        its last end. NaN where a start or a time of the group is not known.

    Notes
    -----
    A union that is as long as the sum of its launches to a millionth is that sum, digit for digit:
    launches one after another take what they take, wherever the clock begins.
    """
    codes = np.asarray(group, dtype=np.intp)
    starts, times = np.asarray(start_us, dtype=float), np.asarray(time_us, dtype=float)
    count = int(codes.max()) + 1 if codes.size else 0
    order = np.lexsort((starts, codes))
    codes, starts, times = codes[order], starts[order], times[order]
    ends = pd.Series(starts + times)
    # what ended last among the launches of the group that began before
    before = ends.groupby(codes).cummax().groupby(codes).shift().to_numpy()
    hidden = np.clip(np.minimum(before, ends) - starts, 0.0, None)
    summed = np.bincount(codes, weights=times, minlength=count)
    busy = summed - np.bincount(codes, weights=np.nan_to_num(hidden), minlength=count)
    busy = np.where(np.isclose(busy, summed, rtol=1e-6, atol=0.0), summed, busy)
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.fmin.at(first, codes, starts)
    np.fmax.at(last, codes, ends.to_numpy())
    unknown = np.bincount(codes, weights=np.isnan(starts + times), minlength=count) > 0
    return np.where(unknown, np.nan, busy), np.where(unknown, np.nan, last - first)


def busy_on_one_device(launches: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Return how long the device that worked longest computed in each group of launches.

    The launches have ``start_us``, ``time_us`` and, of several devices, ``device_id``; `keys` tell
    groups apart. Returned are microseconds by `keys`, named ``time_us``; NaN where a start is not
    known.
    """
    groups = launches.assign(account=device_of(launches)).groupby(
        [*keys, "account"], dropna=False, sort=False
    )
    busy = groups.size().astype(float)
    busy[:], _ = group_times(groups.ngroup(), launches["start_us"], launches["time_us"])
    longest: pd.Series = busy.groupby(level=list(range(len(keys))), dropna=False, sort=False).max()
    return longest.rename_axis(list(keys)).rename("time_us")
