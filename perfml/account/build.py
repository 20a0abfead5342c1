"""From a recording to its account."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfml.account.account import (
    Account,
    Copies,
    DeviceAccount,
    DeviceStep,
    Idle,
    Part,
    is_warm_up,
)
from perfml.account.host import Host, is_pageable
from perfml.account.intervals import (
    Floats,
    Intervals,
    difference,
    intersection,
    union,
    within,
)
from perfml.account.origins import Origin, Origins
from perfml.account.recording import Activity, DeviceKind, Recording
from perfml.account.steps import Steps
from perfml.kernel_names import kernel_label, kernel_traits
from perfml.util.ranges import ITERATION

_KINDS = (("HtoD", "to_device"), ("HtoA", "to_device"), ("DtoH", "to_host"), ("AtoH", "to_host"))
_BETWEEN = frozenset({"elementwise", "conversion", "random", "softmax", "reduction", "fill", ""})
"""What stands between the two products of an attention that is written out."""
_OPTIMIZER = "Optimizer.step#"


@dataclass(frozen=True)
class _Work:
    """Activities of one device, with where they were launched."""

    activities: list[Activity]
    origins: list[Origin]

    def union(self, *kinds: DeviceKind) -> Intervals:
        """Return when the device was busy with some kinds."""
        mine = [each for each in self.activities if each.kind in kinds]
        return union([each.start / 1e3 for each in mine], [each.end / 1e3 for each in mine])


def account_of(
    recording: Recording, steps: Steps, finder: Origins, origins: Sequence[Origin]
) -> Account:
    """Return the account of a recording.

    Parameters
    ----------
    recording
        With at least one activity.
    steps
        Where its steps begin and end.
    finder, origins
        Where each of its activities was launched.
    """
    ends = _ends(recording, steps, origins)
    bounds = np.array([steps.starts[0], *ends]) / 1e3
    walls = tuple(float(wall) for wall in np.diff(bounds))
    warm_up = is_warm_up(walls)
    kept = bounds[1:] if warm_up else bounds
    host = Host(recording, finder, origins)
    devices = []
    for device in sorted({each.device for each in recording.activities}):
        rows = [at for at, each in enumerate(recording.activities) if each.device == device]
        work = _Work([recording.activities[at] for at in rows], [origins[at] for at in rows])
        devices.append(_device(device, work, kept, host, steps, first=int(warm_up)))
    kernels = [each.kind is DeviceKind.KERNEL for each in recording.activities]
    times = [each.end - each.start for each in recording.activities]
    whole = sum(time for time, kernel in zip(times, kernels, strict=True) if kernel)
    inside = sum(
        time
        for time, kernel, origin in zip(times, kernels, origins, strict=True)
        if kernel and origin.path
    )
    return Account(
        steps.name,
        walls,
        warm_up,
        tuple(devices),
        host.waits(steps.starts[int(warm_up)], steps.ends[-1]),
        any(origin.backward for origin in origins),
        inside / whole if whole else 0.0,
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
    computing = work.union(DeviceKind.KERNEL)
    copying = work.union(DeviceKind.COPY, DeviceKind.FILL)
    whole = Intervals(np.array([start]), np.array([end]))
    gaps = difference(difference(whole, computing), copying)
    walls = [
        _step(computing, copying, float(since), float(until))
        for since, until in itertools.pairwise(bounds)
    ]
    idle = [
        Idle(str(state), part.length_us / count, host.where(part, steps.marks))
        for state, part in host.idle(gaps, work.activities).items()
        if part.length_us > 0
    ]
    alone = _alone(work, start, end) / count
    counted = [steps.of(origin.time) >= first for origin in work.origins]
    graphs = {
        id(origin.call)
        for origin, counts in zip(work.origins, counted, strict=True)
        if counts and origin.by_graph
    }
    kernels = [each.kind is DeviceKind.KERNEL for each in work.activities]
    return DeviceAccount(
        number,
        _mean(walls),
        tuple(walls),
        tuple(sorted(idle, key=lambda each: -each.us)),
        _parts(work, alone, counted, count),
        _copies(work, alone, counted, count),
        sum(k and c for k, c in zip(kernels, counted, strict=True)) / count,
        len(graphs) / count,
    )


def _step(computing: Intervals, copying: Intervals, start: float, end: float) -> DeviceStep:
    one, other = within(computing, start, end), within(copying, start, end)
    both = intersection(one, other).length_us
    alone = one.length_us - both, other.length_us - both
    return DeviceStep(end - start, *alone, both, end - start - sum(alone) - both)


def _mean(steps: Sequence[DeviceStep]) -> DeviceStep:
    names = ("wall_us", "computing_us", "copying_us", "both_us", "idle_us")
    return DeviceStep(*(sum(getattr(s, name) for s in steps) / len(steps) for name in names))


def _alone(work: _Work, start: float, end: float) -> Floats:
    """Return how long each activity runs while none that is counted before it does.

    Computing counts before communication, and both before copies; of one kind the one that began
    first. So the sum is the union.
    """
    found = np.zeros(len(work.activities))
    covered = Intervals(np.empty(0), np.empty(0))
    talks = [_does(each) == "communication" for each in work.activities]
    kernels = [each.kind is DeviceKind.KERNEL for each in work.activities]
    ranks = np.where(kernels, np.where(talks, 1, 0), 2)
    starts = np.clip([each.start / 1e3 for each in work.activities], start, end)
    ends = np.clip([each.end / 1e3 for each in work.activities], start, end)
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


def _parts(work: _Work, alone: Floats, counted: Sequence[bool], count: int) -> tuple[Part, ...]:
    written_out = _attention(work)
    sums: dict[Part, list[float]] = {}
    where: dict[Part, dict[str, float]] = {}
    for at, (activity, origin) in enumerate(zip(work.activities, work.origins, strict=True)):
        if activity.kind is not DeviceKind.KERNEL or not (alone[at] > 0 or counted[at]):
            continue
        traits = kernel_traits(activity.name)
        part = Part(
            _zone(traits.does, origin, at in written_out),
            origin.operator or "",
            origin.backward,
            _label(activity.name),
            traits.does,
            tuple(sorted(traits.ids())),
        )
        us, launches = sums.get(part, (0.0, 0.0))
        sums[part] = [us + float(alone[at]), launches + counted[at] / count]
        place = "/".join(name for name in origin.path if not ITERATION.fullmatch(name))
        held = where.setdefault(part, {})
        held[place] = held.get(place, 0.0) + float(alone[at])
    parts = [
        replace(part, where=max(where[part], key=where[part].__getitem__), us=us, launches=launches)
        for part, (us, launches) in sums.items()
    ]
    return tuple(sorted(parts, key=lambda part: -part.us))


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


def _copies(work: _Work, alone: Floats, counted: Sequence[bool], count: int) -> tuple[Copies, ...]:
    sums: dict[tuple[str, bool], list[float]] = {}
    for at, activity in enumerate(work.activities):
        if activity.kind is DeviceKind.KERNEL:
            continue
        key = (_kind(activity), is_pageable(activity))
        us, size, times = sums.setdefault(key, [0.0, 0.0, 0.0])
        times += counted[at] / count
        size += activity.bytes * counted[at] / count
        sums[key] = [us + float(alone[at]), size, times]
    rows = [Copies(*key, *values) for key, values in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.us))


def _kind(activity: Activity) -> str:
    if activity.kind is DeviceKind.FILL:
        return "filled"
    name = activity.name.replace(" ", "").replace("HostToDevice", "HtoD")
    name = name.replace("DeviceToHost", "DtoH")
    return next((kind for part, kind in _KINDS if part in name), "copied")


def _does(activity: Activity) -> str:
    return kernel_traits(activity.name).does if activity.kind is DeviceKind.KERNEL else ""
