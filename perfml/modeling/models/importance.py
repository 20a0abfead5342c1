"""How important each feature is to one fitted model.

Every function returns one number a feature. Columns that imputation added belong to a feature
too: ``owners`` says to which, and their importance is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.modeling.models.forest import tree_shapley
from perfml.util.typing import Floats, Ints

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
