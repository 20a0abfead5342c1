"""Boosted trees as plain arrays: they can be kept as data, and evaluated without scikit-learn.

Here to change: what is kept of a tree, in `Trees`, and how it is read of scikit-learn's histogram
boosting, in `Trees.of`. Whoever keeps trees keeps them as these arrays, never as a pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.util.typing import Floats


@dataclass(frozen=True)
class Trees:
    """A sum of regression trees, all nodes in one row of arrays.

    ``baseline``, shape (1,), is added to every sum; ``roots`` has the first node of each tree. A
    node asks for the column ``feature``, -1 at a leaf: at most ``threshold`` goes ``left``, as a
    row without a value does where ``missing_left``. Next nodes are counted over all trees.
    """

    baseline: Floats
    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: Floats
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    missing_left: npt.NDArray[np.bool_]
    value: Floats

    @classmethod
    def of(cls, estimator: Any) -> Trees:
        """Take the trees out of a fitted ``HistGradientBoostingRegressor``."""
        nodes = [stage[0].nodes for stage in estimator._predictors]
        starts = np.concatenate([[0], np.cumsum([len(tree) for tree in nodes])[:-1]])
        every = np.concatenate(nodes)
        if every["is_categorical"].any():
            msg = "trees with categories cannot be kept as arrays"
            raise ValueError(msg)
        offset = np.repeat(starts, [len(tree) for tree in nodes])
        leaf = every["is_leaf"].astype(bool)
        return cls(
            np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(1),
            starts.astype(np.int32),
            np.where(leaf, -1, every["feature_idx"]).astype(np.int16),
            np.where(leaf, 0.0, every["num_threshold"]),
            np.where(leaf, 0, every["left"] + offset).astype(np.int32),
            np.where(leaf, 0, every["right"] + offset).astype(np.int32),
            every["missing_go_to_left"].astype(bool) & ~leaf,
            np.where(leaf, every["value"], 0.0),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Trees:
        """Read what `as_arrays` gave; KeyError if a part is missing."""
        return cls(**{each.name: arrays[f"{prefix}{each.name}"] for each in fields(cls)})

    def as_arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, each behind a prefix."""
        return {f"{prefix}{each.name}": getattr(self, each.name) for each in fields(self)}

    def predict(self, features: Floats) -> Floats:
        """Return the sum of all trees for each row of features; NaN is a missing value."""
        count = len(self.roots)
        place = np.tile(self.roots, len(features))
        going = np.arange(len(place))
        while len(going):
            asked = self.feature[place[going]]
            inner = asked >= 0
            going, asked = going[inner], asked[inner]
            node = place[going]
            values = features[going // count, asked]
            goes_left = values <= self.threshold[node]
            goes_left |= np.isnan(values) & self.missing_left[node]
            place[going] = np.where(goes_left, self.left[node], self.right[node])
        sums = self.value[place].reshape(len(features), count).sum(axis=1)
        return np.asarray(self.baseline[0] + sums)
