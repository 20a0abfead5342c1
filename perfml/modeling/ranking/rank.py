"""Rank the metrics by importance, with intervals and a null: a ranking is never one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.distinct_layers import ENOUGH_LAYERS, distinct_layers
from perfml.modeling.features import Problem, build_problem
from perfml.modeling.layer_shapes import average_repeats
from perfml.modeling.models.convergence import Notes, sentences
from perfml.modeling.models.own import Models, chosen_models
from perfml.modeling.models.registry import Model
from perfml.modeling.own_data import NO_GROUPS, own_problem
from perfml.modeling.parallel import run_all
from perfml.modeling.ranking.groups import Groups, spearman_groups
from perfml.modeling.ranking.importance import has_shap
from perfml.modeling.ranking.leakage import Leakage, detect_leakage
from perfml.modeling.ranking.measure import REFIT_METHOD, Measured, Resample, measure
from perfml.modeling.ranking.null import (
    FEWEST_PERMUTATIONS,
    NULL_RESAMPLES,
    Baseline,
    Null,
    permuted_problems,
)
from perfml.modeling.ranking.resamples import resampled
from perfml.modeling.ranking.summary import (
    Pair,
    agreement,
    by_pair,
    first_share,
    group_scores,
    group_table,
    leading_share,
    metric_table,
    summarised_methods,
    tied_first,
)
from perfml.modeling.results import Ranking
from perfml.modeling.scoring.targets import Target, make_target
from perfml.time_sources import time_note
from perfml.util.installed import install_command
from perfml.util.typing import Ints, Progress

METHODS = ("builtin", "permutation", "group-permutation", "drop-column", "shapley")
"""How importance is measured.

``builtin`` appears in the results under its own name: ``gini`` for trees, ``coefficient`` (mean
absolute, over classes) for logistic regression, ``explained-variance`` for the linear model tree,
``term-importance`` for the explainable boosting machine.
``permutation`` and ``group-permutation`` shuffle a metric, or a group of interchangeable ones, on
held-out rows. ``drop-column`` fits again without the metric. ``shapley`` is the mean absolute
Shapley value on held-out rows; for trees it needs the package shap (extra ``explain``).
"""

REFIT_SHARE = 5
"""Drop-column fits a model once a metric, so it runs on every fifth resample only."""


@dataclass(frozen=True)
class _Plan:
    """What is ranked, and how."""

    problem: Problem
    target: Target
    pieces: Ints
    groups: Groups
    models: tuple[Model, ...]
    methods: tuple[str, ...]
    resamples: int
    permutations: int
    stages: tuple[int, ...]
    seed: int
    quick: bool


def rank(
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    task: str | None = None,
    models: Models = None,
    resamples: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
    features: str | Sequence[str] | None = None,
    target: str = "time",
    methods: str | Sequence[str] | None = None,
    permutations: int = 40,
    null_resamples: int | Sequence[int] = NULL_RESAMPLES,
    leakage: Leakage | None = None,
    quick: bool = False,
    n_jobs: int | None = None,
) -> Ranking:
    """Rank the metrics of a Layers table, or features of your own, by what they say of the target.

    Repeats of a condition are averaged. Each resample draws distinct layers with replacement
    (copies of a layer count as one, see `distinct_layers`), fits every model with a new seed and a
    new order of the metrics, and measures every importance; what was not drawn is held out. So
    the intervals cover the choice of layers, the models' own chance, and ties between metrics.

    The same is done with times permuted between layers. A group of interchangeable metrics is
    scored by how far its joint importance lies above what that group gets there, in standard
    deviations (Altmann et al. 2010), so that a large group has no advantage; and the probability
    of being among the first three stands beside what a leading group gets there.

    Rows of your own are taken as they are, and a group of them is what a layer is above.

    Parameters
    ----------
    X, y, groups, task, models
        As for `evaluate`. An estimator of your own is ranked by its ``coef_`` or
        ``feature_importances_``, where it has one, and by the other `methods`.
    resamples
        Bootstrap resamples.
    seed
        Resample i uses ``seed + i``.
    progress
        Called as ``progress(done, total, what)``.
    features, target
        As for `evaluate`.
    methods
        One or some of `METHODS`; None for all that can run.
    permutations
        How often times are permuted between layers.
    null_resamples
        Resamples of each permutation, at most `resamples`. With the defaults that is 400 fits of
        each model beside the 50 of the ranking. With fewer the null's 95 % is too high: false
        alarms are rarer than 5 %, and a weak effect is told less often. Of several numbers, such
        as ``(3, 5)``, the next is taken only where with the one before the first group is not more
        than chance (`Null.exceeded_by`).
    leakage
        What a random split of the same table shows, where `evaluate` told it already.
    quick
        Whether ensembles have fewer trees, ``gbr`` 25 and ``rf`` 50 of 100: which metrics they use
        the first trees decide.
    n_jobs
        Processes; None starts one a core where the work takes longer than a few seconds.

    Returns
    -------
    Ranking

    Raises
    ------
    PerfmlError
        If a name is unknown, the table does not name its layers, has fewer than five distinct
        ones, or has too few backends for the task.

    Examples
    --------
    >>> import numpy as np
    >>> import perfml
    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(40, 3))
    >>> found = perfml.rank(
    ...     X, 1 + 5 * X[:, 1], features=["a", "b", "c"], groups=np.repeat(range(20), 2),
    ...     models=Ridge(), resamples=5, permutations=20, methods="permutation",
    ... )
    >>> found.summary["members"][0]
    'b'
    """
    if resamples < 2:
        msg = "an interval needs at least two resamples"
        raise PerfmlError(msg, found=str(resamples), cure="Ask for 50 or more.")
    if permutations < FEWEST_PERMUTATIONS:
        msg = f"the 95 % point of chance needs at least {FEWEST_PERMUTATIONS} permutations"
        raise PerfmlError(msg, found=str(permutations), cure="Ask for 40.")
    stages = _stages(null_resamples, resamples)
    wanted, notes = _methods(methods)
    if y is None:
        task = task or "regression"
        features = features or "published"
        every_row = build_problem(X, task, features)
        averaged = _of_layers(every_row, X)
        pieces = _enough_layers(every_row, averaged)
        problem = build_problem(averaged, task, features)
        goal = make_target(target, averaged)
    else:
        problem = every_row = own_problem(X, y, groups, task, features)
        pieces = _enough_groups(problem)
        goal = make_target(target, pd.DataFrame())
    chosen = chosen_models(models, problem.task)
    plan = _Plan(
        problem,
        goal,
        pieces,
        spearman_groups(problem),
        chosen,
        wanted,
        resamples,
        permutations,
        stages,
        seed,
        quick,
    )
    fits: Notes = Counter()
    observed, null, baselines = _measured(plan, progress, n_jobs, fits)
    leakage = leakage or detect_leakage(every_row, seed=seed)
    warnings = [leakage.warning] if leakage.warning else []
    timed = problem.task == "regression" and not problem.words.own
    if timed and (note := time_note(X)) is not None:
        warnings.append(note)
    if not problem.words.grouped:
        warnings.insert(0, NO_GROUPS)
    summary = group_table(problem, plan.groups, *group_scores(observed, baselines))
    return Ranking(
        task=problem.task,
        table=metric_table(problem, plan.groups, observed),
        summary=summary.assign(null_p_top3=null.limit),
        groups=tuple(tuple(problem.design.names[j] for j in group) for group in plan.groups),
        agreement=agreement(observed, baselines),
        warnings=(*warnings, *_cautions(problem), *notes, *sentences(fits)),
        dropped=problem.design.dropped,
        resampling=problem.words.groups,
        resamples=resamples,
        distinct_layers=int(pieces.max()) + 1,
        null=null,
        tied=tuple(
            tuple(problem.design.names[j] for j in plan.groups[place])
            for place in tied_first(observed, baselines)
        ),
        words=problem.words,
    )


def _stages(null_resamples: int | Sequence[int], resamples: int) -> tuple[int, ...]:
    """Return how many resamples of each permutation are drawn first, next, and so on."""
    asked = (null_resamples,) if isinstance(null_resamples, int) else tuple(null_resamples)
    if not asked or min(asked) < 1:
        msg = "a permutation needs at least one resample"
        raise PerfmlError(msg, found=str(null_resamples), cure=f"Ask for {NULL_RESAMPLES}.")
    return tuple(sorted({min(each, resamples) for each in asked}))


def _measured(
    plan: _Plan, progress: Progress | None, n_jobs: int | None, fits: Notes
) -> tuple[list[Measured], Null, dict[Pair, Baseline]]:
    """Return the importances of the table, and what permutations of it give.

    Resamples of the permutations are drawn until the first group is more than chance, or the last
    of the plan's stages is reached.
    """
    works, chance = _works(plan), _chance_works(plan)
    done = 0
    permuted: list[list[Measured]] = [[] for _ in chance]
    observed: list[Measured] = []
    for stage in plan.stages:
        wanted = [work for one in chance for work in one[done:stage]]
        results = run_all(
            measure,
            [*works, *wanted],
            n_jobs=n_jobs,
            seconds=_seconds(plan, len(works), len(wanted)),
            progress=progress,
            what=f"{plan.problem.task}: resamples",
            notes=fits,
        )
        observed += _joined(results[: len(works)])
        found = iter(results[len(works) :])
        for one in permuted:
            one += _joined([next(found) for _ in range(done, stage)])
        works, done = [], stage
        baselines = _baselines(permuted)
        shares = tuple(leading_share(*group_scores(one, baselines)) for one in permuted)
        null = Null(plan.permutations, stage, shares)
        if null.exceeded_by(first_share(*group_scores(observed, baselines))):
            break
    return observed, null, baselines


def _works(plan: _Plan) -> list[Resample]:
    """Return what is measured on the table as it is."""
    seeds = range(plan.seed, plan.seed + plan.resamples)
    return [
        Resample(
            plan.problem,
            plan.target,
            tuple(model.handle for model in plan.models),
            tuple(
                method
                for method in plan.methods
                if method != REFIT_METHOD or index % REFIT_SHARE == 0
            ),
            plan.groups,
            drawn,
            plan.seed + index,
            plan.quick,
        )
        for index, drawn in enumerate(resampled(plan.problem, plan.pieces, seeds))
    ]


def _chance_works(plan: _Plan) -> list[list[Resample]]:
    """Return what is measured at most on each permutation."""
    names = tuple(model.handle for model in plan.models)
    methods, most = summarised_methods(plan.methods), plan.stages[-1]
    start, works = plan.seed + plan.resamples, []
    for problem in permuted_problems(
        plan.problem, plan.target, plan.pieces, plan.permutations, plan.seed
    ):
        seeds = range(start, start + most)
        works.append(
            [
                Resample(problem, plan.target, names, methods, plan.groups, drawn, seed, plan.quick)
                for seed, drawn in zip(seeds, resampled(problem, plan.pieces, seeds), strict=True)
            ]
        )
        start = seeds.stop
    return works


def _joined(results: Sequence[list[Measured]]) -> list[Measured]:
    return [measured for result in results for measured in result]


def _baselines(permuted: Sequence[list[Measured]]) -> dict[Pair, Baseline]:
    return {pair: Baseline.of(results) for pair, results in by_pair(_joined(permuted)).items()}


def _methods(methods: str | Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
    if isinstance(methods, str):
        methods = (methods,)
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        msg = f"no importance is called {unknown[0]!r}"
        known = f"There are: {', '.join(METHODS)}."
        raise PerfmlError(msg, cure=did_you_mean(unknown[0], METHODS, known))
    if methods is not None and not methods:
        msg = "no importance was named"
        raise PerfmlError(msg, cure=f"There are: {', '.join(METHODS)}.")
    if methods is None and not has_shap():
        note = (
            "Shapley values of trees were left out: the package shap is not installed "
            f"({install_command('explain')})."
        )
        return tuple(name for name in METHODS if name != "shapley"), [note]
    return tuple(dict.fromkeys(methods or METHODS)), []


def _of_layers(problem: Problem, layers: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each condition's repeats, if every row names its layer."""
    if not problem.has_layers:
        msg = "no ranking: the table does not say which layer each row is"
        raise PerfmlError(
            msg,
            found=f"{int((problem.layer < 0).sum())} of {problem.rows} rows without a layer",
            cure="Rank a table of perfml merge, whose kernels were ingested with their layers.",
        )
    return average_repeats(layers)


def _enough_layers(problem: Problem, averaged: pd.DataFrame) -> Ints:
    """Return the distinct layer of each condition, or say why there is no ranking."""
    pieces = distinct_layers(averaged)
    count = int(pieces.max()) + 1
    if count >= ENOUGH_LAYERS:
        return pieces
    names = problem.n_layers
    copies = f" ({names} names, but copies of a layer count once)" if names > count else ""
    msg = (
        f"no ranking: it needs {ENOUGH_LAYERS} distinct layers, because with fewer any metric "
        "that tells them apart comes first"
    )
    raise PerfmlError(
        msg,
        found=f"{count}{copies}",
        cure="Profile a network with more layers; to compare two sides, use perfml explain.",
    )


def _enough_groups(problem: Problem) -> Ints:
    """Return the group of each row of the user's own, or say why there is no ranking."""
    if problem.n_layers >= ENOUGH_LAYERS:
        return problem.layer
    what = problem.words.groups if problem.words.grouped else "distinct rows"
    msg = (
        f"no ranking: it needs {ENOUGH_LAYERS} {what}, because with fewer any feature that tells "
        "them apart comes first"
    )
    raise PerfmlError(msg, found=str(problem.n_layers), cure="Give rows of more groups.")


def _cautions(problem: Problem) -> list[str]:
    conditions = int(problem.condition.max()) + 1
    features = len(problem.design.names)
    if conditions > features:
        return []
    what = problem.words.groups if problem.words.own else "conditions"
    caution = (
        f"{conditions} {what} cannot tell {features} metrics apart: several metrics make "
        "the same cut, and which of them a model names is chance."
    )
    return [caution]


def _seconds(plan: _Plan, resamples: int, permuted: int) -> float:
    size = plan.problem.design.values.size / (261 * 16)
    refits = 0.0
    if REFIT_METHOD in plan.methods:
        refits = resamples * len(plan.problem.design.names) / REFIT_SHARE
    fits = 1.5 * (resamples + permuted)
    return sum(model.cost for model in plan.models) * size * (fits + refits)
