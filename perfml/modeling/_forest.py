"""scikit-learn's random forest, fitted without the cost of cloning and scheduling each tree.

On a few hundred rows scikit-learn spends about half of a forest's time on copying estimators and
handing out jobs. Fitting hundreds of forests is what a stable ranking needs, so the loop over the
trees is written out here. The trees are the same, bit for bit (a test compares them).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

_SEEDS = np.iinfo(np.int32).max
"""scikit-learn draws the seed of a tree below this."""


class QuickForestClassifier(RandomForestClassifier):  # type: ignore[misc]
    """A random forest with scikit-learn's defaults, for small dense data.

    Parameters
    ----------
    n_estimators
        Trees.
    random_state
        Seed; the forest equals ``RandomForestClassifier`` with the same seed.
    """

    def __init__(self, n_estimators: int = 100, *, random_state: int | None = None) -> None:
        super().__init__(n_estimators=n_estimators, random_state=random_state)

    def fit(
        self, X: npt.NDArray[np.float64], y: npt.NDArray[Any], sample_weight: None = None
    ) -> Self:
        """Fit the trees.

        Parameters
        ----------
        X
            Finite features, shape (n, f).
        y
            Classes, shape (n,).
        sample_weight
            Not supported.
        """
        data = np.ascontiguousarray(X, dtype=np.float32)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_classes_, self.n_outputs_ = len(self.classes_), 1
        self.n_features_in_ = data.shape[1]
        rows = len(data)
        seeds = check_random_state(self.random_state)
        self.estimators_ = []
        for _ in range(self.n_estimators):
            seed = int(seeds.randint(_SEEDS))
            drawn = np.random.RandomState(seed).randint(0, rows, rows)
            weight = np.bincount(drawn, minlength=rows).astype(np.float64)
            tree = DecisionTreeClassifier(max_features="sqrt", random_state=seed)
            tree.fit(data, codes, sample_weight=weight, check_input=False)
            self.estimators_.append(tree)
        return self

    def predict_proba(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the mean class frequencies of the trees' leaves, shape (n, classes)."""
        data = np.ascontiguousarray(X, dtype=np.float32)
        total = np.zeros((len(data), self.n_classes_))
        for tree in self.estimators_:
            total += tree.tree_.predict(data).reshape(len(data), -1)
        return np.asarray(total / len(self.estimators_))

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Mean decrease in impurity, averaged over the trees that split at all."""
        grown = [tree.tree_ for tree in self.estimators_ if tree.tree_.node_count > 1]
        if not grown:
            return np.zeros(self.n_features_in_)
        mean = np.mean([tree.compute_feature_importances() for tree in grown], axis=0)
        return np.asarray(mean / mean.sum())
