"""Grow a linear model tree, prune it, and walk rows down it.

Pruning chooses the subtree to keep by the Bayesian information criterion. It minimises
``rss + price * degrees of freedom`` over all subtrees that share the root. The cost adds up over
leaves, so one pass from the leaves to the root finds the best subtree (the argument of Breiman,
Friedman, Olshen and Stone, Classification and Regression Trees, chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from perfml.modeling.linear_model_tree.gram import (
    Array,
    Design,
    Ints,
    RidgeFit,
    fits,
    gram,
    loss_of,
)
from perfml.modeling.linear_model_tree.split import Candidates, best_split

Prune = Literal["bic"] | None

# Degrees of freedom of a threshold that was searched for (Friedman, Multivariate adaptive
# regression splines, Annals of Statistics 19, 1991, finds 2 to 4 a knot, and uses 3).
THRESHOLD_DOF = 3.0


_NOTHING = np.empty(0)
_NOT_FITTED = RidgeFit(0.0, _NOTHING, 0.0, 0.0, 0.0, _NOTHING, _NOTHING)


@dataclass(frozen=True)
class Node:
    """A node: its rows, its model, and its split where it has one.

    Its rows are `size` training rows that stand for `weight` rows, with a Gram matrix (`total`),
    and the least and greatest target among them. `depth` is the number of splits above it. Rows
    with ``x[feature] <= threshold`` go left; in a leaf these are -1 and NaN, and so are the numbers
    of the children (-1).
    """

    size: int
    weight: float
    total: Array
    model: RidgeFit
    low: float
    high: float
    depth: int
    feature: int = -1
    threshold: float = float("nan")
    left: int = -1
    right: int = -1

    @property
    def is_leaf(self) -> bool:
        """Whether the node has no split."""
        return self.left < 0


class Grower:
    """Grow the nodes of one tree, depth first, left before right.

    `x` are features in their own units, shape (n, f). A node above `max_depth` is split if it has
    `min_split` rows, both sides have `min_leaf`, and the loss falls by `min_gain` (rows times
    variance).
    """

    def __init__(
        self,
        design: Design,
        x: Array,
        *,
        max_depth: int,
        min_leaf: int,
        min_split: int,
        min_gain: float,
    ) -> None:
        self.design, self.x, self.max_depth = design, x, max_depth
        self.min_leaf, self.min_gain = min_leaf, min_gain
        self.fewest = max(min_split, 2 * min_leaf)
        self.nodes: list[Node] = []

    def grow(self) -> list[Node]:
        """Grow the tree; return its nodes, the root first."""
        order = np.argsort(self.x.T, axis=1, kind="stable")
        self._grow(np.arange(self.design.size), order, 0)
        # all models at once: of small matrices the calls cost more than the arithmetic
        models = fits(self.design, np.stack([node.total for node in self.nodes]))
        return [replace(node, model=model) for node, model in zip(self.nodes, models, strict=True)]

    def _grow(self, index: Ints, order: Ints | None, depth: int) -> int:
        weight, total = self.design.weight_of(index), gram(self.design, index)
        target = self.design.unweighted(index)[1]
        low, high = float(target.min()), float(target.max())
        number = len(self.nodes)
        self.nodes.append(Node(index.size, weight, total, _NOT_FITTED, low, high, depth))
        if order is None or not self._may_split(index, depth):
            return number
        candidates = Candidates(self.design, self.x, order, self.min_leaf)
        limit = loss_of(self.design, total) - self.min_gain
        split = best_split(self.design, total, candidates, limit)
        if split is None:
            return number
        goes_left = self.x[:, split.feature] <= split.threshold
        children = []
        for mask in (goes_left, ~goes_left):
            side = index[mask[index]]
            side_order = None
            if self._may_split(side, depth + 1):
                side_order = order[mask[order]].reshape(order.shape[0], -1)
            children.append(self._grow(side, side_order, depth + 1))
        left, right = children
        self.nodes[number] = replace(
            self.nodes[number],
            feature=split.feature,
            threshold=split.threshold,
            left=left,
            right=right,
        )
        return number

    def _may_split(self, index: Ints, depth: int) -> bool:
        enough = self.design.weight_of(index) >= self.fewest
        return depth < self.max_depth and index.size >= 2 and enough


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


def noise_variance(nodes: list[Node], design: Design) -> float:
    """Estimate the variance of the noise from the leaves of an unpruned tree."""
    leaves = [node for node in nodes if node.is_leaf]
    rss = sum(leaf.model.rss for leaf in leaves)
    spent = sum(leaf.model.dof for leaf in leaves) + THRESHOLD_DOF * (len(leaves) - 1)
    size = nodes[0].weight
    # With nearly as many parameters as rows the ratio says nothing; half the rows is a floor.
    free = max(size - spent, 0.5 * size)
    return max(rss / free, design.resolution / size)


def best_subtree(nodes: list[Node], price: float) -> list[Node]:
    """Return the subtree with the lowest ``rss + price * dof``, renumbered, the root first."""
    cost = np.zeros(len(nodes))
    keep = np.zeros(len(nodes), dtype=bool)
    for number in range(len(nodes) - 1, -1, -1):  # children have higher numbers than parents
        node = nodes[number]
        cost[number] = node.model.rss + price * node.model.dof
        if not node.is_leaf:
            split = cost[node.left] + cost[node.right] + price * THRESHOLD_DOF
            if split < cost[number]:
                cost[number] = split
                keep[number] = True
    kept: list[Node] = []

    def visit(number: int) -> int:
        here = len(kept)
        kept.append(nodes[number])
        if keep[number]:
            left, right = visit(nodes[number].left), visit(nodes[number].right)
            kept[here] = replace(nodes[number], left=left, right=right)
        elif not nodes[number].is_leaf:
            kept[here] = replace(
                nodes[number], left=-1, right=-1, feature=-1, threshold=float("nan")
            )
        return here

    visit(0)
    return kept


def prune_by_bic(nodes: list[Node], design: Design) -> list[Node]:
    """Prune by the Bayesian information criterion.

    With the noise variance estimated once from the unpruned tree it is
    ``rss / variance + log(n) * dof``.
    """
    price = float(np.log(max(design.weight, 2.0))) * noise_variance(nodes, design)
    return best_subtree(nodes, price)
