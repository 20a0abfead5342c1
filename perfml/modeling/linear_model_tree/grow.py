"""Grow a linear model tree, and walk rows down it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints, RidgeFit, fit, gram
from perfml.modeling.linear_model_tree.split import Candidates, best_split
from perfml.modeling.linear_model_tree.thresholds import (
    BinCandidates,
    RowCandidates,
    bin_numbers,
    make_histogram,
    make_thresholds,
)

MaxBins = int | Literal["linear-tree"] | None

_FEW_BINS = 64  # so few are summed bin by bin in nodes of any size
_ROWS_PER_BIN = 100  # below this, summing rows where the search looks is cheaper
_MAX_HISTOGRAM_DOUBLES = 1 << 27  # 1 GiB: more bins than fit in this are searched by rows


@dataclass(frozen=True)
class Node:
    """A node: its rows, its model, and its split where it has one.

    Attributes
    ----------
    size
        Number of training rows.
    weight
        How many rows they stand for.
    total
        Gram matrix of the rows.
    model
        Ridge model of the rows.
    low, high
        Least and greatest target among the rows, shape (k,).
    depth
        Splits above the node.
    feature, threshold
        The split: rows with ``x[feature] <= threshold`` go left. -1 and NaN in a leaf.
    left, right
        Numbers of the children; -1 in a leaf.
    """

    size: int
    weight: float
    total: Array
    model: RidgeFit
    low: Array
    high: Array
    depth: int
    feature: int = -1
    threshold: float = float("nan")
    left: int = -1
    right: int = -1

    @property
    def is_leaf(self) -> bool:
        """Whether the node has no split."""
        return self.left < 0


@dataclass(frozen=True)
class GrowthRules:
    """When a node may be split.

    Attributes
    ----------
    min_gain
        Loss that a split must save, in rows times variance of the target.
    """

    max_depth: int
    min_leaf: int
    min_split: int
    min_gain: float


@dataclass
class Grower:
    """Grow the nodes of one tree, depth first, left before right.

    `x` are features in their own units, shape (n, f). Without `max_bins` splits are exact, else see
    `make_thresholds`.
    """

    design: Design
    x: Array
    rules: GrowthRules
    max_bins: MaxBins

    def __post_init__(self) -> None:
        self._codes: Ints | None = None
        if self.max_bins is not None:
            self._thresholds = make_thresholds(self.x, self.max_bins, self.design.weights)
            self._bins = 1 + max((cuts.size for cuts in self._thresholds), default=0)
            self._codes = np.stack(
                [
                    bin_numbers(column, cuts, self._bins)
                    for cuts, column in zip(self._thresholds, self.x.T, strict=True)
                ]
            )

    def grow(self) -> list[Node]:
        """Grow the tree; return its nodes, the root first."""
        index = np.arange(self.design.size)
        order = None
        if self._codes is None:
            order = np.argsort(self.x.T, axis=1, kind="stable")
        self._nodes: list[Node] = []
        self._grow(index, order, None, 0)
        return self._nodes

    def _grow(self, index: Ints, order: Ints | None, histogram: Array | None, depth: int) -> int:
        total = gram(self.design, index)
        number = len(self._nodes)
        target = self.design.unweighted(index)[1]
        node = Node(
            index.size,
            self.design.weight_of(index),
            total,
            fit(self.design, total),
            target.min(axis=0),
            target.max(axis=0),
            depth,
        )
        self._nodes.append(node)
        if not self._may_split(index, depth):
            return number
        if histogram is None and self._by_histogram(index.size):
            assert self._codes is not None
            histogram = make_histogram(self.design, self._codes, index, self._bins)
        candidates = self._candidates(index, order, histogram)
        split = best_split(self.design, total, candidates, node.model.loss - self.rules.min_gain)
        if split is None:
            return number
        goes_left = self.x[:, split.feature] <= split.threshold
        sides = [index[goes_left[index]], index[~goes_left[index]]]
        histograms = self._child_histograms(sides, histogram, depth + 1)
        children = []
        for side, side_histogram, mask in zip(
            sides, histograms, (goes_left, ~goes_left), strict=True
        ):
            side_order = None
            if order is not None and self._may_split(side, depth + 1):
                side_order = order[mask[order]].reshape(order.shape[0], -1)
            children.append(self._grow(side, side_order, side_histogram, depth + 1))
        self._nodes[number] = replace(
            node,
            feature=split.feature,
            threshold=split.threshold,
            left=children[0],
            right=children[1],
        )
        return number

    def _may_split(self, index: Ints, depth: int) -> bool:
        rules = self.rules
        enough = self.design.weight_of(index) >= max(rules.min_split, 2 * rules.min_leaf)
        return depth < rules.max_depth and index.size >= 2 and enough

    def _by_histogram(self, size: int) -> bool:
        if self._codes is None:
            return False
        doubles = self._codes.shape[0] * self._bins * self.design.rows.shape[1] ** 2
        full = self._bins <= _FEW_BINS or size >= _ROWS_PER_BIN * self._bins
        return full and doubles <= _MAX_HISTOGRAM_DOUBLES

    def _candidates(self, index: Ints, order: Ints | None, histogram: Array | None) -> Candidates:
        if histogram is not None:
            whole = self.design.weights is None
            return BinCandidates(histogram, self._thresholds, self.rules.min_leaf, whole=whole)
        if self._codes is None:
            assert order is not None
            return RowCandidates(self.design, self.x, order, self.rules.min_leaf)
        order = index[np.argsort(self._codes[:, index], axis=1, kind="stable")]
        return RowCandidates(
            self.design, self.x, order, self.rules.min_leaf, self._codes, self._thresholds
        )

    def _child_histograms(
        self, sides: list[Ints], parent: Array | None, depth: int
    ) -> list[Array | None]:
        """Sum the smaller child by bin and subtract it from the parent to get the other."""
        wanted = [self._may_split(side, depth) for side in sides]
        if parent is None or self._codes is None or not any(wanted):
            return [None, None]
        small = 0 if sides[0].size <= sides[1].size else 1
        if not wanted[1 - small] or not self._by_histogram(sides[1 - small].size):
            return [None, None]
        found: list[Array | None] = [None, None]
        histogram = make_histogram(self.design, self._codes, sides[small], self._bins)
        found[1 - small] = parent - histogram
        if wanted[small] and self._by_histogram(sides[small].size):
            found[small] = histogram
        return found


def descend(nodes: list[Node], x: Array) -> Ints:
    """Return the number of the leaf of each row of `x` (n, f)."""
    feature = np.array([node.feature for node in nodes])
    threshold = np.array([node.threshold for node in nodes])
    left = np.array([node.left for node in nodes])
    right = np.array([node.right for node in nodes])
    at = np.zeros(x.shape[0], dtype=np.int64)
    moving = np.arange(x.shape[0])
    while True:
        moving = moving[left[at[moving]] >= 0]
        if moving.size == 0:
            return at
        here = at[moving]
        goes_left = x[moving, feature[here]] <= threshold[here]
        at[moving] = np.where(goes_left, left[here], right[here])
