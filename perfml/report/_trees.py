"""The decision tree of a report: shallow enough to be read, scored on layers it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.report import figures
from perfml.report._figures_tree import Node, tree_nodes
from perfml.report._labels import TASKS, clean, percent
from perfml.report._sections import WIDE, Picture

DEPTH = 3
"""Questions on a path: eight answers are what fits a page, and a reader's head."""

_MOST_FOLDS = 60
_MOST_LINES = 60


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
    layers: pd.DataFrame, task: str, features: str | Sequence[str] = "published"
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
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    from perfml.modeling.estimators import imputed_owners, make_imputer
    from perfml.modeling.features import build_design

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
        folds = GroupKFold(min(many, _MOST_FOLDS))
        held_out = cross_val_predict(pipeline, values, truth, groups=groups, cv=folds)
        unseen = _score(truth, held_out, task)
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


def tree_section(
    layers: pd.DataFrame, evaluation: Any, place: int, palette: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the tree of one task, drawn and written; None where none can be fitted."""
    task = str(evaluation.task)
    if task not in TASKS:
        return None
    try:
        tree = readable_tree(layers, task, tuple(evaluation.features))
    except PerfmlError:
        # the scores of the section above say what is missing
        return None
    ax = figures.decision_tree(
        tree.model,
        feature_names=tree.names,
        class_names=tree.classes or None,
        depth=DEPTH,
        unit="" if tree.classes else "µs",
        palette=palette,
        width=WIDE,
    )
    said = "right in" if tree.classes else "off by"
    caption = (
        f"A decision tree of {DEPTH} levels for the {TASKS[task]}, fitted on every row: "
        f"{said} {percent(tree.fitted)} there"
    )
    caption += f", {percent(tree.unseen)} on layers left out." if tree.unseen >= 0 else "."
    drawn = figures.svg(ax, prefix=f"d{place}", label="Decision tree; it is written out below")
    return {
        "label": TASKS[task],
        "picture": Picture(drawn, "", caption),
        "root": tree.root,
        "equations": "" if tree.classes else _equations(layers, tuple(evaluation.features)),
    }


def _equations(layers: pd.DataFrame, features: Sequence[str]) -> str:
    """Return the linear model tree as text, if its leaves are few enough to be read."""
    from perfml.modeling.estimators import make_imputer
    from perfml.modeling.features import build_design
    from perfml.modeling.linear_model_tree import LinearModelTreeRegressor

    design = build_design(layers, features)
    time = layers["time_us"].to_numpy(dtype=float)
    usable = np.isfinite(time)
    imputer = make_imputer().set_params(add_indicator=False)
    values = imputer.fit_transform(design.values[usable])
    try:
        model = LinearModelTreeRegressor(max_depth=2, random_state=0).fit(values, time[usable])
    except ValueError:
        # too few rows for a leaf equation
        return ""
    text = model.export_text(list(design.names), target="µs", max_terms=4, digits=3)
    lines = text.rstrip().splitlines()
    return clean("\n".join(lines), 6000) if len(lines) <= _MOST_LINES else ""
