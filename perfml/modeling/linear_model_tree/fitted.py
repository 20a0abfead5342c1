"""The fitted tree: arrays that predict and are written out; no training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints, centred, relative_weights
from perfml.modeling.linear_model_tree.grow import Node, descend


@dataclass(frozen=True)
class Scale:
    """Mean and spread of each column; a constant column keeps spread 1."""

    mean: Array
    spread: Array

    @classmethod
    def of(cls, values: Array, weights: Array | None = None) -> Scale:
        """Measure the columns of `values`, shape (n, c) or (n,), rows weighted."""
        mean = np.average(values, axis=0, weights=weights)
        spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
        # Rounding alone gives a constant column a spread of this size.
        noise = 10 * values.shape[0] ** 0.5 * np.finfo(float).eps * np.abs(mean)
        constant = (spread <= noise) | (values.max(axis=0) == values.min(axis=0))
        return cls(mean, np.where(constant, 1.0, spread))

    def apply(self, values: Array) -> Array:
        """Standardise."""
        return np.asarray((values - self.mean) / self.spread)


@dataclass(frozen=True)
class FittedTree:
    """A linear model tree in standardised units."""

    nodes: list[Node]  # nodes without their rows and Gram matrices, the root first
    x_scale: Scale  # standardisation of the features and of the target
    y_scale: Scale
    intercept: Array  # models of the nodes: (nodes,) and (nodes, p)
    coef: Array
    # bounds of the predictions of each node, (nodes,); infinite where nothing is clipped
    low: Array
    high: Array

    @cached_property
    def leaves(self) -> Ints:
        """Numbers of the leaves, left to right."""
        return np.array([i for i, node in enumerate(self.nodes) if node.is_leaf])

    def apply(self, x: Array) -> Ints:
        """Return the number of the leaf of each row."""
        return descend(self.nodes, x)

    def predict(self, x: Array) -> Array:
        """Return the predictions in the units of the target, shape (n,)."""
        leaf = self.apply(x)
        z = self.x_scale.apply(x)
        free = np.empty(x.shape[0])
        for number in np.unique(leaf):
            mine = leaf == number
            free[mine] = self.intercept[number] + z[mine] @ self.coef[number]
        safe = np.clip(free, self.low[leaf], self.high[leaf])
        return np.asarray(safe * self.y_scale.spread + self.y_scale.mean)

    def equations(self) -> tuple[Array, Array]:
        """Return intercepts (nodes,) and coefficients (nodes, p) in the units of the data."""
        coef = self.coef * self.y_scale.spread / self.x_scale.spread
        shift = coef @ self.x_scale.mean
        return self.intercept * self.y_scale.spread + self.y_scale.mean - shift, coef


def bare(nodes: list[Node]) -> list[Node]:
    """Return the nodes without their matrices, which only fitting needs."""
    none = np.empty((0, 0))
    return [replace(node, total=none, model=replace(node.model, vectors=none)) for node in nodes]


def importances(nodes: list[Node], design: Design) -> Array:
    """Share the explained variance of the target among the features; the shares add up to one.

    Splits and slopes explain the same variance in part: the slopes of the root leave less to the
    splits, and a split into two means leaves less to the slopes of the leaves. Each is therefore
    credited with the average over both orders, which is the Shapley value of two players. Within
    a model, correlated features share by relative weights (see `relative_weights`).
    """
    models = [nodes[0], *(node for node in nodes if node.is_leaf)]
    totals = np.stack([node.total for node in models])
    shares = 0.5 * relative_weights(design, totals).sum(axis=0)
    for node in nodes:
        if node.is_leaf:
            continue
        left, right = nodes[node.left], nodes[node.right]
        by_slope = node.model.loss - left.model.loss - right.model.loss
        by_mean = _spread(node) - _spread(left) - _spread(right)
        shares[node.feature] += 0.5 * (max(by_slope, 0.0) + max(by_mean, 0.0))
    total = shares.sum()
    if total <= design.resolution:
        return np.zeros(design.n_linear)
    return np.asarray(shares / total)


def _spread(node: Node) -> float:
    return float(centred(node.total)[4])


def text_of(tree: FittedTree, names: list[str], target: str, max_terms: int, digits: int) -> str:
    """Write the tree with one line a node, and the equations of its leaves."""
    intercept, coef = tree.equations()
    lines: list[str] = []

    def visit(number: int) -> None:
        node = tree.nodes[number]
        bar = "|   " * node.depth
        if node.is_leaf:
            weight = np.abs(tree.coef[number])
            law = _equation(
                float(intercept[number]), coef[number], names, weight, max_terms, digits
            )
            lines.append(f"{bar}|--- leaf {number}, {node.size} rows: {target} = {law}")
            return
        name = names[node.feature]
        for sign, child in (("<=", node.left), (">", node.right)):
            lines.append(f"{bar}|--- {name} {sign} {node.threshold:.{digits}g}")
            visit(child)

    visit(0)
    return "\n".join(lines) + "\n"


def _equation(
    intercept: float, coef: Array, names: list[str], weight: Array, max_terms: int, digits: int
) -> str:
    """Write a leaf model as ``12.3 + 4.5 gld_efficiency - 0.6 dram_utilization``.

    The terms that move the prediction most within the data, by `weight`, come first; those
    left out are counted.
    """
    used = np.flatnonzero(coef)
    used = used[np.argsort(-weight[used], kind="stable")]
    text = f"{intercept:.{digits}g}"
    for column in used[:max_terms]:
        sign = "-" if coef[column] < 0 else "+"
        text += f" {sign} {abs(coef[column]):.{digits}g} {names[column]}"
    if used.size > max_terms:
        text += f" ... and {used.size - max_terms} smaller terms"
    return text


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
