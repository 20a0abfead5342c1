"""Rank the metrics by importance, with intervals: a ranking is never one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling._convergence import Notes, sentences
from perfml.modeling._parallel import Progress, run_all
from perfml.modeling._resamples import (
    GROUP_METHOD,
    REFIT_METHOD,
    Measured,
    Resample,
    measure,
    ranks,
    resampled,
    top_share,
)
from perfml.modeling.estimators import Model, get_models
from perfml.modeling.features import Floats, Problem, build_problem
from perfml.modeling.importance import has_shap
from perfml.modeling.leakage import detect_leakage
from perfml.modeling.results import Ranking
from perfml.modeling.targets import make_target

METHODS = ("builtin", "permutation", "group-permutation", "drop-column", "shapley")
"""How importance is measured.

``builtin`` appears in the results under its own name: ``gini`` for trees, ``coefficient`` (mean
absolute, over classes) for logistic regression, ``explained-variance`` for the linear model tree,
``term-importance`` for the explainable boosting machine.
``permutation`` and ``group-permutation`` shuffle a metric, or a group of interchangeable ones, on
held-out rows. ``drop-column`` fits again without the metric. ``shapley`` is the mean absolute
Shapley value on held-out rows; for trees it needs the package shap (extra ``explain``).
"""

CLUSTER_RHO = 0.8
"""Metrics whose absolute Spearman correlation reaches this, on average, are one group."""

REFIT_SHARE = 5
"""Drop-column fits a model once a metric, so it runs on every fifth resample only."""

LAYERS_TO_RESAMPLE = 5
"""With at least so many layers, whole layers are resampled; fewer cannot be."""


def rank(
    layers: pd.DataFrame,
    task: str = "regression",
    models: Sequence[str] | None = None,
    resamples: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    features: str | Sequence[str] = "published",
    target: str = "time",
    methods: Sequence[str] | None = None,
    resampling: str = "auto",
    n_jobs: int | None = None,
) -> Ranking:
    """Rank the metrics of a Layers table.

    Each resample draws layers (or rows) with replacement, fits every model with a new seed and a
    new order of the metrics, and measures every importance; what was not drawn is held out. So
    the intervals cover the choice of data, the models' own chance, and ties between metrics.

    Parameters
    ----------
    layers
        A Layers table.
    task
        ``"regression"`` of the time or ``"classification"`` of the backend.
    models
        Names of the registry; None for the three of the study.
    resamples
        Bootstrap resamples.
    seed
        Resample i uses ``seed + i``.
    progress
        Called as ``progress(done, total, what)``.
    features, target
        As for `evaluate`.
    methods
        Some of `METHODS`; None for all that can run.
    resampling
        ``layers``, ``rows``, or ``auto``: layers where there are at least five.
    n_jobs
        Processes; None starts one a core where the work takes longer than a few seconds.

    Returns
    -------
    Ranking

    Raises
    ------
    PerfmlError
        If a name is unknown, or the table has too few rows, layers or backends for the task.
    """
    if resamples < 2:
        msg = "an interval needs at least two resamples"
        raise PerfmlError(msg, found=str(resamples), cure="Ask for 50 or more.")
    problem = build_problem(layers, task, features)
    goal = make_target(target, layers)
    chosen = get_models(models, task)
    wanted, notes = _methods(methods)
    unit = _unit(resampling, problem)
    groups = spearman_groups(problem)
    works = [
        Resample(
            problem,
            goal,
            tuple(model.name for model in chosen),
            tuple(
                method for method in wanted if method != REFIT_METHOD or index % REFIT_SHARE == 0
            ),
            groups,
            drawn,
            seed + index,
        )
        for index, drawn in enumerate(resampled(problem, unit, resamples, seed))
    ]
    fits: Notes = Counter()
    found = run_all(
        measure,
        works,
        n_jobs=n_jobs,
        seconds=_seconds(chosen, problem, wanted, resamples),
        progress=progress,
        what=f"{task}: resamples",
        notes=fits,
    )
    measured = [each for one in found for each in one]
    labels = tuple(_label(problem, group) for group in groups)
    leakage = detect_leakage(problem, seed=seed)
    warnings = [leakage.warning] if leakage.warning else []
    return Ranking(
        task=task,
        table=_table(problem, groups, labels, measured),
        summary=_summary(problem, groups, labels, measured),
        groups=tuple(tuple(problem.design.names[j] for j in group) for group in groups),
        agreement=_agreement(groups, measured),
        warnings=(*warnings, *_cautions(problem, unit), *notes, *sentences(fits)),
        dropped=problem.design.dropped,
        resampling=unit,
        resamples=resamples,
    )


def spearman_groups(
    problem: Problem, threshold: float = CLUSTER_RHO
) -> tuple[tuple[int, ...], ...]:
    """Return groups of columns that rank the rows alike.

    Average linkage on ``1 - |rho|``, cut where the mean absolute Spearman correlation between two
    groups falls below `threshold`. Undefined cells take the column's median.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    values = problem.design.values
    count = values.shape[1]
    if count == 1:
        return ((0,),)
    filled = np.where(np.isnan(values), np.nanmedian(values, axis=0), values)
    with np.errstate(invalid="ignore"):
        rho = np.corrcoef(rankdata(filled, axis=0), rowvar=False)
    distance = 1.0 - np.abs(np.nan_to_num(rho))
    np.fill_diagonal(distance, 0.0)
    distance = np.clip((distance + distance.T) / 2, 0.0, None)
    cut = 1.0 - threshold + 1e-12
    labels = fcluster(linkage(squareform(distance, checks=False), "average"), cut, "distance")
    members: dict[int, list[int]] = {}
    for column, label in enumerate(labels):
        members.setdefault(int(label), []).append(column)
    return tuple(sorted((tuple(group) for group in members.values()), key=lambda group: group[0]))


def _methods(methods: Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        msg = f"no importance is called {unknown[0]!r}"
        raise PerfmlError(msg, cure=f"There are: {', '.join(METHODS)}.")
    if methods is not None and not methods:
        msg = "no importance was named"
        raise PerfmlError(msg, cure=f"There are: {', '.join(METHODS)}.")
    if methods is None and not has_shap():
        note = (
            "Shapley values of trees were left out: the package shap is not installed "
            "(pip install 'perfml[explain]')."
        )
        return tuple(name for name in METHODS if name != "shapley"), [note]
    return tuple(dict.fromkeys(methods or METHODS)), []


def _unit(resampling: str, problem: Problem) -> str:
    if resampling not in ("auto", "layers", "rows"):
        msg = f"no resampling is called {resampling!r}"
        raise PerfmlError(msg, cure="There are: auto, layers, rows.")
    if resampling == "auto":
        enough = problem.has_layers and problem.n_layers >= LAYERS_TO_RESAMPLE
        return "layers" if enough else "rows"
    if resampling == "layers" and (not problem.has_layers or problem.n_layers < 3):
        msg = "at least 3 layers are needed to resample them"
        raise PerfmlError(
            msg,
            found=f"{problem.n_layers if problem.has_layers else 'rows without a layer'}",
            cure="Resample rows, or profile more layers.",
        )
    return resampling


def _cautions(problem: Problem, unit: str) -> list[str]:
    conditions = int(problem.condition.max()) + 1
    features = len(problem.design.names)
    notes = []
    if conditions <= features:
        notes.append(
            f"{conditions} conditions cannot tell {features} metrics apart: several metrics make "
            "the same cut, and which of them a model names is chance."
        )
    if unit == "rows":
        notes.append(
            "Rows were resampled, not layers, because there are too few layers: the intervals do "
            "not say what other layers would show."
        )
    return notes


def _seconds(models: Sequence[Model], problem: Problem, methods: Sequence[str], n: int) -> float:
    per_fit = sum(model.cost for model in models) * problem.design.values.size / (261 * 16)
    refits = len(problem.design.names) / REFIT_SHARE if REFIT_METHOD in methods else 0.0
    return n * per_fit * (1.5 + refits)


def _label(problem: Problem, group: tuple[int, ...]) -> str:
    return " + ".join(problem.design.names[column] for column in group)


def _by_pair(measured: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    pairs: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        pairs.setdefault((each.model, each.method), []).append(each)
    return pairs


def _table(
    problem: Problem,
    groups: tuple[tuple[int, ...], ...],
    labels: tuple[str, ...],
    measured: Sequence[Measured],
) -> pd.DataFrame:
    names = problem.design.names
    group_of = {
        column: label for group, label in zip(groups, labels, strict=True) for column in group
    }
    frames = []
    for (model, method), found in _by_pair(measured).items():
        values = np.stack([each.values for each in found])
        whole = method == GROUP_METHOD
        places = ranks(values)
        low, high = np.quantile(values, [0.025, 0.975], axis=0)
        rank_low, rank_high = np.quantile(places, [0.025, 0.975], axis=0)
        frame = pd.DataFrame(
            {
                "model": model,
                "method": method,
                "metric": labels if whole else names,
                "group": labels if whole else [group_of[j] for j in range(len(names))],
                "importance": values.mean(axis=0),
                "low": low,
                "high": high,
                "mean_rank": places.mean(axis=0),
                "rank_low": rank_low,
                "rank_high": rank_high,
                "p_top1": top_share(values, 1).mean(axis=0),
                "p_top3": top_share(values, 3).mean(axis=0),
            }
        )
        frames.append(frame.sort_values("mean_rank", kind="stable"))
    return pd.concat(frames, ignore_index=True)


def _group_values(groups: tuple[tuple[int, ...], ...], each: Measured) -> Floats:
    """Return one importance a group: its own, or its best member's."""
    if each.method == GROUP_METHOD:
        return each.values
    return np.array([each.values[list(group)].max() for group in groups])


def _summary(
    problem: Problem,
    groups: tuple[tuple[int, ...], ...],
    labels: tuple[str, ...],
    measured: Sequence[Measured],
) -> pd.DataFrame:
    pairs = _by_pair(measured)
    if any(method != REFIT_METHOD for _, method in pairs):
        # without one of several interchangeable metrics a model loses nothing, so the places that
        # drop-column gives them are noise; it stays in the table
        pairs = {key: found for key, found in pairs.items() if key[1] != REFIT_METHOD}
    places, firsts, thirds, weights = [], [], [], []
    for found in pairs.values():
        values = np.stack([_group_values(groups, each) for each in found])
        places.append(ranks(values))
        firsts.append(top_share(values, 1))
        thirds.append(top_share(values, 3))
        # every (model, method) counts the same, however many resamples it ran on
        weights.append(np.full(len(found), 1.0 / len(found)))
    weight = np.concatenate(weights) / len(pairs)
    stacked = np.concatenate(places)
    low, high = (_weighted_quantile(stacked, weight, q) for q in (0.025, 0.975))
    frame = pd.DataFrame(
        {
            "group": labels,
            "members": [", ".join(problem.design.names[j] for j in group) for group in groups],
            "mean_rank": weight @ stacked,
            "rank_low": low,
            "rank_high": high,
            "p_top1": weight @ np.concatenate(firsts),
            "p_top3": weight @ np.concatenate(thirds),
        }
    )
    return frame.sort_values("mean_rank", kind="stable", ignore_index=True)


def _weighted_quantile(values: Floats, weight: Floats, q: float) -> Floats:
    """Return the weighted quantile of each column (the smallest value that reaches `q`)."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0) >= q - 1e-12
    first = reached.argmax(axis=0)
    found: Floats = np.take_along_axis(
        np.take_along_axis(values, order, axis=0), first[None], axis=0
    )[0]
    return found


def _agreement(groups: tuple[tuple[int, ...], ...], measured: Sequence[Measured]) -> pd.DataFrame:
    tops: dict[str, dict[int, npt.NDArray[np.float64]]] = {}
    for (model, method), found in _by_pair(measured).items():
        tops[f"{model}/{method}"] = {
            each.seed: top_share(_group_values(groups, each)[None, :], 3)[0] for each in found
        }
    rows = []
    names = list(tops)
    for index, left in enumerate(names):
        for right in names[index + 1 :]:
            # a method that names nobody in a resample neither agrees nor disagrees there
            both = [
                (tops[left][seed], tops[right][seed])
                for seed in tops[left]
                if seed in tops[right] and tops[left][seed].any() and tops[right][seed].any()
            ]
            common = [np.minimum(a, b).sum() / max(a.sum(), b.sum()) for a, b in both]
            rows.append((left, right, float(np.mean(common)) if common else float("nan")))
    return pd.DataFrame(rows, columns=["left", "right", "share"])
