"""One forward selection of metrics with a cost, and its choices judged where it did not look.

`MetricSelector` is scikit-learn's way to one: features that go with the target beyond chance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from perfml.errors import PerfmlError
from perfml.metrics.passes import is_free, load_passes
from perfml.modeling.features import Design, Problem, build_problem
from perfml.modeling.models.registry import get_model
from perfml.modeling.ranking.association import PERMUTATIONS, against_chance
from perfml.modeling.results import LEVEL
from perfml.modeling.scoring.baselines import predict_baseline
from perfml.modeling.scoring.folds import fit, predict, prepare, score
from perfml.modeling.scoring.protocols import Split, Target, make_protocol, make_target
from perfml.util.typing import Floats

FOLDS = 4
"""Folds of a search; a protocol with more has them joined into this number, groups kept whole."""

CLOSE = {"regression": 0.1, "classification": 0.01}
"""Scores that are about as good: MAPE within 10 % of itself, accuracy within one point."""


@dataclass(frozen=True)
class Choice:
    """The set of the best score within a limit; its loss is the score, less is better."""

    metrics: tuple[str, ...]
    loss: float
    alternatives: tuple[str, ...] = ()  # to the last metric: as good within `CLOSE`


@dataclass(frozen=True)
class Search:
    """What a search is asked, and the rows it may see; small enough for another process.

    Sets cost what they have of metrics, or (`by_passes`) of replay passes; what needs no counter
    costs none then, and is always used. The last of `limits` is the budget.
    """

    layers: pd.DataFrame
    task: str
    model: str
    protocol: str
    features: tuple[str, ...]
    target: str
    most: int
    seed: int
    by_passes: bool
    tolerance: float
    limits: tuple[int, ...] = ()
    budget: int = 0

    @property
    def sign(self) -> float:
        """What a score is multiplied by to be a loss: minus one where more is better."""
        return -1.0 if self.task == "classification" else 1.0

    def cost(self, names: Sequence[str]) -> int:
        """Return what a set of metrics costs."""
        if not self.by_passes:
            return len(names)
        return 0 if all(map(is_free, names)) else load_passes().estimate(names).passes

    def close(self, loss: float, least: float, tolerance: float) -> bool:
        """Return whether a loss is about as small as the least."""
        return loss <= least + tolerance * (1.0 if self.task == "classification" else least) + 1e-12

    def chosen(self, choices: dict[str, Choice]) -> Choice:
        """Return the cheapest choice within the budget that is about as good as any, or as all."""
        within = [choices[str(limit)] for limit in self.limits if limit <= self.budget]
        least = min([choices["all"].loss, *(one.loss for one in within)])
        # all metrics may beat every set; then the best of the sets is chosen
        best = min(within, key=lambda one: one.loss)
        close = (one for one in within if self.close(one.loss, least, self.tolerance))
        return next(close, best)

    def prepared(self) -> tuple[Problem, Target, tuple[Split, ...]]:
        """Return the rows as a problem, what is predicted, and the folds to choose on."""
        layers = self.layers.reset_index(drop=True)
        problem = build_problem(layers, self.task, self.features)
        goal = make_target(self.target, layers)
        return problem, goal, search_folds(problem, self.protocol, self.seed)

    def outer(self, problem: Problem, repeats: int) -> tuple[tuple[Split, ...], str]:
        """Return the parts that choices are judged on; none, and why, where that cannot be."""
        folds: dict[bytes, Split] = {}
        for repeat in range(repeats):
            for split in search_folds(problem, self.protocol, self.seed + 1000 * repeat):
                # a protocol with few groups deals the same parts every time
                folds.setdefault(split[1].tobytes(), split)
        for train, _ in folds.values():
            part = dataclasses.replace(self, layers=self.layers.iloc[train])
            try:
                inside, _, inner = part.prepared()
            except PerfmlError as error:
                return (), error.what
            if inside.classes and any(len(np.unique(inside.truth[rows])) < 2 for rows, _ in inner):
                return (), "a part of the data has one backend only"
        return tuple(folds.values()), ""


def run_search(search: Search) -> dict[str, Choice]:
    """Add metrics one by one, each time the one that helps most, within every limit.

    The keys are the limits, ``chosen`` (the choice among them) and ``all`` (every metric).
    """
    problem, goal, folds = search.prepared()
    names = problem.design.names
    free = frozenset(at for at, name in enumerate(names) if not search.cost([name]))

    @functools.cache
    def loss(columns: frozenset[int]) -> float:
        losses = [
            score(
                problem.task,
                problem.truth[split[1]],
                predictions(
                    problem, goal, search.model, split, columns | free, search.seed + index
                ),
            )
            for index, split in enumerate(folds)
        ]
        return search.sign * float(np.mean(losses))

    def within(limit: int) -> Choice:
        kept: tuple[int, ...] = ()
        best = Choice((), loss(frozenset()) if free else float("inf"))
        while len(kept) < search.most:
            tried = {
                column: loss(frozenset((*kept, column)))
                for column in set(range(len(names))).difference(kept, free)
                if search.cost([names[at] for at in (*kept, column)]) <= limit
            }
            if not tried:
                break
            by_loss = sorted(tried, key=lambda column: (tried[column], column))
            kept, least = (*kept, by_loss[0]), tried[by_loss[0]]
            if least < best.loss - 1e-12:
                close = (
                    at for at in by_loss[1:] if search.close(tried[at], least, CLOSE[search.task])
                )
                best = Choice(
                    tuple(names[at] for at in kept), least, tuple(names[at] for at in close)
                )
        return best

    choices = {str(limit): within(limit) for limit in search.limits}
    counted = frozenset(range(len(names))) - free
    choices["all"] = Choice(tuple(names[at] for at in sorted(counted)), loss(counted))
    choices["chosen"] = search.chosen(choices)
    return choices


def search_folds(problem: Problem, protocol: str, seed: int) -> tuple[Split, ...]:
    """Return the protocol's splits, dealt into `FOLDS` where there are more."""
    splits = make_protocol(protocol, problem, splits=FOLDS, seed=seed).splits
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
    problem: Problem, goal: Target, model: str, split: Split, columns: frozenset[int], seed: int
) -> npt.NDArray[np.float64]:
    """Return what a model fitted on some columns of the training rows says of the test rows."""
    # columns in the table's order: the order of choice must not decide a tie in a tree
    ordered = sorted(columns)
    names = tuple(problem.design.names[column] for column in ordered)
    part = dataclasses.replace(problem, design=Design(problem.design.values[:, ordered], names, {}))
    train, test = split
    prepared = prepare(part, train, test)
    fitted = fit(get_model(model, problem.task), part, goal, prepared.train, train, seed)
    return np.asarray(predict(fitted, part, goal, prepared.test, test))


def judge(
    problem: Problem,
    goal: Target,
    search: Search,
    outer: Sequence[Split],
    choices: Sequence[dict[str, Choice]],
) -> dict[str, Floats]:
    """Return the loss of every choice on rows that took no part in it, one a unit.

    A unit is a layer or shape, else a row. The key ``baseline`` is the mean of the backend, or the
    most frequent class.
    """
    names = problem.design.names
    units = problem.layer if problem.has_layers else np.arange(problem.rows)
    if search.protocol == "leave-one-shape-out":
        # layers of one shape are judged by the same models, and are nearly one measurement
        units = problem.shape
    free = {at for at, name in enumerate(names) if not search.cost([name])}
    regression = search.task == "regression"
    sums: dict[str, Floats] = {}
    counts = np.zeros(int(units.max()) + 1)
    for index, (split, made) in enumerate(zip(outer, choices, strict=True)):
        test, seed = split[1], search.seed + index
        truth = problem.truth[test]
        np.add.at(counts, units[test], 1.0)

        @functools.cache
        def guess(columns: frozenset[int], split: Split = split, seed: int = seed) -> Floats:
            return predictions(problem, goal, search.model, split, columns, seed)

        guesses = {
            key: guess(frozenset(free.union(map(names.index, choice.metrics))))
            for key, choice in made.items()
        }
        # a search may lack columns that are constant on its rows
        guesses["all"] = guess(frozenset(range(len(names))))
        rival = "backend-mean" if regression else "most-frequent"
        guesses["baseline"] = predict_baseline(rival, problem, *split)
        for key, guessed in guesses.items():
            losses = np.abs(guessed - truth) / truth if regression else -1.0 * (guessed == truth)
            np.add.at(sums.setdefault(key, np.zeros(len(counts))), units[test], losses)
    judged = counts > 0
    return {key: total[judged] / counts[judged] for key, total in sums.items()}


class SelectBeyondChance(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep features whose p-value, corrected for all of them, is at most `level`.

    One permutation test of monotone effects, steps, U-shapes and pairs, see
    `perfml.modeling.ranking.association`. Undefined cells (NaN) are allowed.

    Parameters
    ----------
    level
        Largest p-value of a feature that is kept.
    permutations
        How often targets are exchanged.
    random_state
        Seed of the permutations.

    Attributes
    ----------
    pvalues_ : ndarray of shape (n_features,)
    chance_ : perfml.modeling.results.Chance
        The test of all features, with the power of such a table.

    Examples
    --------
    >>> import numpy as np
    >>> from perfml.modeling import SelectBeyondChance
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = np.abs(X[:, 2])
    >>> SelectBeyondChance().fit(X, y).get_support(indices=True).tolist()
    [2]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "level": [Interval(Real, 0, 1, closed="both")],
        "permutations": [Interval(Integral, 1, None, closed="left")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self, level: float = LEVEL, permutations: int = PERMUTATIONS, random_state: int = 0
    ) -> None:
        self.level = level
        self.permutations = permutations
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Test the features.

        Parameters
        ----------
        X, y
            Features of shape (n, f), and numbers or labels of shape (n,).
        groups
            Label of the rows that belong together, shape (n,): they exchange targets as one.
        """
        self._validate_params()
        values, target = validate_data(
            self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_all_finite="allow-nan"
        )
        pieces = np.arange(len(values)) if groups is None else pd.factorize(np.asarray(groups))[0]
        names: npt.NDArray[Any] = np.zeros(0)
        if type_of_target(target) == "continuous":
            numbers = np.asarray(target, dtype=np.float64)
            # a logarithm where there is one, as of times
            given = np.log(numbers) if bool((numbers > 0).all()) else numbers
        else:
            check_classification_targets(target)
            names, given = np.unique(target, return_inverse=True)
        tested, self.chance_ = against_chance(
            values,
            given,
            pieces,
            np.zeros(len(values), dtype=np.int64),
            classes=len(names),
            permutations=int(self.permutations),
            seed=int(self.random_state),
        )
        self.pvalues_ = tested["p_value"].to_numpy()
        return self

    def _get_support_mask(self) -> npt.NDArray[np.bool_]:
        check_is_fitted(self)
        return np.asarray(self.pvalues_ <= self.level)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a selector that needs a target and takes undefined cells."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags
