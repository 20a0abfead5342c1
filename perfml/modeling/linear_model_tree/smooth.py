"""Pull the equation of a node towards its parent's, as far as leaving rows out says.

A tree of linear models jumps where two leaves meet. Where the law is smooth, part of the jump is
the price of fitting each leaf alone, and an average with the models above is closer to the law
(Quinlan 1992, Learning with continuous classes, the smoothing of M5). Where the law itself jumps,
the average is wrong. Which of both holds is seen in rows that a model was not fitted on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints
from perfml.modeling.linear_model_tree.grow import Node

Smoothing = float | Literal["loo"]

CHOICES = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Smoothings that are tried, in rows a feature; 1.5 are Quinlan's 15 rows for ten features."""

_LEAST_SHARE = 0.02
"""Least share of a residual that a row's own pull on its model may leave: a row that fixes its
own prediction would otherwise have an error of any size."""


def smooth(
    nodes: list[Node], design: Design, x: Array, smoothing: Smoothing
) -> tuple[list[Node], float]:
    """Return the nodes with smoothed models, and the smoothing that was used.

    `nodes` are the pruned tree, the root first; `x` features in their own units, shape (n, f).
    `smoothing` is rows a feature, or ``"loo"``: the one of `CHOICES` with the least squared
    leave-one-out error of the training rows.
    """
    if len(nodes) == 1:
        return nodes, 0.0
    used = _best_choice(nodes, design, x) if smoothing == "loo" else float(smoothing)
    if used == 0.0:
        return nodes, used
    smoothed = list(nodes)
    for number, node in enumerate(nodes):  # parents come before their children
        for child in (node.left, node.right):
            if child < 0:
                continue
            own = float(_own_share(nodes[child], design, np.array([used]))[0])
            above, model = smoothed[number].model, nodes[child].model
            smoothed[child] = replace(
                nodes[child],
                model=replace(
                    model,
                    intercept=own * model.intercept + (1 - own) * above.intercept,
                    coef=own * model.coef + (1 - own) * above.coef,
                ),
            )
    return smoothed, used


def _own_share(node: Node, design: Design, choices: Array) -> Array:
    """Return how much of its own model a node keeps under each smoothing."""
    return np.asarray(node.weight / (node.weight + choices * design.n_linear))


def _best_choice(nodes: list[Node], design: Design, x: Array) -> float:
    choices = np.array(CHOICES)
    errors = np.zeros(len(choices))
    # of each node: its rows, and the leave-one-out predictions of its parent under each choice
    waiting: list[tuple[int, Ints, Array | None]] = [(0, np.arange(design.size), None)]
    while waiting:
        number, index, above = waiting.pop()
        node = nodes[number]
        guesses = _left_out(node, design, index)[None]
        if above is not None:
            own = _own_share(node, design, choices)[:, None]
            guesses = own * guesses + (1 - own) * above
        if node.is_leaf:
            weight = 1.0 if design.weights is None else design.weights[index]
            missed = design.unweighted(index)[1] - guesses
            errors = errors + (weight * missed**2).sum(axis=1)
            continue
        goes_left = x[index, node.feature] <= node.threshold
        for child, side in ((node.left, goes_left), (node.right, ~goes_left)):
            waiting.append((child, index[side], guesses[:, side]))
    # of equals the least smoothing
    best = np.flatnonzero(errors <= errors.min() + design.resolution)[0]
    return float(choices[best])


def _left_out(node: Node, design: Design, index: Ints) -> Array:
    """Return what a node's model predicts for each of its rows when fitted without it, (t,).

    The error of a row left out is its residual divided by one less its leverage (Allen 1974, The
    relationship between variable selection and data augmentation, Technometrics 16).
    """
    features, target = design.unweighted(index)
    model = node.model
    turned = (features - node.total[0, 1:-1] / node.total[0, 0]) @ model.vectors
    leverage = 1.0 / node.weight + turned**2 @ (1.0 / (model.values + design.penalty))
    residual = target - model.intercept - features @ model.coef
    return np.asarray(target - residual / np.maximum(1.0 - leverage, _LEAST_SHARE))
