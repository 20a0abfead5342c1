"""The registry of models: the six of the study under short names, and variants of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.models.forest import QuickForestClassifier

REGRESSION = ("dt", "gbr", "lmt")
"""Models of the study that predict time: decision tree, gradient boosting, linear model tree."""

CLASSIFICATION = ("dt", "lr", "rf")
"""Models of the study that predict the backend: tree, logistic regression, random forest."""


@dataclass(frozen=True)
class Model:
    """An entry of the registry."""

    name: str  # as the user wrote it, such as ``gbr`` or ``lr:0.1``
    title: str  # for people
    task: str  # ``regression`` or ``classification``
    make: Callable[[int], Any]  # returns an unfitted scikit-learn estimator for a seed
    # name of the importance that the fitted model brings along: ``gini``, ``coefficient``,
    # ``explained-variance``; None if it has none
    builtin: str | None
    seeded: bool  # whether the fit depends on the seed
    cost: float  # seconds that a fit on 183 x 16 takes, roughly; decides whether to start processes
    # whether it learns a row that was drawn three times faster as one row of weight 3, with the
    # same result
    counts: bool = False
    # of an ensemble, whose trees average over ties so that seeds hardly matter: like `make`, with
    # as few trees as rank metrics like all of them
    fewer: Callable[[int], Any] | None = None
    own: bool = False  # whether it is an estimator of the user's (`perfml.modeling.models.own`)

    @property
    def handle(self) -> str | Model:
        """What `get_model` finds it by in another process: its name, or itself if it is own."""
        return self if self.own else self.name


def _seeded(kind: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda seed: kind(random_state=seed)


def _logistic(c: float = 1.0) -> Any:
    # the penalised likelihood has one optimum, and Newton steps reach it in a tenth of the time
    # that lbfgs needs on unscaled fractions
    return LogisticRegression(C=c, solver="newton-cholesky", max_iter=1000)


def _linear_model_tree(seed: int) -> Any:
    from perfml.modeling.linear_model_tree.regressor import LinearModelTreeRegressor

    return LinearModelTreeRegressor()


def _standardized(seed: int) -> Any:
    return make_pipeline(StandardScaler(), _logistic())


def _linear_tree(seed: int) -> Any:
    from perfml.modeling.parallel import linear_tree_regressor

    return linear_tree_regressor()


def _models(task: str, *rows: tuple[Any, ...]) -> dict[str, Model]:
    """Return entries by name, from name, title, make, builtin, seeded and cost of each."""
    found = {}
    for name, title, make, builtin, seeded, cost in rows:
        counts, fewer = name in _COUNTING, _FEWER.get(name)
        found[name] = Model(name, title, task, make, builtin, seeded, cost, counts, fewer)
    return found


_COUNTING = ("gbr", "lmt", "rf")
"""Models whose time grows with the rows; see `Model.counts`."""

_FEWER = {
    "gbr": lambda seed: GradientBoostingRegressor(n_estimators=25, random_state=seed),
    "rf": lambda seed: QuickForestClassifier(50, random_state=seed),
}
"""Ensembles with few trees: 25 of boosting leave 0.9^50 of the variance, half a percent.

Scores on layers left out differ between seeds by a twentieth to a seventh (gbr) and a quarter to a
half (rf) of their standard error over the layers (h200-yolov4-tiny, h200-sweep)."""

_REGRESSION = _models(
    "regression",
    ("dt", "decision tree", _seeded(DecisionTreeRegressor), "gini", True, 0.001),
    ("gbr", "gradient boosting", _seeded(GradientBoostingRegressor), "gini", True, 0.04),
    ("lmt", "linear model tree", _linear_model_tree, "explained-variance", False, 0.025),
    ("lmt:linear-tree", "linear model tree (linear-tree)", _linear_tree, "gini", False, 0.4),
)
_CLASSIFICATION = _models(
    "classification",
    ("dt", "decision tree", _seeded(DecisionTreeClassifier), "gini", True, 0.001),
    ("lr", "logistic regression", lambda seed: _logistic(), "coefficient", False, 0.01),
    (
        "lr:standardized",
        "logistic regression, standardised features",
        _standardized,
        "coefficient",
        False,
        0.01,
    ),
    ("rf", "random forest", _seeded(QuickForestClassifier), "gini", True, 0.02),
)
_REGISTRY = {"regression": _REGRESSION, "classification": _CLASSIFICATION}


def get_model(name: str | Model, task: str) -> Model:
    """Return a model of the registry.

    ``lr:0.1`` is logistic regression with another C; a model is returned as it is. `task` is
    ``regression`` or ``classification``. Raises `PerfmlError` if there is no such model for the
    task.
    """
    if isinstance(name, Model):
        return name
    registry = _REGISTRY[task]
    if name in registry:
        return registry[name]
    base, _, argument = name.partition(":")
    if task == "classification" and base == "lr" and argument:
        try:
            c = float(argument)
        except ValueError:
            c = 0.0
        if 0 < c < float("inf"):
            title = f"logistic regression, C = {c:g}"
            return Model(name, title, task, lambda seed: _logistic(c), "coefficient", False, 0.01)
    other = next((kind for kind in _REGISTRY if kind != task and name in _REGISTRY[kind]), None)
    msg = f"no {task} model is called {name!r}"
    extra = " and lr:C, such as lr:0.1" if task == "classification" else ""
    cure = did_you_mean(name, [*registry], f"Models are: {', '.join(registry)}{extra}.")
    raise PerfmlError(msg, found=f"a {other} model" if other else None, cure=cure)


def title_of(name: str, task: str) -> str:
    """Return what a model is called in a sentence; one that the registry lacks, its own name.

    Examples
    --------
    >>> title_of("dt", "regression"), title_of("gbr", "regression"), title_of("Ridge", "regression")
    ('the decision tree', 'gradient boosting', 'Ridge')
    """
    known = _REGISTRY[task].get(name)
    if known is None:
        return name
    thing = any(word in known.title for word in ("tree", "forest"))
    return f"the {known.title}" if thing else known.title


def get_models(names: str | Sequence[str] | None, task: str) -> tuple[Model, ...]:
    """Return models by name (one, several, or ``"dt,lmt"``); None means the three of the study."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    if names is None:
        names = REGRESSION if task == "regression" else CLASSIFICATION
    if not names:
        msg = "no model was named"
        raise PerfmlError(msg, cure=f"Models are: {', '.join(_REGISTRY[task])}.")
    return tuple(get_model(name, task) for name in dict.fromkeys(names))


def make_imputer() -> SimpleImputer:
    """Return what fills undefined metrics: the training median, and a column that says so."""
    return SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)


def imputed_owners(imputer: SimpleImputer, n_features: int) -> npt.NDArray[np.int64]:
    """Return which feature each column of an imputed matrix belongs to.

    An indicator belongs to its metric, so its importance is the metric's.
    """
    flagged = np.asarray(imputer.indicator_.features_, dtype=np.int64)
    return np.concatenate([np.arange(n_features, dtype=np.int64), flagged])


def make_estimator(name: str, task: str = "regression", *, seed: int = 0) -> Pipeline:
    """Return a model of the registry as a scikit-learn pipeline that takes undefined metrics.

    Parameters
    ----------
    name, task
        As for `get_model`.
    seed
        ``random_state`` of the model.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Steps ``imputer`` and ``model``; regression expects time in milliseconds.

    Examples
    --------
    >>> from perfml.modeling import make_estimator
    >>> list(make_estimator("gbr").named_steps)
    ['imputer', 'model']
    """
    return Pipeline([("imputer", make_imputer()), ("model", get_model(name, task).make(seed))])
