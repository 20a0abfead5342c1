"""Rank the metrics by importance, with intervals and a null: a ranking is never one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.time_sources import time_note
from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.distinct_layers import ENOUGH_LAYERS, distinct_layers
from perfml.modeling.features import Problem, build_problem
from perfml.modeling.layer_shapes import average_repeats
from perfml.modeling.models.convergence import Notes, sentences
from perfml.modeling.models.own import Models, chosen_models
from perfml.modeling.models.registry import Model
from perfml.modeling.own_data import NO_GROUPS, own_problem
from perfml.modeling.parallel import run_all
from perfml.modeling.ranking.draws import arrangements, permuted_problems, resampled
from perfml.modeling.ranking.groups import Groups, group_associations, spearman_groups
from perfml.modeling.ranking.leakage import Leakage, detect_leakage
from perfml.modeling.ranking.measure import REFIT_METHOD, Measured, Resample, measure
from perfml.modeling.ranking.null import (
    FEWEST_PERMUTATIONS,
    FIRST_LOOK,
    LEVEL,
    NULL_RESAMPLES,
    PERMUTATIONS,
    Baseline,
    Null,
    pooled_scores,
)
from perfml.modeling.ranking.summary import (
    agreement,
    by_pair,
    group_scores,
    group_table,
    metric_table,
    summarised_methods,
    tables_importance,
    tied_first,
)
from perfml.modeling.results import Ranking
from perfml.modeling.scoring.targets import Target, make_target
from perfml.util.typing import Floats, Ints, Progress

METHODS = ("builtin", "permutation", "group-permutation", "drop-column", "shapley")
"""How importance is measured.

``builtin`` appears in the results under its own name: ``gini`` for trees, ``coefficient`` (mean
absolute, over classes) for logistic regression, ``explained-variance`` for the linear model tree.
``permutation`` and ``group-permutation`` shuffle a metric, or a group of interchangeable ones, on
held-out rows. ``drop-column`` fits again without the metric. ``shapley`` is the mean absolute
Shapley value on held-out rows.
"""

REFIT_SHARE = 8
"""Drop-column fits a model once a metric, so it runs on every eighth resample only."""


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
    null_resamples: int
    seed: int


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
    permutations: int = PERMUTATIONS,
    null_resamples: int = NULL_RESAMPLES,
    leakage: Leakage | None = None,
    n_jobs: int | None = None,
) -> Ranking:
    """Rank the metrics of a Layers table, or features of your own, by what they say of the target.

    Repeats of a condition are averaged. Each resample draws distinct layers with replacement
    (copies of a layer count as one, see `distinct_layers`), fits every model with a new seed and a
    new order of the metrics, and measures every importance; what was not drawn is held out. So
    the intervals cover the choice of layers, the models' own chance, and ties between metrics.
    Ensembles have fewer trees, ``gbr`` 25 and ``rf`` 50 of 100: which metrics they use the first
    trees decide.

    The same is done with times permuted between layers. That serves twice. A group of
    interchangeable metrics is scored by how far its importance lies above what that group gets by
    chance, in standard deviations (Altmann et al. 2010), so that a large group has no advantage.
    And the largest score is tested against the largest scores of the permuted tables
    (`perfml.modeling.ranking.null`): `Ranking.chance` says whether any metric explains more.

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
        How often times are permuted between layers. Only the first 20 are drawn where these show
        that the ranking is no more than chance.
    null_resamples
        Resamples of each permutation, at most `resamples`. The test holds for any number; with
        more of them weaker effects are found.
    leakage
        What a random split of the same table shows, if `evaluate` was run on it.
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
    >>> y = 2 + 5 * X[:, 1] + 0.3 * rng.normal(size=40)
    >>> ranking = perfml.rank(
    ...     X, y, features=["a", "b", "c"], groups=np.repeat(range(20), 2),
    ...     models=Ridge(), resamples=5, permutations=20, methods="permutation",
    ... )
    >>> ranking.summary["members"][0], ranking.beyond_chance
    ('b', ('b',))
    >>> axes = ranking.plot()
    """
    if resamples < 2:
        msg = "an interval needs at least two resamples"
        raise PerfmlError(msg, found=str(resamples), cure="Ask for 50 or more.")
    if permutations < FEWEST_PERMUTATIONS:
        msg = f"the 95 % point of chance needs at least {FEWEST_PERMUTATIONS} permutations"
        raise PerfmlError(msg, found=str(permutations), cure="Ask for 40.")
    if null_resamples < 1:
        msg = "a permutation needs at least one resample"
        raise PerfmlError(msg, found=str(null_resamples), cure=f"Ask for {NULL_RESAMPLES}.")
    wanted = _methods(methods)
    if y is None:
        task = task or "regression"
        features = features or "default"
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
        min(null_resamples, resamples),
        seed,
    )
    fits: Notes = Counter()
    observed, permuted, scores = _measured(plan, progress, n_jobs, fits)
    baselines = {pair: Baseline.of(results) for pair, results in by_pair(_joined(permuted)).items()}
    null = _null(plan, scores)
    leakage = leakage or detect_leakage(every_row, seed=seed)
    warnings = [leakage.warning] if leakage.warning else []
    timed = problem.task == "regression" and not problem.words.own
    if timed and (note := time_note(X)) is not None:
        warnings.append(note)
    said = [*([] if problem.words.grouped else [NO_GROUPS]), *every_row.notes]
    names = problem.design.names
    summary = group_table(problem, plan.groups, *group_scores(observed, baselines), scores, null)
    return Ranking(
        task=problem.task,
        table=metric_table(problem, plan.groups, observed, permuted, plan.null_resamples),
        summary=summary,
        groups=tuple(tuple(names[j] for j in group) for group in plan.groups),
        agreement=agreement(observed, baselines),
        warnings=(*said, *warnings, *_cautions(problem), *sentences(fits)),
        dropped=problem.design.dropped,
        resampling=problem.words.groups,
        resamples=resamples,
        distinct_layers=int(pieces.max()) + 1,
        null=null,
        tied=_tied(
            summary, tuple(plan.groups[at] for at in tied_first(observed, baselines)), names
        ),
        words=problem.words,
    )


def _tied(
    summary: pd.DataFrame, groups: Groups, names: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the members of groups that share the first mean rank, if the first is among them."""
    tied = {", ".join(names[j] for j in group): group for group in groups}
    ordered = [tied[members] for members in summary["members"] if members in tied]
    if summary["members"][0] not in tied:
        return ()
    return tuple(tuple(names[j] for j in group) for group in ordered)


def _null(plan: _Plan, scores: Floats | None) -> Null:
    """Return the test of the largest score, or why there is none."""
    if scores is None:
        return Null(0, plan.null_resamples, (), float("nan"), _no_test(plan) or _NO_SPREAD)
    highest = scores.max(axis=1)
    return Null(
        len(scores) - 1,
        plan.null_resamples,
        tuple(float(each) for each in highest[1:]),
        float(highest[0]),
        _no_test(plan),
    )


_NO_SPREAD = "no importance changes when the {target} is permuted"


def _no_test(plan: _Plan) -> str:
    """Return why permutations cannot tell a ranking from chance; empty where they can."""
    ways = arrangements(plan.problem, plan.pieces)
    if ways * LEVEL >= 1:
        return ""
    return (
        f"the rows can be permuted in only {ways:.0f} ways, and a test against chance at "
        f"{LEVEL:.0%} needs {1 / LEVEL:.0f}"
    )


def _measured(
    plan: _Plan, progress: Progress | None, n_jobs: int | None, fits: Notes
) -> tuple[list[Measured], list[list[Measured]], Floats | None]:
    """Return the importances of the table, of its permutations, and the scores of all of them.

    The permutations end at the first look where the ranking can no longer be more than chance.
    Ending only then, never because an effect shows, leaves the false alarms as they are.
    """
    chance = _chance_works(plan)
    few = min(FIRST_LOOK, plan.permutations)
    works = _works(plan)
    observed: list[Measured] = []
    permuted: list[list[Measured]] = []
    associations = np.stack(
        [
            group_associations(problem, plan.pieces, plan.groups)
            for problem in (plan.problem, *(works[0].problem for works in chance))
        ]
    )
    for part in filter(None, (chance[:few], chance[few:])):
        wanted = [*works, *(work for one in part for work in one)]
        results = run_all(
            measure,
            wanted,
            n_jobs=n_jobs,
            seconds=_seconds(plan, len(works), len(wanted) - len(works)),
            progress=progress,
            what=f"{plan.problem.task}: resamples",
            notes=fits,
        )
        observed += _joined(results[: len(works)])
        rest = results[len(works) :]
        step = plan.null_resamples
        permuted += [_joined(rest[at : at + step]) for at in range(0, len(rest), step)]
        works = []
        scores = _tables_scores(plan, observed, permuted, associations)
        if _null(plan, scores).hopeless(plan.permutations):
            break
    return observed, permuted, scores


def _tables_scores(
    plan: _Plan,
    observed: Sequence[Measured],
    permuted: Sequence[Sequence[Measured]],
    associations: Floats,
) -> Floats | None:
    """Return the score of each group in the table and its permutations, all measured alike."""
    tables = tables_importance(observed, permuted, plan.null_resamples, "joint")
    return pooled_scores(tables, associations[: 1 + len(permuted)])


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
        )
        for index, drawn in enumerate(resampled(plan.problem, plan.pieces, seeds))
    ]


def _chance_works(plan: _Plan) -> list[list[Resample]]:
    """Return what is measured on each permutation: the first resamples of the table once more."""
    names = tuple(model.handle for model in plan.models)
    methods = summarised_methods(plan.methods)
    seeds = range(plan.seed, plan.seed + plan.null_resamples)
    return [
        [
            Resample(problem, plan.target, names, methods, plan.groups, drawn, seed)
            for seed, drawn in zip(seeds, resampled(problem, plan.pieces, seeds), strict=True)
        ]
        for problem in permuted_problems(
            plan.problem, plan.target, plan.pieces, plan.permutations, plan.seed
        )
    ]


def _joined(results: Sequence[list[Measured]]) -> list[Measured]:
    return [measured for result in results for measured in result]


def _methods(methods: str | Sequence[str] | None) -> tuple[str, ...]:
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
    return tuple(dict.fromkeys(methods or METHODS))


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
        f"{conditions} {what} cannot tell {features} metrics apart. Several metrics make "
        "the same cut, and which of them a model names is chance."
    )
    return [caution]


def _seconds(plan: _Plan, resamples: int, permuted: int) -> float:
    size = plan.problem.design.values.size / (261 * 16)
    refits = 0.0
    if REFIT_METHOD in plan.methods:
        refits = resamples * len(plan.problem.design.names) / REFIT_SHARE
    fits = 1.5 * (resamples + permuted)
    # with fewer trees an ensemble takes about a quarter of its time
    costs = sum(model.cost / (4 if model.fewer else 1) for model in plan.models)
    return costs * size * (fits + refits)
