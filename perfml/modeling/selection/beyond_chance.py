"""A selector for scikit-learn: keep the features that go with the target beyond chance."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from perfml.modeling.ranking.association import PERMUTATIONS, against_chance
from perfml.modeling.results import LEVEL


class SelectBeyondChance(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep features whose p-value, corrected for all of them, is at most `level`.

    One permutation test of monotone effects, steps, U-shapes and pairs, see
    `perfml.modeling.ranking.association`. Undefined cells (NaN) are allowed.

    Parameters
    ----------
    level
        Largest p-value of a feature that is kept.
    permutations
        How often targets are exchanged.
    random_state
        Seed of the permutations.

    Attributes
    ----------
    pvalues_ : ndarray of shape (n_features,)
    chance_ : perfml.modeling.results.Chance
        The test of all features, with the power of such a table.

    Examples
    --------
    >>> import numpy as np
    >>> from perfml.modeling import SelectBeyondChance
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = np.abs(X[:, 2])
    >>> SelectBeyondChance().fit(X, y).get_support(indices=True).tolist()
    [2]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "level": [Interval(Real, 0, 1, closed="both")],
        "permutations": [Interval(Integral, 1, None, closed="left")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self, level: float = LEVEL, permutations: int = PERMUTATIONS, random_state: int = 0
    ) -> None:
        self.level = level
        self.permutations = permutations
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Test the features.

        Parameters
        ----------
        X, y
            Features of shape (n, f), and numbers or labels of shape (n,).
        groups
            Label of the rows that belong together, shape (n,): they exchange targets as one.
        """
        self._validate_params()
        values, target = validate_data(
            self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_all_finite="allow-nan"
        )
        pieces = np.arange(len(values)) if groups is None else pd.factorize(np.asarray(groups))[0]
        names: npt.NDArray[Any] = np.zeros(0)
        if type_of_target(target) == "continuous":
            numbers = np.asarray(target, dtype=np.float64)
            # a logarithm where there is one, as of times
            given = np.log(numbers) if bool((numbers > 0).all()) else numbers
        else:
            check_classification_targets(target)
            names, given = np.unique(target, return_inverse=True)
        tested, self.chance_ = against_chance(
            values,
            given,
            pieces,
            np.zeros(len(values), dtype=np.int64),
            classes=len(names),
            permutations=int(self.permutations),
            seed=int(self.random_state),
        )
        self.pvalues_ = tested["p_value"].to_numpy()
        return self

    def _get_support_mask(self) -> npt.NDArray[np.bool_]:
        check_is_fitted(self)
        return np.asarray(self.pvalues_ <= self.level)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a selector that needs a target and takes undefined cells."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags
