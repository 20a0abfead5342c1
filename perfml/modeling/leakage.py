"""Tell learning from looking up.

Repeats of a few conditions make a random split easy: the test rows are near-copies of training
rows. The numbers here say how far that goes, and `Leakage.warning` says it in a sentence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from perfml.modeling._folds import fit, predict, prepare, score
from perfml.modeling._parallel import quietly
from perfml.modeling.baselines import Lookup, best_metric, predict_baseline
from perfml.modeling.estimators import get_model
from perfml.modeling.features import Problem
from perfml.modeling.protocols import RepeatedRandomSplit, twin_codes
from perfml.modeling.targets import Target

PROBE_SPLITS = 20
"""Random splits that the detector looks at."""

AS_GOOD = 1.25
"""A lookup matches the models if its MAPE is at most this times that of the best of them.

The three models of the study differ by as much among themselves on the published file."""


@dataclass(frozen=True)
class Leakage:
    """What a random split of a dataset can and cannot show.

    Attributes
    ----------
    rows, conditions
        How many; rows of one condition (workload, backend, precision, batch, layer) are repeats.
    distinct_feature_rows
        How many different feature vectors there are.
    twin_share
        Mean share of test rows, in a random 70/30 split, with an exact copy of their features
        among the training rows.
    variance_explained
        Share of the variance of time that the means of the conditions explain (R2, in sample).
    lookup_metric
        The metric that a lookup table was built on in most splits.
    lookup_score
        Median score of that baseline on random splits: MAPE or accuracy.
    model_score
        Median score of the best model (or of a decision tree, where no model was scored).
    identifying_metrics
        Metrics whose every value occurs in one condition only: each alone names the condition.
    warning
        A sentence where a lookup does as well as the models; else None.
    """

    rows: int
    conditions: int
    distinct_feature_rows: int
    twin_share: float
    variance_explained: float
    lookup_metric: str
    lookup_score: float
    model_score: float
    identifying_metrics: tuple[str, ...]
    warning: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "identifying_metrics": list(self.identifying_metrics)}


def detect_leakage(
    problem: Problem,
    *,
    seed: int = 0,
    model_scores: dict[str, float] | None = None,
    lookup_score: float | None = None,
) -> Leakage:
    """Look for signs that a random split measures lookup, not prediction.

    Parameters
    ----------
    problem
        What is modelled.
    seed
        Seed of the probing splits.
    model_scores
        Median score of each model on random splits; without it a decision tree is fitted.
    lookup_score
        Median score of the lookup on the same splits as `model_scores`.
    """
    splits = list(RepeatedRandomSplit(PROBE_SPLITS, random_state=seed).split(problem.design.values))
    twins = twin_codes(problem.design.values)
    shares, lookups, metrics = [], [], []
    for train, test in splits:
        shares.append(float(np.isin(twins[test], twins[train]).mean()))
        column = best_metric(problem.design.values[train], problem.truth[train], problem.task)
        metrics.append(problem.design.names[column])
        guess = predict_baseline(f"lookup:{metrics[-1]}", problem, train, test)
        lookups.append(score(problem.task, problem.truth[test], guess))
    if not model_scores or lookup_score is None:
        model_scores = {"dt": quietly(_probe, (problem, splits))}
        lookup_score = None
    lookup = float(np.median(lookups)) if lookup_score is None else lookup_score
    # among equals the metric that comes first in the table's order is named
    usual = Counter(metrics).most_common(1)[0][0]
    pick = min if problem.task == "regression" else max
    best = pick(model_scores, key=lambda name: model_scores[name])
    return Leakage(
        rows=problem.rows,
        conditions=int(problem.condition.max()) + 1,
        distinct_feature_rows=int(twins.max()) + 1,
        twin_share=float(np.mean(shares)),
        variance_explained=_explained(problem),
        lookup_metric=usual,
        lookup_score=lookup,
        model_score=model_scores[best],
        identifying_metrics=_identifying(problem),
        warning=_warning(problem, usual, lookup, best, model_scores[best]),
    )


def _probe(task: tuple[Problem, list[Any]]) -> float:
    problem, splits = task
    model, target = get_model("dt", problem.task), Target("time")
    found = []
    for seed, (train, test) in enumerate(splits):
        prepared = prepare(problem, train, test)
        fitted = fit(model, problem, target, prepared.train, train, seed)
        guess = predict(fitted, problem, target, prepared.test, test)
        found.append(score(problem.task, problem.truth[test], guess))
    return float(np.median(found))


def _explained(problem: Problem) -> float:
    time, codes = problem.time_us, problem.condition
    count = np.bincount(codes)
    means = np.bincount(codes, weights=time) / count
    total = float(((time - time.mean()) ** 2).sum())
    if total == 0:
        return 0.0
    return 1.0 - float(((time - means[codes]) ** 2).sum()) / total


def _identifying(problem: Problem) -> tuple[str, ...]:
    found = []
    for column, name in enumerate(problem.design.names):
        values = problem.design.values[:, column]
        table = Lookup.fit(values, problem.condition, "classification")
        # a metric with as many values as rows would name every row, not its condition
        repeated = len(table.keys) < problem.rows / 2
        if repeated and bool(np.all(table.predict(values) == problem.condition)):
            found.append(name)
    return tuple(found)


def _warning(problem: Problem, metric: str, lookup: float, model: str, best: float) -> str | None:
    conditions = int(problem.condition.max()) + 1
    if problem.task == "regression":
        if lookup > best * AS_GOOD:
            return None
        scores = f"median MAPE {lookup:.4f} against {best:.4f} of {model}"
    else:
        if lookup < best - 0.01:
            return None
        scores = f"median accuracy {lookup:.3f} against {best:.3f} of {model}"
    return (
        f"On random splits a lookup table on {metric} alone does about as well as the models "
        f"({scores}): the {problem.rows} rows are repeats of {conditions} conditions, so such "
        "scores show recognition of a condition, not understanding of its time."
    )
