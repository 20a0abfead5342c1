"""Show a fitted tree: text, figure, and the terms of single predictions."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from perfml.modeling.linear_model_tree.fitted import FittedTree
from perfml.modeling.linear_model_tree.gram import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASE, CLIP = "base", "clip"


def terms(tree: FittedTree, x: Array, names: list[str]) -> tuple[list[str], Array]:
    """Decompose predictions into terms that add up to them.

    Labels are one a term, the terms of each row have shape (n, terms), in the units of the target.
    Only features that occur in a split or with a slope have a term.
    """
    splits = sorted({node.feature for node in tree.nodes if not node.is_leaf})
    sloped = np.flatnonzero(np.any(tree.coef[tree.leaves] != 0, axis=0))
    labels = [
        BASE,
        *(f"split:{names[column]}" for column in splits),
        *(f"slope:{names[column]}" for column in sloped),
        CLIP,
    ]
    values = np.zeros((x.shape[0], len(labels)))
    leaf = tree.apply(x)
    z = tree.x_scale.apply(x)
    first_slope = 1 + len(splits)
    for number in np.unique(leaf):
        mine = leaf == number
        values[mine, 0] = tree.mean_y[0]
        path = tree.path(int(number))
        for above, below in itertools.pairwise(path):
            slot = 1 + splits.index(tree.nodes[above].feature)
            values[mine, slot] += tree.mean_y[below] - tree.mean_y[above]
        slopes = (z[mine] - tree.mean_x[number]) * tree.coef[number]
        values[mine, first_slope:-1] = slopes[:, sloped]
    values *= tree.y_scale.spread
    values[:, 0] += tree.y_scale.mean
    free, safe = tree.predict_both(x)
    values[:, -1] = safe - free
    return labels, values


def equation(
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


def leaf_equations(
    tree: FittedTree, names: list[str], target: str, max_terms: int, digits: int
) -> dict[int, str]:
    """Return the equation of each node, leaves and others, by number."""
    intercept, coef = tree.equations()
    return {
        number: f"{target} = "
        + equation(
            float(intercept[number]),
            coef[number],
            names,
            np.abs(tree.coef[number]),
            max_terms,
            digits,
        )
        for number in range(len(tree.nodes))
    }


def as_text(tree: FittedTree, names: list[str], labels: dict[int, str], digits: int) -> str:
    """Draw the tree with one line a node."""
    lines: list[str] = []

    def visit(number: int) -> None:
        node = tree.nodes[number]
        bar = "|   " * node.depth
        if node.is_leaf:
            lines.append(f"{bar}|--- leaf {number}, {node.size} rows: {labels[number]}")
            return
        name = names[node.feature]
        for sign, child in (("<=", node.left), (">", node.right)):
            lines.append(f"{bar}|--- {name} {sign} {node.threshold:.{digits}g}")
            visit(child)

    visit(0)
    return "\n".join(lines) + "\n"


def draw(
    tree: FittedTree, names: list[str], labels: dict[int, str], digits: int, ax: Axes | None
) -> Axes:
    """Draw the tree on `ax`, leaves side by side, and return the axes."""
    from matplotlib import pyplot as plt

    if ax is None:
        leaves = tree.leaves.size
        depth = max(node.depth for node in tree.nodes)
        _, ax = plt.subplots(figsize=(max(4.0, 2.6 * leaves), 1.6 * (depth + 1)))
    column: dict[int, float] = {int(leaf): float(i) for i, leaf in enumerate(tree.leaves)}
    for number in range(len(tree.nodes) - 1, -1, -1):
        node = tree.nodes[number]
        if not node.is_leaf:
            column[number] = 0.5 * (column[node.left] + column[node.right])
    for number, node in enumerate(tree.nodes):
        here = (column[number], -float(node.depth))
        if node.is_leaf:
            text = f"{node.size} rows\n" + _wrapped(labels[number])
            colour = "#eaf2e3"
        else:
            text = f"{names[node.feature]}\n<= {node.threshold:.{digits}g}"
            text += f"\n{node.size} rows"
            colour = "#e3ebf5"
            for side, child in (("yes", node.left), ("no", node.right)):
                there = (column[child], -float(tree.nodes[child].depth))
                ax.plot([here[0], there[0]], [here[1], there[1]], color="0.6", lw=1, zorder=1)
                middle = (0.5 * (here[0] + there[0]), 0.5 * (here[1] + there[1]))
                ax.text(*middle, side, fontsize=7, color="0.35", ha="center", zorder=2)
        box = {"boxstyle": "round", "facecolor": colour, "edgecolor": "0.5"}
        ax.text(*here, text, ha="center", va="center", fontsize=7, bbox=box, zorder=3)
    ax.set_xlim(-0.6, tree.leaves.size - 0.4)
    ax.set_ylim(-max(node.depth for node in tree.nodes) - 0.6, 0.6)
    ax.axis("off")
    return ax


def _wrapped(text: str) -> str:
    """Break an equation before its signs."""
    return text.replace(" + ", "\n+ ").replace(" - ", "\n- ").replace(" ... ", "\n... ")
