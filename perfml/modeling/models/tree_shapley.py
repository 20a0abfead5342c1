"""Exact Shapley values of decision trees and of ensembles of them, without another package.

The game is that of Lundberg et al. 2020 (From local explanations to global understanding with
explainable AI for trees, Nature Machine Intelligence 2, 56-67), Algorithm 2: a feature that is left
out sends a row down both branches, weighted by the training rows that went there. For one leaf the
value of a set of features is then a product of one factor a feature: 1 or 0 for a feature that is
known, the share of training rows for one that is not. The Shapley value of a product is an
integral of a polynomial (Owen 1972, Multilinear extensions of games, Management Science 18,
64-79), and Gauss-Legendre quadrature with half as many nodes as factors gives it exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from perfml.util.typing import Floats, Ints

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
