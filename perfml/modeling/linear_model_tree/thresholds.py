"""Where a node may split: between any two rows, or at thresholds fixed beforehand.

`RowCandidates` sums Gram matrices over sorted rows, coarsely first and finely only where the
search asks for it. `BinCandidates` keeps one Gram matrix a bin, as histogram gradient boosting
keeps one gradient sum a bin; that of a child is that of its parent less that of its sibling.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perfml.modeling.linear_model_tree.gram import Array, Design, Ints
from perfml.modeling.linear_model_tree.split import FAN, Bools, Points

_GRID = 8  # intervals a feature that the search starts from, at most
LINEAR_TREE_BINS = 25
_GRID_DOUBLES = 1 << 18  # rows of so many features are summed at once: 2 MiB
_ROUNDING = 1e-9  # share of a node's weight that sums of weights may be off by
_SCAN_CUTS = 64  # comparing with each of so few is faster than bisection


def make_thresholds(
    x: Array, max_bins: int | Literal["linear-tree"], weights: Array | None = None
) -> list[Array]:
    """Return the candidate thresholds of each feature, ascending.

    Parameters
    ----------
    x
        Features, shape (n, f).
    max_bins
        Number of quantile thresholds at most; a feature with no more distinct values gets the
        midpoints between them. ``"linear-tree"`` gives the thresholds of linear-tree 0.3.5 with
        its default ``max_bins=25``: 23 quantiles of the values rounded to single precision.
    weights
        How many rows each row stands for; None for one each.
    """
    if max_bins == "linear-tree":
        inner = np.linspace(0, 1, LINEAR_TREE_BINS)[1:-1]
        return [
            np.unique(_quantiles(column, inner, weights)).astype(np.float64)
            for column in x.astype(np.float32).T
        ]
    inner = np.linspace(0, 1, max_bins + 2)[1:-1]
    found = []
    for column in x.T:
        distinct = np.unique(column)
        if distinct.size <= max_bins + 1:
            found.append(midpoints(distinct[:-1], distinct[1:]))
        else:
            found.append(np.unique(_quantiles(column, inner, weights)))
    return found


def _quantiles(column: NDArray[Any], shares: Array, weights: Array | None) -> NDArray[Any]:
    """Return quantiles of a column in which each value stands as often as its weight says."""
    if weights is None:
        return np.asarray(np.quantile(column, shares))
    order = np.argsort(column, kind="stable")
    ends = np.cumsum(weights[order])
    starts = ends - weights[order]
    # a value of weight w stands at the positions start, ..., start + w - 1
    positions = np.column_stack([starts, np.maximum(ends - 1.0, starts)]).ravel()
    return np.asarray(np.interp(shares * (ends[-1] - 1.0), positions, np.repeat(column[order], 2)))


def bin_numbers(column: Array, cuts: Array, bins: int) -> Ints:
    """Return how many of the ascending `cuts` are below each value, in the smallest type."""
    kind = np.min_scalar_type(bins)
    if cuts.size > _SCAN_CUTS:
        return np.searchsorted(cuts, column).astype(kind)
    values = np.ascontiguousarray(column)
    found = np.zeros(values.size, dtype=kind)
    for cut in cuts:
        found += values > cut
    return found


def midpoints(low: Array, high: Array) -> Array:
    """Return the middle between values, always below the higher one."""
    middle = low + 0.5 * (high - low)
    return np.where(middle < high, middle, low)


def accumulate(grams: Array) -> None:
    """Turn matrices (t, b, m, m) into running sums over b, in place.

    A loop over the few b is several times faster than `numpy.cumsum`, which walks against memory.
    """
    for step in range(1, grams.shape[1]):
        grams[:, step] += grams[:, step - 1]


class RowCandidates:
    """All positions between the sorted rows of a node.

    Parameters
    ----------
    design
        The rows.
    x
        Feature values, shape (n, f).
    order
        Rows of the node sorted by each feature, shape (f, n_node).
    min_leaf
        Rows that each side needs; with weights, what the weights of its rows must add up to.
    codes
        Bin numbers (f, n) and `thresholds`, where only the edges of bins are allowed; `x` then
        only orders them.
    """

    def __init__(
        self,
        design: Design,
        x: Array,
        order: Ints,
        min_leaf: int,
        codes: Ints | None = None,
        thresholds: list[Array] | None = None,
    ) -> None:
        self._design = design
        self._order = order
        self._min_leaf = min_leaf
        self._mass: Array | None = None
        if design.weights is not None:
            # how many rows a position has to its left depends on the feature
            self._mass = np.cumsum(design.weights[order], axis=1)
        self._low = 1 if self._mass is not None else min_leaf
        self._high = order.shape[1] - self._low
        self._thresholds = thresholds
        features = np.arange(order.shape[0])[:, None]
        self._values = x.T[features, order] if codes is None else codes[features, order]

    def grid(self) -> tuple[Points, int]:
        """See `Candidates`."""
        m = self._design.rows.shape[1]
        span = self._high - self._low
        spread = self._values[:, self._low - 1] < self._values[:, self._high]
        features = np.flatnonzero(spread)
        if span < 0 or features.size == 0:
            empty = np.empty(0, dtype=np.int64)
            return Points(empty, empty, np.empty((0, m, m))), 1
        width = 1
        while width * _GRID < span:
            width *= FAN
        steps = -(-span // width)
        position = np.minimum(self._low + width * np.arange(steps + 1), self._high)
        grams = np.empty((features.size, steps + 1, m, m))
        index = np.full((features.size, steps * width), self._design.size, dtype=np.int64)
        index[:, :span] = self._order[features, self._low : self._high]
        at_once = max(1, _GRID_DOUBLES // (m * max(self._low, steps * width)))
        for first in range(0, features.size, at_once):
            some = slice(first, first + at_once)
            head = self._rows(self._order[features[some], : self._low])
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
        """See `Candidates`."""
        step = width // FAN
        m = left.shape[-1]
        place = start[:, None] + np.arange((FAN - 1) * step)
        index = np.where(
            place < stop[:, None],
            self._order[feature[:, None], np.minimum(place, self._order.shape[1] - 1)],
            self._design.size,
        )
        blocks = self._rows(index).reshape(-1, step, m)
        grams = np.matmul(blocks.transpose(0, 2, 1), blocks).reshape(-1, FAN - 1, m, m)
        grams[:, 0] += left
        accumulate(grams)
        inner = start[:, None] + step * np.arange(1, FAN)
        return np.minimum(inner, stop[:, None]), grams

    def valid(self, feature: Ints, position: Ints) -> Bools:
        """See `Candidates`."""
        differ = self._values[feature, position - 1] < self._values[feature, position]
        if self._mass is not None:
            total = self._mass[feature, -1]
            left = self._mass[feature, position - 1]
            least = self._min_leaf - _ROUNDING * total
            differ = differ & (left >= least) & (total - left >= least)
        return np.asarray(differ, dtype=np.bool_)

    def worth(self, feature: Ints, start: Ints, stop: Ints) -> Bools:
        """See `Candidates`."""
        return np.asarray(
            self._values[feature, start] < self._values[feature, stop - 1], dtype=np.bool_
        )

    def threshold(self, feature: int, position: int) -> float:
        """See `Candidates`."""
        below, above = self._values[feature, position - 1], self._values[feature, position]
        if self._thresholds is not None:
            return float(self._thresholds[feature][int(below)])
        return float(midpoints(np.array([below]), np.array([above]))[0])


def make_histogram(design: Design, codes: Ints, index: Ints, bins: int) -> Array:
    """Sum the Gram matrices of the rows `index` up to each bin, shape (f, bins, m, m).

    Of a node less those of one child they are those of the other.

    `codes` are bin numbers, shape (f, n), of a type that numpy sorts by radix (at most 16 bit).
    """
    m = design.rows.shape[1]
    prefix = np.zeros((codes.shape[0], bins, m, m))
    block = np.empty((index.size, m))
    for feature in range(codes.shape[0]):
        code = codes[feature, index]
        order = index[np.argsort(code, kind="stable")]
        np.take(design.rows, order, axis=0, out=block, mode="clip")
        edges = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=bins))])
        bounds = edges.tolist()
        for target, start, stop in zip(prefix[feature], bounds[:-1], bounds[1:], strict=True):
            if stop > start:
                part = block[start:stop]
                np.dot(part.T, part, out=target)
    accumulate(prefix)
    return prefix


class BinCandidates:
    """The thresholds of a histogram that leave both sides enough rows.

    A position is the number of a usable threshold of its feature, so all positions are valid.
    """

    def __init__(
        self, histogram: Array, thresholds: list[Array], min_leaf: int, *, whole: bool = True
    ) -> None:
        self._prefix = histogram
        self._thresholds = thresholds
        below = self._prefix[:, :, 0, 0]
        if whole:
            # Counts of a subtracted histogram are whole numbers again only after rounding.
            below = np.rint(below)
        above = below[:, -1:] - below
        exists = np.arange(below.shape[1]) < np.array([cuts.size for cuts in thresholds])[:, None]
        rounding = _ROUNDING * float(below[:, -1].max(initial=0.0))
        fresh = np.diff(below, prepend=-1.0) > rounding  # an empty bin repeats the split before it
        least = min_leaf - rounding
        feature, bin_ = np.nonzero(exists & fresh & (below >= least) & (above >= least))
        count = np.bincount(feature, minlength=len(thresholds))
        position = np.arange(feature.size) - np.repeat(np.cumsum(count) - count, count)
        self._last = count - 1
        self._bins = np.zeros((len(thresholds), max(int(count.max(initial=0)), 1)), dtype=np.int64)
        self._bins[feature, position] = bin_

    def grid(self) -> tuple[Points, int]:
        """See `Candidates`."""
        most = int(self._last.max(initial=-1)) + 1
        width = 1
        while width * _GRID < most:
            width *= FAN
        feature, position = [], []
        for number, last in enumerate(self._last):
            if last >= 0:
                at = np.append(np.arange(0, last, width), last)
                feature.append(np.full(at.size, number))
                position.append(at)
        if not feature:
            empty = np.empty(0, dtype=np.int64)
            return Points(empty, empty, self._prefix[0, :0]), 1
        features, positions = np.concatenate(feature), np.concatenate(position)
        return Points(features, positions, self._grams(features, positions)), width

    def _grams(self, feature: Ints, position: Ints) -> Array:
        grams: Array = self._prefix[feature, self._bins[feature, position]]
        return grams

    def inside(
        self, feature: Ints, start: Ints, stop: Ints, left: Array, width: int
    ) -> tuple[Ints, Array]:
        """See `Candidates`."""
        inner = start[:, None] + (width // FAN) * np.arange(1, FAN)
        inner = np.minimum(inner, stop[:, None])
        return inner, self._grams(np.repeat(feature, FAN - 1), inner.ravel()).reshape(
            *inner.shape, *left.shape[1:]
        )

    def valid(self, feature: Ints, position: Ints) -> Bools:
        """See `Candidates`."""
        return np.ones(np.broadcast(feature, position).shape, dtype=np.bool_)

    def worth(self, feature: Ints, start: Ints, stop: Ints) -> Bools:
        """See `Candidates`."""
        return np.asarray(stop - start > 1, dtype=np.bool_)

    def threshold(self, feature: int, position: int) -> float:
        """See `Candidates`."""
        return float(self._thresholds[feature][self._bins[feature, position]])
