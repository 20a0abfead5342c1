"""What to do first about a slower side: the remedy of its largest cause, and what that may save."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from perfml.explain.advice.finding import Gain
from perfml.explain.advice.fix import CannotSay, Fix, gain_of, told, unknown_of_all
from perfml.explain.advice.referee import saved_alone
from perfml.explain.advice.symptoms import numbers_of, situation_of, symptom_of
from perfml.explain.confidence import MOST
from perfml.explain.launches import Launch
from perfml.explain.limits.state import LaunchState
from perfml.explain.remedies import Person, Remedy, Situation, person_of, remedy_for
from perfml.explain.times import Ratio
from perfml.explain.tree.causes import ONE_SIDED, TERMS, Kind, Term
from perfml.explain.tree.layer_causes import Causes, PairCauses
from perfml.explain.tree.library_kernels import is_product, of_others
from perfml.kernel_names import kernel_traits
from perfml.util.findings import Evidence, Time

_REPEATED = 4  # launches of one kernel from which on it is launched in a loop


def only_there(causes: Causes, slow: int) -> list[PairCauses]:
    """Return the launches that the slower side (0: the baseline, 1: the target) has alone."""
    return [pair for pair in causes.pairs if pair.times_us[1 - slow] == 0 < pair.times_us[slow]]


def time_without_them(causes: Causes, launches: Sequence[Launch], slow: int) -> float:
    """Return the slower side's time without the launches that it has alone, microseconds."""
    # NaN unless all launches are a library's or PyTorch's: who writes kernels may share one's work
    # among several, and then none of it goes. NaN, too, where most of what goes is a library's
    # product, which other launches do then.
    alone = only_there(causes, slow)
    products = [pair for pair in alone if is_product(pair.kernels)]
    if not of_others(*launches) or _time_us(products, slow) > MOST * _time_us(alone, slow):
        return math.nan
    return sum(pair.times_us[slow] for pair in causes.pairs) - _time_us(alone, slow)


def is_replaced(term: str, causes: Causes, slow: int) -> bool:
    """Return whether a library would run other kernels without a cause."""
    # What these take, no counter of the ones that run tells. Nor does one launch of a loop tell
    # what one call takes for all. Of PyTorch's own kernels, each of which passes over all values,
    # the one that stays shows what a pass takes.
    if term == "launch_count":
        # the launches that stay do the work of those that go
        return True
    if term in ONE_SIDED:
        stays = [pair for pair in causes.pairs if pair.times_us[1 - slow] > 0]
        others = [pair for pair in stays if pair.unlike_product]
        return _is_loop(causes, slow) or _time_us(others, slow) > MOST * _time_us(stays, slow)
    if term == "tensor_unused" or TERMS[term].kind is Kind.LAUNCH:
        return False
    mine = [pair for pair in causes.pairs if pair.has(term)]
    unlike = [pair for pair in mine if pair.unlike]
    return _time_us(unlike, slow) > MOST * _time_us(mine, slow)


def _is_loop(causes: Causes, slow: int) -> bool:
    """Return whether one side repeats kernels in place of another one of the other side."""
    alone = only_there(causes, slow)
    names = [pair.kernels for pair in alone]
    often = [pair for pair in alone if names.count(pair.kernels) >= _REPEATED]
    replaces = any(pair.unlike for pair in causes.pairs)
    return replaces and _time_us(often, slow) > MOST * _time_us(alone, slow)


def _time_us(pairs: Sequence[PairCauses], slow: int) -> float:
    return sum(pair.times_us[slow] for pair in pairs)


def cannot_say(
    term: str, causes: Causes, slow: Sequence[Launch], fast: Sequence[Launch]
) -> CannotSay | None:
    """Return why the time without a cause cannot be said; None where it can."""
    at = int(causes.log_ratio > 0)
    other = _of_library(slow) != _of_library(fast) or is_replaced(term, causes, at)
    if other or (term not in ONE_SIDED and _another(slow, fast)):
        return "algorithm"
    return "several" if share_of(term, causes) < MOST else None


def share_of(term: str, causes: Causes) -> float:
    """Return the share of a cause among all that differs, whichever side it is in favour of."""
    parts = {each.term.id: abs(each.log_ratio) for each in causes.totals}
    whole = sum(parts.values())
    return parts.get(term, 0.0) / whole if whole > 0 else 0.0


def _another(slow: Sequence[Launch], fast: Sequence[Launch]) -> bool:
    """Return whether most of the time is a library's kernel that the other side does without."""
    # Who calls it cannot cure the kernel, only have another one in its place.
    longest = max(slow, key=lambda one: one.time_us, default=None)
    if longest is None or person_of(longest.kernel) is Person.AUTHOR:
        return False
    # of other types it is the same kernel
    return all(one.kernel.split("<")[0] != longest.kernel.split("<")[0] for one in fast)


def _of_library(launches: Sequence[Launch]) -> bool:
    return any(person_of(one.kernel) is not Person.AUTHOR for one in launches)


def first_fix(
    time: Ratio,
    causes: Causes,
    names: tuple[str, str],
    launches: tuple[Sequence[Launch], Sequence[Launch]],
    *,
    tables: bool = False,
) -> Fix | None:
    """Return what to do about the largest cause of the slower side.

    `names` and `launches` are of the baseline and of the target. None where the sides do not
    differ, or the largest part is what no counter separates.
    """
    slow = time.slower
    along = [] if slow is None else causes.towards(1.0 if slow else -1.0)
    if slow is None or not along or along[0].term.kind in (Kind.RESIDUAL, Kind.MEASUREMENT):
        return None
    term = along[0].term
    now, other = (
        Time(us, "all launches") for us in (time.baseline_us, time.target_us)[:: 1 - 2 * slow]
    )
    label, remedy, here = remedy_of_cause(term.id, causes, launches, slow)
    take = ""
    if here.reader is not Person.AUTHOR:
        # of two profiles none can be chosen as a library can
        take = f"the {names[1 - slow]} version" if not tables and names[0] != names[1] else ""
        if not take:
            remedy = replace(remedy, say=f"The kernel is {here.reader.whose}. {remedy.say}")
    unsaid = cannot_say(term.id, causes, launches[slow], launches[1 - slow])
    gain, unknown = None, None
    if unsaid is None and term.id in ONE_SIDED:
        of_one = sum(pair.times_us[slow] for pair in causes.pairs)
        left_us = time_without_them(causes, launches[slow], slow)
        gain = gain_of(now, 1 - left_us / of_one)
    elif unsaid is None:
        own = launches_with(term.id, causes, launches[slow], slow)
        gain = _gain(term, own, launches[slow], now)
        unknown = None if gain is None else unknown_of_all(own, term.id)
    if gain is None and unsaid is None:
        unsaid = "counters"
    tells = "" if causes.untold is None else causes.untold.what_tells()
    return Fix(
        *(names[slow], term, label, remedy, now, gain, unsaid, causes.confidence, tells),
        unknown=unknown,
        take=take,
        other=other,
    )


def remedy_of_cause(
    term: str, causes: Causes, launches: tuple[Sequence[Launch], Sequence[Launch]], slow: int
) -> tuple[str, Remedy, Situation]:
    """Return where a cause is largest on the slower side, what to do about it, and for whom."""
    parts: dict[str, float] = defaultdict(float)
    for pair in causes.pairs:
        if pair.has(term):
            parts[pair.kernels] += pair.part_of(term)
    place = max(parts, key=lambda kernels: parts[kernels] if slow else -parts[kernels])
    label = on_side(place, slow)
    fixed = [one for one in launches[slow] if not one.kernel or one.label == label]
    again = sum(pair.has(term) for pair in causes.pairs if pair.kernels == place)
    asked = _instructions(fixed, launches[1 - slow])
    launch = fixed[0] if fixed else Launch(label, math.nan, {})
    here = situation_of(launch, again=again, asked=asked)
    splits = [
        any("split_k" in kernel_traits(one.kernel).ids() for one in side) for side in launches
    ]
    if splits[1 - slow] and not splits[slow]:
        here = replace(here, operations=here.operations | {"split"})
    return label, remedy_for(term, here), here


def actions_of(
    time: Ratio, causes: Causes, launches: tuple[Sequence[Launch], Sequence[Launch]]
) -> dict[str, str]:
    """Return what to do about every cause on the slower side, by its id."""
    if time.slower is None:
        return {}
    along = causes.towards(1.0 if time.slower else -1.0)
    return {
        total.term.id: remedy_of_cause(total.term.id, causes, launches, time.slower)[1].text
        for total in along
    }


def numbers_on_both(
    time: Ratio, causes: Causes, launches: tuple[Sequence[Launch], Sequence[Launch]]
) -> dict[str, tuple[Evidence, ...]]:
    """Return the numbers that show every cause, by its id: of the slower side and of the other.

    They are those of the kernel in which the cause is largest; its level is the first.
    """
    slow = time.slower
    totals = () if slow is None else causes.totals
    return {total.term.id: _numbers(total.term, causes, launches, slow or 0) for total in totals}


def _numbers(
    term: Term, causes: Causes, launches: tuple[Sequence[Launch], Sequence[Launch]], slow: int
) -> tuple[Evidence, ...]:
    largest, symptom = causes.largest_of(term), symptom_of(term.id)
    kernels = next(pair.kernels for pair in causes.pairs if largest in pair.contributions)
    sides = [
        [one for one in launches[at] if not one.kernel or one.label == on_side(kernels, at)]
        for at in (slow, 1 - slow)
    ]
    level = term.level.names if term.level is not None else ()
    name = level[0] if len(level) == 1 else term.id
    unit = "us" if term.id in ONE_SIDED[:2] or "time" in level else ""
    levels = (largest.baseline, largest.target)
    numbers = numbers_of(f"{{{name}}}", lambda _: levels[slow], lambda _: levels[1 - slow], unit)
    if symptom is None or not all(sides):
        return numbers
    longest, other = (LaunchState.of(max(side, key=lambda one: one.time_us)) for side in sides)
    beside = numbers_of(symptom.evidence, longest.__getitem__, other.__getitem__)
    return (*numbers, *(one for one in beside if one.quantity != name))


def launches_with(term: str, causes: Causes, launches: Sequence[Launch], slow: int) -> list[Launch]:
    """Return the slower side's launches in which a cause is, of all kernels of the layer."""
    sign = 1.0 if slow else -1.0
    labels = {on_side(pair.kernels, slow) for pair in causes.pairs if sign * pair.part_of(term) > 0}
    return [one for one in launches if not one.kernel or one.label in labels]


def on_side(kernels: str, slow: int) -> str:
    """Return what a pair of kernels is called on one side."""
    return kernels.split(" -> ")[-slow]


def _instructions(fixed: Sequence[Launch], others: Sequence[Launch]) -> float:
    """Return how many times the instructions a kernel executes here; NaN if not known."""
    if not fixed:
        return math.nan
    same = [one["inst_executed"] for one in others if one.kernel == fixed[0].kernel != ""]
    return fixed[0]["inst_executed"] / max(same) if same and max(same) > 0 else math.nan


def _gain(
    term: Term, those: Sequence[Launch], launches: Sequence[Launch], now: Time
) -> Gain | None:
    """Return what goes without a cause that some of a layer's launches have."""
    # What goes is a part of the launches, and so of the layer, however often it launches them. A
    # cause without an estimate gives NaN.
    saved = sum(one.time_us * saved_alone(one, term.id) for one in those)
    if not saved > 0:
        return None
    part = saved / sum(one.time_us for one in launches)
    return gain_of(now, part, told(those, term.id))
