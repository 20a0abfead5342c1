"""What two sides are in sentences: a step on the clock, and the levels of a cause.

Here to change: a sentence is a row of ``words.toml``; the causes' own words stand in
``tree/causes.toml``. Nothing is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.confidence import NAMED
from perfml.explain.steps import AT_MOST, StepComparison
from perfml.explain.tree.causes import Contribution, Kind
from perfml.explain.tree.layer_causes import Causes
from perfml.util.words import Readable, micros, say

_OVER = 1.005  # from here on a cause is no share of the difference, as others work against it


def step_verdict(step: StepComparison) -> str:
    """Say how long a step takes on either side, and the verdict."""
    unit = "recording" if step.unit == "recording" else "unit"
    what = say(f"explain.step.{'sum' if step.summed else unit}", unit=step.unit)
    how = say(f"explain.step.{'all' if step.summed else 'alone' if step.alone else 'clock'}")
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
