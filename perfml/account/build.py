"""From a recording to its account."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfml.account.account import Account, Copies, DeviceAccount, Idle, Part, is_warm_up
from perfml.account.device_time import DeviceTime
from perfml.account.host import Host, is_pageable
from perfml.account.intervals import Floats, Intervals, difference, intersection, union, within
from perfml.account.origins import Origin, Origins
from perfml.account.recording import Activity, DeviceKind, Recording
from perfml.account.steps import Steps
from perfml.kernel_names import kernel_label, kernel_traits
from perfml.util.ranges import ITERATION

_KINDS = (("HtoD", "to_device"), ("HtoA", "to_device"), ("DtoH", "to_host"), ("AtoH", "to_host"))
_BETWEEN = frozenset({"elementwise", "conversion", "random", "softmax", "reduction", "fill", ""})
"""What stands between the two products of an attention that is written out."""
_OPTIMIZER = "Optimizer.step#"


class _Work:
    """Activities of one device, with where they were launched; microseconds, shape (n,)."""

    def __init__(self, pairs: Sequence[tuple[Activity, Origin]]) -> None:
        self.activities = [activity for activity, _ in pairs]
        self.origins = [origin for _, origin in pairs]
        self.starts = np.array([each.start for each in self.activities]) / 1e3
        self.ends = np.array([each.end for each in self.activities]) / 1e3
        self.kernels = np.array([each.kind is DeviceKind.KERNEL for each in self.activities])
        self.computing = union(self.starts[self.kernels], self.ends[self.kernels])
        self.copying = union(self.starts[~self.kernels], self.ends[~self.kernels])
        self.talks = np.array([_does(each) == "communication" for each in self.activities])

    def idle(self, start: float, end: float) -> Intervals:
        """Return when the device had nothing to do between two times."""
        whole = Intervals(np.array([start]), np.array([end]))
        return difference(difference(whole, self.computing), self.copying)

    def communication(self, start: float, end: float) -> float:
        """Return how long communication ran between two times, beside computing or not."""
        return within(union(self.starts[self.talks], self.ends[self.talks]), start, end).length_us

    def time(self, start: float, end: float) -> DeviceTime:
        """Return the account of the device between two times."""
        one, other = within(self.computing, start, end), within(self.copying, start, end)
        both = intersection(one, other).length_us
        alone = one.length_us - both, other.length_us - both
        begun = self.kernels & (self.starts >= start) & (self.starts < end)
        gaps = self.idle(start, end)
        lengths = gaps.end - gaps.start if gaps.start.size else np.zeros(1)
        return DeviceTime(
            int(begun.sum()),
            float((self.ends - self.starts)[begun].sum()),
            *alone,
            end - start - sum(alone) - both,
            float(np.median(lengths)),
            float(lengths.max()),
            self.activities[0].device,
            both,
        )


def account_of(
    recording: Recording,
    steps: Steps,
    finder: Origins,
    origins: Sequence[Origin],
    *,
    pytorch: bool = True,
) -> Account:
    """Return the account of a recording.

    The recording has at least one activity; `finder` and `origins` say where each was launched.
    `pytorch`: its users are told lines of PyTorch.
    """
    ends = _ends(recording, steps, origins)
    bounds = np.array([steps.starts[0], *ends]) / 1e3
    walls = tuple(float(wall) for wall in np.diff(bounds))
    warm_up = is_warm_up(walls)
    kept = bounds[1:] if warm_up else bounds
    host = Host(recording, finder, origins)
    pairs: dict[int, list[tuple[Activity, Origin]]] = {}
    for activity, origin in zip(recording.activities, origins, strict=True):
        pairs.setdefault(activity.device, []).append((activity, origin))
    return Account(
        steps.name,
        walls,
        warm_up,
        tuple(
            _device(number, _Work(held), kept, host, steps, first=int(warm_up))
            for number, held in sorted(pairs.items())
        ),
        host.waits(steps.starts[int(warm_up)], steps.ends[-1]),
        any(origin.backward for origin in origins),
        pytorch,
    )


def _ends(recording: Recording, steps: Steps, origins: Sequence[Origin]) -> list[int]:
    """Return when each step was over: left by the host, and done by the devices."""
    ends = list(steps.ends)
    for activity, origin in zip(recording.activities, origins, strict=True):
        step = steps.of(origin.time)
        if step >= 0:
            ends[step] = max(ends[step], activity.end)
    return [int(end) for end in np.maximum.accumulate(ends)]


def _device(
    number: int, work: _Work, bounds: Floats, host: Host, steps: Steps, *, first: int
) -> DeviceAccount:
    start, end, count = float(bounds[0]), float(bounds[-1]), len(bounds) - 1
    times = [work.time(float(since), float(until)) for since, until in itertools.pairwise(bounds)]
    idle = [
        Idle(str(state), part.length_us / count, host.where(part))
        for state, part in host.idle(work.idle(start, end), work.activities).items()
        if part.length_us > 0
    ]
    alone = _alone(work, start, end) / count
    counted = np.array([steps.of(origin.time) >= first for origin in work.origins])
    return DeviceAccount(
        number,
        DeviceTime.mean(times),
        tuple(times),
        tuple(sorted(idle, key=lambda each: -each.us)),
        _parts(work, alone, counted / count),
        _copies(work, alone, counted / count),
        int((work.kernels & counted).sum()) / count,
        work.communication(start, end) / count,
    )


def _alone(work: _Work, start: float, end: float) -> Floats:
    """Return how long each activity runs while none that is counted before it does.

    Computing counts before communication, and both before copies; of one kind the one that began
    first. So the sum is the union.
    """
    found = np.zeros(len(work.activities))
    covered = Intervals(np.empty(0), np.empty(0))
    ranks = np.where(work.kernels, np.where(work.talks, 1, 0), 2)
    starts, ends = np.clip(work.starts, start, end), np.clip(work.ends, start, end)
    for rank in range(3):
        rows = np.flatnonzero(ranks == rank)
        if not rows.size:
            continue
        rows = rows[np.argsort(starts[rows], kind="stable")]
        over = np.maximum.accumulate(ends[rows])
        before = np.concatenate([[start], over[:-1]])
        begins = np.minimum(np.maximum(starts[rows], before), ends[rows])
        hidden = covered.before(ends[rows]) - covered.before(begins)
        found[rows] = ends[rows] - begins - hidden
        mine = union(starts[rows], ends[rows])
        covered = union(
            np.concatenate([covered.start, mine.start]), np.concatenate([covered.end, mine.end])
        )
    return found


def _parts(work: _Work, alone: Floats, launches: Floats) -> tuple[Part, ...]:
    written_out = _attention(work)
    operators = any(origin.operator for origin in work.origins)
    sums: dict[Part, Floats] = {}
    where: dict[Part, defaultdict[str, float]] = {}
    for at, (activity, origin) in enumerate(zip(work.activities, work.origins, strict=True)):
        if activity.kind is not DeviceKind.KERNEL or not (alone[at] > 0 or launches[at] > 0):
            continue
        traits = kernel_traits(activity.name)
        part = Part(
            _zone(traits.does, origin, at in written_out),
            origin.operator or ("" if operators else _innermost(origin)),
            origin.backward,
            _label(activity.name),
            traits.does,
            tuple(sorted(traits.ids())),
        )
        amounts = sums.setdefault(part, np.zeros(2))
        amounts += (alone[at], launches[at])
        place = "/".join(name for name in origin.path if not ITERATION.fullmatch(name))
        where.setdefault(part, defaultdict(float))[place] += float(alone[at])
    parts = [
        replace(part, where=max(where[part], key=where[part].__getitem__), us=us, launches=times)
        for part, (us, times) in ((part, amounts.tolist()) for part, amounts in sums.items())
    ]
    return tuple(sorted(parts, key=lambda part: -part.us))


def _innermost(origin: Origin) -> str:
    """Return the innermost range, which stands for the operator where nobody recorded operators."""
    return next((name for name in origin.path[::-1] if not ITERATION.fullmatch(name)), "")


_label = functools.lru_cache(maxsize=1 << 12)(kernel_label)


def _zone(does: str, origin: Origin, written_out: bool) -> str:
    if does == "communication":
        return "communication"
    if origin.recomputed:
        return "recomputed"
    if any(name.startswith(_OPTIMIZER) for name in origin.path):
        return "optimizer"
    return "attention" if written_out else ""


def _attention(work: _Work) -> set[int]:
    """Return the kernels of attention that is written out: product, softmax, product.

    They are taken in launch order; between both products stands what each of them writes.
    """
    order = [
        at
        for at in np.argsort([origin.time for origin in work.origins], kind="stable").tolist()
        if work.activities[at].kind is DeviceKind.KERNEL and not work.origins[at].backward
    ]
    found: set[int] = set()
    window: list[int] = []
    for at in order:
        traits = kernel_traits(work.activities[at].name)
        if traits.does == "product":
            soft = [kernel_traits(work.activities[each].name) for each in window]
            if any(t.does == "softmax" and "log_softmax" not in t.traits for t in soft):
                found.update((*window, at))
            window = [at]
        elif window and traits.does in _BETWEEN:
            window.append(at)
        else:
            window = []
    return found


def _copies(work: _Work, alone: Floats, times: Floats) -> tuple[Copies, ...]:
    sums: dict[tuple[str, bool], Floats] = {}
    for at in np.flatnonzero(~work.kernels):
        activity = work.activities[at]
        amounts = sums.setdefault((_kind(activity), is_pageable(activity)), np.zeros(3))
        amounts += (alone[at], activity.bytes * times[at], times[at])
    rows = [Copies(*key, *amounts.tolist()) for key, amounts in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.us))


def _kind(activity: Activity) -> str:
    if activity.kind is DeviceKind.FILL:
        return "filled"
    name = activity.name.replace(" ", "").replace("HostToDevice", "HtoD")
    name = name.replace("DeviceToHost", "DtoH")
    return next((kind for part, kind in _KINDS if part in name), "copied")


def _does(activity: Activity) -> str:
    return kernel_traits(activity.name).does if activity.kind is DeviceKind.KERNEL else ""
