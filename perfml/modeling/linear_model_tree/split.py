"""Exact best split of a node under ridge leaves, by bounds instead of by trying everything.

With a fixed penalty, adding rows can only raise the ridge objective. So for a threshold between
two evaluated thresholds ``a < b``, ``loss_left(a) + loss_right(b)`` bounds its loss from below,
and every stretch of thresholds whose bound is above the best loss found so far is dropped unseen.
The result is the one that exhaustive search would give, which is what a node of few rows gets:
there one factorisation a feature tries everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints, losses, prefix_losses

_CHUNK_DOUBLES = 1 << 21  # working set of one batch of intervals: 16 MiB


@dataclass(frozen=True)
class Split:
    """The best split of a node: rows with ``x[feature] <= threshold`` go left."""

    feature: int
    threshold: float
    loss: float


@dataclass(frozen=True)
class _Intervals:
    """Stretches between evaluated positions."""

    feature: Ints
    start: Ints
    stop: Ints
    left: Array  # Gram matrix left of `start`
    left_loss: Array  # loss left of `start`
    right_loss: Array  # loss right of `stop`

    def bound(self) -> Array:
        """Return the loss that no position inside can go below."""
        return self.left_loss + self.right_loss

    def take(self, at: Ints | Bools) -> _Intervals:
        return _Intervals(*(getattr(self, name)[at] for name in _FIELDS))


_FIELDS = tuple(_Intervals.__dataclass_fields__)


@dataclass
class _Best:
    """Best loss so far; a tie goes to the lower feature, then to the lower threshold."""

    loss: float
    tie: float
    key: tuple[int, int] | None = None

    def offer(self, loss: Array, feature: Ints, position: Ints, valid: Bools) -> None:
        """Compare the losses of some positions with the best so far."""
        loss = np.where(valid, loss, np.inf)
        lowest = float(loss.min(initial=np.inf))
        if lowest > self.loss + (self.tie if self.key else -self.tie):
            return
        near = np.flatnonzero(loss <= min(lowest, self.loss) + self.tie)
        pick = near[np.lexsort((position[near], feature[near]))[0]]
        key = (int(feature[pick]), int(position[pick]))
        if self.key is None or lowest < self.loss - self.tie or key < self.key:
            self.key = key
        self.loss = min(self.loss, lowest)


def best_split(design: Design, total: Array, candidates: Candidates, limit: float) -> Split | None:
    """Find the split with the lowest loss of both sides together.

    `total` is the Gram matrix of the node, shape (m, m). None where no threshold is valid, or none
    stays below `limit`.
    """
    best = _Best(limit, design.resolution)
    if design.is_small(candidates.order.shape[1]):
        _try_all(design, candidates, best)
    else:
        _search(design, total, candidates, best)
    if best.key is None:
        return None
    return Split(best.key[0], candidates.threshold(*best.key), best.loss)


def _try_all(design: Design, candidates: Candidates, best: _Best) -> None:
    """Offer every position of a node of few rows."""
    order, low, high = candidates.order, candidates.low, candidates.high
    if high < low:
        return
    sides = prefix_losses(design, np.concatenate([order, order[:, ::-1]]))
    half = len(order)
    total = sides[:half, low - 1 : high] + sides[half:, ::-1][:, low : high + 1]
    feature, step = np.indices(total.shape).reshape(2, -1)
    valid = candidates.valid(feature, low + step)
    best.offer(total.ravel(), feature, low + step, valid)


def _search(design: Design, total: Array, candidates: Candidates, best: _Best) -> None:
    """Offer the positions that bounds do not rule out."""
    points, width = candidates.grid()
    if points.feature.size == 0:
        return
    valid = candidates.valid(points.feature, points.position)
    if width == 1:
        # every position is among these, so those between equal values bound nothing
        points, valid = points.take(valid), valid[valid]
    left, right = losses(design, total, points.left)
    best.offer(left + right, points.feature, points.position, valid)
    at = np.flatnonzero(
        (points.feature[1:] == points.feature[:-1]) & (points.position[1:] > points.position[:-1])
    )
    intervals = _Intervals(
        points.feature[at],
        points.position[at],
        points.position[at + 1],
        points.left[at],
        left[at],
        right[at + 1],
    )
    while width > 1 and intervals.feature.size:
        intervals = _refine(design, total, candidates, intervals, width, best)
        width //= FAN


def _refine(
    design: Design,
    total: Array,
    candidates: Candidates,
    old: _Intervals,
    width: int,
    best: _Best,
) -> _Intervals:
    """Evaluate the inner positions of the intervals in question; return the narrower ones."""
    size = total.shape[0]
    chunk = max(1, _CHUNK_DOUBLES // (width * size + 4 * FAN * size * size))
    bound = old.bound()
    keep = np.flatnonzero(
        (bound <= best.loss + best.tie) & candidates.worth(old.feature, old.start, old.stop)
    )
    # The most promising first: the best loss drops before the rest is looked at.
    keep = keep[np.argsort(bound[keep], kind="stable")]
    parts = []
    for begin in range(0, keep.size, chunk):
        at = keep[begin : begin + chunk]
        at = at[bound[at] <= best.loss + best.tie]
        if at.size:
            parts.append(_cut(design, total, candidates, old.take(at), width, best))
    if not parts:
        return old.take(np.empty(0, dtype=np.int64))
    return _Intervals(*(np.concatenate([getattr(p, name) for p in parts]) for name in _FIELDS))


def _cut(
    design: Design,
    total: Array,
    candidates: Candidates,
    old: _Intervals,
    width: int,
    best: _Best,
) -> _Intervals:
    inner, grams = candidates.inside(old.feature, old.start, old.stop, old.left, width)
    shape = inner.shape
    flat = grams.reshape(-1, *total.shape)
    owner = np.repeat(old.feature, FAN - 1)
    place = inner.ravel()
    real = (inner < old.stop[:, None]).ravel()
    valid = np.asarray(real & candidates.valid(owner, place))
    if width == FAN:
        # nothing is cut further, so only what can be the split is of interest
        found = losses(design, total, flat[valid])
        best.offer(found[0] + found[1], owner[valid], place[valid], valid[valid])
        return old.take(np.empty(0, dtype=np.int64))
    left, right = (side.reshape(shape) for side in losses(design, total, flat))
    best.offer((left + right).ravel(), owner, place, valid)
    starts = np.column_stack([old.start, inner])
    stops = np.column_stack([inner, old.stop])
    cut = _Intervals(
        np.repeat(old.feature, FAN),
        starts.ravel(),
        stops.ravel(),
        np.concatenate([old.left[:, None], grams], axis=1).reshape(-1, *total.shape),
        np.column_stack([old.left_loss, left]).ravel(),
        np.column_stack([right, old.right_loss]).ravel(),
    )
    alive = (cut.stop > cut.start + 1) & (cut.bound() <= best.loss + best.tie)
    return cut.take(np.asarray(alive))


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
