"""Where a node may split: between any two of its sorted rows.

Gram matrices are summed over the rows, coarsely first and finely only where the search asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints

Bools = NDArray[np.bool_]

FAN = 4  # an interval of the search is cut into this many
_GRID = 8  # intervals a feature that the search starts from, at most
_GRID_DOUBLES = 1 << 18  # doubles that are summed at once: 2 MiB
_ROUNDING = 1e-9  # share of a node's weight that sums of weights may be off by


@dataclass(frozen=True)
class Points:
    """Evaluated positions: feature, position, and the Gram matrix of the rows to the left."""

    feature: Ints
    position: Ints
    left: Array

    def take(self, at: Bools) -> Points:
        """Return some of the positions."""
        return Points(self.feature[at], self.position[at], self.left[at])


def accumulate(grams: Array) -> None:
    """Turn matrices (t, b, m, m) into running sums over b, in place.

    A loop over the few b is several times faster than `numpy.cumsum`, which walks against memory.
    """
    for step in range(1, grams.shape[1]):
        grams[:, step] += grams[:, step - 1]


class Candidates:
    """All positions between the sorted rows of a node; they order the thresholds of a feature.

    Features have shape (n, f), the rows of the node sorted by each (`order`) shape (f, n_node).
    Each side needs `min_leaf` rows; with weights, what the weights of its rows must add up to.
    """

    def __init__(self, design: Design, x: Array, order: Ints, min_leaf: int) -> None:
        self._design = design
        self.order = order
        self._min_leaf = min_leaf
        self._mass: Array | None = None
        if design.weights is not None:
            # how many rows a position has to its left depends on the feature
            self._mass = np.cumsum(design.weights[order], axis=1)
        self.low = 1 if self._mass is not None else min_leaf
        self.high = order.shape[1] - self.low
        self._values = x.T[np.arange(order.shape[0])[:, None], order]

    def grid(self) -> tuple[Points, int]:
        """Return a coarse grid, ordered by feature and position, and its step (a power of FAN)."""
        m = self._design.rows.shape[1]
        span = self.high - self.low
        spread = self._values[:, self.low - 1] < self._values[:, self.high]
        features = np.flatnonzero(spread)
        if span < 0 or features.size == 0:
            empty = np.empty(0, dtype=np.int64)
            return Points(empty, empty, np.empty((0, m, m))), 1
        width = 1
        while width * _GRID < span:
            width *= FAN
        steps = -(-span // width)
        position = np.minimum(self.low + width * np.arange(steps + 1), self.high)
        grams = np.empty((features.size, steps + 1, m, m))
        index = np.full((features.size, steps * width), self._design.size, dtype=np.int64)
        index[:, :span] = self.order[features, self.low : self.high]
        at_once = max(1, _GRID_DOUBLES // (m * max(self.low, steps * width)))
        for first in range(0, features.size, at_once):
            some = slice(first, first + at_once)
            head = self._rows(self.order[features[some], : self.low])
            np.matmul(head.transpose(0, 2, 1), head, out=grams[some, 0])
            blocks = self._rows(index[some]).reshape(len(head), steps, width, m)
            np.matmul(blocks.transpose(0, 1, 3, 2), blocks, out=grams[some, 1:])
        accumulate(grams)
        return (
            Points(
                np.repeat(features, steps + 1),
                np.tile(position, features.size),
                grams.reshape(-1, m, m),
            ),
            width,
        )

    def _rows(self, index: Ints) -> Array:
        # Numpy copies rows twice as fast when it need not check the index.
        return np.take(self._design.rows, index, axis=0, mode="clip")

    def inside(
        self, feature: Ints, start: Ints, stop: Ints, left: Array, width: int
    ) -> tuple[Ints, Array]:
        """Cut each interval in FAN.

        Returns the inner positions (t, FAN - 1), not beyond `stop`, and the Gram matrices of the
        rows to their left (t, FAN - 1, m, m).
        """
        step = width // FAN
        m = left.shape[-1]
        place = start[:, None] + np.arange((FAN - 1) * step)
        index = np.where(
            place < stop[:, None],
            self.order[feature[:, None], np.minimum(place, self.order.shape[1] - 1)],
            self._design.size,
        )
        blocks = self._rows(index).reshape(-1, step, m)
        grams = np.matmul(blocks.transpose(0, 2, 1), blocks).reshape(-1, FAN - 1, m, m)
        grams[:, 0] += left
        accumulate(grams)
        inner = start[:, None] + step * np.arange(1, FAN)
        return np.minimum(inner, stop[:, None]), grams

    def valid(self, feature: Ints, position: Ints) -> Bools:
        """Tell which positions separate two different values."""
        differ = self._values[feature, position - 1] < self._values[feature, position]
        if self._mass is not None:
            total = self._mass[feature, -1]
            left = self._mass[feature, position - 1]
            least = self._min_leaf - _ROUNDING * total
            differ = differ & (left >= least) & (total - left >= least)
        return np.asarray(differ, dtype=np.bool_)

    def worth(self, feature: Ints, start: Ints, stop: Ints) -> Bools:
        """Tell which intervals can hold a valid position inside."""
        return np.asarray(
            self._values[feature, start] < self._values[feature, stop - 1], dtype=np.bool_
        )

    def threshold(self, feature: int, position: int) -> float:
        """Return the threshold of a valid position, in the units of the feature."""
        low, high = self._values[feature, position - 1], self._values[feature, position]
        middle = float(low + 0.5 * (high - low))
        return middle if middle < high else float(low)
