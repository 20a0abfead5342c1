"""From a recording to its account."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from perfml.account.account import (
    AMOUNTS,
    FEW_BLOCKS,
    Account,
    Copies,
    DeviceAccount,
    Idle,
    Part,
    is_warm_up,
    shown_by,
    shows_training,
)
from perfml.account.audit import CLOCK, IDLE, LAUNCH_BOUND, unrecorded
from perfml.account.device_time import Busy, DeviceTime, Spans
from perfml.account.host import Host, State, is_pageable
from perfml.account.intervals import Floats, Intervals, alone_us, union, within
from perfml.account.origins import Origin, Origins
from perfml.account.recording import (
    NO_OPERANDS,
    Activity,
    DeviceKind,
    HostKind,
    Recording,
    move_kind,
)
from perfml.account.steps import (
    Steps,
    cut_steps,
    repeated_steps,
    waits_before,
    whole_recording,
)
from perfml.kernel_names import kernel_label, kernel_traits
from perfml.util.ranges import ITERATION

_BETWEEN = frozenset({"elementwise", "conversion", "random", "softmax", "reduction", "fill", ""})
"""What stands between the two products of an attention that is written out."""
_LONG_US = 50.0
"""A kernel of few blocks that is shorter has nothing for other blocks to do."""
_LANES = 128.0
"""Threads of a multiprocessor whose instructions begin in one cycle: four schedulers, a warp each
(CUDA C++ Programming Guide, compute capabilities; two on 6.0)."""
_EMPTY = 0.5
"""From this part of lanes without a thread on, a kernel starts too few blocks or threads."""
_FEWEST_PACED, _EVEN, _PACED_US = 4, 0.01, 5_000.0
"""Steps of a program that sleeps, or waits for a camera or a screen, are equal to 1 %; what a host
computes is not."""
_OPTIMIZER = "Optimizer.step#"


class _Work(Busy):
    """Activities of one device, with where they were launched; microseconds, shape (n,)."""

    def __init__(
        self, pairs: Sequence[tuple[Activity, Origin]], multiprocessors: Mapping[int, float]
    ) -> None:
        self.activities = [activity for activity, _ in pairs]
        self.origins = [origin for _, origin in pairs]
        self.begins = np.array([each.start for each in self.activities]) / 1e3
        self.over = np.array([each.end for each in self.activities]) / 1e3
        self.kernels = np.array([each.kind is DeviceKind.KERNEL for each in self.activities])
        talks = [kernel_traits(a.name).does == "communication" for a in self.activities]
        self.talks = self.kernels & np.array(talks)
        copies = ~self.kernels
        self.multiprocessors = multiprocessors.get(self.activities[0].device, 0.0)
        super().__init__(
            (self.begins[self.kernels], self.over[self.kernels]),
            (self.begins[copies], self.over[copies]),
            self.activities[0].device,
        )

    def communication(self, start: float, end: float) -> float:
        """Return how long communication ran between two times, beside computing or not."""
        return within(union(self.begins[self.talks], self.over[self.talks]), start, end).length_us


def account_of(
    recording: Recording,
    steps: Steps,
    finder: Origins,
    origins: Sequence[Origin],
    *,
    pytorch: bool = True,
    recorded: Mapping[int, DeviceTime] | None = None,
    unknown: Collection[str] = (),
    multiprocessors: Mapping[int, float] = {},
) -> Account:
    """Return the account of a recording.

    The recording has at least one activity; `finder` and `origins` say where each was launched.
    `pytorch`: its users are told lines of PyTorch. `recorded` is the account of each device over
    the file, where the recording is a part of it. `unknown` is what its audit says that nobody can
    know of it, and `multiprocessors` those of each device, where they are known. Steps with
    launches that were not recorded do not count where others are whole.
    """
    pairs: dict[int, list[tuple[Activity, Origin]]] = {}
    placed: list[list[str]] = [[] for _ in steps.starts]
    ordered = sorted(zip(recording.activities, origins, strict=True), key=lambda pair: pair[1].time)
    for activity, origin in ordered:
        pairs.setdefault(activity.device, []).append((activity, origin))
        step = steps.of(origin.time)
        if step >= 0 and activity.kind is DeviceKind.KERNEL:
            placed[step].append(activity.name)
    ends = _ends(recording, steps, origins)
    begins = steps.starts if steps.apart else (steps.starts[0], *ends[:-1])
    bounds = [(since / 1e3, until / 1e3) for since, until in zip(begins, ends, strict=True)]
    walls = tuple(until - since for since, until in bounds)
    cut = set[int]() if steps.apart else cut_steps(placed)
    if not steps.apart and waits_before(steps.starts, ends):
        cut.add(0)
    lost = {steps.of(time) for time in unrecorded(recording)}
    if lost and (run := _longest_run(set(range(len(walls))) - cut - lost)):
        cut = set(range(len(walls))) - set(run)
    entire = [number for number in range(len(walls)) if number not in cut]
    in_a_row = not steps.apart and entire[0] == 0
    warm_up = in_a_row and is_warm_up([walls[number] for number in entire])
    kept = range(entire[0] + warm_up, entire[-1] + 1)
    between = bounds[kept.start : kept.stop]
    known = any(span.kind is HostKind.CALL for span in recording.host) and IDLE not in unknown
    host = Host(recording, finder, origins) if known else None
    devices = (
        _device(number, _Work(held, multiprocessors), between, host, steps, kept, recorded)
        for number, held in sorted(pairs.items())
    )
    again = None
    # what passes within a marked step is of the step
    inside = sum(end - start for start, end in zip(steps.starts, steps.ends, strict=True))
    paced = 2e-3 * inside < sum(walls) and _paced([walls[number] for number in kept])
    if len(steps.starts) == 1:
        inside_it = [(each, o.time) for each, o in ordered if steps.of(o.time) >= 0]
        again = repeated_steps([each for each, _ in inside_it], [at for _, at in inside_it])
    repeated = None
    if again is not None:
        of = functools.partial(account_of, recording, again, finder, origins, pytorch=pytorch)
        repeated = of(recorded=recorded, unknown=unknown, multiprocessors=multiprocessors)
    ranges = {span.name for span in recording.host if span.kind is HostKind.RANGE}
    names = ranges | {each.name for each in recording.activities}
    around = {span.name for span in recording.host if span.kind is not HostKind.CALL}
    paced |= repeated is not None and any(i.state == State.PACED for i in repeated.busiest.idle)
    return Account(
        steps.name,
        walls,
        warm_up,
        tuple(_with_pace(each, paced) for each in devices if each is not None),
        host.waits(steps.starts[kept.start], steps.ends[kept.stop - 1]) if host else (),
        any(origin.backward for origin in origins) or shows_training(names),
        pytorch,
        tuple(sorted(cut)),
        known,
        repeated=repeated,
        unknown=tuple(sorted(unknown)),
        shows=tuple(shown_by(around)),
    )


def _paced(walls: Sequence[float]) -> bool:
    """Return whether steps begin at even intervals, as of a program that waits for a clock."""
    if len(walls) < _FEWEST_PACED:
        return False
    low, middle, high = np.quantile(walls, (0.25, 0.5, 0.75))
    return bool(high - low <= _EVEN * middle and middle >= _PACED_US)


def _with_pace(device: DeviceAccount, paced: bool) -> DeviceAccount:
    """Return an account in which a host that paces does not compute while it waits."""
    step = device.step
    if not paced or step.idle_us < step.busy_us:
        return device
    # an input that is copied is waited for, unless a range says that the host makes it
    held = [
        each.state == State.COMPUTING or (each.state == State.LOADING and not each.where)
        for each in device.idle
    ]
    idle = (
        replace(each, state=str(State.PACED)) if waits else each
        for each, waits in zip(device.idle, held, strict=True)
    )
    return replace(device, idle=tuple(idle))


def _longest_run(numbers: set[int]) -> range:
    """Return the longest run of numbers that follow each other, the last of several."""
    runs = [range(0)]
    for number in sorted(numbers):
        runs.append(range(runs[-1].start if number in (runs[-1].stop,) else number, number + 1))
    return max(runs[::-1], key=len)


def kernels_of(names: Iterable[str], spans: Spans, streams: Iterable[int]) -> list[Activity]:
    """Return kernels of which it is known when and where they ran."""
    columns = (each.tolist() for each in (spans.start, spans.end, spans.device))
    return [
        Activity(DeviceKind.KERNEL, name, start, max(start, end), device, int(stream), None)
        for name, start, end, device, stream in zip(names, *columns, streams, strict=True)
    ]


def moves_of(names: Iterable[str], spans: Spans, sizes: Sequence[float] = ()) -> list[Activity]:
    """Return copies and fills, which of both by name, with their bytes where they are known."""
    kinds = {True: DeviceKind.FILL, False: DeviceKind.COPY}
    return [
        msgspec.structs.replace(each, kind=kinds[move_kind(each.name) == "filled"], bytes=size)
        for each, size in zip(
            kernels_of(names, spans, spans.device), sizes or [0.0] * len(spans), strict=True
        )
    ]


def account_without_host(
    activities: Sequence[Activity],
    paths: Sequence[Sequence[str]] | None = None,
    steps: Steps | None = None,
    unknown: Collection[str] = (),
) -> Account | None:
    """Return the account of activities alone; None where no time of them is known.

    `paths` are the ranges around each. Without `steps` the recording is one. `unknown` is as in
    `account_of`.
    """
    places = paths or [()] * len(activities)
    timed = [
        (each, Origin(each.start, None, tuple(path), None, None))
        for each, path in zip(activities, places, strict=True)
        if each.end > each.start
    ]
    if not timed:
        return None
    recording = Recording((), tuple(activity for activity, _ in timed))
    marked = steps or whole_recording(recording)
    origins = [origin for _, origin in timed]
    finder = Origins(recording, marked)
    return account_of(recording, marked, finder, origins, pytorch=False, unknown=unknown)


def account_of_sums(
    kernels: Iterable[tuple[str, str, float, float]],
    moves: Iterable[tuple[str, float, float]] = (),
    *,
    pytorch: bool = False,
) -> Account:
    """Return the account of what is known as sums over launches, of which nobody knows when.

    `kernels` are name, range, microseconds and launches; `moves` the name, microseconds and number
    of copies and fills. The sum of all stands for the wall.
    """
    ran, copied = list(kernels), list(moves)
    parts = [_summed_part(*kernel) for kernel in ran]
    copies: dict[str, tuple[float, float]] = {}
    for name, us, times in copied:
        sums = copies.get(move_kind(name), (0.0, 0.0))
        copies[move_kind(name)] = (sums[0] + us, sums[1] + times)
    rows = [Copies(kind, False, us, 0.0, times) for kind, (us, times) in copies.items()]
    launches = sum(part.launches for part in parts)
    computing, copying = (sum(row.us for row in side) for side in (parts, rows))
    step = DeviceTime(launches, computing, computing, copying, 0.0)
    talking = sum(part.us for part in parts if part.zone == "communication")
    device = DeviceAccount(
        0,
        step,
        (step,),
        (),
        tuple(sorted(parts, key=lambda part: -part.us)),
        tuple(sorted(rows, key=lambda row: -row.us)),
        launches,
        talking,
    )
    return Account(
        "",
        (step.wall_us,),
        False,
        (device,),
        (),
        shows_training(name for name, *_ in ran),
        pytorch,
        host=False,
        unknown=(CLOCK, IDLE, LAUNCH_BOUND),
        shows=tuple(shown_by([name for pair in ran for name in pair[:2]])),
    )


def _summed_part(name: str, where: str, us: float, launches: float) -> Part:
    traits = kernel_traits(name)
    zone = "communication" if traits.does == "communication" else ""
    ids = tuple(sorted(traits.ids()))
    return Part(zone, "", False, _label(name), traits.does, ids, where, us, launches)


def _ends(recording: Recording, steps: Steps, origins: Sequence[Origin]) -> list[int]:
    """Return when each step was over: left by the host, and done by the devices."""
    ends = list(steps.ends)
    for activity, origin in zip(recording.activities, origins, strict=True):
        step = steps.of(origin.time)
        if step >= 0:
            ends[step] = max(ends[step], activity.end)
    return [int(end) for end in np.maximum.accumulate(ends)]


def _device(
    number: int,
    work: _Work,
    bounds: Sequence[tuple[float, float]],
    host: Host | None,
    steps: Steps,
    kept: range,
    recorded: Mapping[int, DeviceTime] | None,
) -> DeviceAccount | None:
    """Return the account of a device; None of one whose operations have no times."""
    if not work.computing.start.size and not work.copying.start.size:
        return None
    start, end, count = bounds[0][0], bounds[-1][1], len(bounds)
    times = [work.time(*each) for each in bounds]
    idles = [work.idle(*each) for each in bounds]
    # two steps without a hole between them share one
    gaps = union(*map(np.concatenate, zip(*((e.start, e.end) for e in idles), strict=True)))
    states = {State.UNRECORDED: gaps} if host is None else host.idle(gaps, work.activities)
    idle = [
        Idle(str(state), part.length_us / count, _place(host, state, part))
        for state, part in states.items()
        if part.length_us > 0
    ]
    # a kernel waits for pages that it touches; other copies run beside it
    managed = np.array([move_kind(each.name) == "managed" for each in work.activities])
    ranks = np.select([work.talks, work.kernels, managed], [2, 1, 0], 3)
    begins, over = (np.clip(at, start, end) for at in (work.begins, work.over))
    alone = alone_us(begins, over, ranks) / count
    counted = np.array([steps.of(origin.time) in kept for origin in work.origins])
    return DeviceAccount(
        number,
        DeviceTime.mean(times),
        tuple(times),
        tuple(sorted(idle, key=lambda each: -each.us)),
        _parts(work, alone, counted / count),
        _copies(work, alone, counted / count),
        int((work.kernels & counted).sum()) / count,
        work.communication(start, end) / count,
        (recorded or {}).get(number) or work.time(*work.ends_at),
    )


def _place(host: Host | None, state: str, part: Intervals) -> str:
    """Return the range or operator in which most of some idle time passed."""
    if host is None:
        return ""
    return host.where(part) or (host.operator(part) if state == State.OPERATORS else "")


def _parts(work: _Work, alone: Floats, launches: Floats) -> tuple[Part, ...]:
    written_out = _attention(work)
    operators = any(origin.operator for origin in work.origins)
    sums: dict[Part, list[Any]] = {}
    alone_us, often, filled = alone.tolist(), launches.tolist(), _filled(work).tolist()
    # what an operator was given is shared among its kernels
    shared = Counter(id(o.given) for o, n in zip(work.origins, work.kernels, strict=True) if n)
    where: dict[Part, defaultdict[str, float]] = {}
    for at, (activity, origin) in enumerate(zip(work.activities, work.origins, strict=True)):
        if activity.kind is not DeviceKind.KERNEL or not (alone_us[at] > 0 or often[at] > 0):
            continue
        traits = kernel_traits(activity.name)
        # the innermost range stands for the operator where nobody recorded operators
        named = [] if operators else [n for n in origin.path if not ITERATION.fullmatch(n)]
        part = Part(
            _zone(traits.does, origin, at in written_out),
            origin.operator or (named[-1] if named else ""),
            origin.backward,
            _label(activity.name),
            traits.does,
            tuple(sorted({*traits.ids(), *([FEW_BLOCKS] if filled[at] > 0 else [])})),
        )
        operands = NO_OPERANDS if origin.given is None else origin.given.operands
        times = often[at]
        given = (amount * times / shared[id(origin.given)] for amount in operands)
        held = sums.setdefault(part, [0.0] * len(AMOUNTS))
        own = alone_us[at], times, times * activity.threads, *given, alone_us[at] * filled[at]
        for kind, amount in enumerate(own):
            held[kind] += amount
        place = "/".join(name for name in origin.path if not ITERATION.fullmatch(name))
        where.setdefault(part, defaultdict(float))[place] += alone_us[at]
    parts = [
        replace(
            part,
            where=max(where[part], key=where[part].__getitem__),
            **dict(zip(AMOUNTS, held, strict=True)),
        )
        for part, held in sums.items()
    ]
    return tuple(sorted(parts, key=lambda part: -part.us))


def _filled(work: _Work) -> Floats:
    """Return which part of the device's lanes has a thread while a kernel of few blocks runs.

    Threads of kernels beside it count, too. It is 0 of kernels with enough blocks, of short ones,
    and where sizes are not known; shape (n,).
    """
    blocks, threads = np.array([(launch.blocks, launch.threads) for launch in work.activities]).T
    many = work.multiprocessors
    known = work.kernels & (blocks > 0) & (threads > 0) & (many > 0)
    busy = np.where(known, np.minimum(blocks, many), 1.0)  # multiprocessors that have a block
    own = np.where(known, busy / (many or 1.0) * np.minimum(1.0, threads / busy / _LANES), 0.0)
    length = np.maximum(work.over - work.begins, 1e-3)
    beside = _sum_until(work, own, work.over) - _sum_until(work, own, work.begins)
    filled = beside / length
    few = known & (filled < 1 - _EMPTY) & (length >= _LONG_US)
    return np.where(few, np.maximum(filled, own), 0.0)


def _sum_until(work: _Work, parts: Floats, times: Floats) -> Floats:
    """Return the sum of parts times how long each activity had run, at some times."""
    total = np.zeros(len(times))
    for points, sign in ((work.begins, 1.0), (work.over, -1.0)):
        order = np.argsort(points, kind="stable")
        place = np.searchsorted(points[order], times)
        sums = np.r_[0.0, parts[order].cumsum()][place]
        total += sign * (times * sums - np.r_[0.0, (parts * points)[order].cumsum()][place])
    return total


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
        amounts = sums.setdefault((move_kind(activity.name), is_pageable(activity)), np.zeros(3))
        amounts += (alone[at], activity.bytes * times[at], times[at])
    rows = [Copies(*key, *amounts.tolist()) for key, amounts in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.us))
