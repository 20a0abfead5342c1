"""Estimators of one's own beside the models of the registry: cloned, seeded, their importances."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import OneToOneFeatureMixin, clone, is_classifier, is_regressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.errors import PerfmlError
from perfml.modeling.models.registry import CLASSIFICATION, REGRESSION, Model, get_models
from perfml.util.typing import Floats, Ints

Models: TypeAlias = str | Sequence[Any] | Mapping[str, Any] | object | None
"""Names of the registry, scikit-learn estimators, or both in one list; a mapping names them."""

OWN = "own"
"""Method under which an estimator's own ``coef_`` or ``feature_importances_`` is listed."""

COST = 0.05
"""Seconds that a fit of an unknown estimator is taken for, see `Model.cost`."""

_EXPLAINED = (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
"""What the package shap explains exactly."""


def chosen_models(models: Models, task: str) -> tuple[Model, ...]:
    """Return models by name of the registry, or as estimators.

    None stands for the three of the study; `task` is ``regression`` or ``classification``. Raises
    `PerfmlError` if a name is unknown, or something is no estimator of this task.
    """
    if models is None or isinstance(models, str):
        return get_models(models, task)
    if isinstance(models, Mapping):
        return tuple(_named(str(name), each, task) for name, each in models.items())
    listed = list(models) if isinstance(models, Sequence) else [models]
    if not listed:
        return get_models((), task)
    found: dict[str, Model] = {}
    for each in listed:
        if isinstance(each, str):
            found.update({model.name: model for model in get_models(each, task)})
            continue
        name = _title(each)
        number = 2
        while name in found:
            name, number = f"{_title(each)}-{number}", number + 1
        found[name] = own_model(name, each, task)
    return tuple(found.values())


def _named(name: str, model: Any, task: str) -> Model:
    if isinstance(model, str):
        (known,) = get_models(model, task)
        return known
    return own_model(name, model, task)


def own_model(name: str, estimator: Any, task: str) -> Model:
    """Return an estimator as a model: every fit is of a clone.

    A ``random_state`` that is None, its own or that of a part, gets the fit's seed, so that
    intervals cover the estimator's own chance; one that was set is kept. Raises `PerfmlError` if it
    is no estimator of the task, or picks columns by their place.
    """
    right, other = (is_regressor, is_classifier)
    if task == "classification":
        right, other = other, right
    usual = REGRESSION if task == "regression" else CLASSIFICATION
    cure = f"Give an instance of a {_KIND[task]}, such as {_EXAMPLE[task]}, or {', '.join(usual)}."
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        msg = "a model must be a name or a scikit-learn estimator"
        raise PerfmlError(msg, found=f"{estimator!r:.80}", cure=cure)
    if other(estimator) or not (right(estimator) or hasattr(estimator, "predict")):
        msg = f"{name} is no {_KIND[task]}, and the task is {task}"
        raise PerfmlError(msg, cure=cure)
    from sklearn.compose import ColumnTransformer

    if any(isinstance(part, ColumnTransformer) for part in _parts(estimator)):
        msg = f"{name} picks columns by their place"
        cure = "Columns come in changing order, so that no place has an advantage: treat all alike."
        raise PerfmlError(msg, found="ColumnTransformer", cure=cure)
    seeds = tuple(
        key
        for key, value in sorted(estimator.get_params(deep=True).items())
        if value is None and (key == "random_state" or key.endswith("__random_state"))
    )
    make = functools.partial(_made, estimator, seeds)
    return Model(name, name, task, make, OWN, bool(seeds), COST, own=True)


_KIND = {"regression": "regressor", "classification": "classifier"}
_EXAMPLE = {"regression": "Ridge()", "classification": "LogisticRegression()"}


def _made(estimator: Any, seeds: tuple[str, ...], seed: int) -> Any:
    """Return a clone whose open random states have a seed."""
    fresh = clone(estimator)
    return fresh.set_params(**dict.fromkeys(seeds, seed)) if seeds else fresh


def _title(estimator: Any) -> str:
    """Return the class of an estimator; of a pipeline, of its last step."""
    if isinstance(estimator, Pipeline):
        return _title(estimator.steps[-1][1])
    return type(estimator).__name__


def _parts(estimator: Any) -> list[Any]:
    values = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    return [estimator, *values]


def own_importance(fitted: Any, X: Floats, owners: Ints, n_features: int) -> Floats | None:
    """Return the importance that a fitted estimator brings along, or None if it has none.

    ``feature_importances_`` as it is; of ``coef_`` the mean over outputs of the absolute value
    times the standard deviation of its column, so that units have no say. Steps of a pipeline must
    keep each column what it is, as a scaler does: a principal component is no metric. `X` are
    training rows as the estimator got them; `owners` are the feature of each column.
    """
    while True:
        inner = getattr(fitted, "best_estimator_", getattr(fitted, "regressor_", None))
        if inner is None:
            break
        fitted = inner
    if isinstance(fitted, Pipeline):
        if not all(_column_by_column(step) for _, step in fitted.steps[:-1]):
            return None
        X = np.asarray(fitted[:-1].transform(X), dtype=np.float64) if len(fitted) > 1 else X
        return own_importance(fitted.steps[-1][1], X, owners, n_features)
    columns = getattr(fitted, "feature_importances_", None)
    if columns is None and getattr(fitted, "coef_", None) is not None:
        weights = np.atleast_2d(np.asarray(fitted.coef_, dtype=np.float64))
        if weights.shape[1] == X.shape[1]:
            columns = np.abs(weights).mean(axis=0) * X.std(axis=0)
    if columns is None or len(columns) != len(owners):
        return None
    weights = np.asarray(columns, dtype=np.float64)
    return np.asarray(np.bincount(owners, weights=weights, minlength=n_features), dtype=np.float64)


def _column_by_column(step: Any) -> bool:
    if step is None or step == "passthrough":
        return True
    if isinstance(step, FunctionTransformer):
        return step.func is None or isinstance(step.func, np.ufunc)
    return isinstance(step, OneToOneFeatureMixin)


def has_exact_shapley(model: Model, fitted: Any) -> bool:
    """Return whether Shapley values of a fitted model are exact and fast."""
    return not model.own or type(fitted) in _EXPLAINED
