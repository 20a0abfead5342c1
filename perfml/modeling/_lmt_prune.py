"""Choose the subtree to keep: by information criterion or by cross-validation.

Both minimise ``rss + price * degrees of freedom`` over all subtrees that share the root. The cost
adds up over leaves, so one pass from the leaves to the root finds the best subtree (the argument
of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, chapter 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from perfml.modeling._lmt_gram import Array, Design, Ints
from perfml.modeling._lmt_tree import Node, descend

Prune = Literal["bic", "aic", "cv"] | None

# Degrees of freedom of a threshold that was searched for (Friedman, Multivariate adaptive
# regression splines, Annals of Statistics 19, 1991, finds 2 to 4 a knot, and uses 3).
THRESHOLD_DOF = 3.0
_PRICES = np.concatenate([[0.0], 2.0 ** np.arange(0, 14)])  # in units of the noise variance


def noise_variance(nodes: list[Node], design: Design) -> float:
    """Estimate the variance of the noise from the leaves of an unpruned tree."""
    leaves = [node for node in nodes if node.is_leaf]
    rss = sum(leaf.model.rss for leaf in leaves)
    spent = sum(leaf.model.dof for leaf in leaves) + THRESHOLD_DOF * (len(leaves) - 1)
    size = nodes[0].size
    # With nearly as many parameters as rows the ratio says nothing; half the rows is a floor.
    free = max(size - spent, 0.5 * size)
    return max(rss / (free * design.n_targets), design.resolution / size)


def best_subtree(nodes: list[Node], price: float, n_targets: int) -> list[Node]:
    """Return the subtree with the lowest ``rss + price * dof``, renumbered, the root first."""
    cost = np.zeros(len(nodes))
    keep = np.zeros(len(nodes), dtype=bool)
    for number in range(len(nodes) - 1, -1, -1):  # children have higher numbers than parents
        node = nodes[number]
        cost[number] = node.model.rss + price * node.model.dof * n_targets
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
        else:
            kept[here] = replace(
                nodes[number], left=-1, right=-1, feature=-1, threshold=float("nan")
            )
        return here

    visit(0)
    return kept


def prune_by_criterion(nodes: list[Node], design: Design, criterion: str) -> list[Node]:
    """Prune by Akaike's (``"aic"``) or the Bayesian (``"bic"``) information criterion.

    With the noise variance estimated once from the unpruned tree, the criteria are Mallows'
    ``rss / variance + c * dof`` with c = 2 and c = log(n).
    """
    factor = 2.0 if criterion == "aic" else float(np.log(max(design.size, 2)))
    price = factor * noise_variance(nodes, design)
    return best_subtree(nodes, price, design.n_targets)


def prune_by_cv(
    nodes: list[Node],
    design: Design,
    x: Array,
    regrow: Callable[[Ints], list[Node]],
    folds: list[tuple[Ints, Ints]],
) -> list[Node]:
    """Prune at the price a degree of freedom that predicts held-out rows best.

    Parameters
    ----------
    nodes
        The tree grown on all rows.
    design
        Its rows.
    x
        Features that may be split, shape (n, f).
    regrow
        Grows a tree on the rows given.
    folds
        Rows to grow on and rows to test on.
    """
    unit = noise_variance(nodes, design)
    errors = np.zeros(_PRICES.size)
    for train, test in folds:
        grown = regrow(train)
        for number, price in enumerate(_PRICES):
            subtree = best_subtree(grown, price * unit, design.n_targets)
            errors[number] += _squared_error(subtree, design, x, test)
    # Of equally good prices the highest: the smallest tree.
    best = np.flatnonzero(errors <= errors.min() * (1 + 1e-9))[-1]
    return best_subtree(nodes, float(_PRICES[best]) * unit, design.n_targets)


def _squared_error(nodes: list[Node], design: Design, x: Array, test: Ints) -> float:
    leaf = descend(nodes, x[test])
    rows = design.rows[test]
    p = design.n_linear
    total = 0.0
    for number in np.unique(leaf):
        mine = rows[leaf == number]
        model = nodes[number].model
        gap = mine[:, 1 + p :] - model.intercept - mine[:, 1 : 1 + p] @ model.coef
        total += float(np.sum(gap**2))
    return total
