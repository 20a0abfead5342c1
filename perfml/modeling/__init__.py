"""Modeling: which metrics explain the time, how well, and whether that can be trusted.

`evaluate` scores models under several protocols, `rank` orders the metrics with intervals. Both
take a Layers table and return tidy frames.
"""

from __future__ import annotations

from typing import Any

from perfml._lazy import resolve

_HOMES = {
    "evaluate": "_evaluate",
    "rank": "_rank",
    "Evaluation": "results",
    "Ranking": "results",
    "Leakage": "leakage",
    "detect_leakage": "leakage",
    "build_problem": "features",
    "build_design": "features",
    "make_estimator": "estimators",
    "make_protocol": "protocols",
    "RepeatedRandomSplit": "protocols",
    "LeaveOneLayerOut": "protocols",
    "LeaveOneConditionOut": "protocols",
    "ByRun": "protocols",
    "NoTwin": "protocols",
    "LeaveOneShapeOut": "protocols",
    "with_shapes": "shapes",
    "shapes_of_runs": "shapes",
    "average_repeats": "shapes",
    "compare_rankings": "compare",
    "rank_both_weights": "weights",
    "smallest_sufficient_set": "select",
    "plan": "planning",
    "Plan": "planning",
    "LinearModelTreeClassifier": "linear_model_tree",
    "LinearModelTreeRegressor": "linear_model_tree",
    "linear_tree_regressor": "_sklearn_compat",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: scikit-learn takes a second to import."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
