"""Models that the studies put beside those of perfml's registry, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from perfml.modeling import LinearModelTreeRegressor
from perfml.modeling.models.registry import get_model

_MOST_ROWS = 1000
"""Rows that a Gaussian process learns from at most; 5,000 would take 125 times as long."""


def named(names: Iterable[str]) -> dict[str, Any]:
    """Return what `perfml.modeling.evaluate` takes as models."""
    return {name: _MADE[name](None) if name in _MADE else name for name in names}


def make(name: str, seed: int) -> Any:
    """Return an unfitted regression model of this module or of perfml's registry."""
    return _MADE[name](seed) if name in _MADE else get_model(name, "regression").make(seed)


def _logs(values: np.ndarray) -> np.ndarray:
    """Return logarithms, with 0.001 added so that 0 stays finite: a time is a product."""
    return np.log(np.maximum(values, 0.0) + 1e-3)


class _SampledProcess(GaussianProcessRegressor):
    def fit(self, X: np.ndarray, y: np.ndarray) -> _SampledProcess:
        if len(X) > _MOST_ROWS:
            rows = np.random.default_rng(self.random_state).choice(len(X), _MOST_ROWS, False)
            X, y = X[rows], y[rows]
        return super().fit(X, y)


def _gaussian_process(seed: int | None) -> Any:
    noise = WhiteKernel(1e-2, (1e-6, 1.0))
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(10.0, (1.0, 1e3)) + noise
    process = _SampledProcess(kernel, normalize_y=True, random_state=seed)
    return make_pipeline(FunctionTransformer(_logs), StandardScaler(), process)


def _power_law(seed: int | None) -> Any:
    ridge = RidgeCV(np.logspace(-3, 3, 13))
    return make_pipeline(FunctionTransformer(_logs), StandardScaler(), ridge)


def _lightgbm(seed: int | None) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        objective="l1",
        n_estimators=200,
        learning_rate=0.08,
        num_leaves=31,
        min_child_samples=8,
        colsample_bytree=0.4,
        subsample=0.8,
        subsample_freq=1,
        reg_lambda=1.0,
        n_jobs=1,
        verbose=-1,
        random_state=seed,
    )


_MADE = {
    "gp": _gaussian_process,
    "power-law": _power_law,
    "lgbm": _lightgbm,
    "lmt:log": lambda seed: make_pipeline(FunctionTransformer(_logs), LinearModelTreeRegressor()),
}
