"""A Gaussian process that learns from a sample where a table is too long for its cubic cost."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.gaussian_process import GaussianProcessRegressor

MOST_ROWS = 1000
"""Rows that are learned from at most; 5,000 would take 125 times as long."""


class SampledGaussianProcess(GaussianProcessRegressor):  # type: ignore[misc]
    """scikit-learn's Gaussian process, fitted to at most `MOST_ROWS` rows drawn by its seed."""

    def fit(self, X: npt.NDArray[np.float64], y: npt.NDArray[Any]) -> Self:
        """Fit to features, shape (n, f), and targets, shape (n,)."""
        if len(X) > MOST_ROWS:
            seed = self.random_state if isinstance(self.random_state, int) else 0
            rows = np.random.default_rng(seed).choice(len(X), MOST_ROWS, replace=False)
            X, y = X[rows], y[rows]
        super().fit(X, y)
        return self
