"""What the host did while a device had nothing to do.

Each idle microsecond goes to one state, the first in the order of `State` that holds: that of
what a person can change goes before that of what only happened at the time. Waiting is the time in
calls that wait. After such a call the device has nothing until the host launches again: what passes
until then, and is nothing else, is a state of its own.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np

from perfml.account.intervals import Intervals, difference, intersection, union
from perfml.account.origins import NODE, Origin, Origins, range_name
from perfml.account.recording import (
    Activity,
    DeviceKind,
    HostKind,
    HostSpan,
    Nesting,
    Recording,
    move_kind,
)
from perfml.account.steps import WARM_UP

LONG_US = 1000.0
"""A stretch without any operator or API call from which on the host computes something of its own.
Python takes 2 to 40 us from one operator to the next in the traces of 2026-11-25."""

_FIRST = 10.0
"""The first call that takes this many times as long as others of its name loads a library."""
_LAUNCH_US = 50.0
"""A launch of a kernel takes 2 to 50 us: while a device is idle, no full queue holds it."""
_MOST = 0.5
"""An operator that runs for this part of some time stands for it."""
_COMPUTING_US = 50.0
"""An operator that calls nothing of the device computes on the CPU if it takes this long. Views and
shapes take 1 to 20 us under the profiler in the traces of 2026-11-25."""

SYNCHRONISING = re.compile(
    r"(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize|"
    r"(cuda|hip|cu)Memcpy(2D|3D|ToSymbol|FromSymbol|WithStream|(DtoH|HtoD|DtoD)(_v2)?)?"
)
_COMPILING = re.compile(
    r".*\(dynamo_timed\)|.*(Compil(e|ing|ation)|(?<![A-Za-z])(re|pre)?compil(e|es|ing|ation))"
    r"(?![a-z]).*|(cu|hip)(Module|Library)Load\w*|(nvrtc|hiprtc)CompileProgram"
)
"""Ranges of torch.compile (``compile_fx_inner (dynamo_timed)``), Triton and XLA that compile, and
calls that compile or load code. A compiled region that runs is none."""
_WORKING = re.compile(r"\w*(Launch|Memcpy|Synchronize|Wait)\w*")
"""Calls that launch, copy or wait: how long they take is the device's matter. A long first call of
any other name makes what a program has once: contexts, streams, handles."""
_CREATING = re.compile(r"(cuda|hip|cu)\w*(Create|Init|Properties|Attributes)\w*|\w+Create\w*")
"""Calls of those that make one each time."""
_CAPTURE = re.compile(r"(cuda|cu|hip)Stream(Begin|End)Capture\w*")
_ALLOCATING = re.compile(r"(cuda|hip|cu)(Mem|Host)?(Malloc|Alloc|Free|Create|Map|Unmap|Release)\w*")
_LAUNCHING = re.compile(r"(cuda|hip|cu)((?!Graph)\w)*Launch\w*")
_LOADING = re.compile(
    r"enumerate\(DataLoader\).*|.*DataLoaderIter.*|"
    r"(get_?|next_?|load_?|fetch_?|prepare_?|make_?|read_?)?(data|batch|inputs?|samples?)"
    r"(_?(load(ing|er)?|time|fetch|prep\w*|wait|augment\w*))?|"
    r"(dataload|load|fetch|augment|preprocess|collate|tokeni[sz])\w*",
    re.IGNORECASE,
)
"""Ranges in which batches are made: PyTorch's own, and what people call theirs."""
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_MANY_AT_ONCE = re.compile(r"_foreach_|_fused_|multi_tensor|fused_?(adam|sgd|lamb)", re.IGNORECASE)
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)


class State(StrEnum):
    """What the host did, in the order in which idle time is given to it."""

    PROFILING = "profiling"
    BLOCKED = "blocked"
    UNRECORDED = "unrecorded"
    COMPILING = "compiling"
    LOADING = "loading"
    WARMING_UP = "warming_up"
    ALLOCATING = "allocating"
    CPU_OPERATORS = "cpu_operators"
    PAGEABLE = "pageable"
    SYNCHRONISING = "synchronising"
    RELAUNCHING = "relaunching"
    OPTIMIZER = "optimizer"
    RECOMPUTING = "recomputing"
    LAUNCHING = "launching"
    OPERATORS = "operators"
    PYTHON = "python"
    COMPUTING = "host"
    PACED = "paced"


@dataclass(frozen=True)
class Waiting:
    """A kind of call at which the host waits for the device.

    Attributes
    ----------
    call
        Its API call.
    operator
        The innermost operator around it; empty without one.
    times
        In all steps that count.
    """

    call: str
    operator: str
    times: int


def is_pageable(activity: Activity) -> bool:
    """Return whether a copy is from or to pageable memory of the host; its name says so."""
    return activity.kind is DeviceKind.COPY and _PAGEABLE.search(activity.name) is not None


class Host:
    """What the host did over a recording."""

    def __init__(self, recording: Recording, origins: Origins, launched: Sequence[Origin]) -> None:
        pairs = list(zip(recording.activities, launched, strict=True))
        calls = recording.spans(HostKind.CALL)
        operators = recording.spans(HostKind.OPERATOR)
        ranges = recording.spans(HostKind.RANGE)
        blocking = {o.call for a, o in pairs if is_pageable(a) and o.call is not None}
        self.synchronising = [span for span in calls if SYNCHRONISING.fullmatch(span.name)]
        self._blocking = _union([*self.synchronising, *blocking])
        self._busy = _union([*calls, *operators])
        again = [span for span in operators if origins.repeats_forward(span)]
        allocations = [span for span in calls if _ALLOCATING.fullmatch(span.name)]
        alone = self_times([*operators, *calls])
        long = [
            span
            for span in alone
            if span.end - span.start >= LONG_US * 1e3
            and not (span.name.startswith(NODE) or _is_allocation(span))
        ]
        on_cpu = computing_operators(operators, calls)
        known = _union(on_cpu)
        on_cpu += [
            span
            for span in long
            if np.diff(known.before(np.array([span.start, span.end]) / 1e3))[0] <= 0
        ]
        self.spans: dict[State, Intervals] = {
            State.PROFILING: _union(recording.spans(HostKind.OVERHEAD)),
            State.COMPILING: _union(s for s in (*ranges, *calls) if _COMPILING.fullmatch(s.name)),
            State.LOADING: _union(s for s in ranges if _LOADING.fullmatch(s.name)),
            State.WARMING_UP: _union([*starting_up(calls, ranges), *first_launches(pairs)]),
            State.ALLOCATING: _union(allocations),
            State.CPU_OPERATORS: _union(on_cpu),
            State.SYNCHRONISING: self._blocking,
            State.PAGEABLE: _union(o.call for a, o in pairs if is_pageable(a) and o.call),
            State.OPTIMIZER: _union(unfused_optimizers(ranges, operators)),
            State.RECOMPUTING: _union(again),
            State.LAUNCHING: _union(calls),
            State.OPERATORS: _union(operators),
        }
        self._origins = origins
        seen = [span for span in recording.host if span.kind is not HostKind.OVERHEAD]
        ends = min(span.start for span in seen), max(span.end for span in seen)
        self._seen = Intervals(*(np.array([end]) / 1e3 for end in ends))
        named: dict[str, list[HostSpan]] = {}
        for span in (*ranges, *on_cpu):
            if span not in origins.steps.marks:
                named.setdefault(range_name(span.name), []).append(span)
        self._named = {name: _union(spans) for name, spans in named.items()}
        self._alone = alone

    def idle(self, gaps: Intervals, activities: Sequence[Activity]) -> dict[State, Intervals]:
        """Return the idle time of a device by what the host did."""
        rest = gaps
        long = self._long(gaps)
        fed = intersection(_before(gaps, activities, "to_device"), long)
        # nobody launches the move of a page: the host computes until it touches one
        paged = _before(gaps, activities, "managed")
        loading = self.spans[State.LOADING]
        unknown = self._unknown(gaps, activities)
        over = np.array([unknown.start, unknown.end])
        inside = np.diff(self._blocking.before(over), axis=0)[0]
        most = inside >= _MOST * np.diff(over, axis=0)[0]
        held = self.spans | {
            # that the host waits in a call is known; what the device does meanwhile is not
            State.BLOCKED: intersection(
                Intervals(unknown.start[most], unknown.end[most]), self._blocking
            ),
            State.UNRECORDED: unknown,
            State.LOADING: union([*loading.start, *fed.start], [*loading.end, *fed.end]),
            State.RELAUNCHING: difference(self._drained(gaps), long),
            State.LAUNCHING: difference(self.spans[State.LAUNCHING], paged),
            State.OPERATORS: difference(self.spans[State.OPERATORS], paged),
            State.PYTHON: difference(difference(gaps, long), paged),
            State.COMPUTING: gaps,
            State.PACED: Intervals(gaps.start[:0], gaps.end[:0]),
        }
        parts: dict[State, Intervals] = {}
        for state in State:
            parts[state] = intersection(rest, held[state])
            rest = difference(rest, held[state])
        return parts

    def _unknown(self, gaps: Intervals, activities: Sequence[Activity]) -> Intervals:
        """Return when nobody knows why a device was idle, as far as that is long.

        No host was recorded, or what the device did next was launched by a call that the recording
        has not. Or it was launched before, as the first operation of its stream: that waits for
        what was launched before the recording began, which is not in it.
        """
        ordered = sorted(activities, key=lambda activity: activity.start)
        begins = np.array([activity.start for activity in ordered]) / 1e3
        firsts = {activity.stream: activity for activity in ordered[::-1]}
        since = gaps.end.copy()
        for at in np.flatnonzero(gaps.end - gaps.start >= LONG_US).tolist():
            place = int(np.searchsorted(begins, gaps.end[at] - 1e-3))
            number = ordered[place].correlation if place < len(ordered) else None
            if number is not None and number >= 0:
                call = self._origins.calls.get(number)
                if call is None or firsts[ordered[place].stream] is ordered[place]:
                    since[at] = gaps.start[at] if call is None else call.end / 1e3
        none = difference(gaps, self._seen)
        start = np.concatenate([np.maximum(gaps.start, since), none.start])
        end = np.concatenate([gaps.end, none.end])
        return union(start[end - start >= LONG_US], end[end - start >= LONG_US])

    def _drained(self, gaps: Intervals) -> Intervals:
        """Return the gaps in which the host came back from waiting: it had nothing launched.

        The wait began while the device worked: one that begins in the gap waits for nothing.
        """
        ends, starts = (np.append(at, np.inf) for at in (self._blocking.end, self._blocking.start))
        first = np.searchsorted(ends, gaps.start, side="left")
        held = (ends[first] <= gaps.end) & (starts[first] < gaps.start)
        return Intervals(gaps.start[held], gaps.end[held])

    def _long(self, gaps: Intervals) -> Intervals:
        """Return long stretches of gaps in which no thread is in an operator or an API call."""
        quiet = difference(gaps, self._busy)
        held = quiet.end - quiet.start >= LONG_US
        return Intervals(quiet.start[held], quiet.end[held])

    def where(self, part: Intervals) -> str:
        """Return the innermost range that holds most of some time; empty where none does."""
        held = {name: intersection(whole, part).length_us for name, whole in self._named.items()}
        most = [name for name, us in held.items() if us >= 0.6 * part.length_us > 0]
        return min(most, key=lambda name: self._named[name].length_us, default="")

    def operator(self, part: Intervals) -> str:
        """Return the operator that runs, and nothing in it, for most of some time; or nothing."""
        start, end = (
            np.array([getattr(s, side) for s in self._alone]) for side in ("start", "end")
        )
        held = part.before(end / 1e3) - part.before(start / 1e3)
        sums: Counter[str] = Counter()
        for span, us in zip(self._alone, held.tolist(), strict=True):
            sums[span.name] += us
        name, us = max(sums.items(), key=lambda each: each[1], default=("", 0.0))
        return name if us >= _MOST * part.length_us > 0 else ""

    def waits(self, start: int, end: int) -> tuple[Waiting, ...]:
        """Return the calls at which the host waits between two times, those most often first."""
        calls = (span for span in self.synchronising if start <= span.start < end)
        counts = Counter((span.name, self._origins.innermost(span)) for span in calls)
        return tuple(Waiting(*key, times) for key, times in counts.most_common())


def _before(gaps: Intervals, activities: Sequence[Activity], kind: str) -> Intervals:
    """Return the gaps that end with a copy of a kind, such as one of what the host had made."""
    begins = np.array(sorted(a.start / 1e3 for a in activities if move_kind(a.name) == kind))
    if not begins.size:
        return Intervals(begins, begins)
    near = np.searchsorted(begins, gaps.end - 1e-3)
    held = np.abs(begins[np.minimum(near, begins.size - 1)] - gaps.end) < 1e-2
    return Intervals(gaps.start[held], gaps.end[held])


def first_launches(pairs: Iterable[tuple[Activity, Origin]]) -> list[HostSpan]:
    """Return the first launches of kernels that take far longer than others: they load code.

    With ``CUDA_MODULE_LOADING=LAZY``, and HIP, each kernel's code is loaded when it is launched.
    """
    calls = (
        (activity.name, origin.call)
        for activity, origin in pairs
        if activity.kind is DeviceKind.KERNEL and origin.call is not None
    )
    launches = sorted(calls, key=lambda each: each[1].start)
    if not launches:
        return []
    usual = float(np.median([call.end - call.start for _, call in launches]))
    least = max(1e3 * _LAUNCH_US, _FIRST * usual if len(launches) > 1 else 0.0)
    firsts = dict(reversed(launches))
    return [call for call in firsts.values() if call.end - call.start >= least]


def starting_up(calls: Sequence[HostSpan], ranges: Sequence[HostSpan]) -> list[HostSpan]:
    """Return what a program does once: libraries load, graphs are captured, it warms up.

    A launch that takes a millisecond loads code. That of a graph grows with its nodes, and is none
    of them.
    """
    others = [span for span in calls if not _WORKING.fullmatch(span.name)]
    loading = [
        span
        for span in calls
        if span.end - span.start >= LONG_US * 1e3
        and (_LAUNCHING.fullmatch(span.name) or _CREATING.fullmatch(span.name))
    ]
    warm = (span for span in ranges if WARM_UP.fullmatch(span.name))
    return [*first_calls(others), *loading, *_captures(calls), *warm]


def _captures(calls: Iterable[HostSpan]) -> list[HostSpan]:
    """Return the time in which kernels are recorded into a graph, and none of them runs."""
    marks = [call for call in calls if _CAPTURE.fullmatch(call.name)]
    return [
        msgspec.structs.replace(begin, end=end.end)
        for begin, end in itertools.pairwise(marks)
        if "Begin" in begin.name and begin.thread == end.thread
    ]


def first_calls(calls: Sequence[HostSpan]) -> list[HostSpan]:
    """Return the first call of each name that takes far longer than others."""
    named: dict[str, list[HostSpan]] = {}
    for span in calls:
        named.setdefault(span.name, []).append(span)
    return [
        first
        for first, *others in named.values()
        if others
        and first.end - first.start
        >= max(_FIRST * np.median([span.end - span.start for span in others]), LONG_US * 1e3)
    ]


def self_times(spans: Iterable[HostSpan]) -> list[HostSpan]:
    """Return the stretches in which an operator runs and nothing within it, in any order."""
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    return [
        msgspec.structs.replace(span, start=start, end=end)
        for span, inside in Nesting(ordered).inside()
        if span.kind is HostKind.OPERATOR
        for start, end in zip(
            [span.start, *(each.end for each in inside)],
            [*(each.start for each in inside), span.end],
            strict=True,
        )
        if end > start
    ]


def computing_operators(operators: Sequence[HostSpan], calls: Sequence[HostSpan]) -> list[HostSpan]:
    """Return the outermost operators that compute on the CPU: long, and without an API call.

    One that only allocates computes nothing: memory of the host may take it as long.
    """
    within, until = Nesting(calls), dict[int, int]()
    kept = []
    for span in operators:
        long = span.end - span.start >= _COMPUTING_US * 1e3 and not _is_allocation(span)
        if long and span.start >= until.get(span.thread, 0) and not within.begins_within(span):
            until[span.thread] = span.end
            kept.append(span)
    return kept


def _is_allocation(span: HostSpan) -> bool:
    return span.name.startswith(("aten::empty", "aten::resize_"))


def unfused_optimizers(ranges: Sequence[HostSpan], operators: Sequence[HostSpan]) -> list[HostSpan]:
    """Return the steps of optimizers that take parameter by parameter."""
    steps = [span for span in ranges if _OPTIMIZER.match(span.name)]
    at_once = np.array(sorted(o.start for o in operators if _MANY_AT_ONCE.search(o.name)))
    return [
        span
        for span in steps
        if not np.searchsorted(at_once, span.end) > np.searchsorted(at_once, span.start)
    ]


def _union(spans: Iterable[HostSpan]) -> Intervals:
    held = list(spans)
    return union([span.start / 1e3 for span in held], [span.end / 1e3 for span in held])
