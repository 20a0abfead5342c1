"""What chosen sets are worth on rows that took no part in the choice, by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.metrics.passes import is_free
from perfml.modeling.features import Problem
from perfml.modeling.scoring.baselines import predict_baseline
from perfml.modeling.scoring.protocols import Split
from perfml.modeling.scoring.targets import Target
from perfml.modeling.selection.search import Found, Search, predictions
from perfml.util.typing import Floats


@dataclass(frozen=True)
class Judged:
    """Losses of rows that took no part in a choice, summed by unit (a layer or shape, else a row).

    `counts` is how often each unit was judged, in rows. All have shape (units,), one for each
    budget, for all metrics and for the baseline.
    """

    counts: Floats
    budgets: dict[int | None, Floats]
    everything: Floats
    baseline: Floats


def judge(
    problem: Problem,
    goal: Target,
    search: Search,
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
            chosen, _ = one.best(budget, search.sign)
            columns = tuple(sorted({*free, *(names.index(name) for name in chosen)}))
            if columns not in made:
                made[columns] = guess(columns)
            add(sums[budget], test, made[columns])
        add(everything, test, guess(tuple(range(len(names)))))
        add(rival, test, predict_baseline(baseline, problem, *split))
    return Judged(counts, sums, everything, rival)
