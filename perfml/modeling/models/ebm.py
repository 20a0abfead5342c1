"""The explainable boosting machine of the package interpret, as a yardstick (extra ``explain``)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from perfml.util.extras import missing_extra

PURPOSE = "the explainable boosting machine"

BAGS, ROUNDS = 4, 500
"""Fewer than the package's 14 bags and 50,000 rounds, which take minutes a fit.

On the fp32 rows at batch 1 of ``datasets/h200-yolov4-tiny`` (630 x 17), target log-time, four pairs
of layers held out: mean MAPE 0.158 with 500 rounds at 1.4 s a fit, 0.154 with 2,000 at 4.8 s.
"""


def require_boosting() -> None:
    """Check that the package is there, before any work starts.

    Raises
    ------
    MissingExtraError
        If interpret-core is not installed.
    """
    if find_spec("interpret") is None:
        package = "interpret-core"
        raise missing_extra(package, "explain", PURPOSE)


def make_boosting(task: str, seed: int) -> Any:
    """Return an unfitted explainable boosting machine: one curve a metric, no interactions.

    Raises
    ------
    MissingExtraError
        If interpret-core is not installed.
    """
    require_boosting()
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    kind = ExplainableBoostingRegressor if task == "regression" else ExplainableBoostingClassifier
    # one process: perfml spreads splits over the cores itself. Rounds of smoothing choose random
    # cuts at first, which so few bags do not average out
    return kind(
        interactions=0,
        outer_bags=BAGS,
        max_rounds=ROUNDS,
        smoothing_rounds=0,
        n_jobs=1,
        random_state=seed,
    )
