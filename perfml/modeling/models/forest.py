"""scikit-learn's random forest, fitted without the cost of what surrounds each tree.

On a few hundred rows scikit-learn spends three quarters of a forest's time on copying estimators,
handing out jobs, making random generators and looking at the same input again. Fitting hundreds
of forests is what a stable ranking needs, so the loop over the trees is written out here, down to
scikit-learn's own builder of a tree. The trees are the same, bit for bit (a test compares them).
182 rows x 16 metrics, 100 trees: 100 ms in scikit-learn, 6 ms here (processor time).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from perfml.util.typing import Floats, Ints

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


MAX_CELLS = 2_000_000
"""Numbers held at once: leaves x factors x rows (16 MB of float64)."""


@dataclass(frozen=True)
class _Paths:
    """Paths from the roots of some trees to some of their nodes, one factor a feature on the way.

    A path ends at `node`. The others have shape (paths, factors): the feature, the interval (low,
    high] of it that leads there, and the share of the training rows that take this way.
    """

    node: Ints
    feature: Ints
    low: Floats
    high: Floats
    share: Floats

    def chosen(self, rows: Any) -> _Paths:
        """Return some of the paths."""
        return _Paths(*(part[rows] for part in vars(self).values()))

    def shortened(self, factors: int) -> _Paths:
        """Return the paths without the columns that only longer ones fill."""
        node, *others = vars(self).values()
        return _Paths(node, *(part[:, :factors] for part in others))


def tree_shapley(trees: Sequence[Any], X: Floats, scale: float = 1.0) -> Floats:
    """Return the Shapley values of the sum of some trees.

    `trees` are fitted ``tree_`` attributes of scikit-learn, `X` has shape (rows, features), and
    `scale` is what a tree's output is multiplied by, such as a learning rate. The values have shape
    (outputs, rows, features); a row's add up to its prediction less the mean prediction of the
    training rows.
    """
    columns = np.ascontiguousarray(X.T, dtype=np.float32).astype(np.float64)  # as trees compare
    value = np.concatenate([tree.value[:, 0, :] for tree in trees])
    total = np.zeros((value.shape[1], len(columns), len(X)))
    for paths in _leaf_paths(trees):
        leaves, factors = paths.feature.shape
        step = max(1, MAX_CELLS // (len(X) * factors))
        for start in range(0, leaves, step):
            part = paths.chosen(slice(start, start + step))
            shown = columns[part.feature]
            inside = (shown > part.low[:, :, None]) & (shown <= part.high[:, :, None])
            products = _of_products(inside, part.share).reshape(-1, len(X))
            features = part.feature.ravel()
            places = np.arange(len(features))
            for output, sums in enumerate(total):
                weight = np.repeat(value[part.node, output], factors)
                shape = (len(columns), len(features))
                sums += csr_array((weight, (features, places)), shape=shape) @ products
    return np.asarray(scale * total.transpose(0, 2, 1))


def _of_products(known: npt.NDArray[np.bool_], share: Floats) -> Floats:
    """Return the Shapley values of products of factors, shape (leaves, factors, rows).

    A factor of a feature that is in the set is `known`, 1 or 0, shape (leaves, factors, rows); of
    one that is not, `share`, above 0, shape (leaves, factors).
    """
    inside, outside = known.astype(np.float64), share[:, :, None]
    total = np.zeros_like(inside)
    for node, weight in zip(*_quadrature(share.shape[1]), strict=True):
        mixed = node * inside + (1 - node) * outside
        total += weight * mixed.prod(axis=1, keepdims=True) / mixed
    return np.asarray((inside - outside) * total)


@functools.cache
def _quadrature(factors: int) -> tuple[Floats, Floats]:
    """Return nodes and weights that integrate polynomials below that degree over 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(factors // 2 + 1)
    return (nodes + 1) / 2, weights / 2


def _leaf_paths(trees: Sequence[Any]) -> list[_Paths]:
    """Return the paths to the leaves of all trees, those with equally many factors together.

    All trees go down together, one level at a time: a loop over nodes costs more than the values.
    """
    first = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    left, right = (
        np.concatenate([getattr(tree, side) + at for tree, at in zip(trees, first, strict=True)])
        for side in ("children_left", "children_right")
    )
    feature, cut, rows = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("feature", "threshold", "weighted_n_node_samples")
    )
    depth = max(tree.max_depth for tree in trees)
    size = (len(first), depth)
    paths = _Paths(
        first,
        np.full(size, -1, dtype=np.int64),
        np.full(size, -np.inf),
        np.full(size, np.inf),
        np.ones(size),
    )
    ended: list[_Paths] = []
    while len(paths.node):
        leaf = feature[paths.node] < 0
        ended.append(paths.chosen(leaf))
        paths = paths.chosen(~leaf)
        cut_on, threshold = feature[paths.node], cut[paths.node]
        # a feature that was cut before keeps its factor, with a smaller interval
        taken = (paths.feature == cut_on[:, None]) | (paths.feature < 0)
        at = (np.arange(len(cut_on)), taken.argmax(axis=1))
        paths.feature[at] = cut_on
        halves = []
        for child, is_left in ((left[paths.node], True), (right[paths.node], False)):
            low, high, share = paths.low.copy(), paths.high.copy(), paths.share.copy()
            share[at] *= rows[child] / rows[paths.node]
            if is_left:
                high[at] = np.minimum(high[at], threshold)
            else:
                low[at] = np.maximum(low[at], threshold)
            halves.append(_Paths(child, paths.feature, low, high, share))
        paths = _joined(halves)
    whole = _joined(ended)
    factors = (whole.feature >= 0).sum(axis=1)
    return [
        whole.chosen(factors == count).shortened(count) for count in np.unique(factors[factors > 0])
    ]


def _joined(parts: Sequence[_Paths]) -> _Paths:
    return _Paths(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))
