"""Fit and score models on one split: arrays in, arrays out, nothing of pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.tree import BaseDecisionTree

from perfml.modeling.features import Problem
from perfml.modeling.models.own import (
    builtin_importance,
    class_coefficients,
)
from perfml.modeling.models.registry import Model, get_model, imputed_owners, make_imputer
from perfml.modeling.parallel import noting
from perfml.modeling.scoring.baselines import predict_baseline
from perfml.modeling.scoring.protocols import Split, Target
from perfml.util.typing import Floats, Ints

Rows = npt.NDArray[np.intp]

REPEATS = 5
"""Shuffles a metric in one split or resample; those do the rest of the averaging."""


@dataclass(frozen=True)
class Prepared:
    """The features of one split without undefined cells, and the feature of each column.

    Indicators of undefinedness share their metric's `owners`. Shapes are (train rows, columns),
    (test rows, columns) and (columns,).
    """

    train: Floats
    test: Floats
    owners: Ints


def prepare(problem: Problem, train: Rows, test: Rows) -> Prepared:
    """Fill undefined metrics with the medians of the training rows."""
    values = problem.design.values
    if not problem.design.has_missing:
        return Prepared(values[train], values[test], np.arange(values.shape[1], dtype=np.int64))
    imputer = make_imputer()
    filled = np.asarray(imputer.fit_transform(values[train]), dtype=np.float64)
    return Prepared(
        filled,
        np.asarray(imputer.transform(values[test]), dtype=np.float64),
        imputed_owners(imputer, values.shape[1]),
    )


def fit(
    model: Model,
    problem: Problem,
    target: Target,
    X: Floats,
    rows: Rows,
    seed: int,
    times: Floats | None = None,
) -> Any:
    """Fit a model on prepared features of some rows; a fit that did not converge is noted.

    `times` is how often each row counts, for models whose `counts` is true.
    """
    truth = problem.truth[rows]
    if problem.task == "regression":
        truth = target.forward(truth, rows)
    estimator = model.make(seed)
    if isinstance(estimator, BaseDecisionTree) and not model.own:
        # looking through a few rows takes as long as learning from them
        return estimator.fit(np.ascontiguousarray(X, np.float32), truth, check_input=False)
    weights = {} if times is None else {"sample_weight": times}
    with noting(model.name):
        return estimator.fit(X, truth, **weights)


def predict(
    fitted: Any, problem: Problem, target: Target, X: Floats, rows: Rows
) -> npt.NDArray[Any]:
    """Predict milliseconds or class codes for prepared features of some rows."""
    if isinstance(fitted, BaseDecisionTree):
        # as in `fit`: the features were looked at once
        predicted: npt.NDArray[Any] = fitted.predict(
            np.ascontiguousarray(X, np.float32), check_input=False
        )
    else:
        predicted = fitted.predict(X)
    if problem.task == "regression":
        return target.inverse(np.asarray(predicted, dtype=np.float64), rows)
    return predicted


def score(task: str, truth: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> float:
    """Return MAPE (a fraction, smaller is better) or accuracy."""
    if task == "regression":
        return float(np.mean(np.abs(truth - predicted) / truth))
    return float(np.mean(truth == predicted))


@dataclass(frozen=True)
class Work:
    """One split, and what to fit on it; small enough to send to another process.

    `find` gives the model of a name for a task; `quick` fits ensembles with the first seed only.
    """

    problem: Problem
    target: Target
    models: tuple[str | Model, ...]
    baselines: tuple[str, ...]
    split: Split
    seeds: tuple[int, ...]
    importances: tuple[str, ...] = ()
    find: Callable[[Any, str], Model] = get_model
    quick: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one model did on one split with one seed; -1 where the fit has none.

    Test rows are `predicted` in milliseconds or class codes. There is one importance a feature for
    each method that was asked for and exists; a row a class for ``classes``, the absolute
    coefficients of a linear model.
    """

    model: str
    seed: int
    score: float
    predicted: npt.NDArray[Any]
    importances: dict[str, Floats] = field(default_factory=dict)


def run_split(work: Work) -> list[Outcome]:
    """Fit and score every model and baseline on one split."""
    problem = work.problem
    train, test = work.split
    truth = problem.truth[test]
    outcomes = []
    for name in work.baselines:
        guess = predict_baseline(name, problem, train, test)
        outcomes.append(Outcome(name, -1, score(problem.task, truth, guess), guess))
    prepared = prepare(problem, train, test)
    for handle in work.models:
        model = work.find(handle, problem.task)
        name = handle if isinstance(handle, str) else handle.name
        several = model.seeded and not (work.quick and model.fewer)
        for seed in work.seeds if several else work.seeds[:1]:
            fitted = fit(model, problem, work.target, prepared.train, train, seed)
            guess = predict(fitted, problem, work.target, prepared.test, test)
            outcomes.append(
                Outcome(
                    name,
                    seed if model.seeded else -1,
                    score(problem.task, truth, guess),
                    guess,
                    _importances(work, model, fitted, prepared),
                )
            )
    return outcomes


def _importances(work: Work, model: Model, fitted: Any, prepared: Prepared) -> dict[str, Floats]:
    width = work.problem.design.values.shape[1]
    found: dict[str, Floats] = {}
    if "builtin" in work.importances and model.builtin is not None:
        brought = model_importance(model, fitted, prepared, width)
        if brought is not None:
            found[model.builtin] = brought
    if "classes" in work.importances and hasattr(fitted, "coef_"):
        found["classes"] = np.abs(class_coefficients(fitted))
    return found


def model_importance(model: Model, fitted: Any, prepared: Prepared, width: int) -> Floats | None:
    """Return the importance that a fitted model brings along, one number a feature, or None."""
    if model.own:
        from perfml.modeling.models.own import own_importance

        return own_importance(fitted, prepared.train, prepared.owners, width)
    return builtin_importance(fitted, prepared.owners, width)


def predict_copies(
    fitted: Any, problem: Problem, target: Target, rows: Rows
) -> Callable[[Floats], npt.NDArray[Any]]:
    """Return a function that predicts stacked copies of some rows."""

    def guess(X: Floats) -> npt.NDArray[Any]:
        return predict(fitted, problem, target, X, np.tile(rows, len(X) // len(rows)))

    return guess


def copies_loss(problem: Problem, rows: Rows) -> Callable[[npt.NDArray[Any]], Floats]:
    """Return a function from predictions of shape (copies, rows) to one loss a copy."""
    truth = problem.truth[rows]
    if problem.task == "regression":
        return lambda guess: np.asarray(np.mean(np.abs(guess - truth) / truth, axis=1))
    return lambda guess: np.asarray(np.mean(guess != truth, axis=1))


def fitting_seconds(models: Sequence[Model], problem: Problem, fits: int) -> float:
    """Estimate how long fits take on one core, from the models' rough costs."""
    size = problem.design.values.size / (261 * 16)
    return fits * size * sum(model.cost for model in models)
