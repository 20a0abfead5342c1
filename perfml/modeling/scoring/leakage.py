"""Tell learning from looking up.

Repeats of a few conditions make a random split easy: the test rows are near-copies of training
rows. The numbers here say how far that goes, and `Leakage.warning` says it in a sentence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from perfml.modeling.features import Problem
from perfml.modeling.models.registry import title_of
from perfml.modeling.own_data import twin_codes
from perfml.modeling.parallel import quietly
from perfml.modeling.results import Leakage
from perfml.modeling.scoring.baselines import Lookup, best_metric
from perfml.modeling.scoring.folds import Work, run_split
from perfml.modeling.scoring.protocols import Split, Target, random_splits
from perfml.util.words import percent

PROBE_SPLITS = 20
"""Random splits that the detector looks at."""

AS_GOOD = 1.25
"""A lookup matches the models if its MAPE is at most this times that of the best of them.

The three models of the study differ by as much among themselves on the published file."""


def detect_leakage(
    problem: Problem,
    *,
    seed: int = 0,
    model_scores: dict[str, float] | None = None,
    baseline_scores: dict[str, float] | None = None,
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
    baseline_scores
        Median score of each baseline on the same splits as `model_scores`.
    """
    splits = random_splits(problem.rows, PROBE_SPLITS, seed=seed)
    twins = twin_codes(problem.design.values)
    shares = [float(np.isin(twins[test], twins[train]).mean()) for train, test in splits]
    metrics = [_lookup_metric(problem, train) for train, _ in splits]
    if not model_scores or not baseline_scores:
        baseline_scores = quietly(_probed, (problem, splits))[0]
        model_scores = {"dt": baseline_scores.pop("dt")}
    pick = min if problem.task == "regression" else max
    best = pick(model_scores, key=lambda name: model_scores[name])
    # among equals the metric that comes first in the table's order is named
    metric = Counter(metrics).most_common(1)[0][0]
    found = Leakage(
        rows=problem.rows,
        conditions=int(problem.condition.max()) + 1,
        distinct_feature_rows=int(twins.max()) + 1,
        twin_share=float(np.mean(shares)),
        variance_explained=_explained(problem),
        lookup_metric=metric,
        lookup_score=baseline_scores["lookup"],
        condition_score=baseline_scores.get("condition-mean"),
        model_score=model_scores[best],
        identifying_metrics=_identifying(problem),
        warning=None,
    )
    return replace(found, warning=_warning(found, problem, best))


def _lookup_metric(problem: Problem, train: npt.NDArray[np.intp]) -> str:
    column = best_metric(problem.design.values[train], problem.truth[train], problem.task)
    return problem.design.names[column]


def _probed(task: tuple[Problem, list[Split]]) -> dict[str, float]:
    """Return the median scores of a decision tree and of the baselines that know no model."""
    problem, splits = task
    names = ("lookup", "condition-mean") if problem.task == "regression" else ("lookup",)
    found: dict[str, list[float]] = {}
    for seed, split in enumerate(splits):
        for each in run_split(Work(problem, Target("time"), ("dt",), names, split, (seed,), ())):
            found.setdefault(each.model, []).append(each.score)
    return {name: float(np.median(scores)) for name, scores in found.items()}


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


def _warning(found: Leakage, problem: Problem, model: str) -> str | None:
    task, words = problem.task, problem.words
    repeated, several = (words.group, words.groups) if words.own else ("condition", "conditions")
    if task == "classification":
        if found.lookup_score < found.model_score - 0.01:
            return None
        rival = f"a lookup table on {found.lookup_metric} alone"
        scores = (
            f"accuracy {percent(found.lookup_score, 3)} against "
            f"{percent(found.model_score, 3)} of "
            f"{title_of(model, task)}"
        )
    else:
        limit = found.model_score * AS_GOOD
        if found.lookup_score <= limit:
            rival, reached = f"a lookup table on {found.lookup_metric} alone", found.lookup_score
        elif found.condition_score is not None and found.condition_score <= limit:
            rival, reached = f"the mean of the row's {repeated}", found.condition_score
        else:
            return None
        scores = (
            f"error is {percent(reached, 3)}, that of {title_of(model, task)} "
            f"{percent(found.model_score, 3)}"
        )
    about = words.target if task == "regression" or words.own else "backend"
    start = f"On random splits {rival} does about as well as the models. Its median {scores}"
    if found.rows == found.conditions:
        return (
            f"{start}. No {repeated} was measured twice, so the models add nothing to what that "
            "one metric tells."
        )
    return (
        f"{start}. The {found.rows} rows are repeats of {found.conditions} {several}. Such "
        f"scores show recognition of a {repeated}, not understanding of its {about}."
    )
