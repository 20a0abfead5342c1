"""The decision tree of a report: shallow enough to be read, scored on layers it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.report.figures.tree import Node, tree_nodes

DEPTH = 3
"""Questions on a path: eight answers are what fits a page, and a reader's head."""

_MOST_FOLDS = 60


@dataclass(frozen=True)
class ReadableTree:
    """A shallow tree fitted on every row.

    Attributes
    ----------
    task
        ``regression`` of time, or ``classification`` of the backend.
    model
        The fitted scikit-learn tree; a regression predicts microseconds.
    names
        What its columns are called.
    classes
        Backends by code; empty for a regression.
    fitted, unseen
        Error of time (mean absolute percentage error) or share of backends told right: on the
        rows it was fitted on, and on layers left out of the fit (NaN with fewer than two).
    """

    task: str
    model: Any
    names: tuple[str, ...]
    classes: tuple[str, ...]
    fitted: float
    unseen: float

    @property
    def root(self) -> Node:
        """The tree in words."""
        return tree_nodes(
            self.model,
            feature_names=self.names,
            class_names=self.classes or None,
            depth=DEPTH,
            unit="" if self.classes else "µs",
        )


def readable_tree(
    layers: pd.DataFrame,
    task: str,
    features: str | Sequence[str] = "published",
) -> ReadableTree:
    """Fit a tree of three levels on every row, and score it on layers left out.

    Parameters
    ----------
    layers
        A Layers table.
    task
        ``regression`` or ``classification``.
    features
        As for `perfml.modeling.evaluate`.

    Raises
    ------
    PerfmlError
        If the table has no such features, or (classification) only one backend.
    """
    from sklearn import config_context
    from sklearn.base import clone
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    from perfml.modeling.features import build_design
    from perfml.modeling.models.registry import imputed_owners, make_imputer

    design = build_design(layers, features)
    classes: tuple[str, ...] = ()
    truth: Any = layers["time_us"].to_numpy(dtype=float)
    usable = np.isfinite(truth) & (truth > 0)
    tree: Any = DecisionTreeRegressor(max_depth=DEPTH, random_state=0)
    if task == "classification":
        codes, found = pd.factorize(layers["backend"].astype("string").fillna("(unnamed)"))
        classes, truth = tuple(map(str, found)), codes
        tree = DecisionTreeClassifier(max_depth=DEPTH, random_state=0)
    if usable.sum() < 4 or len(np.unique(truth[usable])) < 2:
        msg = "a tree needs rows that differ"
        raise PerfmlError(msg, found=f"{int(usable.sum())} rows", cure="Report on more layers.")
    values, truth = design.values[usable], truth[usable]
    pipeline = make_pipeline(make_imputer(), tree).fit(values, truth)
    groups = pd.factorize(layers["layer"].astype("string").fillna("-"))[0][usable]
    unseen = float("nan")
    many = len(np.unique(groups))
    if many > 1:
        guess = np.empty_like(truth)
        # filling where nothing is missing takes longer than a tree of three levels
        fresh = pipeline if design.has_missing else pipeline[-1]
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for train, test in GroupKFold(min(many, _MOST_FOLDS)).split(values, truth, groups):
                guess[test] = clone(fresh).fit(values[train], truth[train]).predict(values[test])
        unseen = _score(truth, guess, task)
    owners = imputed_owners(pipeline[0], len(design.names))
    names = [design.names[owner] for owner in owners]
    plainly = len(design.names)
    names[plainly:] = [f"{name} undefined" for name in names[plainly:]]
    fitted = _score(truth, pipeline.predict(values), task)
    return ReadableTree(task, pipeline[-1], tuple(names), classes, fitted, unseen)


def _score(truth: Any, guess: Any, task: str) -> float:
    if task == "classification":
        return float(np.mean(truth == guess))
    return float(np.mean(np.abs(guess - truth) / truth))
