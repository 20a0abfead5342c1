"""Choose the subtree to keep, by the Bayesian information criterion.

It minimises ``rss + price * degrees of freedom`` over all subtrees that share the root. The cost
adds up over leaves, so one pass from the leaves to the root finds the best subtree (the argument
of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, chapter 3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from perfml.modeling.linear_model_tree.gram import Design
from perfml.modeling.linear_model_tree.grow import Node

Prune = Literal["bic"] | None

# Degrees of freedom of a threshold that was searched for (Friedman, Multivariate adaptive
# regression splines, Annals of Statistics 19, 1991, finds 2 to 4 a knot, and uses 3).
THRESHOLD_DOF = 3.0


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
