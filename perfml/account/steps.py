"""Where the steps of a recording begin and end.

`ProfilerStep` tells it where the program calls ``profiler.step()``. Else the repeated outermost
ranges do: one range a step, or a cycle of ranges (``data``, ``forward``, ``backward``). Without
either the whole recording is one step.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfml.account.recording import Activity, HostKind, HostSpan, Nesting, Recording
from perfml.util.ranges import ITERATION

PROFILER_STEP = re.compile(r"ProfilerStep\s?[#*](\d{1,15})")
PROFILER, SERVED = "ProfilerStep", "server step"
"""Names of the steps that PyTorch's profiler, and a server of language models, mark."""
_SERVED = re.compile(
    r"execute_(new|context|generation|diffusion|model|\d+_context)(?![a-z]).*|"
    r"step\[(DECODE|EXTEND|MIXED|IDLE|PREBUILT|TARGET_VERIFY)\b.*\]",
    re.DOTALL,
)
"""What vLLM and SGLang call the range of one batch."""
WARM_UP = re.compile(
    r"(.*[^a-z])?(warm[-_ ]?(ing[-_ ]?)?ups?|warmed)([^a-z].*)?", re.IGNORECASE | re.DOTALL
)
"""What programs call ranges in which they warm up: these are no steps."""
_BEFORE = 0.1
"""From this part of a step's launches on before the first mark, marks end steps."""
_LEAST_TO_CUT = 3
"""Steps from which on one that has fewer launches is known to be cut."""
_WAIT = 0.05
"""A smaller part of a step between two of them is none that the first one lacks."""
_LEAST_REPEATS, _MOST_REPEATS = 3, 200
"""Repeats from which on something repeats, and the repeats that an account is made of."""
_LOOKED_AT = 200_000
"""Operations among which repeats are looked for."""
_ALIKE = 0.75
"""The part of all steps that launch between half and twice as much as the median one."""
_MOST_DESCENTS = 8
"""Ranges around all steps, one in another, that are looked into."""


@dataclass(frozen=True)
class Steps:
    """The steps of a recording.

    Attributes
    ----------
    name
        What marks them, such as ``ProfilerStep``; empty where the whole recording is one step.
    starts, ends
        When the host began and ended each, nanoseconds.
    marks
        The ranges that are steps and nothing else, and those around all of them.
    apart
        Whether nothing was recorded between them: then one ends where it ends.
    """

    name: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    marks: frozenset[HostSpan] = frozenset()
    apart: bool = False

    def of(self, time: int) -> int:
        """Return the step in which the host was at a time; -1 before the first, and after all.

        What happens between two steps belongs to the first of them.
        """
        place = bisect_right(self.starts, time) - 1
        return -1 if place == len(self.starts) - 1 and time > self.ends[-1] else place


def main_thread(recording: Recording) -> int | None:
    """Return the thread with most of the ranges, else with most of the operators, by time."""
    for kinds in ((HostKind.RANGE,), (HostKind.MODULE,), (HostKind.OPERATOR,)):
        nesting = Nesting(recording.spans(*kinds))
        times = {
            thread: sum(span.end - span.start for span in nesting.outermost(thread))
            for thread in nesting.threads
        }
        if times:
            return max(times, key=lambda thread: times[thread])
    return None


def find_steps(recording: Recording) -> Steps:
    """Return the steps of a recording."""
    ranges = recording.spans(HostKind.RANGE)
    marked = [span for span in ranges if PROFILER_STEP.fullmatch(span.name)]
    if marked:
        own = [span for span in marked if span.thread == marked[0].thread]
        return _of_spans(PROFILER, own)
    served = [span for span in ranges if _SERVED.fullmatch(span.name)]
    if served:
        return _of_spans(SERVED, Nesting(served).outermost(served[0].thread))
    thread = main_thread(recording)
    for kinds in ((HostKind.RANGE,), (HostKind.RANGE, HostKind.MODULE)):
        nesting = Nesting(recording.spans(*kinds))
        spans = [] if thread is None else nesting.outermost(thread)
        warm = {span for span in spans if WARM_UP.fullmatch(span.name)}
        found = _repeated(nesting, [span for span in spans if span not in warm])
        if found is not None and _even(found, _launches(recording)):
            until = max((span.end for span in warm), default=-math.inf)
            return _from_the_ends(found, [at for at in _launches(recording) if at >= until])
    outer = [] if thread is None else Nesting(ranges).outermost(thread)
    return _marked_once(recording, outer) or whole_recording(recording)


def _marked_once(recording: Recording, ranges: Sequence[HostSpan]) -> Steps | None:
    """Return the range that holds most of the devices' work, where some was launched before it.

    What comes before it is no part of what the program marks: it loads, and warms up.
    """
    calls = {call.correlation: call.start for call in recording.spans(HostKind.CALL)}
    work = sorted(
        (calls.get(a.correlation, a.start), a.end - a.start) for a in recording.activities
    )
    at = np.array([start for start, _ in work])
    until = np.concatenate([[0], np.cumsum([ns for _, ns in work])])
    warm = [span for span in ranges if WARM_UP.fullmatch(span.name)]
    marked = [span for span in ranges if not WARM_UP.fullmatch(span.name)]

    def held(span: HostSpan) -> float:
        first, last = np.searchsorted(at, [span.start, span.end + 1])
        return float(until[last] - until[first])

    most = max(marked, key=held, default=None)
    if most is None or not (warm or (len(at) and at[0] < most.start)):
        return None
    counts = 2 * held(most) > until[-1] - sum(map(held, warm))
    return Steps(most.name, (most.start,), (most.end,)) if counts else None


def numbered_steps(
    name: str, numbers: Sequence[float], activities: Sequence[Activity]
) -> Steps | None:
    """Return the steps that activities are numbered by; None of one, or where steps overlap."""
    spans: dict[float, tuple[int, int]] = {}
    for number, each in zip(numbers, activities, strict=True):
        start, end = spans.get(number, (each.start, each.end))
        spans[number] = (min(start, each.start), max(end, each.end))
    ordered = sorted(spans.values())
    if len(ordered) < 2 or any(end > start for (_, end), (start, _) in itertools.pairwise(ordered)):
        return None
    starts, ends = zip(*ordered, strict=True)
    return Steps(name, starts, ends)


def repeated_steps(activities: Sequence[Activity], launched: Sequence[int]) -> Steps | None:
    """Return steps of which nothing marks where they begin: what the devices do again and again.

    Parameters
    ----------
    activities
        In the order of their launch.
    launched
        When the host launched each, nanoseconds.

    Returns
    -------
    Steps or None
        The shortest piece of which at least half of the recording are repeats, one after another.
        One begins after the longest usual wait. None where nothing repeats often enough.
    """
    numbers: dict[tuple[str, int], int] = {}
    codes = [numbers.setdefault((each.name, each.device), len(numbers)) for each in activities]
    codes = codes[:_LOOKED_AT]
    period, length = _period(codes)
    if period == 0:
        return None
    first = len(codes) - length
    begins = np.array([each.start for each in activities[first : len(codes)]])
    waits = np.diff(begins, prepend=begins[0])
    shift = max(range(period), key=lambda at: float(np.median(waits[at or period :: period])))
    places = range(first + shift, len(codes) + 1, period)
    spans = [
        (launched[at], max(each.end for each in activities[at:until]))
        for at, until in itertools.pairwise(places[: _MOST_REPEATS + 1])
    ]
    if len(spans) < _LEAST_REPEATS:
        return None
    starts, ends = zip(*spans, strict=True)
    return Steps("", starts, ends)


def waits_before(begins: Sequence[int], ends: Sequence[int]) -> bool:
    """Return whether time passes between steps, so that the first one lacks what came before it."""
    waits = np.array(begins[1:]) - np.array(ends[:-1])
    lengths = np.diff(ends)
    return len(waits) > 1 and float(np.median(waits)) > _WAIT * float(np.median(lengths))


def _period(codes: Sequence[int]) -> tuple[int, int]:
    """Return the shortest period of the longest end of a sequence that has one, and its length.

    The end makes at least half of the sequence; 0 and 0 without one.
    """
    borders = [0] * len(codes)
    found = (0, 0)
    backwards = codes[::-1]
    for at in range(1, len(codes)):
        border = borders[at - 1]
        while border and backwards[at] != backwards[border]:
            border = borders[border - 1]
        borders[at] = border = border + (backwards[at] == backwards[border])
        period = at + 1 - border
        if 2 * (at + 1) >= len(codes) and _LEAST_REPEATS * period <= at + 1:
            found = period, at + 1
    return found


def cut_steps(launched: Sequence[Sequence[str]]) -> set[int]:
    """Return which of the first and the last step the recording cut, by the kernels of each.

    One is cut if it has the last, or the first, kernels of a step that the others have entire, and
    is itself like none of them. Of steps before the first kernel and after the last one no device
    was recorded.
    """
    held = [number for number, each in enumerate(launched) if each]
    if held and (held[0] > 0 or held[-1] < len(launched) - 1):
        outside = {*range(held[0]), *range(held[-1] + 1, len(launched))}
        inside = cut_steps(launched[held[0] : held[-1] + 1])
        return outside | {held[0] + number for number in inside}
    others = [tuple(each) for each in launched[1:-1]]
    usual = {each for each in others if others.count(each) > 1 or len(others) == 1}
    if len(launched) < _LEAST_TO_CUT or not usual:
        return set()
    first, last = tuple(launched[0]), tuple(launched[-1])
    cut = set()
    for number, one in ((0, first), (len(launched) - 1, last)):
        known = usual | {last if number == 0 else first}
        shorter = [each for each in usual if 0 < len(one) < len(each)]
        part = (each[-len(one) :] if number == 0 else each[: len(one)] for each in shorter)
        if one not in known and one in part:
            cut.add(number)
    return cut


def _repeated(nesting: Nesting, spans: Sequence[HostSpan]) -> Steps | None:
    """Return the steps among spans beside each other; a range around all of them is opened."""
    around: list[HostSpan] = []
    for _ in range(_MOST_DESCENTS):
        names = Counter(map(_step_name, spans))
        times: Counter[str] = Counter()
        for span in spans:
            times[_step_name(span)] += span.end - span.start
        repeated = {name: time for name, time in times.items() if names[name] > 1}
        longest = max(spans, key=lambda span: span.end - span.start, default=None)
        if repeated and longest is not None:
            anchor = max(repeated, key=lambda name: repeated[name])
            if 2 * repeated[anchor] >= longest.end - longest.start:
                return _cycle(spans, names, anchor, around)
        if longest is None:
            return None
        around.append(longest)
        spans = next(inside for span, inside in nesting.inside() if span is longest)
    return None


def _cycle(
    spans: Sequence[HostSpan], names: Counter[str], anchor: str, around: Sequence[HostSpan]
) -> Steps:
    """Return steps that begin with the first range that comes as often as the longest one does."""
    times = names[anchor]
    # the loader's iterator is called once more than it has batches
    often = [span for span in spans if names[_step_name(span)] in (times, times + 1)]
    begins = [span for span in often if _step_name(span) == _step_name(often[0])][:times]
    alone = {_step_name(span) for span in often} == {anchor}
    starts = tuple(span.start for span in begins)
    ends = []
    for start, until in itertools.zip_longest(starts, starts[1:], fillvalue=math.inf):
        ends.append(max(span.end for span in spans if start <= span.start < until))
    return Steps(anchor, starts, tuple(ends), frozenset((*around, *(begins if alone else ()))))


def _from_the_ends(steps: Steps, launches: Sequence[int]) -> Steps:
    """Return steps that end with their ranges, where the first one begins before its ranges.

    Of a loop in which only the optimizer is marked, forward and backward come before the mark.
    """
    before = sum(launch < steps.starts[0] for launch in launches)
    if not launches or before < _BEFORE * len(launches) / len(steps.starts):
        return steps
    starts = (min(launches), *steps.ends[:-1])
    return Steps(steps.name, starts, steps.ends, steps.marks)


def _even(steps: Steps, launches: Sequence[int]) -> bool:
    """Return whether steps launch about as much as one another, those at the ends aside.

    Else their ranges are parts of something: a layer, or an operator, that occurs several times.
    """
    numbers = np.array([steps.of(launch) for launch in launches], dtype=np.int64)
    counts = np.bincount(numbers[numbers >= 0], minlength=len(steps.starts))
    usual = float(np.median(counts[1:-1] if len(counts) >= _LEAST_TO_CUT else counts))
    alike = (counts >= usual / 2) & (counts <= 2 * usual)
    alike = alike[1:-1] if len(counts) >= _LEAST_TO_CUT else counts > 0
    return not launches or float(alike.mean()) >= _ALIKE


def _step_name(span: HostSpan) -> str:
    return "step" if ITERATION.fullmatch(span.name.strip()) else span.name


def _of_spans(name: str, spans: Sequence[HostSpan]) -> Steps:
    starts, ends = (tuple(getattr(span, side) for span in spans) for side in ("start", "end"))
    return Steps(name, starts, ends, frozenset(spans))


def whole_recording(recording: Recording) -> Steps:
    """Return a recording as one step."""
    begins = [*_launches(recording), *(each.start for each in recording.activities)]
    ends = [each.end for each in recording.activities]
    return Steps("", (min(begins),), (max(ends),))


def _launches(recording: Recording) -> list[int]:
    """Return when the host launched what the devices did."""
    launched = {each.correlation for each in recording.activities} - {None}
    calls = recording.spans(HostKind.CALL)
    return [span.start for span in calls if span.correlation in launched]
