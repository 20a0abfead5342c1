"""The figure of a decision tree: a question a line, its answers below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfml.report.figures.style import INK, MUTED, PALETTE, new_axes, plain, styled
from perfml.report.labels import percent
from perfml.util.words import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE, _INDENT, _LETTER = 21, 16, 5.6
"""Height of a line of an outline, how far a level moves right, and a letter's width, points."""


@dataclass(frozen=True)
class Node:
    """A node of a fitted tree, in words."""

    question: str  # ``gld_efficiency <= 0.5``; empty for a leaf
    answer: str  # what the node predicts
    kind: str  # the predicted class, or empty for a number
    rows: int  # rows that reach it
    # where the question is answered yes, and where no; none for a leaf or a node too deep
    children: tuple[Node, ...] = ()
    cut: bool = False  # whether it has children that are too deep to be shown

    @property
    def size(self) -> str:
        """How many rows, with the noun."""
        return count(self.rows, "row")


def tree_nodes(
    tree: Any,
    *,
    feature_names: Sequence[str],
    class_names: Sequence[str] | None = None,
    depth: int = 3,
    unit: str = "",
) -> Node:
    """Return a fitted scikit-learn decision tree in words, to draw it or to write it."""
    fitted = tree.tree_
    classes = None if class_names is None else [plain(name, 30) for name in class_names]
    if classes is None and hasattr(tree, "classes_"):
        classes = [plain(name, 30) for name in tree.classes_]

    def visit(place: int, level: int) -> Node:
        value = np.asarray(fitted.value[place][0], dtype=float)
        if classes is None:
            kind, answer = "", f"{number(float(value[0]))} {unit}".strip()
        else:
            first = int(value.argmax())
            kind = classes[first]
            answer = f"{kind} ({percent(float(value[first] / value.sum()))})"
        rows = int(fitted.n_node_samples[place])
        left, right = int(fitted.children_left[place]), int(fitted.children_right[place])
        if left == right:
            return Node("", answer, kind, rows)
        name = plain(feature_names[int(fitted.feature[place])], 40)
        question = f"{name} <= {_threshold(float(fitted.threshold[place]))}"
        if level == depth:
            return Node(question, answer, kind, rows, cut=True)
        children = (visit(left, level + 1), visit(right, level + 1))
        return Node(question, answer, kind, rows, children)

    return visit(0, 0)


def _threshold(value: float) -> str:
    """Return a threshold with three digits, or with as many as keep it off the whole number.

    Examples
    --------
    >>> _threshold(0.19612), _threshold(0.999871), _threshold(64.0)
    ('0.196', '0.9999', '64')
    """
    texts = [f"{value:.{digits}g}" for digits in range(3, 8)]
    return next((text for text in texts if value.is_integer() or "." in text), texts[0])


@styled
def decision_tree(
    tree: Any,
    *,
    feature_names: Sequence[str],
    class_names: Sequence[str] | None = None,
    depth: int = 3,
    unit: str = "",
    palette: Mapping[str, str] | None = None,
    ax: Axes | None = None,
    width: float = 1000,
) -> Axes:
    """Draw a fitted scikit-learn decision tree (figure 2-7) as an outline, a node a line.

    The answer yes stands right below its question.

    Parameters
    ----------
    tree
        A fitted DecisionTreeRegressor or DecisionTreeClassifier.
    feature_names
        The metrics it was fitted on, in order.
    class_names
        Of a classifier, the classes in the order of ``tree.classes_``.
    depth
        Levels drawn; deeper ones are shown as ``(...)``.
    unit
        Of what a regressor predicts.
    palette
        Class to colour.
    ax, width
        Where to draw; a new figure, so many points wide, without.
    """
    root = tree_nodes(
        tree, feature_names=feature_names, class_names=class_names, depth=depth, unit=unit
    )
    lines = list(_lines(root, 0, ""))
    tint = {"": PALETTE[0], **(palette or {})}
    for name in dict.fromkeys(node.kind for *_, node in lines):
        tint.setdefault(name, PALETTE[(len(tint) - 1) % len(PALETTE)])
    ax = new_axes(ax, width, _LINE * len(lines) + 40)
    for row, (level, said, node) in enumerate(lines):
        leaf = not node.children
        text = f"{node.answer if leaf else node.question}  ({node.size})"
        text = f"{said}: {text}" if said else text
        text += " (...)" if node.cut else ""
        left = _INDENT * level
        letters = int((width - left - 24) / _LETTER)
        ax.text(
            left,
            row,
            text if len(text) <= letters else text[: letters - 1] + "…",
            va="center",
            fontsize=10.5,
            color=INK,
            fontweight="bold" if leaf else "normal",
        )
        if level:
            ax.plot([left - 10, left - 3], [row, row], color=tint[node.kind] if leaf else MUTED)
        if not leaf:
            last = max(place for place, (*_, each) in enumerate(lines) if each is node.children[-1])
            ax.plot([left + _INDENT - 10] * 2, [row + 0.45, last], color=MUTED, linewidth=0.9)
    ax.set_xlim(0, width - 12)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.set_axis_off()
    return ax


def _lines(node: Node, level: int, said: str) -> Iterator[tuple[int, str, Node]]:
    """Yield the nodes in the order of an outline: level, answer above that leads there, node."""
    yield level, said, node
    for child, answer in zip(node.children, ("yes", "no"), strict=False):
        yield from _lines(child, level + 1, answer)
