"""Linear model trees: decision trees with a ridge or logistic regression in each leaf."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from perfml.modeling import _lmt_show
from perfml.modeling._lmt_base import LinearModelTree, ParameterError
from perfml.modeling._lmt_classifier import LinearModelTreeClassifier
from perfml.modeling._lmt_gram import Array
from perfml.modeling._lmt_prune import Prune
from perfml.modeling._lmt_tree import MaxBins, Node

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["LinearModelTreeClassifier", "LinearModelTreeRegressor", "ParameterError"]


class LinearModelTreeRegressor(RegressorMixin, LinearModelTree):  # type: ignore[misc]
    """A decision tree with a ridge regression in each leaf, split exactly.

    Each split is the one that leaves the lowest sum of the ridge objectives of its two sides,
    over all features and all thresholds (or over quantiles, see `max_bins`). Features and target
    are standardised on all rows first, so neither their units nor their offsets change the tree
    or its predictions.

    Parameters
    ----------
    max_depth
        Splits above a leaf at most; None for no limit.
    min_samples_leaf
        Rows that a leaf needs, as a number or as a fraction of all rows (rounded up).
    min_samples_split
        Rows that a node needs to be split.
    max_bins
        None tries every threshold between two different values. A number tries that many
        quantiles of each feature. ``"linear-tree"`` tries the thresholds that linear-tree 0.3.5
        tries by default.
    alpha
        Ridge penalty on the slopes of a leaf, in rows: a leaf of n rows spread as widely as all
        the data shrinks a slope by ``n / (n + alpha)``. 0 is least squares, with just enough
        penalty (1e-10 of the rows) that a collinear leaf has one solution.
    min_gain
        Share of the variance of the target that a split must explain at least.
    prune
        ``"bic"`` or ``"aic"`` prune by information criterion, ``"cv"`` by cross-validation over
        the price of a degree of freedom, None keeps the tree as grown.
    cv
        Folds of ``prune="cv"``.
    smoothing
        Rows that the model of a parent weighs against the model of a child; 0 is no smoothing,
        15 is the value of M5.
    clip
        Keep the prediction of a leaf inside the range of the training targets of that leaf,
        widened by `clip_margin` times that range on both sides. A slope fitted on a narrow leaf
        otherwise extrapolates without limit.
    clip_margin
        See `clip`.
    split_features, linear_features
        Columns that may be split, and that enter the leaf models; None for all.
    random_state
        Seed of the folds of ``prune="cv"``; nothing else is random.

    Attributes
    ----------
    tree_ : FittedTree
        The nodes, in standardised units.
    feature_importances_ : ndarray of shape (n_features,)
        Shares of the explained variance of the training target, by splits and by slopes; they
        add up to one (all zero where nothing is explained). See `importances` in
        ``_lmt_model.py`` for the rule.
    leaves_ : ndarray of shape (n_leaves,)
        Numbers of the leaves, left to right.
    intercept_ : ndarray of shape (n_leaves,)
        Intercepts of the leaf equations, in the units of the data.
    coef_ : ndarray of shape (n_leaves, n_linear_features)
        Slopes of the leaf equations, in the units of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    The default of `alpha` was chosen on random splits of the published file (16 metrics that
    vary, 261 rows, a quarter held out), so scores on that file are slightly optimistic. Over 30
    splits every `alpha` from 0.001 to 10 has a median test MAPE of 0.0074 to 0.0079, but 0.01 had
    one split at 0.033; over 100 splits ``alpha=0`` has 0.0091, and 0.026 at worst.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 201)[:, None]
    >>> model = LinearModelTreeRegressor(alpha=0).fit(x, 3 + 2 * np.abs(x[:, 0]))
    >>> print(model.export_text(feature_names=["speed"], target="time", digits=3), end="")
    |--- speed <= -0.005
    |   |--- leaf 1, 100 rows: time = 3 - 2 speed
    |--- speed > -0.005
    |   |--- leaf 2, 101 rows: time = 3 + 2 speed
    """

    def __init__(
        self,
        *,
        max_depth: int | None = 5,
        min_samples_leaf: int | float = 0.05,
        min_samples_split: int = 6,
        max_bins: MaxBins = None,
        alpha: float = 0.1,
        min_gain: float = 0.0,
        prune: Prune = "bic",
        cv: int = 5,
        smoothing: float = 0.0,
        clip: bool = True,
        clip_margin: float = 0.1,
        split_features: ArrayLike | None = None,
        linear_features: ArrayLike | None = None,
        random_state: int | None = None,
    ) -> None:
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.min_samples_split = min_samples_split
        self.max_bins = max_bins
        self.alpha = alpha
        self.min_gain = min_gain
        self.prune = prune
        self.cv = cv
        self.smoothing = smoothing
        self.clip = clip
        self.clip_margin = clip_margin
        self.split_features = split_features
        self.linear_features = linear_features
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Grow and prune the tree.

        Parameters
        ----------
        X
            Features, shape (n, f); finite.
        y
            Target, shape (n,).

        Returns
        -------
        Self

        Raises
        ------
        ParameterError
            If a parameter is out of range (a `ValueError` as well).
        """
        x, target = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2
        )
        target = np.asarray(target, dtype=np.float64)[:, None]
        self._fit_tree(x, target)
        self.leaves_ = self.tree_.leaves
        intercept, coef = self.tree_.equations()
        self.intercept_ = intercept[self.leaves_, 0]
        self.coef_ = coef[self.leaves_, :, 0]
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("smoothing", "clip_margin"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                what, cure = "the parameter is out of range", "Give a finite number from 0."
                raise ParameterError(what, where=name, found=repr(value), cure=cure)

    def _smoothing_weight(self) -> float:
        return self.smoothing

    def _bounds(self, nodes: list[Node]) -> tuple[Array, Array]:
        """Return the standardised bounds of the predictions of each node."""
        if not self.clip:
            return super()._bounds(nodes)
        low = np.stack([node.low for node in nodes])
        high = np.stack([node.high for node in nodes])
        margin = self.clip_margin * (high - low)
        return low - margin, high + margin

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target of each row, shape (n,)."""
        x = self._rows(X)
        return np.asarray(self.tree_.predict(x)[:, 0])

    def decompose(self, X: ArrayLike) -> pd.DataFrame:
        """Decompose each prediction into terms that add up to it.

        The terms, in the units of the target: ``base``, the mean of the training target;
        ``split:f``, by which the means of the nodes change along the path where feature f
        decides it; ``slope:f``, the slope of the leaf times the distance of f from its mean in
        the leaf; ``smoothing``, by which smoothing moves the leaf; ``clip``, by which clipping
        moves the prediction.

        Returns
        -------
        pandas.DataFrame
            One row a row of `X`, one column a term. Rows add up to `predict` but for rounding.
        """
        import pandas as pd

        x = self._rows(X)
        labels, values = _lmt_show.terms(self.tree_, x, self._names(None))
        return pd.DataFrame(values, columns=labels, index=getattr(X, "index", None))

    def export_text(
        self,
        feature_names: list[str] | None = None,
        *,
        target: str = "y",
        max_terms: int = 20,
        digits: int = 4,
    ) -> str:
        """Write the tree and its leaf equations, in the units of the data.

        Parameters
        ----------
        feature_names
            Names of all columns of X; by default those seen in `fit`.
        target
            Name of the target in the equations.
        max_terms
            Terms of an equation that are written; the largest (slope times spread) come first.
        digits
            Significant digits.
        """
        names = self._names(feature_names)
        labels = _lmt_show.leaf_equations(self.tree_, names, target, max_terms, digits)
        return _lmt_show.as_text(self.tree_, names, labels, digits)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        feature_names: list[str] | None = None,
        target: str = "y",
        max_terms: int = 4,
        digits: int = 3,
    ) -> Axes:
        """Draw the tree with its leaf equations; the parameters are those of `export_text`.

        Parameters
        ----------
        ax
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn on.
        """
        names = self._names(feature_names)
        labels = _lmt_show.leaf_equations(self.tree_, names, target, max_terms, digits)
        return _lmt_show.draw(self.tree_, names, labels, digits, ax)
