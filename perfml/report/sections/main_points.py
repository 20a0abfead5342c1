"""What one screen says of a layer: its main cause, what to do, and what to fear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfml.explain.confidence import IN_WORDS
from perfml.report.document import Points
from perfml.report.labels import listed
from perfml.util.words import factor_text

if TYPE_CHECKING:
    from perfml.explain.results import Explanation, LayerDiff
    from perfml.explain.tree.told import TermTotal

_AGAINST = 0.1
"""From a tenth of the time on what works against the causes is told."""


def main_points(detail: LayerDiff, explanation: Explanation, *, short: bool) -> Points:
    """Say the largest cause with its numbers and its cure, the others by name, and what to fear.

    The short form is cause and cure.
    """
    from perfml.explain.tree.sentences import cause_in_words, sided_causes

    causes, _ = sided_causes(detail.time, detail.causes)
    if not causes:
        differs = detail.time.verdict in ("slower", "faster")
        text = "No counter splits the difference." if differs else detail.time.sentence()
        said = (text, *detail.reasons) if detail.unseen else detail.reasons or (text,)
        return Points((*said, *_cautions(detail)))
    first, *others = causes
    untold, fix = detail.causes.untold, detail.fix
    cause = cause_in_words(first, detail.causes)
    clock = detail.on_the_clock
    between = () if clock is None else clock.points()
    if clock is not None and clock.dominate:
        return Points((*between, f"the kernels alone: {cause}"))
    # of two sides the slower one is to be changed
    do = f"do in {explanation.baseline}" if detail.time.verdict == "faster" else "do"
    if fix is not None and fix.confidence != "high":
        do = f"{do} ({IN_WORDS[fix.confidence]})"
    points = [*between] if untold is None else [*between, untold.sentence()]
    if short:
        action = first.term.action if fix is None else fix.action
        return Points((*points, f"{cause}{all_else(detail, [first])}", f"{do}: {action}"))
    points.append(f"{cause}{all_else(detail, causes)}")
    points += [f"where: {text}" for text in detail.where(first.term)]
    if first.term.residual and detail.causes.missing:
        asked = "ncu --metrics $(perfml metrics default --request)"
        missing = listed(detail.causes.missing, 6)
        points.append(f"do: collect what was not ({asked}), or the rest has no name: {missing}")
    elif fix is None or fix.term != first.term:
        points.append(f"do: {first.term.action}")
    else:
        points += [f"{do}: {fix.action}", fix.saving()]
    if others:
        named = [f"{each.term.label} {factor_text(each.factor)}" for each in others]
        points.append(f"also: {listed(named, 3)}")
    return Points((*points, *_cautions(detail)))


def all_else(detail: LayerDiff, told: Sequence[TermTotal]) -> str:
    """Say what all causes that are not told make together, where they work against those told.

    A cause that is larger than the whole difference would look like a mistake.
    """
    rest = detail.time.log_ratio - sum(total.log_ratio for total in told)
    if rest * detail.time.log_ratio >= 0 or abs(rest) < _AGAINST:
        return ""
    return f"; all else together {factor_text(math.exp(rest))}"


def _cautions(detail: LayerDiff) -> list[str]:
    """Say the first contradiction, but for what the clock shows, which stands above."""
    clock = detail.on_the_clock
    told = None if clock is None else clock.of_layer()
    return [f"caution: {text}" for text in detail.disagreements if text != told][:1]
