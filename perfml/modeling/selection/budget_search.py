"""The search behind a plan: a forward selection for every budget, and its judgement elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.metrics.passes import PassEstimate, is_free, load_passes
from perfml.modeling.features import Problem
from perfml.modeling.scoring.baselines import predict_baseline
from perfml.modeling.scoring.protocols import Split
from perfml.modeling.scoring.targets import Target
from perfml.modeling.selection.search import Search, mean_score, predictions
from perfml.util.typing import Floats


@dataclass(frozen=True)
class BudgetSearch(Search):
    """A search for every budget."""

    budgets: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """What one search found: per budget the set and its score, and the score of everything."""

    sets: dict[int, tuple[str, ...]]
    scores: dict[int, float]
    everything: float


def run_search(search: BudgetSearch) -> Found:
    """Choose a set for every budget on the rows of a search."""
    problem, goal, folds = search.prepared()
    names = problem.design.names
    free = frozenset(index for index, name in enumerate(names) if is_free(name))
    known: dict[frozenset[int], float] = {}

    def loss(columns: frozenset[int]) -> float:
        if columns not in known:
            known[columns] = search.sign * mean_score(
                problem, goal, search.model, folds, tuple(columns | free), search.seed
            )
        return known[columns]

    counts = load_passes()
    sets: dict[int, tuple[str, ...]] = {}
    scores: dict[int, float] = {}
    for budget in search.budgets:
        best = _grow(names, free, budget, search.most, loss, counts.estimate)
        sets[budget] = tuple(names[column] for column in best)
        scores[budget] = search.sign * loss(frozenset(best))
    everything = search.sign * loss(frozenset(range(len(names))) - free)
    return Found(sets, scores, everything)


def _grow(
    names: Sequence[str],
    free: frozenset[int],
    budget: int,
    most: int,
    loss: Callable[[frozenset[int]], float],
    estimate: Callable[[list[str]], PassEstimate],
) -> tuple[int, ...]:
    """Return the best set on the way of a forward selection that stays within the budget."""
    kept: list[int] = []
    best: tuple[int, ...] = ()
    least = loss(frozenset()) if free else float("inf")
    while len(kept) < most and budget > 0:
        fitting = [
            column
            for column in range(len(names))
            if column not in free
            and column not in kept
            and estimate([names[each] for each in (*kept, column)]).passes <= budget
        ]
        if not fitting:
            break
        kept.append(min(fitting, key=lambda column: loss(frozenset((*kept, column)))))
        if loss(frozenset(kept)) < least - 1e-12:
            best, least = tuple(kept), loss(frozenset(kept))
    return best


@dataclass(frozen=True)
class Judged:
    """Losses of rows that took no part in a choice, summed by unit (a layer or shape, else a row).

    Attributes
    ----------
    counts
        How often each unit was judged, in rows. Shape (units,).
    budgets
        Budget to summed loss, shape (units,).
    everything, baseline
        The same for all metrics and for the baseline.
    """

    counts: Floats
    budgets: dict[int, Floats]
    everything: Floats
    baseline: Floats


def judge(
    problem: Problem,
    goal: Target,
    search: BudgetSearch,
    outer: Sequence[Split],
    found: Sequence[Found],
) -> Judged | None:
    """Score what each search chose on the rows that it did not see; None without such rows."""
    if not outer:
        return None
    names = problem.design.names
    units = problem.layer if problem.has_layers else np.arange(problem.rows)
    if search.protocol == "leave-one-shape-out":
        # layers of one shape are judged by the same models, and are nearly one measurement
        units = problem.shape
    size = int(units.max()) + 1
    free = [index for index, name in enumerate(names) if is_free(name)]
    baseline = "backend-mean" if search.task == "regression" else "most-frequent"
    sums = {budget: np.zeros(size) for budget in search.budgets}
    everything, rival, counts = np.zeros(size), np.zeros(size), np.zeros(size)

    def add(to: Floats, test: npt.NDArray[np.intp], guess: npt.NDArray[Any]) -> None:
        truth = problem.truth[test]
        regression = search.task == "regression"
        each = np.abs(guess - truth) / truth if regression else (guess == truth).astype(float)
        np.add.at(to, units[test], each)

    for index, (split, one) in enumerate(zip(outer, found, strict=True)):
        test = split[1]
        np.add.at(counts, units[test], 1.0)
        seed = search.seed + index
        made: dict[tuple[int, ...], npt.NDArray[Any]] = {}

        def guess(columns: tuple[int, ...], split: Split = split, seed: int = seed) -> Any:
            return predictions(problem, goal, search.model, split, columns, seed)

        for budget in search.budgets:
            columns = tuple(sorted({*free, *(names.index(name) for name in one.sets[budget])}))
            if columns not in made:
                made[columns] = guess(columns)
            add(sums[budget], test, made[columns])
        add(everything, test, guess(tuple(range(len(names)))))
        add(rival, test, predict_baseline(baseline, problem, *split))
    return Judged(counts, sums, everything, rival)
