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

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints, losses, prefix_losses
from perfml.modeling.linear_model_tree.thresholds import FAN, Bools, Candidates

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
