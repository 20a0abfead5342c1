"""What two sides are in sentences: a step on the clock, and a layer with its causes.

Here to change: a sentence is a row of ``words.toml``; the causes' own words stand in
``tree/causes.toml``. Nothing is decided here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfml.explain.advice.symptoms import filled, symptom_of
from perfml.explain.confidence import NAMED
from perfml.explain.steps import AT_MOST
from perfml.explain.tree.causes import Contribution, Kind
from perfml.explain.tree.layer_causes import Causes, sided_causes
from perfml.util.words import Readable, micros, say

if TYPE_CHECKING:
    from perfml.explain.results import LayerDiff
    from perfml.explain.steps import StepComparison

_OVER = 1.005  # from here on a cause is no share of the difference, as others work against it
_OTHERS, _MISSING = 3, 6  # further causes, and counters, that are named

POINTS: Mapping[str, str] = {
    "do": "do",
    "saves": "saves",
    "why": "why",
    "where": "where",
    "stay": "if you stay",
    "also": "also",
    "doubt": "doubt",
    "check": "to check",
    "caution": "caution",
}
"""What is said of a layer of two sides, in order, and the words before it."""


def step_verdict(step: StepComparison) -> str:
    """Say how long a step takes on either side, and the verdict."""
    unit = "recording" if step.unit == "recording" else "unit"
    what = say(f"explain.step.{unit}", unit=step.unit)
    how = say(f"explain.step.{'alone' if step.alone else 'clock'}")
    doubt = "" if step.doubt is None else f"explain.step.{step.doubt}"
    doubt = doubt and say(doubt, unit=step.unit, most=AT_MOST)
    return say("explain.step.verdict", step=step, what=what, how=how, doubt=doubt)


def step_cause(step: StepComparison) -> str:
    """Say the first cause with its part of the difference; empty where nothing differs."""
    first, whole = step.first, step.difference_us
    if first is None or not whole:
        return ""
    number, unlike = "", step.unlike
    if unlike is not None:
        quantity = say(f"explain.quantity.{unlike.quantity}")
        number = say("explain.step.number", quantity=quantity, one=unlike)
    where, us = "" if first.where in first.operators else first.where, abs(first.us)
    cause = say("explain.step.cause", step=step, number=number, where=where, us=us)
    share = first.us / whole
    more = "more" if share < 0 else "over" if share > _OVER else "part"
    over, difference = abs(first.us) - abs(whole), abs(whole)
    return say(f"explain.step.{more}", cause=cause, over=over, difference=difference, share=share)


def step_action(step: StepComparison) -> str:
    """Return what to do about the first cause: a line to type, and why; empty without one."""
    return "" if step.first is None else say("explain.step.do", step=step)


def points_of(detail: LayerDiff) -> Mapping[str, str]:
    """Return what people read of a layer, by the ids of `POINTS`; every surface lays out these."""
    causes, _ = sided_causes(detail.time, detail.causes)
    if not causes:
        return {} if detail.time.slower is None else {"why": say("explain.layer.unsplit")}
    first, *others = causes
    fix = detail.fix if detail.fix is not None and detail.fix.term == first.term else None
    saves = stay = ""
    do = detail.action(first.term)
    if fix is not None:
        do, saves, stay = fix.do, fix.saves, fix.stay
    elif first.term.residual and detail.causes.missing:
        missing = ", ".join(detail.causes.missing[:_MISSING])
        do = say("explain.layer.collect", missing=missing)
    untold = detail.causes.untold
    rivals = untold.sentence() if untold is not None and untold.causes else ""
    against = detail.against(causes)
    rest = math.exp(against) if against else None
    points = {
        "do": do,
        "saves": saves,
        "why": say("explain.layer.why", cause=first, shown=shown_by(detail, first), rest=rest),
        "where": "; ".join(_places(detail)),
        "stay": stay,
        "also": ", ".join(map(_cause, others[:_OTHERS])),
        "doubt": rivals,
        "check": "" if untold is None or rivals else untold.what_tells(),
        "caution": next((each.text for each in detail.disagreements), ""),
    }
    return {name: text for name, text in points.items() if text}


def shown_by(detail: LayerDiff, cause: Contribution) -> str:
    """Say what shows a cause: its levels, and the first numbers of either side's longest."""
    symptom, slow = symptom_of(cause.term.id), detail.time.slower or 0
    numbers = detail.numbers.get(cause.term.id, ())
    shown = [levels_in_words(cause, detail.causes, detail.names[0])]
    for at, side in enumerate((detail.names[slow], detail.names[1 - slow])):
        # parts of the time are levels, which are said; counts say what makes them
        units = {one.quantity: (one.slow, one.fast)[at] for one in numbers if one.unit}
        known = defaultdict(lambda: math.nan, units)
        text = symptom and filled(symptom.evidence, known.__getitem__, 1)
        shown.append(say("explain.layer.on_side", side=side, shown=text) if text else "")
    return "; ".join(filter(None, shown))


def _places(detail: LayerDiff) -> list[str]:
    """Say which instructions carry the causes."""
    labels = {total.term.id: total.term.label for total in detail.causes.totals}
    several = len(detail.lines) > 1
    named = ((labels.get(each.term, each.term) if several else "", each) for each in detail.lines)
    return [say("explain.layer.where", label=label, line=line.sentence()) for label, line in named]


def _cause(total: Contribution) -> str:
    return say("explain.layer.cause", cause=total)


def levels_in_words(total: Contribution, causes: Causes, baseline: str = "") -> str:
    """Return what a cause is on both sides, in the kernel where it matters most.

    Empty where one side does nothing of the kind, or nobody counted it; `baseline` is what that
    side is called.
    """
    term = total.term
    parts = sorted(
        (
            (pair.kernels, part)
            for pair in causes.pairs
            for part in pair.contributions
            # a kernel where it did the opposite does not show what the layer's total says
            if part.term == term and part.log_ratio * total.log_ratio >= 0
        ),
        key=lambda entry: -abs(entry[1].log_ratio),
    )
    largest = parts[0][1]
    if any(math.isnan(level) for level in (largest.baseline, largest.target)):
        return ""
    form = term.words.replace("in the baseline", f"under {baseline}") if baseline else term.words
    levels = form.format(
        baseline=Readable(largest.baseline),
        target=Readable(largest.target),
        # launches that one side lacks have a time on the other one only
        time=micros(sum(part.baseline + part.target for _, part in parts)),
        kernels=", ".join(_counted(parts)[:NAMED]),
    )
    grown = largest.target - largest.baseline
    # a share does not say what the waiting that it is of did, where that went the other way
    if term.kind is not Kind.STALL or grown * largest.log_ratio >= 0:
        return levels
    return say(f"explain.layer.{'grown' if largest.log_ratio > 0 else 'shrunk'}", levels=levels)


def _counted(parts: Sequence[tuple[str, Contribution]]) -> list[str]:
    """Return each kernel once, with how many launches it has; first what contributes most."""
    sums: dict[str, list[float]] = {}
    for name, part in parts:
        sums.setdefault(name, []).append(abs(part.log_ratio))
    return [
        name if len(of) == 1 else say("explain.layer.launches", count=len(of), kernel=name)
        for name, of in sorted(sums.items(), key=lambda entry: -sum(entry[1]))
    ]
