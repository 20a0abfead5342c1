"""Modeling: which metrics explain the time, how well, and whether that can be trusted.

`evaluate` scores models under several protocols, `rank` orders the metrics with intervals. Both
take a Layers table and return tidy frames.

Here to change: a model in ``models/``, a protocol or baseline in ``scoring/``, an importance in
``ranking/``, a search for few metrics in ``selection/``; what a model sees, in ``features.py``.
"""

from __future__ import annotations

from perfml.util.lazy import lazily

_HOMES = {
    "evaluate": "scoring.evaluate",
    "rank": "ranking.rank",
    "Evaluation": "results",
    "Ranking": "results",
    "Leakage": "scoring.leakage",
    "detect_leakage": "scoring.leakage",
    "build_problem": "features",
    "build_design": "features",
    "make_estimator": "models.registry",
    "make_protocol": "scoring.protocols",
    "with_layer_facts": "layer_shapes",
    "average_copies": "layer_shapes",
    "with_shapes": "layer_shapes",
    "shapes_of_runs": "layer_shapes",
    "average_repeats": "layer_shapes",
    "SelectBeyondChance": "selection.search",
    "select_metrics": "selection.metric_set",
    "MetricSet": "selection.metric_set",
    "LinearModelTreeRegressor": "linear_model_tree.regressor",
    "linear_tree_regressor": "parallel",
}

__all__ = sorted(_HOMES)

# on first use: scikit-learn takes a second to import
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
