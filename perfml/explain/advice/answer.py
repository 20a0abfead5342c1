"""The one list of findings that every surface shows, and its one order.

Whatever can be said of a recording is a `Finding`: causes of a layer's launches, one action over
many layers, what the clock shows, what Nsight Compute's own rules said, and where to measure next
where nothing is known. The order is that of probability times likely gain, in microseconds of what
a person waits for; what has no number stands behind what has one.

Here to change: what is one finding with another, in `in_one_order`; how probable a finding is, in
`perfml.explain.confidence`.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perfml.account.device_time import repeat_keys
from perfml.explain.advice.finding import Finding, Gain, Where, grouped, rank
from perfml.explain.advice.findings import as_probable
from perfml.explain.advice.referee import is_counted, most_saved, saved_alone
from perfml.explain.advice.symptoms import Symptom, rule_of, said_by
from perfml.explain.confidence import probability
from perfml.explain.launches import LABEL, Launch, kernel_label, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.remedies import Remedy, Situation, person_of, remedy_for
from perfml.explain.speed_of_light import fact_key, unit_keys
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.one_side import has_ideal
from perfml.ingest.merge.groups import kernel_units, launches_behind_rows
from perfml.util.findings import Time
from perfml.util.words import say

_WORTH = 0.005  # an estimate of Nsight Compute below it rounds to 0 %: no finding

_LATENCY = "latency"  # the limit of a kernel none of whose units is busy (speed_of_light.py)
_LITTLE = 0.05  # of a kernel's time: what saves less is not worth a round (speed_of_light.py)

Said = tuple[Finding, frozenset[str]]
"""What a rule of Nsight Compute says of a kernel, and the causes that it means."""


def in_one_order(
    own: Sequence[Finding],
    everywhere: Sequence[Finding],
    said: Sequence[Said],
    unexplained: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Return all findings as one list: what is expected to save most first.

    `own` are of layers, `everywhere` of many layers or the clock, `said` by Nsight Compute's rules,
    and `unexplained` is where time goes of which nothing says why.
    """
    # an action over many layers says what each of them would say again
    own = [one for one in own if not any(_is_part(one, all_) for all_ in everywhere)]
    together, alone = _with_rules((*everywhere, *own), said)
    ordered = sorted((*together, *alone), key=rank)
    numbered = sum(one.gain is not None for one in ordered)
    # copies, and idle time of which the recording does not show why: nobody knows what goes of it
    idle = [one for one in ordered[numbered:] if one.clock and not one.tells]
    unexplained = tuple(heapq.merge(idle, unexplained, key=rank))
    ordered = [one for one in ordered if one not in idle]
    if not numbered:
        return (*unexplained, *ordered)
    # no unit is the limit of the longest kernel, and what is known to save is next to nothing; or
    # one is, and no more is known to save than it leaves
    lead = [one for one in unexplained[:1] if one.clock or one.level or _LATENCY in one.rules]
    few = all(_saves_little(ordered[:numbered], one) for one in lead)
    first = lead if few else []
    # where to measure next, of what no finding is about
    names = {name for one in ordered[:numbered] for name in _places(one)}
    rest = [one for one in unexplained[len(first) :] if names.isdisjoint(one.where.layers)]
    return (*first, *ordered[:numbered], *rest, *ordered[numbered:])


def _saves_little(ordered: Sequence[Finding], limit: Finding) -> bool:
    """Return whether findings save no more than the limit of a kernel leaves.

    What is likely to save more of it lessens the work of the unit that is at its roof.
    """
    left = _LITTLE
    if limit.level:
        left = max(_LITTLE, 1 - limit.level)
        own = (one for one in ordered if limit.where.layers[0] in _places(one))
        if any(one.likely_us > left * one.holds.us for one in own):
            return False
    return ordered[0].expected_us < left * limit.holds.us


def _places(one: Finding) -> tuple[str, ...]:
    return (*one.where.layers, one.where.kernel)


def _is_part(one: Finding, other: Finding) -> bool:
    return set(one.where.layers) <= set(other.where.layers) and one.rules[0] in other.rules


def _with_rules(
    own: Iterable[Finding], said: Sequence[Said]
) -> tuple[list[Finding], list[Finding]]:
    """Return our findings with who else says them, and those of Nsight Compute alone."""
    together, alone = list(own), dict[tuple[Where, str], Finding]()
    for rule, means in said:
        # without ranges the layer is the kernel in its shape, which is more than the kernel's name
        names = {*_places(rule)}
        places = [
            at
            for at, one in enumerate(together)
            if not means.isdisjoint(one.rules) and not names.isdisjoint(_places(one))
        ]
        for at in places:
            one = together[at]
            rules = tuple(dict.fromkeys((*one.rules, *rule.rules)))
            together[at] = replace(one, rules=rules, says=("perfml", *rule.says))
        if not places and not rule.saved_us <= _WORTH * rule.holds.us:
            key = (rule.where, rule.hazard)
            alone[key] = max(alone.get(key, rule), rule, key=lambda one: known(one.saved_us))
    return together, grouped(alone.values(), lambda one: (one.where.kernel, one.hazard))


_LINK = re.compile(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@")
"""ncu's links in messages: ``@section:WarpStateStats:Warp State Statistics@``."""


def file_rules(
    kernels: pd.DataFrame | None,
    sources: Sequence[Mapping[str, Any]],
    launches: Sequence[Launch] = (),
) -> tuple[Said, ...]:
    """Return what the rules in the files behind a table say of its kernels.

    `sources` are the provenance of its files (``rules``: `perfml.readers.ncu.findings`). An
    estimate is bounded by the laws for the cause that the rule names, of the longest of `launches`;
    what names none has none, and is said in Nsight Compute's words.
    """
    results = [result for source in sources for result in source.get("rules", ())]
    if kernels is None or not results:
        return ()
    units, codes = kernel_units(kernels)
    often = launches_behind_rows(kernels, codes)
    repeats = max(kernels.groupby(repeat_keys(kernels), dropna=False).ngroups, 1)
    times = (kernels["time_us"].fillna(0.0) * often).groupby(codes).sum() / repeats
    places = {key: place for place, key in enumerate(unit_keys(units))}
    longest = {one.kernel: one for one in sorted(launches, key=lambda one: one.time_us)}
    said: dict[tuple[int, str, str], Said] = {}
    for result in results:
        place = places.get(fact_key(result))
        message = _LINK.sub(r"\1\2", str(result["message"])).strip()
        rule = str(result["rule"]) or rule_of(message)
        alike = said_by(rule, message)
        saves = math.nan if result.get("saves") is None else float(result["saves"])
        if place is None or alike is None or (not alike and not saves > _WORTH):
            continue  # what estimates nothing, and means no cause that has a remedy
        unit = units[place]
        time = Time(float(times.get(place, math.nan)))
        where = Where((unit.label,), kernel_label(unit.kernel, LABEL))
        one = _of_rule(rule, message, alike, where, unit.kernel, time, saves)
        # an estimate of one unit's use is rarely reached: it is no time
        if one.gain is not None and (not alike or result.get("scope") == "local"):
            one = replace(one, gain=None)
        judged = _judged(one, alike, longest.get(unit.kernel))
        key = (place, rule, message)
        if judged is None:
            continue
        if key not in said or not said[key][0].saved_us >= judged.saved_us:
            said[key] = judged, frozenset(cause for symptom in alike for cause in symptom.causes)
    return tuple(said.values())


def _judged(one: Finding, alike: Sequence[Symptom], launch: Launch | None) -> Finding | None:
    """Return what a rule says within the laws of the causes that it names; None if nothing is left.

    Of a cause whose counters were collected the launch itself tells how much goes, and how probable
    that is.
    """
    if not alike or launch is None:
        return one
    state = LaunchState.of(launch)
    # of waits the rule names the one: others of its symptom are told by other messages
    causes = [
        symptom.laws or cause
        for symptom in alike
        for cause in symptom.causes
        if cause == symptom.causes[0] or TERMS[symptom.causes[0]].kind is not Kind.STALL
    ]
    most = max(most_saved(state, cause) for cause in causes)
    if not most > _WORTH:
        return None
    if one.gain is None:
        return one
    high = likely = min(one.saved_us / one.holds.us, most)
    counted = [name for name in causes if is_counted(state, name) and has_ideal(name)]
    if counted:
        alone = {name: saved_alone(launch, name) for name in counted}
        cause = max(counted, key=lambda name: alone[name])
        likely = min(high, alone[cause])
        if not likely > _WORTH:
            return None
        ours = as_probable(one, cause, launch, likely)
        one = replace(one, probability=min(one.probability, ours))
    low, top = (replace(one.holds, us=part * one.holds.us) for part in (likely, high))
    return replace(one, gain=Gain(low, top, "Nsight Compute"))


def _of_rule(
    rule: str,
    message: str,
    alike: Sequence[Symptom],
    where: Where,
    kernel: str,
    time: Time,
    saves: float,
) -> Finding:
    """Return what Nsight Compute says; our remedy for what it means names what helps."""
    first, _, rest = message.partition(". ")
    hazard, evidence, remedy = first, "", Remedy(say=rest)
    if saves >= 0:
        evidence = say("explain.rule.estimate", saves=saves)
    if alike:
        hazard, evidence = alike[0].hazard, f"{first}."
        remedy = remedy_for(alike[0].causes[0], Situation(person_of(kernel), kernel))
    saved = replace(time, us=saves * time.us)
    return Finding(
        rules=(rule,) if rule else (),
        where=where,
        holds=time,
        gain=Gain(saved, saved, "Nsight Compute") if saves >= 0 else None,
        probability=probability("rule"),
        hazard=hazard,
        evidence=evidence,
        mitigation=remedy.say,
        command=remedy.line,
        cost=remedy.cost,
        check=remedy.check,
        says=("Nsight Compute",),
    )
