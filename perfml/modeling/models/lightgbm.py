"""LightGBM, as a yardstick (extra ``explain``)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from perfml.util.extras import missing_extra


def require_lightgbm() -> None:
    """Check that the package is there, before any work starts.

    Raises
    ------
    MissingExtraError
        If lightgbm is not installed.
    """
    if find_spec("lightgbm") is None:
        package = "lightgbm"
        raise missing_extra(package, "explain", "the yardstick LightGBM")


def make_lightgbm(seed: int) -> Any:
    """Return an unfitted LightGBM on absolute errors, a leaf from 8 rows.

    Raises
    ------
    MissingExtraError
        If lightgbm is not installed.
    """
    require_lightgbm()
    from lightgbm import LGBMRegressor

    # one thread: perfml spreads splits over the cores itself
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
