"""What a report computes for every condition: why backends are slower, and what could be done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report.conditions import Condition, conditions
from perfml.report.kernels import printable
from perfml.report.results import Pair

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.explain import Advice
    from perfml.explain.model import Explainer
    from perfml.explain.results import LayerDiff

MOST_PAIRS = 6
"""Pairs of backends explained in a report; the verb explain takes any other."""


def explain_pairs(
    layers: pd.DataFrame | Sequence[Condition],
    kernels: pd.DataFrame | None = None,
    *,
    model: str | None = "gbr",
    seed: int = 0,
    most: int = MOST_PAIRS,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Pair]:
    """Explain, under every condition, why the other backends are slower than the fastest.

    Of each pair the layer with the largest time difference is explained in detail; of more pairs
    than `most`, those with the largest. `layers` may be conditions, `kernels` is the table behind
    them. Conditions are in order, in each the largest difference first. Pairs that cannot be
    explained (no kernel names, no layer in common) are left out.
    """
    from perfml.explain import explain, sides_of

    candidates = _largest(conditions(layers), most)
    named = None if kernels is None else printable(kernels)
    learned: dict[str, Explainer | None] = {}
    pairs = []
    for done, (condition, baseline, target, _) in enumerate(candidates):
        if progress is not None:
            progress(done, len(candidates), f"{target} against {baseline}")
        launches = None if named is None else condition.select(named)
        if condition.label not in learned:
            learned[condition.label] = _learned(condition.rows, model, seed)
        try:
            sides = sides_of(condition.rows, baseline, target, kernels=launches)
            training = learned[condition.label] or condition.rows
            explanation = explain(*sides, top=1, model=model, training=training, seed=seed)
        except PerfmlError:
            continue
        rows = condition.rows[condition.rows["backend"].isin([baseline, target])]
        pairs.append(Pair(condition.label, explanation, rows))
    return pairs


def _learned(rows: pd.DataFrame, model: str | None, seed: int) -> Explainer | None:
    """Return what the model learned from all backends of a condition, or None where it cannot."""
    if model is None:
        return None
    from perfml.explain.model import Explainer

    try:
        return Explainer(rows, model=model, seed=seed)
    except PerfmlError:
        # explain says why
        return None


_Candidate = tuple[Condition, str, str, float]
"""A pair that may be explained: baseline, target, its largest difference of a layer in us."""


def explained(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Return the pairs whose first layer differs most, in their order; one a layer and condition.

    Backends that lose on the same layer most often share its kernel: the page shows which.
    """
    first = {}
    for pair in reversed(pairs):
        details = [each for each in pair.explanation.details if each.time.slower is not None]
        if details:
            first[pair.label, details[0].layer] = (abs(_lost(details[0])), pair)
    largest = sorted(first.values(), key=lambda each: -each[0])[:most]
    kept = [pair for _, pair in largest]
    return [pair for pair in pairs if any(pair is each for each in kept)]


def losses(pairs: Sequence[Pair]) -> list[tuple[float, Pair, LayerDiff]]:
    """Return what the first layer of each pair loses where it is slower, the largest loss first."""
    found = [
        (_lost(detail), pair, detail)
        for pair in pairs
        for detail in pair.explanation.details[:1]
        if detail.time.verdict == "slower"
    ]
    return sorted(found, key=lambda each: -each[0])


def _lost(detail: LayerDiff) -> float:
    return float(detail.time.target_us - detail.time.baseline_us)


def _largest(shown: Sequence[Condition], most: int) -> list[_Candidate]:
    """Return the pairs with the largest differences: conditions in order, the largest first."""
    candidates = [each for condition in shown for each in _candidates(condition)]
    by_size = sorted(candidates, key=lambda each: -each[-1])
    kept = by_size[:most]
    return [each for condition in shown for each in kept if each[0] is condition]


def _candidates(condition: Condition) -> Iterator[_Candidate]:
    totals = condition.totals[condition.totals["total"].notna()]
    wide = condition.times.pivot_table(index="layer", columns="backend", values="median")
    fastest, *others = [str(name) for name in totals["backend"]] or [""]
    for target in others:
        largest = float((wide[target] - wide[fastest]).abs().max())
        if math.isfinite(largest):
            yield condition, fastest, target, largest


def advise_conditions(
    layers: pd.DataFrame | Sequence[Condition],
    kernels: pd.DataFrame | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
    account: Account | None = None,
) -> dict[str, Advice]:
    """Say what the layers of every condition lose, and what helps.

    Rules about single launches need `kernels`; `sources` are the provenance of its files, for the
    rules of Nsight Compute that stand in them, and `account` says what a step takes. Advice is by
    the label of the condition; those that cannot be checked (a table without the columns of
    launches) are left out.
    """
    from perfml.explain import advise

    advice = {}
    named = None if kernels is None else printable(kernels)
    for condition in conditions(layers):
        launches = None if named is None else condition.select(named)
        if launches is not None and launches.empty:
            launches = None
        try:
            advice[condition.label] = advise(
                condition.rows, kernels=launches, sources=sources, account=account
            )
        except PerfmlError:
            continue
    return advice
