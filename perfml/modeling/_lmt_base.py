"""What the regression and the classification tree share: parameters, growth, pruning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted, validate_data

from perfml.errors import PerfmlError
from perfml.modeling._lmt_gram import Array, Design, Ints, make_design
from perfml.modeling._lmt_model import FittedTree, Scale, bare, importances, smooth
from perfml.modeling._lmt_prune import Prune, prune_by_criterion, prune_by_cv
from perfml.modeling._lmt_tree import Grower, GrowthRules, MaxBins, Node

_UNLIMITED = 10**9
# A split must save this share of the variance, or rounding alone could grow a tree.
_MIN_GAIN = 1e-10


class ParameterError(PerfmlError, ValueError):
    """A parameter of an estimator has a value outside its range."""


class LinearModelTree(BaseEstimator):  # type: ignore[misc]
    """Grows and prunes; the estimators add what they predict."""

    max_depth: int | None
    min_samples_leaf: int | float
    min_samples_split: int
    max_bins: MaxBins
    alpha: float
    min_gain: float
    prune: Prune
    cv: int
    split_features: ArrayLike | None
    linear_features: ArrayLike | None
    random_state: int | None
    tree_: FittedTree
    feature_importances_: Array
    n_features_in_: int

    def _check_parameters(self) -> None:
        leaf = self.min_samples_leaf
        share = isinstance(leaf, float) and 0 < leaf <= 0.5
        count = isinstance(leaf, int | np.integer) and leaf >= 1
        bins = self.max_bins
        bin_count = isinstance(bins, int | np.integer) and 1 <= bins <= 65_000
        rules = {
            "max_depth": (
                self.max_depth is None or self.max_depth >= 0,
                "None or an integer from 0",
            ),
            "min_samples_leaf": (share or count, "an integer from 1, or a fraction in (0, 0.5]"),
            "min_samples_split": (self.min_samples_split >= 2, "an integer from 2"),
            "max_bins": (
                bins is None or bins == "linear-tree" or bin_count,
                'None, "linear-tree" or an integer from 1 to 65000',
            ),
            "alpha": (0 <= self.alpha < math.inf, "a finite number from 0"),
            "min_gain": (0 <= self.min_gain < 1, "a number in [0, 1)"),
            "prune": (self.prune in (None, "bic", "aic", "cv"), 'None, "bic", "aic" or "cv"'),
            "cv": (self.cv >= 2, "an integer from 2"),
        }
        for name, (right, wanted) in rules.items():
            if not right:
                what = "the parameter is out of range"
                raise ParameterError(
                    what, where=name, found=repr(getattr(self, name)), cure=f"Give {wanted}."
                )

    def _columns(self, name: str, n_features: int) -> Ints:
        chosen = getattr(self, name)
        if chosen is None:
            return np.arange(n_features)
        columns = np.unique(np.atleast_1d(np.asarray(chosen)))
        whole = np.issubdtype(columns.dtype, np.integer)
        if not whole or columns.size == 0 or columns[0] < 0 or columns[-1] >= n_features:
            what = "the columns do not exist"
            cure = f"Give column numbers from 0 to {n_features - 1}."
            raise ParameterError(what, where=name, found=repr(chosen), cure=cure)
        return columns.astype(np.int64)

    def _fit_tree(self, x: Array, targets: Array) -> None:
        """Grow and prune the tree, and see which features explain; targets have shape (n, k)."""
        self._check_parameters()
        n, n_features = x.shape
        split_columns = self._columns("split_features", n_features)
        linear_columns = self._columns("linear_features", n_features)
        x_scale, y_scale = Scale.of(x[:, linear_columns]), Scale.of(targets)
        design = make_design(
            x_scale.apply(x[:, linear_columns]), y_scale.apply(targets), self.alpha
        )
        leaf = self.min_samples_leaf
        min_leaf = math.ceil(leaf * n) if isinstance(leaf, float) else int(leaf)
        rules = GrowthRules(
            _UNLIMITED if self.max_depth is None else int(self.max_depth),
            max(min_leaf, 1),
            int(self.min_samples_split),
            max(self.min_gain, _MIN_GAIN) * n * targets.shape[1],
        )
        grower = Grower(design, x[:, split_columns], rules, self.max_bins)
        nodes = self._prune(grower, grower.grow(), design)
        self.tree_ = self._fitted(nodes, design, split_columns, linear_columns, x_scale, y_scale)
        self.feature_importances_ = importances(
            nodes, design, split_columns, linear_columns, n_features
        )

    def _prune(self, grower: Grower, nodes: list[Node], design: Design) -> list[Node]:
        if len(nodes) == 1 or self.prune is None:
            return nodes
        if self.prune != "cv":
            return prune_by_criterion(nodes, design, self.prune)
        folds = KFold(min(self.cv, design.size), shuffle=True, random_state=self.random_state)
        pairs = [(train, test) for train, test in folds.split(grower.x)]
        return prune_by_cv(nodes, design, grower.x, grower.grow, pairs)

    def _fitted(
        self,
        nodes: list[Node],
        design: Design,
        split_columns: Ints,
        linear_columns: Ints,
        x_scale: Scale,
        y_scale: Scale,
    ) -> FittedTree:
        p = design.n_linear
        total = np.stack([node.total for node in nodes])
        means = total[:, 0, 1:] / total[:, :1, 0]
        low, high = self._bounds(nodes)
        intercept, coef = smooth(nodes, self._smoothing_weight())
        return FittedTree(
            nodes=bare(nodes),
            split_columns=split_columns,
            linear_columns=linear_columns,
            x_scale=x_scale,
            y_scale=y_scale,
            mean_x=means[:, :p],
            mean_y=means[:, p:],
            intercept=intercept,
            coef=coef,
            low=low,
            high=high,
        )

    def _smoothing_weight(self) -> float:
        """Return the rows that a parent weighs in the model of a child: none."""
        return 0.0

    def _bounds(self, nodes: list[Node]) -> tuple[Array, Array]:
        """Return the standardised bounds of the predictions of each node: none."""
        low = np.stack([node.low for node in nodes])
        return np.full_like(low, -np.inf), np.full_like(low, np.inf)

    def _rows(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        rows: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return rows

    def apply(self, X: ArrayLike) -> Ints:
        """Return the number of the leaf of each row, shape (n,)."""
        x = self._rows(X)
        return self.tree_.apply(x)

    def get_depth(self) -> int:
        """Return the number of splits above the deepest leaf."""
        check_is_fitted(self)
        return max(node.depth for node in self.tree_.nodes)

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return int(self.tree_.leaves.size)

    def _names(self, feature_names: list[str] | None) -> list[str]:
        check_is_fitted(self)
        if feature_names is None:
            seen: Any = getattr(self, "feature_names_in_", None)
            if seen is not None:
                return [str(name) for name in seen]
            return [f"x{column}" for column in range(self.n_features_in_)]
        if len(feature_names) != self.n_features_in_:
            what = "there must be one name a feature"
            raise ParameterError(
                what,
                where="feature_names",
                found=f"{len(feature_names)} names",
                cure=f"Give {self.n_features_in_} names.",
            )
        return [str(name) for name in feature_names]
