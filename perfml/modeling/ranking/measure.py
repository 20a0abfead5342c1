"""Resamples of the layers, and every importance measured on one: of metrics and of groups.

There is the same table, too, with its target given to other layers. Of a permuted table there is
nothing left to find, all else the same. Whole layers exchange their times, because the rows of a
layer belong together: under the hypothesis that no metric tells anything of the time, layers are
exchangeable and every such table was as likely as the one that was measured. Layers exchange only
with layers of their configuration (backend, precision, batch ...), so what a configuration does to
the time stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem
from perfml.modeling.models.own import has_exact_shapley, permutation_importance, shapley_importance
from perfml.modeling.models.registry import Model, get_model
from perfml.modeling.scoring.folds import (
    REPEATS,
    Prepared,
    copies_loss,
    fit,
    model_importance,
    predict_copies,
    prepare,
)
from perfml.modeling.scoring.protocols import Target
from perfml.util.typing import Floats, Ints

Rows = npt.NDArray[np.intp]

_TRIES = 200
"""Draws until a resample has held-out rows and every class."""


def exchanged_rows(pieces: Ints, strata: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return the row whose target each row gets, (1 + count, rows); the first table is as it is.

    One permutation of the pieces serves all strata that have the same pieces, so that a layer
    which is slow under one library stays slow under the others. Rows of a piece come in random
    order: what their order tells (a size that grows) is no part of what chance keeps. A piece with
    fewer rows than the one that gets them gives some of them twice.
    """
    rows = len(pieces)
    donors = np.empty((1 + count, rows), dtype=np.int64)
    donors[0] = np.arange(rows)
    order = rng.random((count, int(pieces.max()) + 1))
    keys = rng.random((count, rows))
    for code in np.unique(strata):
        inside = np.flatnonzero(strata == code)
        present, piece, sizes = np.unique(pieces[inside], return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        givers = np.argsort(order[:, present], axis=1)
        # rows of the stratum piece by piece, each piece's in random order
        mixed = np.argsort(piece + keys[:, inside], axis=1)
        place = np.empty(len(inside), dtype=np.int64)
        sorted_rows = np.argsort(piece, kind="stable")
        place[sorted_rows] = np.arange(len(inside)) - np.repeat(starts, sizes)
        giver = givers[:, piece]
        taken = starts[giver] + place % sizes[giver]
        donors[1:, inside] = inside[np.take_along_axis(mixed, taken, axis=1)]
    return donors


def several_inside(classes: Ints, pieces: Ints) -> bool:
    """Return whether some piece has rows of several classes."""
    return len(np.unique(np.stack([pieces, classes]), axis=1).T) > len(np.unique(pieces))


def exchanged_classes(classes: Ints, pieces: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return the classes with their names exchanged inside each piece, (1 + count, rows)."""
    tables = np.broadcast_to(classes, (1 + count, len(classes))).copy()
    for piece in np.unique(pieces):
        inside = np.flatnonzero(pieces == piece)
        present, code = np.unique(classes[inside], return_inverse=True)
        orders = rng.permuted(np.broadcast_to(present, (count, len(present))), axis=1)
        tables[1:, inside] = orders[:, code]
    return tables


Drawn = tuple[Rows, Rows]
"""Rows of one resample: drawn with replacement, and those never drawn."""


def resampled(problem: Problem, pieces: Ints, seeds: range) -> Iterator[Drawn]:
    """Draw one resample a seed, of whole pieces of evidence (see `distinct_layers`).

    Raises `PerfmlError` if no draw holds out anything while keeping every class.
    """
    members = [np.flatnonzero(pieces == code) for code in range(int(pieces.max()) + 1)]
    for seed in seeds:
        yield _draw(problem, members, np.random.default_rng([seed, 1]))


def _draw(problem: Problem, members: list[Rows], rng: np.random.Generator) -> Drawn:
    for _ in range(_TRIES):
        chosen = rng.integers(len(members), size=len(members))
        rows = np.concatenate([members[code] for code in chosen])
        drawn = np.zeros(problem.rows, dtype=bool)
        drawn[rows] = True
        held_out = np.flatnonzero(~drawn)
        if len(held_out) < 2:
            continue
        if problem.classes and len(np.unique(problem.truth[rows])) < len(problem.classes):
            continue
        return rows, held_out
    msg = "resampling leaves no rows to test on, or not every backend to learn from"
    raise PerfmlError(msg, found=f"{problem.rows} conditions", cure="Profile more layers.")


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
    order, or the absolute value of the sum of their Shapley values.
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
