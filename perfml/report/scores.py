"""Which model is best, on the hardest protocol there is, and what the baselines reach."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from perfml.report.labels import is_random

if TYPE_CHECKING:
    from perfml.modeling.results import Evaluation


def best_scores(evaluation: Evaluation) -> dict[str, tuple[pd.Series, pd.Series | None]]:
    """Return each protocol's row of the best model, and of the best baseline (or None).

    The best model is chosen once, on the hardest protocol there is: of those that hold out whole
    layers (or more) the one on which even the best model is worst. The same model is shown under
    every protocol, the hardest first.
    """
    scores = evaluation.scores
    if scores.empty:
        return {}
    scores = scores[scores["mean"].notna()]
    baseline = scores["baseline"].astype(bool)
    models, baselines = scores[~baseline], scores[baseline]
    names = list(dict.fromkeys(scores["protocol"]))
    best = {name: _best(part) for name, part in models.groupby("protocol", sort=False)}
    if not best:
        return {}
    up = higher_is_better(scores["score"].iloc[0])
    # of those that are not random, the worst score of a best model
    names.sort(key=lambda name: (is_random(name), _hardness(best.get(name), up)))
    chosen = best[next(name for name in names if name in best)]["model"]
    rows: dict[str, tuple[pd.Series, pd.Series | None]] = {}
    for name in names:
        mine = models[(models["protocol"] == name) & (models["model"] == chosen)]
        simple = baselines[baselines["protocol"] == name]
        if len(mine):
            rows[str(name)] = (mine.iloc[0], _best(simple) if len(simple) else None)
    return rows


def higher_is_better(score: object) -> bool:
    """Return whether a larger score is the better one (accuracy), or a smaller one (an error)."""
    return str(score) == "accuracy"


def _hardness(best: pd.Series | None, up: bool) -> float:
    if best is None:
        return math.inf
    return float(best["mean"]) if up else -float(best["mean"])


def _best(rows: pd.DataFrame) -> pd.Series:
    up = higher_is_better(rows["score"].iloc[0])
    return rows.sort_values("mean", ascending=not up, kind="stable").iloc[0]
