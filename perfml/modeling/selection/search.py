"""One forward selection of metrics: within budgets or without, and judged where it did not look."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.metrics.passes import is_free, load_passes
from perfml.modeling.features import Design, Problem, build_problem
from perfml.modeling.models.registry import get_model
from perfml.modeling.scoring.baselines import predict_baseline
from perfml.modeling.scoring.folds import fit, predict, prepare, score
from perfml.modeling.scoring.protocols import Split, make_protocol
from perfml.modeling.scoring.targets import Target, make_target
from perfml.util.typing import Floats

FOLDS = 4
"""Folds of a search; a protocol with more has them joined into this number, groups kept whole."""


@dataclass(frozen=True)
class Search:
    """What a search is asked, and the rows it may see; small enough for another process.

    `budgets` are numbers of replay passes; None is a search without one. Within a budget features
    that need no counter are always used.
    """

    layers: pd.DataFrame
    task: str
    model: str
    protocol: str
    features: tuple[str, ...]
    target: str
    most: int
    seed: int
    budgets: tuple[int | None, ...] = (None,)

    @property
    def sign(self) -> float:
        """What a score is multiplied by to be a loss: minus one where more is better."""
        return -1.0 if self.task == "classification" else 1.0

    def free(self, names: Sequence[str]) -> frozenset[int]:
        """Return the columns that are always used."""
        if self.budgets == (None,):
            return frozenset()
        return frozenset(column for column, name in enumerate(names) if is_free(name))

    def prepared(self) -> tuple[Problem, Target, tuple[Split, ...]]:
        """Return the rows as a problem, what is predicted, and the folds to choose on."""
        layers = self.layers.reset_index(drop=True)
        problem = build_problem(layers, self.task, self.features)
        goal = make_target(self.target, layers)
        return problem, goal, search_folds(problem, self.protocol, self.seed)

    def repeatable(self, folds: tuple[Split, ...]) -> tuple[tuple[Split, ...], str | None]:
        """Return the folds a search can be repeated without; none, and why, where it cannot."""
        for train, _ in folds:
            part = dataclasses.replace(self, layers=self.layers.iloc[train])
            try:
                problem, _, inner = part.prepared()
            except PerfmlError as error:
                return (), error.what
            if problem.classes and any(
                len(np.unique(problem.truth[each])) < 2 for each, _ in inner
            ):
                return (), "a part of the data has one backend only"
        return folds, None


@dataclass(frozen=True)
class Step:
    """A metric that was added, and the scores of the sets with each metric that was tried."""

    metric: str
    tried: dict[str, float]

    @property
    def score(self) -> float:
        """The score of the set with the metric."""
        return self.tried[self.metric]


@dataclass(frozen=True)
class Found:
    """What a search found: the steps within each budget, and the scores of two sets.

    `nothing` has the features that are always used (NaN where there are none), `everything` all.
    """

    paths: dict[int | None, tuple[Step, ...]]
    nothing: float
    everything: float

    def best(self, budget: int | None, sign: float) -> tuple[tuple[str, ...], float]:
        """Return the set of the best score on the way to a budget, and that score."""
        best, least = 0, self.nothing * sign if self.nothing == self.nothing else np.inf
        for size, step in enumerate(self.paths[budget], start=1):
            if step.score * sign < least - 1e-12:
                best, least = size, step.score * sign
        names = tuple(step.metric for step in self.paths[budget][:best])
        return names, float(sign * least) if np.isfinite(least) else float("nan")


def run_search(search: Search) -> Found:
    """Add metrics one by one, each time the one that helps most, for every budget."""
    problem, goal, folds = search.prepared()
    names = problem.design.names
    free = search.free(names)

    @functools.cache
    def scored(columns: frozenset[int]) -> float:
        return mean_score(problem, goal, search.model, folds, tuple(columns | free), search.seed)

    def path(fits: Callable[[list[int]], bool]) -> tuple[Step, ...]:
        kept: list[int] = []
        steps: list[Step] = []
        while len(kept) < search.most:
            tried = {
                column: scored(frozenset((*kept, column)))
                for column in range(len(names))
                if column not in free and column not in kept and fits([*kept, column])
            }
            if not tried:
                break
            kept.append(min(tried, key=lambda column: search.sign * tried[column]))
            named = {names[column]: value for column, value in tried.items()}
            steps.append(Step(names[kept[-1]], named))
        return tuple(steps)

    counts = load_passes()

    def within(budget: int | None) -> Callable[[list[int]], bool]:
        if budget is None:
            return lambda columns: True
        return lambda columns: (
            counts.estimate([names[column] for column in columns]).passes <= budget
        )

    return Found(
        {budget: path(within(budget)) for budget in search.budgets},
        scored(frozenset()) if free else float("nan"),
        scored(frozenset(range(len(names))) - free),
    )


def search_folds(problem: Problem, protocol: str, seed: int) -> tuple[Split, ...]:
    """Return the protocol's splits, dealt into `FOLDS` where there are more."""
    made = make_protocol(protocol, problem, splits=FOLDS, seed=seed)
    splits = made.splits
    if len(splits) <= FOLDS:
        return splits
    order = np.random.default_rng(seed).permutation(len(splits))
    every = np.arange(problem.rows)
    dealt = []
    for start in range(FOLDS):
        test = np.sort(np.concatenate([splits[index][1] for index in order[start::FOLDS]]))
        dealt.append((np.setdiff1d(every, test), test))
    return tuple(dealt)


def predictions(
    problem: Problem,
    goal: Target,
    model: str,
    split: Split,
    columns: Sequence[int],
    seed: int,
) -> np.ndarray:
    """Return what a model fitted on some columns of the training rows says of the test rows."""
    # columns in the table's order: the order of choice must not decide a tie in a tree
    ordered = sorted(columns)
    part = dataclasses.replace(
        problem,
        design=Design(
            problem.design.values[:, ordered],
            tuple(problem.design.names[column] for column in ordered),
            {},
        ),
    )
    train, test = split
    prepared = prepare(part, train, test)
    fitted = fit(get_model(model, problem.task), part, goal, prepared.train, train, seed)
    return predict(fitted, part, goal, prepared.test, test)


def mean_score(
    problem: Problem,
    goal: Target,
    model: str,
    folds: Sequence[Split],
    columns: Sequence[int],
    seed: int,
) -> float:
    """Return the mean score over folds of a model on some columns; fold i uses ``seed + i``."""
    scores = [
        score(
            problem.task,
            problem.truth[split[1]],
            predictions(problem, goal, model, split, columns, seed + index),
        )
        for index, split in enumerate(folds)
    ]
    return float(np.mean(scores))


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
