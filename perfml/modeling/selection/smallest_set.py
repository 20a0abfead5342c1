"""The smallest set of metrics that predicts about as well as any: forward selection, checked."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem, build_problem
from perfml.modeling.models.convergence import Notes, sentences
from perfml.modeling.models.registry import get_model
from perfml.modeling.parallel import run_all
from perfml.modeling.scoring.baselines import baseline_names, predict_baseline
from perfml.modeling.scoring.folds import score
from perfml.modeling.scoring.protocols import Split
from perfml.modeling.scoring.targets import Target, make_target
from perfml.modeling.selection.search import Found, Search, mean_score, run_search, search_folds
from perfml.util.json_values import json_object
from perfml.util.shown import screen, section
from perfml.util.typing import Progress
from perfml.util.words import percentage

MOST = 3
"""Metrics in a set unless told: each one more costs a fit a metric and fold."""

TOLERANCES = {"regression": 0.1, "classification": 0.01}
"""MAPE may be 10 % (of itself) above the best, accuracy one point below it."""


class SelectStep(TypedDict):
    """A size of the set that was tried.

    Attributes
    ----------
    alternatives
        Other metrics that did as well at this step, within the tolerance.
    """

    size: int
    metric: str
    score: float
    sufficient: bool
    alternatives: tuple[str, ...]
    alternative_scores: tuple[float, ...]


class SelectCheck(TypedDict):
    """A search without a part of the layers, judged on that part."""

    fold: int
    layers: str
    metrics: str
    score: float
    all_score: float
    baseline: str
    baseline_score: float


@dataclass(frozen=True, repr=False)
class SufficientSet:
    """The smallest set of metrics found, how it was found, and what it is worth elsewhere.

    Attributes
    ----------
    task, model, protocol, target, tolerance
        What was asked.
    metrics
        The set, in the order of choice.
    score
        Its MAPE (a fraction) or accuracy on the folds it was chosen on: optimistic.
    all_score
        Of all features, on the same folds.
    path
        One `SelectStep` a size.
    checks
        One `SelectCheck` an outer fold, whose rows took no part in the choice: the set was chosen
        anew without them.
        Empty where the data do not allow it. ``baseline`` is the best of the means, or the most
        frequent class; a lookup on one metric is itself a set of one metric, so no rival.
    held_out, held_out_all, held_out_baseline
        Means of `checks`; NaN where it is empty.
    stability
        Metric to the share of outer folds that chose it.
    warnings
        Sentences for the top of every output.
    verdict
        One sentence.
    """

    task: str
    model: str
    protocol: str
    target: str
    tolerance: float
    metrics: tuple[str, ...]
    score: float
    all_score: float
    path: Annotated[pd.DataFrame, SelectStep]
    checks: Annotated[pd.DataFrame, SelectCheck]
    held_out: float
    held_out_all: float
    held_out_baseline: float
    stability: dict[str, float]
    warnings: tuple[str, ...]
    verdict: str

    to_dict = json_object

    def __repr__(self) -> str:
        path = self.path[["size", "metric", "score"]]
        path = path.assign(score=path["score"].map(percentage))
        return screen(self.verdict, self.warnings, path, rest=".path")

    def _repr_html_(self) -> str:
        path = self.path.drop(columns="alternative_scores")
        path = path.assign(
            score=path["score"].map(percentage), alternatives=path["alternatives"].map(", ".join)
        )
        return section(self.verdict, self.warnings, path)


def smallest_sufficient_set(
    layers: pd.DataFrame,
    *,
    task: str = "regression",
    model: str = "dt",
    protocol: str = "leave-one-layer-out",
    features: str | Sequence[str] = "published",
    target: str = "time",
    tolerance: float | None = None,
    most: int = MOST,
    seed: int = 0,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> SufficientSet:
    """Find few metrics that predict about as well as the best set on the way, or as all.

    Metrics are added one by one, each time the one that helps most. A search over test folds
    flatters what it finds, so the whole search is repeated without each of up to four parts of
    the data (layers kept whole, as in the protocol) and what it finds is scored on that part.

    Parameters
    ----------
    layers
        A Layers table.
    task, model, protocol, features, target
        As for `evaluate`; one model and one protocol.
    tolerance
        How much worse than the best a set may be and still suffice: for regression relative to
        the best MAPE, for classification in accuracy. None takes `TOLERANCES`.
    most
        Largest size tried.
    seed
        Of folds and models.
    progress
        Called as ``progress(done, total, what)``.
    n_jobs
        Processes; None starts one a core where the work takes longer than a few seconds.

    Raises
    ------
    PerfmlError
        If a name is unknown, `most` or `tolerance` make no sense, or the table is too small.
    """
    if most < 1:
        msg = "a set needs at least one metric"
        raise PerfmlError(msg, found=str(most), cure="Choose most=1 or more.")
    allowed = TOLERANCES[task] if tolerance is None and task in TOLERANCES else (tolerance or 0.0)
    if not 0 <= allowed < float("inf"):
        msg = "the tolerance must not be negative"
        raise PerfmlError(msg, found=str(tolerance), cure="Choose 0 or more, such as 0.1.")
    layers = layers.reset_index(drop=True)
    problem = build_problem(layers, task, features)
    chosen = get_model(model, task)
    goal = make_target(target, layers)
    folds = search_folds(problem, protocol, seed)
    search = Search(layers, task, model, protocol, problem.design.names, target, most, seed)
    outer, reason = search.repeatable(folds)
    searches = [
        search,
        *(dataclasses.replace(search, layers=layers.iloc[train]) for train, _ in outer),
    ]
    columns = len(problem.design.names)
    fits = len(searches) * len(folds) * min(most, columns) * columns
    seconds = fits * chosen.cost * problem.rows / 261
    notes: Notes = Counter()
    found = run_all(
        run_search,
        searches,
        n_jobs=n_jobs,
        seconds=seconds,
        progress=progress,
        what="search",
        notes=notes,
    )
    chosen_sets = [_sufficient(search, each, allowed) for each in found]
    checks = pd.DataFrame(
        [
            _check(problem, goal, search, fold, split, each.metrics)
            for fold, (split, each) in enumerate(zip(outer, chosen_sets[1:], strict=True))
        ],
        columns=list(SelectCheck.__annotations__),
    )
    result = _result(search, allowed, chosen_sets[0], checks, reason)
    return dataclasses.replace(result, warnings=(*result.warnings, *sentences(notes)))


@dataclass(frozen=True)
class _Chosen:
    path: pd.DataFrame
    metrics: tuple[str, ...]
    all_score: float


def _sufficient(search: Search, found: Found, tolerance: float) -> _Chosen:
    """Return the way of a search, and the first set on it that suffices."""

    def limit(best: float) -> float:
        allowed = tolerance if search.task == "classification" else tolerance * best
        return best + allowed + 1e-12

    sign, rows = search.sign, []
    for size, step in enumerate(found.paths[None], start=1):
        by_loss = sorted(step.tried.items(), key=lambda one: sign * one[1])
        enough_too = limit(sign * step.score)
        others = [name for name, value in by_loss if sign * value <= enough_too]
        others.remove(step.metric)
        rows.append(
            {
                "size": size,
                "metric": step.metric,
                "score": step.score,
                "alternatives": tuple(others),
                "alternative_scores": tuple(step.tried[name] for name in others),
            }
        )
    path = pd.DataFrame(rows)
    losses = sign * path["score"].to_numpy(dtype=float)
    enough = losses <= limit(min(float(losses.min()), sign * found.everything))
    path.insert(3, "sufficient", enough)
    # all features together may beat every set that was tried; then the best of those is given
    size = int(enough.argmax() if enough.any() else losses.argmin()) + 1
    return _Chosen(path, tuple(path["metric"].iloc[:size]), found.everything)


def _score(
    problem: Problem,
    goal: Target,
    search: Search,
    folds: Sequence[Split],
    columns: tuple[int, ...],
) -> float:
    """Return the mean score over folds of the model on some columns."""
    return mean_score(problem, goal, search.model, folds, columns, search.seed)


def _best_baseline(problem: Problem, split: Split) -> tuple[str, float]:
    """Return the best baseline but lookups (themselves sets of one metric), and its score."""
    train, test = split
    rivals = {
        name: score(problem.task, problem.truth[test], predict_baseline(name, problem, train, test))
        for name in baseline_names(problem.task)
        if not name.startswith("lookup")
    }
    best = max if problem.task == "classification" else min
    name = best(rivals, key=lambda each: rivals[each])
    return name, rivals[name]


def _check(
    problem: Problem,
    goal: Target,
    search: Search,
    fold: int,
    split: Split,
    metrics: tuple[str, ...],
) -> dict[str, Any]:
    _, test = split
    names = problem.design.names
    columns = tuple(names.index(name) for name in metrics)
    rival, rival_score = _best_baseline(problem, split)
    return {
        "fold": fold,
        "layers": ", ".join(sorted({str(name) for name in problem.layer_names[test]})),
        "metrics": ", ".join(metrics),
        "score": _score(problem, goal, search, [split], columns),
        "all_score": _score(problem, goal, search, [split], tuple(range(len(names)))),
        "baseline": rival,
        "baseline_score": rival_score,
    }


def _result(
    search: Search,
    tolerance: float,
    found: _Chosen,
    checks: pd.DataFrame,
    reason: str | None,
) -> SufficientSet:
    counts = Counter(name for names in checks["metrics"] for name in names.split(", "))
    stability = {name: count / len(checks) for name, count in counts.most_common()}
    held, full, rival = (
        float(checks[name].mean()) if len(checks) else float("nan")
        for name in ("score", "all_score", "baseline_score")
    )
    chosen = float(found.path["score"].iloc[len(found.metrics) - 1])
    return SufficientSet(
        task=search.task,
        model=search.model,
        protocol=search.protocol,
        target=search.target,
        tolerance=tolerance,
        metrics=found.metrics,
        score=chosen,
        all_score=found.all_score,
        path=found.path,
        checks=checks,
        held_out=held,
        held_out_all=full,
        held_out_baseline=rival,
        stability=stability,
        warnings=_cautions(search, found, checks, reason, stability),
        verdict=_verdict(search, found, chosen, held, full, rival),
    )


def _cautions(
    search: Search,
    found: _Chosen,
    checks: pd.DataFrame,
    reason: str | None,
    stability: dict[str, float],
) -> tuple[str, ...]:
    notes = [
        "The score at each size is optimistic: the same layers chose the metrics and judge them."
    ]
    if reason is not None:
        notes.append(f"The choice could not be checked on rows that took no part in it: {reason}.")
        return tuple(notes)
    if search.protocol.startswith("random"):
        notes.append("Random splits test on repeats of training rows, the check included.")
    different = checks["metrics"].map(lambda names: frozenset(names.split(", "))).nunique()
    if different > 1:
        rarest = min(stability.get(name, 0.0) for name in found.metrics)
        rarely = f"in only {rarest * len(checks):.0f}" if rarest > 0 else "in none"
        notes.append(
            f"{len(checks)} searches, each without a part of the data, found {different} different "
            f"sets. One of the metrics chosen is {rarely} of them."
        )
    return tuple(notes)


def _verdict(
    search: Search, found: _Chosen, chosen: float, held: float, full: float, rival: float
) -> str:
    what = "accuracy" if search.task == "classification" else "mean relative error"
    names = " + ".join(found.metrics)
    start = f"{names}: {what} {percentage(chosen)} on the layers it was chosen on"
    if np.isnan(held):
        every = f"all {len(search.features)} metrics {percentage(found.all_score)}"
        return f"{start} ({every}), unchecked."
    middle = (
        f"{percentage(held)} where a set so chosen met new ones (all metrics {percentage(full)}"
    )
    if search.sign * held >= search.sign * rival:
        return (
            f"No set suffices: {start}, but {middle}), which is no better than the best baseline "
            f"({percentage(rival)})."
        )
    return f"{start}, {middle}, best baseline {percentage(rival)})."
