"""Linear model tree for classes: a decision tree with a logistic regression in each leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from perfml.modeling import _lmt_show
from perfml.modeling._lmt_base import LinearModelTree, ParameterError
from perfml.modeling._lmt_gram import Array, Ints
from perfml.modeling._lmt_prune import Prune
from perfml.modeling._lmt_tree import MaxBins

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ITERATIONS = 1000


class LinearModelTreeClassifier(ClassifierMixin, LinearModelTree):  # type: ignore[misc]
    """A decision tree with a logistic regression in each leaf.

    Splits and pruning are those of `LinearModelTreeRegressor` with one 0/1 target a class, each
    standardised, and their losses added; only then are the leaves fitted with logistic
    regressions on the standardised features.

    Parameters
    ----------
    max_depth, min_samples_leaf, min_samples_split, max_bins, alpha, min_gain, prune, cv
        As for `LinearModelTreeRegressor`.
    C
        Inverse penalty of the logistic regressions, as in `sklearn.linear_model`.
    split_features, linear_features, random_state
        As for `LinearModelTreeRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    tree_ : FittedTree
        The nodes, in standardised units.
    leaf_models_ : dict of int to LogisticRegression or None
        The model of each leaf, on standardised features; None where all rows are of one class.
    feature_importances_ : ndarray of shape (n_features,)
        Shares of the explained variance of the 0/1 targets; they add up to one.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> inside = np.where(np.abs(x[:, 0]) < 0.5, "inside", "outside")
    >>> model = LinearModelTreeClassifier(max_depth=1, C=100).fit(x, inside)
    >>> float(model.score(x, inside)) > 0.98
    True
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
        C: float = 1.0,
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
        self.C = C
        self.split_features = split_features
        self.linear_features = linear_features
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Grow and prune the tree, then fit its leaves.

        Parameters
        ----------
        X
            Features, shape (n, f); finite.
        y
            Classes, shape (n,).

        Returns
        -------
        Self

        Raises
        ------
        ParameterError
            If a parameter is out of range (a `ValueError` as well).
        """
        x, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, code = np.unique(labels, return_inverse=True)
        # With two classes, one 0/1 target says it all.
        targets = code[:, None] == np.arange(max(self.classes_.size, 2))[1:]
        self._fit_tree(x, targets.astype(np.float64))
        self._fit_leaves(x, code)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.C > 0:
            what = "the parameter is out of range"
            raise ParameterError(what, where="C", found=repr(self.C), cure="Give more than 0.")

    def _fit_leaves(self, x: Array, code: Ints) -> None:
        self.leaf_models_: dict[int, Any] = {}
        self._leaf_counts: dict[int, Ints] = {}
        leaf = self.tree_.apply(x)
        z = self._standardised(x)
        for number in self.tree_.leaves.tolist():
            mine = leaf == number
            counts = np.bincount(code[mine], minlength=self.classes_.size)
            self._leaf_counts[number] = counts
            self.leaf_models_[number] = None
            if np.count_nonzero(counts) > 1:
                model = LogisticRegression(C=self.C, max_iter=_ITERATIONS)
                self.leaf_models_[number] = model.fit(z[mine], code[mine])

    def _standardised(self, x: Array) -> Array:
        return self.tree_.x_scale.apply(x[:, self.tree_.linear_columns])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each class, shape (n, n_classes)."""
        x = self._rows(X)
        z = self._standardised(x)
        leaf = self.tree_.apply(x)
        found = np.zeros((x.shape[0], self.classes_.size))
        for number in np.unique(leaf).tolist():
            mine = np.flatnonzero(leaf == number)
            model = self.leaf_models_[number]
            if model is None:
                found[mine, int(np.argmax(self._leaf_counts[number]))] = 1.0
            else:
                found[np.ix_(mine, model.classes_)] = model.predict_proba(z[mine])
        return found

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n,)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def export_text(self, feature_names: list[str] | None = None, *, digits: int = 4) -> str:
        """Write the tree with the number of rows of each class in its leaves.

        Parameters
        ----------
        feature_names
            Names of all columns of X; by default those seen in `fit`.
        digits
            Significant digits of the thresholds.
        """
        names = self._names(feature_names)
        return _lmt_show.as_text(self.tree_, names, self._leaf_labels(), digits)

    def plot(
        self, ax: Axes | None = None, *, feature_names: list[str] | None = None, digits: int = 3
    ) -> Axes:
        """Draw the tree with the number of rows of each class in its leaves.

        Parameters
        ----------
        ax
            Axes to draw on; a new figure by default.
        feature_names, digits
            As for `export_text`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn on.
        """
        names = self._names(feature_names)
        return _lmt_show.draw(self.tree_, names, self._leaf_labels(), digits, ax)

    def _leaf_labels(self) -> dict[int, str]:
        found = {}
        for number, counts in self._leaf_counts.items():
            seen = np.flatnonzero(counts)
            listed = [f"{counts[code]} {self.classes_[code]}" for code in seen]
            kind = "" if self.leaf_models_[number] is None else ", by logistic regression"
            found[number] = " + ".join(listed) + kind
        return found
