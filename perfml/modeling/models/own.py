"""Estimators of one's own beside the models of the registry, and importances of fitted models.

Every importance is one number a feature. Columns that imputation added belong to a feature too:
``owners`` says to which, and their importance is its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
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
from perfml.modeling.models.forest import tree_shapley
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


Score = Callable[[npt.NDArray[Any]], Floats]
"""From predictions of shape (copies, rows) to one loss a copy; larger is worse."""

MAX_STACKED_CELLS = 4_000_000
"""Cells of stacked permuted copies predicted at once (32 MB of float64)."""


def builtin_importance(fitted: Any, owners: Ints, n_features: int) -> Floats:
    """Return the importance that a fitted model brings along.

    Trees: mean decrease in impurity (Gini). Linear models: mean over the classes of the absolute
    coefficient. Linear model tree: share of variance explained.

    `fitted` is an estimator, or a pipeline that ends in one; `owners` the feature of each column.
    """
    last = fitted[-1] if hasattr(fitted, "named_steps") else fitted
    # asked for once: a forest adds it up over its trees each time
    brought = getattr(last, "feature_importances_", None)
    if brought is not None:
        columns = np.asarray(brought, dtype=np.float64)
    else:
        columns = np.abs(class_coefficients(last)).mean(axis=0)
    return np.asarray(np.bincount(owners, weights=columns, minlength=n_features), dtype=np.float64)


def class_coefficients(linear: Any) -> Floats:
    """Return one row of coefficients a class; two classes have one row that differs by sign."""
    return np.atleast_2d(np.asarray(linear.coef_, dtype=np.float64))


def permutation_importance(
    predict: Callable[[Floats], npt.NDArray[Any]],
    loss: Score,
    X: Floats,
    groups: Sequence[npt.NDArray[np.intp]],
    *,
    repeats: int,
    rng: np.random.Generator,
) -> Floats:
    """Return how much the loss grows when the columns of each group are shuffled over the rows.

    `X` are held-out rows, shape (rows, columns). The mean over `repeats` shuffles is in the unit of
    the loss, and negative where shuffling helped by chance. All shuffled copies are stacked and
    predicted in one call: for a forest on 78 rows the call itself costs more than the rows.
    """
    rows, columns = X.shape
    every = np.broadcast_to(np.arange(rows), (len(groups) * repeats, rows))
    orders = rng.permuted(every, axis=1).reshape(len(groups), repeats, rows)
    at_once = max(1, MAX_STACKED_CELLS // max(1, repeats * rows * columns))
    losses = np.empty((len(groups), repeats))
    base = 0.0
    for start in range(0, len(groups), at_once):
        part = groups[start : start + at_once]
        # the rows as they are, then their copies
        stacked = np.empty((1 + len(part) * repeats, rows, columns))
        stacked[:] = X
        shuffled = stacked[1:].reshape(-1, repeats, rows, columns)
        for copies, chosen, order in zip(shuffled, part, orders[start:], strict=False):
            copies[:, :, chosen] = X[:, chosen][order]
        guesses = np.asarray(predict(stacked.reshape(-1, columns))).reshape(-1, rows)
        base, *others = loss(guesses)
        losses[start : start + len(part)] = np.reshape(others, (len(part), repeats))
    return np.asarray(losses.mean(axis=1) - base)


def shapley_importance(
    fitted: Any, X: Floats, background: Floats, owners: Sequence[Ints]
) -> tuple[Floats, ...] | None:
    """Return the mean absolute Shapley value of each owner over the rows of `X`.

    Trees: exact, path dependent, averaged over classes (`tree_shapley`). Linear models: exact for
    independent features, ``coef * (x - mean)``, with the mean of the training rows `background`.
    None for a model without an exact and fast Shapley value.

    Each of `owners` shares the columns among owners numbered from 0, such as metrics or groups of
    metrics, and gives one array. The values of an owner's columns are added before taking the
    absolute value.
    """
    last = fitted[-1] if hasattr(fitted, "named_steps") else fitted
    if hasattr(last, "coef_") and hasattr(last, "classes_"):
        shown = fitted[:-1].transform(X) if last is not fitted else X
        centre = fitted[:-1].transform(background) if last is not fitted else background
        values = class_coefficients(last)[:, None, :] * (shown - centre.mean(axis=0))[None]
    elif hasattr(last, "tree_") and not hasattr(last.tree_, "children_left"):
        return None
    elif hasattr(last, "tree_") or hasattr(last, "estimators_"):
        values = _tree_values(last, X)
    else:
        return None
    return tuple(_owned(values, codes) for codes in owners)


def _owned(values: Floats, owners: Ints) -> Floats:
    """Return the mean absolute sum of each owner's columns of (outputs, rows, columns)."""
    sums = np.zeros((*values.shape[:2], int(owners.max()) + 1))
    for column, owner in enumerate(owners):
        sums[:, :, owner] += values[:, :, column]
    return np.asarray(np.abs(sums).mean(axis=(0, 1)))


def _tree_values(fitted: Any, X: Floats) -> Floats:
    """Return Shapley values of shape (outputs, rows, columns)."""
    if hasattr(fitted, "tree_"):
        return tree_shapley([fitted.tree_], X)
    trees = [estimator.tree_ for estimator in np.ravel(fitted.estimators_)]
    return tree_shapley(trees, X, getattr(fitted, "learning_rate", 1.0 / len(trees)))
