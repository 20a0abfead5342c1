"""The causes in sentences: what made a layer slower or faster, with its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.confidence import NAMED
from perfml.explain.ratio import Ratio
from perfml.explain.tree.causes import Contribution, Kind
from perfml.explain.tree.told import Causes, TermTotal
from perfml.util.words import Readable, factor_text, micros

SMALL = 0.1
"""A cause below a tenth of the largest one is not told."""


def summary_sentences(time: Ratio, causes: Causes) -> tuple[str, ...]:
    """Return what cannot be told, what speaks for the measured difference, and what against it."""
    headings = (f"makes it {time.verdict}", "works against that")
    different = time.verdict in ("slower", "faster")
    untold = () if causes.untold is None or not different else (causes.untold.sentence(),)
    return untold + tuple(
        f"{heading}: {'; '.join(cause_in_words(total, causes) for total in totals[:NAMED])}"
        for heading, totals in zip(headings, sided_causes(time, causes), strict=True)
        if totals
    )


def sided_causes(time: Ratio, causes: Causes) -> tuple[Sequence[TermTotal], Sequence[TermTotal]]:
    """Return the causes that speak for the measured difference, and those against it.

    Those that are small beside the largest are left out, and all where nothing differs.
    """
    if time.verdict not in ("slower", "faster") or not causes.totals:
        return (), ()
    sign = 1.0 if time.log_ratio > 0 else -1.0
    towards = [(total, sign * total.log_ratio) for total in causes.totals]
    limit = SMALL * max(abs(value) for _, value in towards)
    return (
        [total for total, value in towards if value > limit],
        [total for total, value in towards if value < -limit],
    )


def cause_in_words(total: TermTotal, causes: Causes) -> str:
    """Return a cause with its factor, and its levels in the kernel where it matters most."""
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
        # one side does nothing of the kind, or nobody counted it
        return f"{term.label} {factor_text(total.factor)}"
    words = term.words.format(
        baseline=Readable(largest.baseline),
        target=Readable(largest.target),
        # launches that one side lacks have a time on the other one only
        time=micros(sum(part.baseline + part.target for _, part in parts)),
        kernels=", ".join(_counted(parts)[:NAMED]),
    )
    return f"{term.label} {factor_text(total.factor)} ({_longer(largest)}{words})"


def _counted(parts: Sequence[tuple[str, Contribution]]) -> list[str]:
    """Return each kernel once, with how many launches it has; first what contributes most."""
    sums: dict[str, list[float]] = {}
    for name, part in parts:
        sums.setdefault(name, []).append(abs(part.log_ratio))
    return [
        name if len(each) == 1 else f"{len(each)} launches of {name}"
        for name, each in sorted(sums.items(), key=lambda entry: -sum(entry[1]))
    ]


def _longer(part: Contribution) -> str:
    """Say what a share does not where it went the other way than the waiting that it is of."""
    grown = part.target - part.baseline
    if part.term.kind is not Kind.STALL or grown * part.log_ratio >= 0:
        return ""
    return f"{'longer' if part.log_ratio > 0 else 'shorter'} for the same work: "
