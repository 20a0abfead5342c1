"""Rank the metrics: first what is beyond chance, then by importance, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.time_sources import time_note
from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.features import Problem, build_problem
from perfml.modeling.layer_shapes import ENOUGH_LAYERS, average_repeats, distinct_layers
from perfml.modeling.models.own import Models, chosen_models
from perfml.modeling.models.registry import Model
from perfml.modeling.own_data import NO_GROUPS, own_problem
from perfml.modeling.parallel import Notes, run_all, sentences
from perfml.modeling.ranking.association import (
    FEWEST_PERMUTATIONS,
    PERMUTATIONS,
    against_chance,
)
from perfml.modeling.ranking.measure import (
    Groups,
    Measured,
    Resample,
    measure,
    resampled,
    spearman_groups,
)
from perfml.modeling.ranking.summary import (
    agreement,
    group_table,
    metric_table,
    summarised_methods,
    tied_first,
)
from perfml.modeling.results import LEVEL, Leakage, Ranking
from perfml.modeling.scoring.leakage import detect_leakage
from perfml.modeling.scoring.protocols import Target, make_target, without_unit
from perfml.util.typing import Floats, Ints, Progress

METHODS = ("builtin", "permutation", "group-permutation", "shapley")
"""How importance is measured.

``builtin`` appears in the results under its own name: ``gini`` for trees, ``coefficient`` (mean
absolute, over classes) for logistic regression, ``explained-variance`` for the linear model tree.
``permutation`` and ``group-permutation`` shuffle a metric, or a group of interchangeable ones, on
held-out rows. ``shapley`` is the mean absolute Shapley value on held-out rows. Times are multiples
of their median, so no importance has a unit.
"""


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

    Which metrics go with the target beyond chance, one permutation test of several statistics
    says first (`perfml.modeling.ranking.association`); the importances order those. What is not
    shown to be beyond chance follows, smallest p-value first.

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
        How often the targets of layers are exchanged for the test against chance.
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
        raise PerfmlError(msg, found=str(permutations), cure=f"Ask for {PERMUTATIONS}.")
    wanted = _methods(methods)
    if y is None:
        task = task or "regression"
        features = features or "default"
        every_row = build_problem(X, task, features)
        averaged = _of_layers(every_row, X)
        problem = build_problem(averaged, task, features)
        problem, pieces = _enough_layers(every_row, problem, distinct_layers(averaged))
        goal = make_target(target, averaged)
    else:
        problem = every_row = own_problem(X, y, groups, task, features)
        pieces = _enough_groups(problem)
        goal = make_target(target, pd.DataFrame())
    if not problem.classes:
        problem = replace(problem, truth=without_unit(problem.truth))
    chosen = chosen_models(models, problem.task)
    plan = _Plan(problem, goal, pieces, spearman_groups(problem), chosen, wanted, resamples, seed)
    fits: Notes = Counter()
    measured = _measured(plan, progress, n_jobs, fits)
    tested, chance = against_chance(
        problem.design.values,
        problem.truth if problem.classes else _fitted(problem, goal),
        pieces,
        problem.configuration,
        classes=len(problem.classes),
        permutations=permutations,
        seed=seed,
    )
    leakage = leakage or detect_leakage(every_row, seed=seed)
    warnings = [leakage.warning] if leakage.warning else []
    timed = problem.task == "regression" and not problem.words.own
    if timed and (note := time_note(X)) is not None:
        warnings.append(note)
    said = [*([] if problem.words.grouped else [NO_GROUPS]), *problem.notes]
    names, counted = problem.design.names, summarised_methods(wanted)
    p_value = tested["p_value"].to_numpy()
    shown = [at for at, one in enumerate(plan.groups) if p_value[list(one)].min() <= LEVEL]
    return Ranking(
        task=problem.task,
        table=metric_table(problem, plan.groups, measured, tested),
        summary=group_table(problem, plan.groups, measured, counted, tested),
        groups=tuple(tuple(names[j] for j in group) for group in plan.groups),
        agreement=agreement(measured),
        warnings=(*said, *warnings, *_cautions(problem), *sentences(fits)),
        dropped=problem.design.dropped,
        resampling=problem.words.groups,
        resamples=resamples,
        distinct_layers=int(pieces.max()) + 1,
        null=chance,
        tied=tuple(
            tuple(names[j] for j in plan.groups[at]) for at in tied_first(measured, counted, shown)
        ),
        words=problem.words,
    )


def _fitted(problem: Problem, goal: Target) -> Floats:
    """Return what is tested: the logarithm of the time, or of its share of the work."""
    kind = replace(goal, name="log-time") if goal.name == "time" else goal
    return kind.forward(problem.truth, np.arange(problem.rows))


def _measured(
    plan: _Plan, progress: Progress | None, n_jobs: int | None, fits: Notes
) -> list[Measured]:
    """Return the importances of every resample."""
    works = _works(plan)
    results = run_all(
        measure,
        works,
        n_jobs=n_jobs,
        seconds=_seconds(plan, len(works)),
        progress=progress,
        what=f"{plan.problem.task}: resamples",
        notes=fits,
    )
    return [measured for result in results for measured in result]


def _works(plan: _Plan) -> list[Resample]:
    """Return what is measured on the table as it is."""
    seeds = range(plan.seed, plan.seed + plan.resamples)
    return [
        Resample(
            plan.problem,
            plan.target,
            tuple(model.handle for model in plan.models),
            plan.methods,
            plan.groups,
            drawn,
            plan.seed + index,
        )
        for index, drawn in enumerate(resampled(plan.problem, plan.pieces, seeds))
    ]


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


def _enough_layers(every_row: Problem, problem: Problem, pieces: Ints) -> tuple[Problem, Ints]:
    """Return what is ranked and what of it is independent, or say why there is no ranking.

    Of few layers under many conditions the conditions are taken for independent, and it is said
    that nothing follows for another layer. `pieces` are the distinct layers.
    """
    count = int(pieces.max()) + 1
    if count >= ENOUGH_LAYERS:
        return problem, pieces
    if not problem.classes and problem.rows >= ENOUGH_LAYERS:
        scope = (
            f"The {problem.rows} independent rows are conditions of {count} distinct layers. "
            "Intervals and p-values hold for these layers, and say nothing of others."
        )
        words = replace(problem.words, group="condition")
        everywhere = np.zeros(problem.rows, dtype=np.int64)
        notes = (*problem.notes, scope)
        problem = replace(problem, words=words, configuration=everywhere, notes=notes)
        return problem, np.arange(problem.rows)
    names = every_row.n_layers
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


def _seconds(plan: _Plan, resamples: int) -> float:
    size = plan.problem.design.values.size / (261 * 16)
    # with fewer trees an ensemble takes about a quarter of its time
    costs = sum(model.cost / (4 if model.fewer else 1) for model in plan.models)
    return costs * size * 1.5 * resamples
