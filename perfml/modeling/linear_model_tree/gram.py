"""Ridge least squares from Gram matrices: the arithmetic under the linear model tree.

Every quantity that a node needs (the loss of a split, the leaf equation, its degrees of
freedom) follows from one small matrix, the Gram matrix of the rows ``[1, x, y]``. Such matrices
add up over rows, which is what makes a search over all thresholds affordable.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Smallest penalty, per training row: below it a collinear leaf has no unique solution in doubles.
MIN_PENALTY_PER_ROW = 1e-10
# Loss that no double-precision sum of squares can resolve, as a share of the total.
RESOLUTION = 1e-11

# Rows up to which trying every split at once is faster than a search.
FEW_ROWS = 64


@dataclass(frozen=True)
class Design:
    """The standardised rows that all Gram matrices are made of.

    `rows` has shape (n + 1, p + 2): intercept, p linear features, target, each row times the root
    of its weight. The last row is zero: index ``n`` pads a block of rows without changing its sums.
    `penalty` is the ridge penalty on the p standardised coefficients, in rows; `weights` say how
    many rows each row stands for, None for one each.
    """

    rows: Array
    n_linear: int
    penalty: float
    weights: Array | None = None

    @property
    def size(self) -> int:
        """Number of training rows."""
        return int(self.rows.shape[0]) - 1

    @property
    def weight(self) -> float:
        """How many rows the training rows stand for."""
        return float(self.size if self.weights is None else self.weights.sum())

    def weight_of(self, index: Ints) -> float:
        """Return how many rows some rows stand for."""
        return float(index.size if self.weights is None else self.weights[index].sum())

    def unweighted(self, index: Ints) -> tuple[Array, Array]:
        """Return the standardised features (t, p) and targets (t,) of some rows."""
        block = self.rows[index, 1:]
        if self.weights is not None:
            block = block / np.sqrt(self.weights[index])[:, None]
        return block[:, :-1], block[:, -1]

    @property
    def resolution(self) -> float:
        """Smallest difference of losses that means anything."""
        return RESOLUTION * max(self.weight, 1.0)

    def is_small(self, count: int) -> bool:
        """Return whether `count` rows are few and well conditioned enough for `prefix_losses`.

        Its factors cost as the cube of the rows, and lose as many digits as the features are larger
        than the penalty.
        """
        lost = sys.float_info.epsilon * count * self.n_linear / self.penalty
        return count <= FEW_ROWS and lost <= RESOLUTION

    @functools.cached_property
    def diagonal(self) -> Array:
        """What is added to the diagonal of a Gram matrix before it is factorised."""
        return np.array([0.0, *[self.penalty] * self.n_linear, self.resolution])


def make_design(x: Array, y: Array, alpha: float, weights: Array | None = None) -> Design:
    """Build the padded design of standardised features `x` (n, p) and target `y` (n,).

    Rows times the root of their weight make Gram matrices in which each counts by its weight, so
    that a row of weight 3 is three equal rows.
    """
    n, p = x.shape
    rows = np.zeros((n + 1, p + 2))
    rows[:n, 0] = 1.0
    rows[:n, 1:-1] = x
    rows[:n, -1] = y
    total = float(n)
    if weights is not None:
        rows[:n] *= np.sqrt(weights)[:, None]
        total = float(weights.sum())
    return Design(rows, p, max(alpha, MIN_PENALTY_PER_ROW * total), weights)


def gram(design: Design, index: Ints) -> Array:
    """Return the Gram matrix of the rows `index`."""
    block = np.take(design.rows, index, axis=0, mode="clip")
    return np.asarray(block.T @ block)


def losses(design: Design, total: Array, left: Array) -> tuple[Array, Array]:
    """Return the ridge objectives of both sides of some splits, each of shape (len(left),).

    `total` is the Gram matrix of the node, `left` those of the rows to the left of each split.

    The objective is ``min_w |y - b - x w|^2 + penalty |w|^2``. It is the Schur complement of the
    target, so one Cholesky factor of the bordered matrix gives it without solving for w
    (Golub and Van Loan, Matrix Computations, section 4.2).
    """
    count, size = left.shape[0], left.shape[-1]
    sides = np.empty((2 * count, size, size))
    sides[:count] = left
    np.subtract(total, left, out=sides[count:])
    edge = np.arange(size)
    sides[:, edge, edge] += design.diagonal
    try:
        corner = np.linalg.cholesky(sides)[:, -1, -1]
    except np.linalg.LinAlgError:
        return _losses_by_eigenvalues(design, left), _losses_by_eigenvalues(design, total - left)
    found: Array = corner * corner - design.resolution
    np.maximum(found, 0.0, out=found)
    return found[:count], found[count:]


def prefix_losses(design: Design, order: Ints) -> Array:
    """Return the ridge objective of the first 1, 2, ... rows of some orders, shape (t, n).

    `order` holds rows, shape (t, n). In its dual form the objective of some rows is
    ``penalty (y A^-1 y - (1 A^-1 y)^2 / 1 A^-1 1)`` with ``A = x x' + penalty`` (Saunders,
    Gammerman and Vovk 1998, Ridge regression learning algorithm in dual variables; the intercept
    has no penalty). A factor of A holds those of its leading blocks, so that one factorisation for
    all rows gives every objective; targets and ones, its last rows, come out divided by it.
    """
    count = order.shape[1]
    index = np.sort(order[0])
    rows = design.rows[index]
    features, ends = rows[:, 1:-1], rows[:, [-1, 0]]
    size = count + 2
    whole = np.zeros((size, size))
    whole[:count, :count] = features @ features.T
    whole[count:, :count] = ends.T
    # any corner that leaves the matrix positive definite will do
    corner = 4.0 * float(np.sum(ends**2)) / design.penalty
    diagonal = np.full(size, design.penalty)
    diagonal[count:] = corner
    whole.flat[:: size + 1] += diagonal
    place = np.empty((order.shape[0], size), dtype=np.int64)
    place[:, :count] = np.searchsorted(index, order)
    place[:, count:] = (count, count + 1)
    cells = size * place[:, :, None] + place[:, None, :]
    factor = np.linalg.cholesky(np.take(whole, cells, mode="clip"))
    target, one = factor[:, -2, :count], factor[:, -1, :count]
    explained = np.cumsum(target * one, axis=1) ** 2 / np.cumsum(one * one, axis=1)
    found: Array = design.penalty * (np.cumsum(target * target, axis=1) - explained)
    return np.maximum(found, 0.0, out=found)


def _losses_by_eigenvalues(design: Design, grams: Array) -> Array:
    """Do what `losses` does where rounding has cost a matrix its positive definiteness."""
    head = 1 + design.n_linear
    normal = grams[:, :head, :head].copy()
    normal[:, np.arange(head), np.arange(head)] += design.diagonal[:head]
    values, vectors = np.linalg.eigh(normal)
    values = np.maximum(values, design.penalty)
    rotated = np.einsum("tij,ti->tj", vectors, grams[:, :head, -1])
    explained = np.sum(rotated**2 / values, axis=1)
    return np.asarray(np.maximum(grams[:, -1, -1] - explained, 0.0))


@dataclass(frozen=True)
class RidgeFit:
    """The ridge model of one node, in standardised units: its equation, slopes of shape (p,).

    `loss` is the residual sum of squares (`rss`) plus penalty; `dof` the effective degrees of
    freedom: one for the intercept plus the trace of the ridge smoother (Hastie, Tibshirani and
    Friedman, Elements of Statistical Learning, 3.50); `values` and `vectors` the eigenvalues (p,),
    0 or more, and eigenvectors (p, p) of the centred features' sums.
    """

    intercept: float
    coef: Array
    loss: float
    rss: float
    dof: float
    values: Array
    vectors: Array


def centred(total: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return the means of x (..., p) and y and the centred sums xx (..., p, p), xy (..., p), yy.

    `total` are Gram matrices, shape (..., p + 2, p + 2).
    """
    n = total[..., :1, 0]
    mean = total[..., 0, 1:] / n
    sums = total[..., 1:, 1:] - n[..., None] * (mean[..., :, None] * mean[..., None, :])
    return mean[..., :-1], mean[..., -1], sums[..., :-1, :-1], sums[..., :-1, -1], sums[..., -1, -1]


def loss_of(design: Design, total: Array) -> float:
    """Return the ridge objective of the rows whose Gram matrix is `total`."""
    bordered = total.copy()
    bordered.flat[:: len(total) + 1] += design.diagonal
    try:
        corner = float(np.linalg.cholesky(bordered)[-1, -1])
    except np.linalg.LinAlgError:
        return float(_losses_by_eigenvalues(design, total[None])[0])
    return max(corner * corner - design.resolution, 0.0)


def fits(design: Design, totals: Array) -> list[RidgeFit]:
    """Fit the ridge models of the rows whose Gram matrices are `totals`, shape (t, m, m)."""
    mean_x, mean_y, xx, xy, yy = centred(totals)
    values, vectors = np.linalg.eigh(xx)
    values = np.maximum(values, 0.0)
    shrunk = values + design.penalty
    rotated = (xy[:, None, :] @ vectors)[:, 0]
    coef = (vectors @ (rotated / shrunk)[:, :, None])[:, :, 0]
    loss = np.maximum(yy - np.sum(rotated**2 / shrunk, axis=1), 0.0)
    rss = np.maximum(loss - design.penalty * np.sum(coef**2, axis=1), 0.0)
    dof = 1.0 + np.sum(values / shrunk, axis=1)
    intercept = mean_y - np.sum(mean_x * coef, axis=1)
    return [
        RidgeFit(float(start), slopes, float(lost), float(left), float(free), lengths, axes)
        for start, slopes, lost, left, free, lengths, axes in zip(
            intercept, coef, loss, rss, dof, values, vectors, strict=True
        )
    ]


def relative_weights(design: Design, totals: Array) -> Array:
    """Share the variance that ridge models explain among their features, shape (t, p).

    Correlated features share what they explain together: the fitted sum of squares is split over
    the orthogonal variables closest to the features and handed back by squared correlation. The
    shares are never negative and add up to the explained sum of squares (Johnson, Multivariate
    Behavioral Research 35, 2000; Genizi, Statistica Sinica 3, 1993). `totals` are the Gram matrices
    of the models' rows, shape (t, m, m).
    """
    _, _, normal, xy, _ = centred(totals)
    edge = np.arange(design.n_linear)
    normal[:, edge, edge] += design.penalty
    scale = 1.0 / np.sqrt(normal[:, edge, edge])
    values, vectors = np.linalg.eigh(normal * (scale[:, :, None] * scale[:, None, :]))
    root = np.sqrt(np.maximum(values, np.finfo(float).tiny))[:, None, :]
    back = np.swapaxes(vectors, 1, 2)
    half = (vectors * root) @ back
    orthogonal = (vectors / root) @ (back @ (xy * scale)[:, :, None])
    return np.asarray((half**2 @ orthogonal**2)[:, :, 0])
