"""Is the first cause the toggle that truly holds most, and are said and true shares alike?

Run: ``python -m studies.truth.several --out tests/data/truth/factorial.json``; no GPU,
20 s. The half *develop* of the kernels was read when misses were mended; *aside* was scored once,
after that. The first answers of all, before any was read, are in ``factorial_first.json`` there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import spearmanr

from studies.truth.factorial import FactorialPair, pairs
from studies.truth.scores import ASIDE, DEVELOP, half_of, run_study
from studies.truth.sets import ask_perfml, causes_of

HALVES = (DEVELOP, ASIDE)


@dataclass(frozen=True)
class Scored:
    """The answer to a pair.

    Attributes
    ----------
    pair
        The pair.
    first, named
        Whether the first cause is of the toggle with the greatest share; of any toggle.
    high
        Whether it is said without doubt.
    said
        What the causes give each toggle.
    """

    pair: FactorialPair
    first: bool
    named: bool
    high: bool
    said: list[float]


def score(pair: FactorialPair) -> Scored:
    """Return today's answer, with all counters."""
    verdict, causes = ask_perfml(pair.question), causes_of(pair.question)
    parts = {total.term.id: total.log_ratio / causes.log_ratio for total in causes.totals}
    return Scored(
        pair,
        first=verdict.place == 1,
        named=any(verdict.first in toggle.terms for toggle in pair.toggles),
        high=not verdict.said,
        said=pair.said(parts),
    )


def counts(some: Sequence[Scored]) -> dict[str, Any]:
    """Return how many are right, and the rank correlation of said and true shares.

    It is of all toggles of pairs that have several.
    """
    several = [one for one in some if len(one.pair.toggles) > 1]
    true = [toggle.share for one in several for toggle in one.pair.toggles]
    said = [share for one in several for share in one.said]
    high = [one for one in some if one.high]
    return {
        "pairs": len(some),
        "first": sum(one.first for one in some),
        "named": sum(one.named for one in some),
        "high": len(high),
        "high_right": sum(one.first for one in high),
        "rank": round(float(spearmanr(true, said).statistic), 3),
    }


def measure() -> dict[str, Any]:
    """Return the counts of both halves, of all pairs and of those with one right answer."""
    scored = [score(pair) for pair in pairs()]
    found: dict[str, Any] = {}
    for half in HALVES:
        mine = [one for one in scored if half_of(one.pair.question.family) == half]
        clear = [one for one in mine if one.pair.clear]
        found[half] = {"all": counts(mine), "one right answer": counts(clear)}
    families = {one.pair.question.family for one in scored}
    found["families"] = {
        name: counts([one for one in scored if one.pair.question.family == name])
        for name in sorted(families)
    }
    return found


if __name__ == "__main__":
    sys.exit(run_study(measure, __doc__))
