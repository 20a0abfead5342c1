"""The audit of a recording: what is missing from it, before anything is said of it.

    recording, facts of the reader  -->  audited()  -->  recording as far as it can be, Audit

A reader knows facts of its own file (gaps in the numbers of dispatches, what the profiler said);
the others follow from host and devices alone. Whoever says "idle" or "launch bound" asks
`Audit.unknown` first. What a fact is called and makes unknown stands in ``audit.toml``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from perfml.account.intervals import union
from perfml.account.recording import Activity, DeviceKind, HostKind, HostSpan, Recording
from perfml.kernel_names import kernel_traits
from perfml.util.files import read_rows
from perfml.util.json_values import json_object
from perfml.util.words import capital

AUDIT = "audit"
"""Key of an audit in what a reader notes of its source."""
IDLE, LAUNCH_BOUND, CLOCK = "idle", "launch_bound", "clock"
"""Ids of what may be unknown; ``clock`` is when anything ran: only sums of times are known."""

LAUNCHING = re.compile(
    r"(cuda|cu|hip)(Ext|Module)*Launch(Cooperative)?Kernel\w*|(cuda|cu|hip)GraphLaunch\w*"
)
"""API calls that launch kernels, of CUDA and HIP."""
COPYING = re.compile(r"(cuda|hip|cu)Memcpy(?!\w*Async)\w*")
WAITING = re.compile(r"(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize\w*")
"""API calls that come back when the device is done: copies, and those that only wait."""
_DROPPED = re.compile(
    r"(?!.*(?:NVTX|OS ?runtime|OSRT|sampl|sched))"
    r".*(dropped|\blost\b|not all|incomplete|invalid (records|timestamps)|insufficient)",
    re.IGNORECASE,
)
"""What profilers say where records of a device, not those of the host's ranges, are missing."""
_CAPTURE = re.compile(r"(cuda|cu|hip)Stream(Begin|End)Capture\w*")
_BLOCKED_US = 1000.0
"""A shorter wait may be the time in which the host is woken up."""
_OUT_OF_LINE = 3.0
"""A kernel that later ones of its stream overtake has a wrong end if it takes this many times as
long as other launches of it. Queues of AMD's may run two streams side by side."""
_LOOKED_AT = 64
"""Later kernels that are looked at, so that the work grows with the recording and no faster."""


@dataclass(frozen=True)
class Fact:
    """One thing that is wrong with a recording: its id, and how many of how many it concerns."""

    id: str
    count: float = 0.0
    of: float = 0.0
    detail: str = ""

    @property
    def unknown(self) -> frozenset[str]:
        """What it makes unknowable: ids."""
        row = _rows()[self.id]
        wide = self.count >= row.get("from", 0.0) * self.of
        return frozenset(row.get("unknown", ()) if wide else ())

    @property
    def words(self) -> str:
        """What is wrong, as part of a sentence."""
        count, of = (f"{number:,.0f}" for number in (self.count, self.of))
        return str(_rows()[self.id]["words"]).format(count=count, of=of, detail=self.detail)

    @property
    def cure(self) -> str:
        """What to do about it; empty where the profiler itself says it."""
        return str(_rows()[self.id].get("cure", ""))


@dataclass(frozen=True)
class Audit:
    """What is wrong with a recording; nothing, if there are no facts."""

    facts: tuple[Fact, ...] = ()

    @property
    def unknown(self) -> frozenset[str]:
        """What cannot be known of the recording: ids such as `IDLE`."""
        return frozenset[str]().union(*(fact.unknown for fact in self.facts))

    @property
    def sentences(self) -> list[str]:
        """Every fact in words, with what to do."""
        return [f"{capital(fact.words)}. {fact.cure}".strip() for fact in self.facts]

    to_dict = json_object


def said(messages: Iterable[str]) -> tuple[Fact, ...]:
    """Return the facts that a profiler's own warnings are."""
    kinds = {True: "dropped_records", False: "profiler_said"}
    texts = dict.fromkeys(messages)
    return tuple(Fact(kinds[bool(_DROPPED.search(text))], detail=text[:200]) for text in texts)


def audited(recording: Recording, known: Iterable[Fact] = ()) -> tuple[Recording, Audit]:
    """Return a recording without impossible times, and what is wrong with it.

    `known` are facts that the reader knows of its file. A kernel that ends after later ones of its
    stream ends where the next one begins.
    """
    late = _overtaken(recording.activities)
    facts = list(known)
    if late:
        kernels = sum(each.kind is DeviceKind.KERNEL for each in recording.activities)
        names = {recording.activities[place].name for place in late}
        facts.append(Fact("overlap_on_stream", len(late), kernels, ", ".join(sorted(names))[:80]))
        activities = list(recording.activities)
        for place, end in late.items():
            activities[place] = msgspec.structs.replace(activities[place], end=end)
        recording = Recording(recording.host, tuple(activities))
    lost, launches = len(unrecorded(recording)), len(_launches(recording))
    untimed = int(sum(fact.count for fact in facts if fact.id == "kernels_without_times"))
    if lost > untimed:
        facts.append(Fact("launches_without_kernels", lost - untimed, launches))
    if _communicates_alone(recording) and not launches:
        facts.append(Fact("no_computing", len(recording.activities)))
    blocked = _blocked(recording)
    if not lost:
        waits = {"blocked_in_wait": "waits_for_nothing"}
        blocked = [replace(fact, id=waits.get(fact.id, fact.id)) for fact in blocked]
    return recording, Audit((*facts, *blocked))


def _communicates_alone(recording: Recording) -> bool:
    """Return whether all kernels of a recording communicate: others were left out of it."""
    kernels = (one for one in recording.activities if one.kind is DeviceKind.KERNEL)
    names = {kernel.name for kernel in kernels}
    return bool(names) and all(kernel_traits(name).does == "communication" for name in names)


def unrecorded(recording: Recording) -> tuple[int, ...]:
    """Return when kernels were launched that the recording has not; nanoseconds, in order."""
    ran = {each.correlation for each in recording.activities}
    return tuple(call.start for call in _launches(recording) if call.correlation not in ran)


def _launches(recording: Recording) -> list[HostSpan]:
    """Return the calls that launch kernels; those that only record a graph launch none."""
    found, capturing = [], {}
    for call in recording.host:
        if call.kind is not HostKind.CALL:
            continue
        kind = _kind_of(call.name)
        if kind == "capture":
            capturing[call.thread] = "Begin" in call.name
        elif kind == "launch" and not capturing.get(call.thread):
            found.append(call)
    return found


def is_launch(call: str) -> bool:
    """Return whether an API call launches kernels."""
    return _kind_of(call) == "launch"


@functools.lru_cache(maxsize=1 << 12)
def _kind_of(call: str) -> str:
    forms = {
        "launch": LAUNCHING,
        "capture": _CAPTURE,
        "blocked_in_copy": COPYING,
        "blocked_in_wait": WAITING,
    }
    return next((kind for kind, form in forms.items() if form.fullmatch(call)), "")


def _overtaken(activities: Sequence[Activity]) -> dict[int, int]:
    """Return the places of kernels whose end cannot be, and where the next one begins.

    Two later kernels of the stream, of other launches, begin and end while one runs. A launch that
    overlaps the end of the one before (programmatic dependent launch) does not.
    """
    streams: dict[tuple[int, int], list[int]] = {}
    lengths: dict[str, list[int]] = {}
    for place, each in enumerate(activities):
        if each.kind is DeviceKind.KERNEL:
            streams.setdefault((each.device, each.stream), []).append(place)
            lengths.setdefault(each.name, []).append(each.end - each.start)
    wrong = {}
    for places in streams.values():
        start, end = (
            np.array([getattr(activities[place], side) for place in places], dtype=np.int64)
            for side in ("start", "end")
        )
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        until = np.searchsorted(start, end, side="left")
        until = np.minimum(until, np.arange(len(start)) + _LOOKED_AT)
        for row in np.flatnonzero(until - np.arange(len(start)) > 2).tolist():
            each = activities[places[order[row]]]
            inner = np.flatnonzero(end[row + 1 : until[row]] < end[row]) + row + 1
            others = {activities[places[order[at]]].correlation for at in inner.tolist()}
            usual = float(np.median(lengths[each.name]))
            alone = len(lengths[each.name]) == 1
            if len(others - {each.correlation}) >= 2 and (
                alone or each.end - each.start > _OUT_OF_LINE * usual
            ):
                wrong[places[order[row]]] = max(each.start, int(start[row + 1]))
    return wrong


def _blocked(recording: Recording) -> list[Fact]:
    """Return how long the host waited in calls while no device did anything."""
    if not recording.activities:
        return []
    begin = min(each.start for each in recording.activities) / 1e3
    spans = [(each.start / 1e3, each.end / 1e3) for each in recording.activities]
    busy = union(*np.array(spans).T)
    idle = float(busy.end[-1] - busy.start[0]) - busy.length_us
    facts = []
    for kind in ("blocked_in_copy", "blocked_in_wait"):
        calls = [
            call
            for call in recording.host
            if call.kind is HostKind.CALL
            and call.start / 1e3 > begin
            and call.end - call.start >= 1e3 * _BLOCKED_US
            and _kind_of(call.name) == kind
        ]
        ends = np.array([(call.start, call.end) for call in calls]).reshape(-1, 2).T / 1e3
        empty = ends[1] - ends[0] - busy.before(ends[1]) + busy.before(ends[0])
        held = (ends[1] <= busy.end[-1]) & (2 * empty >= ends[1] - ends[0])
        if held.any():
            names = {call.name for call, is_held in zip(calls, held, strict=True) if is_held}
            facts.append(Fact(kind, float(empty[held].sum()), idle, ", ".join(sorted(names))[:80]))
    return facts


@functools.cache
def _rows() -> dict[str, Any]:
    return read_rows("perfml.account", "audit.toml")
