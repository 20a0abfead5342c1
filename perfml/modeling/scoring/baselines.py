"""What a model has to beat: means, and a lookup table on one metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem
from perfml.util.typing import Floats, Ints

REGRESSION_BASELINES = ("training-mean", "backend-mean", "condition-mean", "lookup")
"""Mean training time: of all rows; of the row's configuration (workload, backend, precision,
batch); of its condition, or its configuration where the condition was never seen; of the rows
with the nearest value of the one metric that predicts the training rows best."""

ROOFLINE_BASELINES = ("roofline", "roofline-scaled")
"""Where the table has the column ``bound_us``: that time as it is, and times the median factor of
the training rows' configuration."""

CLASSIFICATION_BASELINES = ("most-frequent", "lookup")
"""The backend with the most training rows; the usual backend at the nearest value of one
metric."""


def baseline_names(task: str) -> tuple[str, ...]:
    """Return the baselines of a task."""
    return REGRESSION_BASELINES if task == "regression" else CLASSIFICATION_BASELINES


def possible_baselines(problem: Problem) -> tuple[str, ...]:
    """Return the baselines that a problem allows."""
    names = baseline_names(problem.task)
    if problem.words.own:  # its rows have no configuration
        return tuple(name for name in names if name != "backend-mean")
    bounded = problem.task == "regression" and problem.bound_ms is not None
    return (*names, *ROOFLINE_BASELINES) if bounded else names


def predict_baseline(
    name: str, problem: Problem, train: npt.NDArray[np.intp], test: npt.NDArray[np.intp]
) -> npt.NDArray[Any]:
    """Predict the test rows with a baseline fitted on the training rows.

    `name` is one of `baseline_names`, or ``lookup:METRIC`` to choose the metric. Returned are times
    in the unit of ``problem.truth``, or class codes, shape (len(test),).
    """
    truth = problem.truth[train]
    if name == "training-mean":
        return np.full(len(test), truth.mean())
    if name == "most-frequent":
        return np.full(len(test), np.bincount(truth).argmax())
    if name.startswith("lookup"):
        values = problem.design.values
        metric = name.partition(":")[2]
        column = (
            _column(metric, problem) if metric else best_metric(values[train], truth, problem.task)
        )
        table = Lookup.fit(values[train, column], truth, problem.task)
        return table.predict(values[test, column])
    if name.startswith("roofline"):
        return _roofline(name, problem, train, test)
    overall = np.full(len(test), truth.mean())
    by_configuration = _group_mean(problem.configuration, truth, train, test, overall)
    if name == "backend-mean":
        return by_configuration
    return _group_mean(problem.condition, truth, train, test, by_configuration)


def _roofline(
    name: str, problem: Problem, train: npt.NDArray[np.intp], test: npt.NDArray[np.intp]
) -> Floats:
    assert problem.bound_ms is not None
    bound = problem.bound_ms[test]
    if name == "roofline":
        return bound
    # a median of logarithms: a layer far from its bound must not decide
    factor = np.log(problem.truth[train] / problem.bound_ms[train])
    overall = np.full(len(test), np.median(factor))
    codes = problem.configuration
    medians = {code: np.median(factor[codes[train] == code]) for code in np.unique(codes[train])}
    scale = [medians.get(code, middle) for code, middle in zip(codes[test], overall, strict=True)]
    return np.asarray(bound * np.exp(scale), dtype=np.float64)


@dataclass(frozen=True)
class Lookup:
    """A table from the values of one metric to the mean time, or the usual class, there."""

    keys: Floats  # distinct values of the metric, rising; an undefined metric is ``inf``
    answers: npt.NDArray[Any]  # one a key

    @classmethod
    def fit(cls, values: Floats, truth: npt.NDArray[Any], task: str) -> Lookup:
        """Build the table from training rows."""
        keys, inverse = np.unique(_defined(values), return_inverse=True)
        if task == "regression":
            sums = np.bincount(inverse, weights=truth)
            return cls(keys, sums / np.bincount(inverse))
        return cls(keys, _votes(inverse, truth, len(keys)).argmax(axis=1))

    def predict(self, values: Floats) -> npt.NDArray[Any]:
        """Return the answer at the nearest key of each value."""
        answers: npt.NDArray[Any] = self.answers[_nearest(self.keys, _defined(values))]
        return answers


def best_metric(values: Floats, truth: npt.NDArray[Any], task: str) -> int:
    """Return the column whose lookup table predicts the rows best, each row left out once."""
    errors = [_left_out_error(values[:, j], truth, task) for j in range(values.shape[1])]
    return int(np.argmin(errors))


def _left_out_error(values: Floats, truth: npt.NDArray[Any], task: str) -> float:
    keys, inverse = np.unique(_defined(values), return_inverse=True)
    count = np.bincount(inverse)[inverse]
    # a row alone at its value is answered by the neighbouring value
    beside = _neighbours(keys)[inverse] if len(keys) > 1 else inverse
    alone = count == 1
    if task == "regression":
        sums = np.bincount(inverse, weights=truth)
        means = sums / np.bincount(inverse)
        others = (sums[inverse] - truth) / np.maximum(count - 1, 1)
        predicted = np.where(alone, means[beside], others)
        return float(np.mean(np.abs(truth - predicted) / truth))
    votes = _votes(inverse, truth, len(keys))
    others = votes[inverse]
    others[np.arange(len(truth)), truth] -= 1
    usual = np.where(alone, votes[beside].argmax(axis=1), others.argmax(axis=1))
    return float(np.mean(usual != truth))


def _votes(inverse: npt.NDArray[np.intp], truth: npt.NDArray[Any], keys: int) -> Ints:
    classes = int(truth.max()) + 1
    flat = np.bincount(inverse * classes + truth, minlength=keys * classes)
    return np.asarray(flat, dtype=np.int64).reshape(keys, classes)


def _defined(values: Floats) -> Floats:
    return np.where(np.isnan(values), np.inf, values)


def _neighbours(keys: Floats) -> Ints:
    """Return the place of the key nearest to each key, not itself."""
    with np.errstate(invalid="ignore"):
        gaps = np.diff(keys)
    left = np.concatenate([[np.inf], gaps])
    right = np.concatenate([gaps, [np.inf]])
    place = np.arange(len(keys))
    to_left = (left <= right) & (place > 0)
    last = place == len(keys) - 1
    return np.where(to_left | last, place - 1, place + 1)


def _nearest(keys: Floats, values: Floats) -> Ints:
    if len(keys) == 1:
        return np.zeros(len(values), dtype=np.int64)
    right = np.clip(np.searchsorted(keys, values), 1, len(keys) - 1)
    with np.errstate(invalid="ignore"):
        nearer_left = (values - keys[right - 1]) <= (keys[right] - values)
    exact_right = keys[right] == values
    return np.where(nearer_left & ~exact_right, right - 1, right).astype(np.int64)


def _column(metric: str, problem: Problem) -> int:
    if metric not in problem.design.names:
        msg = f"no feature is called {metric!r}"
        raise PerfmlError(msg, cure=f"Features are: {', '.join(problem.design.names)}.")
    return problem.design.names.index(metric)


def _group_mean(
    codes: Ints,
    truth: npt.NDArray[Any],
    train: npt.NDArray[np.intp],
    test: npt.NDArray[np.intp],
    otherwise: Floats,
) -> Floats:
    size = int(codes.max()) + 1
    count = np.bincount(codes[train], minlength=size)
    total = np.bincount(codes[train], weights=truth, minlength=size)
    mean = total / np.maximum(count, 1)
    return np.where(count[codes[test]] > 0, mean[codes[test]], otherwise)
