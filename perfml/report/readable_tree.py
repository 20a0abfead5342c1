"""The decision tree of the figure ``tree``: shallow enough to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError

DEPTH = 3
"""Questions on a path: eight answers are what fits a page, and a reader's head."""


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
