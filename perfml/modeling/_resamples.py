"""Measure every importance on one bootstrap resample, and turn importances into places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from perfml.errors import PerfmlError
from perfml.modeling._folds import (
    REPEATS,
    Prepared,
    copies_loss,
    fit,
    predict,
    predict_copies,
    prepare,
)
from perfml.modeling.estimators import Model, get_model
from perfml.modeling.features import Floats, Problem
from perfml.modeling.importance import (
    builtin_importance,
    permutation_importance,
    shapley_importance,
)
from perfml.modeling.targets import Target

GROUP_METHOD = "group-permutation"
REFIT_METHOD = "drop-column"

MAX_EXPLAINED = 64
"""Held-out rows whose Shapley values are averaged; their cost grows with the rows."""

_TRIES = 200
"""Draws until a resample has held-out rows and every class."""


@dataclass(frozen=True)
class Drawn:
    """Rows of one resample: drawn with replacement, and those never drawn."""

    rows: npt.NDArray[np.intp]
    held_out: npt.NDArray[np.intp]


@dataclass(frozen=True)
class Resample:
    """One resample, and what to measure on it."""

    problem: Problem
    target: Target
    models: tuple[str, ...]
    methods: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    drawn: Drawn
    seed: int


@dataclass(frozen=True)
class Measured:
    """One importance vector: a feature each, or a group each for `GROUP_METHOD`."""

    model: str
    method: str
    seed: int
    values: Floats


def resampled(problem: Problem, unit: str, count: int, seed: int) -> Iterator[Drawn]:
    """Draw `count` resamples of layers or rows.

    Raises
    ------
    PerfmlError
        If no draw holds out anything while keeping two classes.
    """
    codes = problem.layer if unit == "layers" else np.arange(problem.rows)
    members = [np.flatnonzero(codes == code) for code in range(int(codes.max()) + 1)]
    for index in range(count):
        rng = np.random.default_rng([seed + index, 1])
        yield _draw(problem, members, rng)


def _draw(problem: Problem, members: list[npt.NDArray[np.intp]], rng: np.random.Generator) -> Drawn:
    for _ in range(_TRIES):
        chosen = rng.integers(len(members), size=len(members))
        rows = np.concatenate([members[code] for code in chosen])
        held_out = np.setdiff1d(np.arange(problem.rows), rows)
        if len(held_out) < 2:
            continue
        if problem.classes and len(np.unique(problem.truth[rows])) < len(problem.classes):
            continue
        return Drawn(rows, held_out)
    msg = "resampling leaves no rows to test on, or not every backend to learn from"
    raise PerfmlError(msg, found=f"{problem.rows} rows", cure="Profile more layers or repeats.")


def measure(work: Resample) -> list[Measured]:
    """Fit every model on one resample and measure every importance."""
    problem, drawn = work.problem, work.drawn
    prepared = prepare(problem, drawn.rows, drawn.held_out)
    rng = np.random.default_rng([work.seed, 2])
    found = []
    for name in work.models:
        model = get_model(name, problem.task)
        # among metrics that split alike, an estimator without a seed takes the first column
        order = rng.permutation(prepared.train.shape[1])
        shuffled = Prepared(
            prepared.train[:, order], prepared.test[:, order], prepared.owners[order]
        )
        found += _measure_model(work, model, shuffled, rng)
    return found


def _measure_model(
    work: Resample, model: Model, prepared: Prepared, rng: np.random.Generator
) -> list[Measured]:
    problem, drawn = work.problem, work.drawn
    width = problem.design.values.shape[1]
    fitted = fit(model, problem, work.target, prepared.train, drawn.rows, work.seed)
    found: dict[str, Floats] = {}
    loss = copies_loss(problem, drawn.held_out)
    guess = predict_copies(fitted, problem, work.target, drawn.held_out)
    columns = [np.flatnonzero(prepared.owners == owner) for owner in range(width)]
    for method in work.methods:
        if method == "builtin":
            if model.builtin is not None:
                found[model.builtin] = builtin_importance(fitted, prepared.owners, width)
        elif method == "permutation":
            found[method] = permutation_importance(
                guess, loss, prepared.test, columns, repeats=REPEATS, rng=rng
            )
        elif method == GROUP_METHOD:
            whole = [np.concatenate([columns[j] for j in group]) for group in work.groups]
            found[method] = permutation_importance(
                guess, loss, prepared.test, whole, repeats=REPEATS, rng=rng
            )
        elif method == REFIT_METHOD:
            found[method] = _dropped(work, model, prepared, loss, guess)
        else:
            rows = rng.permutation(len(prepared.test))[:MAX_EXPLAINED]
            values = shapley_importance(
                fitted, prepared.test[rows], prepared.train, prepared.owners, width
            )
            if values is not None:
                found[method] = values
    return [Measured(model.name, method, work.seed, values) for method, values in found.items()]


def _dropped(
    work: Resample,
    model: Model,
    prepared: Prepared,
    loss: Callable[[npt.NDArray[Any]], Floats],
    guess: Callable[[Floats], npt.NDArray[Any]],
) -> Floats:
    """Return how much the loss grows when the model is fitted without each feature."""
    problem, drawn = work.problem, work.drawn
    base = float(loss(guess(prepared.test)[None, :])[0])
    width = problem.design.values.shape[1]
    grown = np.zeros(width)
    if width == 1:
        return grown
    for feature in range(width):
        kept = np.flatnonzero(prepared.owners != feature)
        fitted = fit(model, problem, work.target, prepared.train[:, kept], drawn.rows, work.seed)
        again = predict(fitted, problem, work.target, prepared.test[:, kept], drawn.held_out)
        grown[feature] = float(loss(again[None, :])[0]) - base
    return grown


def ranks(values: Floats) -> Floats:
    """Return places along the last axis, 1 for the largest value; ties share their mean place."""
    return np.asarray(rankdata(-values, method="average", axis=-1), dtype=np.float64)


def top_share(values: Floats, k: int) -> Floats:
    """Return how far each value is among the `k` largest: 1, 0, or a share of a tie.

    A value that explains nothing (zero or less) is never among them, so a model without any
    importance names nobody. Of m values tied for p < m places each gets p / m.
    """
    best = rankdata(-values, method="min", axis=-1)
    worst = rankdata(-values, method="max", axis=-1)
    share = np.clip((k - best + 1) / (worst - best + 1), 0.0, 1.0)
    return np.where(values > 0, share, 0.0)
