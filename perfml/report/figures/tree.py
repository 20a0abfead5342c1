"""The figure of a decision tree: shallow enough to be read, drawn by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.report.figures.style import new_axes, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEPTH = 3
"""Questions on a path: eight answers are what fits a page, and a reader's head."""

_LEVEL = 105
"""Height of a level, points."""


@styled
def decision_tree(
    tree: Any,
    *,
    feature_names: Sequence[str],
    class_names: Sequence[str] | None = None,
    depth: int = DEPTH,
    unit: str = "",
    ax: Axes | None = None,
    width: float = 1000,
) -> Axes:
    """Draw a fitted scikit-learn decision tree (figure 2-7); left of a question is its yes.

    Parameters
    ----------
    tree
        A fitted DecisionTreeRegressor or DecisionTreeClassifier.
    feature_names
        The metrics it was fitted on, in order.
    class_names
        Of a classifier, the classes in the order of ``tree.classes_``.
    depth
        Levels drawn; deeper ones are shown as ``(...)``.
    unit
        Of what a regressor predicts.
    ax, width
        Axes to draw on; without them a new figure of that width in points.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from sklearn.tree import plot_tree

    ax = new_axes(ax, width, _LEVEL * (min(depth, tree.get_depth()) + 1))
    figure: Any = ax.figure
    if not hasattr(figure.canvas, "get_renderer"):
        FigureCanvasAgg(figure)  # scikit-learn measures its boxes on it
    nodes = plot_tree(
        tree,
        max_depth=depth,
        feature_names=[plain(name, 40) for name in feature_names],
        class_names=None if class_names is None else [plain(name, 30) for name in class_names],
        impurity=False,
        filled=True,
        rounded=True,
        ax=ax,
    )
    for node in nodes if unit else ():
        node.set_text(node.get_text().replace("value =", f"{unit} ="))
    return ax


def readable_tree(
    layers: pd.DataFrame, task: str, features: str | Sequence[str] = "published"
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Fit a tree of three levels on every row.

    `task` is ``regression`` of the time in microseconds, or ``classification`` of the backend.
    Returned are the tree, what its columns are called, and the backends by code (none of a
    regression). Raises `PerfmlError` if the table has no such features, or (classification) only
    one backend.
    """
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
        raise PerfmlError(msg, found=f"{int(usable.sum())} rows", cure="Take more layers.")
    imputer = make_imputer()
    tree.fit(imputer.fit_transform(design.values[usable]), truth[usable])
    plainly = len(design.names)
    names = [design.names[owner] for owner in imputed_owners(imputer, plainly)]
    names[plainly:] = [f"{name} undefined" for name in names[plainly:]]
    return tree, tuple(names), classes
