"""Fit the models on one resample, and measure every importance: of metrics and of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from perfml.modeling.features import Problem
from perfml.modeling.models.importance import permutation_importance, shapley_importance
from perfml.modeling.models.own import has_exact_shapley
from perfml.modeling.models.registry import Model, get_model
from perfml.modeling.ranking.draws import Drawn
from perfml.modeling.scoring.folds import (
    REPEATS,
    Prepared,
    copies_loss,
    fit,
    model_importance,
    predict,
    predict_copies,
    prepare,
)
from perfml.modeling.scoring.protocols import Target
from perfml.util.typing import Floats

CLUSTER_RHO = 0.8
"""Metrics whose absolute Spearman correlation reaches this, on average, are one group."""

Groups = tuple[tuple[int, ...], ...]
"""Columns of each group."""


def spearman_groups(problem: Problem) -> Groups:
    """Return groups of columns that rank the rows alike.

    Average linkage on ``1 - |rho|``, cut where the mean absolute Spearman correlation between two
    groups falls below `CLUSTER_RHO`. Undefined cells take the column's median.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    values = problem.design.values
    if values.shape[1] == 1:
        return ((0,),)
    filled = np.where(np.isnan(values), np.nanmedian(values, axis=0), values)
    with np.errstate(invalid="ignore"):
        rho = np.corrcoef(rankdata(filled, axis=0), rowvar=False)
    distance = 1.0 - np.abs(np.nan_to_num(rho))
    np.fill_diagonal(distance, 0.0)
    distance = np.clip((distance + distance.T) / 2, 0.0, None)
    cut = 1.0 - CLUSTER_RHO + 1e-12
    labels = fcluster(linkage(squareform(distance, checks=False), "average"), cut, "distance")
    members: dict[int, list[int]] = {}
    for column, label in enumerate(labels):
        members.setdefault(int(label), []).append(column)
    return tuple(sorted((tuple(group) for group in members.values()), key=lambda group: group[0]))


def group_label(problem: Problem, group: tuple[int, ...]) -> str:
    """Return a group's name: its members, joined with plus signs."""
    return " + ".join(problem.design.names[column] for column in group)


GROUP_METHOD = "group-permutation"
REFIT_METHOD = "drop-column"

MAX_EXPLAINED = 64
"""Held-out rows whose Shapley values are averaged; their cost grows with the rows."""


@dataclass(frozen=True)
class Resample:
    """One resample, and what to measure on it."""

    problem: Problem
    target: Target
    models: tuple[str | Model, ...]
    methods: tuple[str, ...]
    groups: Groups
    drawn: Drawn
    seed: int


@dataclass(frozen=True)
class Measured:
    """The importances of one model by one method on one resample.

    There is one value a metric (one a group for `GROUP_METHOD`), and one `joint` number a group,
    its members taken as one: their importances added (builtin), all of them shuffled by the same
    order, left out together, or the absolute value of the sum of their Shapley values.
    """

    model: str
    method: str
    seed: int
    values: Floats
    joint: Floats


def measure(work: Resample) -> list[Measured]:
    """Fit every model on one resample and measure every importance."""
    problem, drawn = work.problem, work.drawn
    prepared = prepare(problem, *drawn)
    rng = np.random.default_rng([work.seed, 2])
    results: list[Measured] = []
    for name in work.models:
        # among metrics that split alike, an estimator without a seed takes the first column
        order = rng.permutation(prepared.train.shape[1])
        shuffled = Prepared(
            prepared.train[:, order], prepared.test[:, order], prepared.owners[order]
        )
        model = get_model(name, problem.task)
        if model.fewer is not None:
            model = replace(model, make=model.fewer)
        results += _Fit(work, model, shuffled, rng).importances()
    return results


class _Fit:
    """One model fitted on one resample, and its importances."""

    def __init__(
        self, work: Resample, model: Model, prepared: Prepared, rng: np.random.Generator
    ) -> None:
        self.work, self.model, self.prepared, self.rng = work, model, prepared, rng
        problem, (_, held_out) = work.problem, work.drawn
        self.width = problem.design.values.shape[1]
        self.fitted = self._fitted(prepared.train)
        self.loss = copies_loss(problem, held_out)
        self.guess = predict_copies(self.fitted, problem, work.target, held_out)
        self.shared = [group for group in work.groups if len(group) > 1]
        self.columns = [np.flatnonzero(prepared.owners == owner) for owner in range(self.width)]

    def _fitted(self, train: Floats) -> Any:
        """Fit the model to features of the rows drawn, shape (rows drawn, columns)."""
        work, (rows, _), times = self.work, self.work.drawn, None
        distinct, first, often = np.unique(rows, return_index=True, return_counts=True)
        # of few layers a resample may draw one row alone, and no tree learns from a single row
        if self.model.counts and len(distinct) > 1:
            rows, train, times = distinct, train[first], often.astype(np.float64)
        return fit(self.model, work.problem, work.target, train, rows, work.seed, times)

    def importances(self) -> list[Measured]:
        """Return one result a method that this model has."""
        results = []
        permuted: tuple[Floats, Floats] | None = None
        for method in self.work.methods:
            name = method
            if method == "builtin":
                both = self._builtin()
                name = self.model.builtin or method
            elif method in ("permutation", GROUP_METHOD):
                permuted = permuted or self._permuted()
                both = permuted if method == "permutation" else (permuted[1], permuted[1])
            elif method == REFIT_METHOD:
                both = self._dropped()
            else:
                both = self._shapley()
            if both is not None:
                results.append(Measured(self.model.name, name, self.work.seed, *both))
        return results

    def _builtin(self) -> tuple[Floats, Floats] | None:
        if self.model.builtin is None:
            return None
        values = model_importance(self.model, self.fitted, self.prepared, self.width)
        if values is None:
            return None
        return values, np.array([values[list(group)].sum() for group in self.work.groups])

    def _permuted(self) -> tuple[Floats, Floats]:
        values = permutation_importance(
            self.guess,
            self.loss,
            self.prepared.test,
            self.columns
            + [np.concatenate([self.columns[j] for j in group]) for group in self.shared],
            repeats=REPEATS,
            rng=self.rng,
        )
        return values[: self.width], self._joint(values[: self.width], values[self.width :])

    def _dropped(self) -> tuple[Floats, Floats]:
        """Return how much the loss grows when the model is fitted without a metric, or a group."""
        base = float(self.loss(self.guess(self.prepared.test)[None, :])[0])
        parts = [(feature,) for feature in range(self.width)] + self.shared
        values = np.array([self._loss_without(part) - base for part in parts])
        return values[: self.width], self._joint(values[: self.width], values[self.width :])

    def _loss_without(self, features: tuple[int, ...]) -> float:
        problem, (rows, held_out) = self.work.problem, self.work.drawn
        kept = np.flatnonzero(~np.isin(self.prepared.owners, features))
        if not len(kept):
            # nothing is left to learn from: what remains is one value for every row
            train, test = np.zeros((len(rows), 1)), np.zeros((len(held_out), 1))
        else:
            train, test = self.prepared.train[:, kept], self.prepared.test[:, kept]
        guess = predict(self._fitted(train), problem, self.work.target, test, held_out)
        return float(self.loss(guess[None, :])[0])

    def _shapley(self) -> tuple[Floats, Floats] | None:
        if not has_exact_shapley(self.model, self.fitted):
            return None
        rows = self.rng.permutation(len(self.prepared.test))[:MAX_EXPLAINED]
        group_of = np.empty(self.width, dtype=np.int64)
        for code, group in enumerate(self.work.groups):
            group_of[list(group)] = code
        values = shapley_importance(
            self.fitted,
            self.prepared.test[rows],
            self.prepared.train,
            (self.prepared.owners, group_of[self.prepared.owners]),
        )
        return None if values is None else (values[0], values[1])

    def _joint(self, values: Floats, shared: Floats) -> Floats:
        """Return one number a group: that of its only member, or the next of the shared ones."""
        following = iter(shared)
        return np.array(
            [values[group[0]] if len(group) == 1 else next(following) for group in self.work.groups]
        )
