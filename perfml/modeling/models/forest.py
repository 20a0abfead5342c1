"""scikit-learn's random forest, fitted without the cost of what surrounds each tree.

On a few hundred rows scikit-learn spends three quarters of a forest's time on copying estimators,
handing out jobs, making random generators and looking at the same input again. Fitting hundreds
of forests is what a stable ranking needs, so the loop over the trees is written out here, down to
scikit-learn's own builder of a tree. The trees are the same, bit for bit (a test compares them).
182 rows x 16 metrics, 100 trees: 100 ms in scikit-learn, 6 ms here (processor time).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

try:
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree
except ImportError:  # not part of scikit-learn's interface, so it may go
    _BUILDER = False
else:
    _BUILDER = True

_DEEPEST = np.iinfo(np.int32).max
_SEEDS = np.iinfo(np.int32).max
"""scikit-learn draws the seed of a tree below this."""


def _grow(
    data: npt.NDArray[np.float32],
    codes: npt.NDArray[np.intp],
    classes: int,
    weight: npt.NDArray[np.float64],
    seed: int,
    drawing: np.random.RandomState,
) -> Any:
    """Fit one tree with scikit-learn's builder, whose input the forest has checked.

    `codes` are classes from 0, shape (n,); `weight` is how often each row was drawn; `drawing` is a
    generator to seed again.
    """
    tree = DecisionTreeClassifier(max_features="sqrt", random_state=seed)
    if not _BUILDER:
        return tree.fit(data, codes, sample_weight=weight, check_input=False)
    tree.n_features_in_, tree.n_outputs_ = data.shape[1], 1
    tree.classes_, tree.n_classes_ = np.arange(classes), np.intp(classes)
    tree.max_features_ = max(1, int(np.sqrt(data.shape[1])))
    number = np.array([classes], dtype=np.intp)
    tree.tree_ = Tree(data.shape[1], number, 1)
    drawing.seed(seed)
    splitter = BestSplitter(Gini(1, number), tree.max_features_, 1, 0.0, drawing, None)
    target = codes.reshape(-1, 1).astype(np.float64)
    builder = DepthFirstTreeBuilder(splitter, 2, 1, 0.0, _DEEPEST, 0.0)
    builder.build(tree.tree_, data, target, weight, None)
    return tree


class QuickForestClassifier(RandomForestClassifier):  # type: ignore[misc]
    """A random forest with scikit-learn's defaults, for small dense data.

    It equals ``RandomForestClassifier`` with the same seed.
    """

    def __init__(self, n_estimators: int = 100, *, random_state: int | None = None) -> None:
        super().__init__(n_estimators=n_estimators, random_state=random_state)

    def fit(
        self,
        X: npt.NDArray[np.float64],
        y: npt.NDArray[Any],
        sample_weight: npt.NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit the trees to finite features, shape (n, f), and classes, shape (n,).

        `sample_weight` is how many equal rows each row stands for, in whole numbers. A tree's rows
        are drawn from those, so the forest is that of the rows repeated (scikit-learn would draw
        each row as often, and weigh it after).
        """
        self._validate_params()
        data = np.ascontiguousarray(X, dtype=np.float32)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_classes_, self.n_outputs_ = len(self.classes_), 1
        self.n_features_in_ = data.shape[1]
        rows = len(data)
        copies = np.arange(rows)
        if sample_weight is not None:
            copies = np.repeat(copies, np.asarray(sample_weight, dtype=np.intp))
        seeds = check_random_state(self.random_state)
        # made once and seeded again: making one asks the system for randomness it does not need
        drawing = np.random.RandomState(0)
        self.estimators_ = []
        for _ in range(self.n_estimators):
            seed = int(seeds.randint(_SEEDS))
            drawing.seed(seed)
            drawn = copies[drawing.randint(0, len(copies), len(copies))]
            weight = np.bincount(drawn, minlength=rows).astype(np.float64)
            self.estimators_.append(_grow(data, codes, self.n_classes_, weight, seed, drawing))
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
