"""Score the models under several protocols side by side, next to their baselines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.time_sources import time_note
from perfml.errors import PerfmlError
from perfml.modeling.features import OWN_TARGET, Problem, build_problem
from perfml.modeling.layer_shapes import average_repeats
from perfml.modeling.models.own import Models, chosen_models
from perfml.modeling.models.registry import Model, title_of
from perfml.modeling.own_data import NO_GROUPS, own_problem
from perfml.modeling.parallel import Notes, run_all, sentences
from perfml.modeling.results import Evaluation, Leakage, Score
from perfml.modeling.scoring.baselines import (
    ROOFLINE_BASELINES,
    baseline_names,
    possible_baselines,
)
from perfml.modeling.scoring.folds import Outcome, Work, fitting_seconds, run_split
from perfml.modeling.scoring.leakage import detect_leakage
from perfml.modeling.scoring.protocols import (
    UNSEEN,
    Protocol,
    Target,
    make_protocol,
    make_target,
    own_protocols,
)
from perfml.util.typing import Progress
from perfml.util.words import listed, percent

PROTOCOLS_SHOWN = ("random", "leave-one-layer-out")
"""The published protocol and an honest one: neither is shown without the other by default."""

LEAST_SEEDS, MOST_SEEDS = 3, 10
"""Model seeds a fold of a grouped protocol: ties in trees make one fit arbitrary."""

MANY_ROWS = 2000
"""Rows from which on one seed a fold does: ties between columns are broken by other rows."""

GAP = 3.0
"""Grouped MAPE over random MAPE beyond which the difference is worth a warning."""


_Data = tuple[Problem, Target]
"""A table to learn from: every row, or the mean of each condition's repeats."""


@dataclass
class _Task:
    """One protocol's work and, later, its outcomes."""

    protocol: Protocol
    problem: Problem
    works: list[Work]
    outcomes: list[list[Outcome]]


def evaluate(
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    task: str | None = None,
    models: Models = None,
    protocols: str | Sequence[str] = PROTOCOLS_SHOWN,
    features: str | Sequence[str] | None = None,
    splits: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
    target: str = "time",
    average: bool = False,
    quick: bool = False,
    n_jobs: int | None = None,
) -> Evaluation:
    """Train and test models: on repeats of what they have seen, and on what they have not.

    Parameters
    ----------
    X
        A Layers table; or features of your own, a DataFrame or an array, and then `y`.
    y
        With features of your own: the target, one a row or the name of a column. Positive numbers
        in any unit, or labels.
    groups
        With features of your own: what must not be on both sides of a split (layers, kernels,
        inputs), one label a row or the name of a column. Without, only rows with equal features
        are kept together, and a warning says so.
    task
        ``"regression"`` of the time or ``"classification"`` of the backend; with features of your
        own, by default what `y` looks like.
    models
        Names of the registry, scikit-learn estimators (every fit is of a clone), or both; None for
        the three of the study.
    protocols
        Name or names: how to split, see `perfml.modeling.scoring.protocols.PROTOCOLS`. With
        features of your own a random split never comes without one that holds out groups.
    features
        A feature set or column names, see `perfml.modeling.features.FEATURE_SETS`; by default
        ``default``. With features of your own, columns of `X`; by default all that hold numbers.
    splits
        Random splits. Grouped protocols have as many splits as groups, and fit every model that
        has one with 3 to 10 seeds, so that about `splits` scores come together.
    seed
        Random split i, and the models on it, use ``seed + i``.
    progress
        Called as ``progress(done, total, what)``.
    target
        What regression fits, see `perfml.modeling.scoring.protocols.TARGETS`.
    average
        Whether the protocols that leave layers, shapes or larger groups out learn from, and are
        scored on, the mean of each condition's repeats, as `rank` does: repeats tell nothing of a
        layer that is not among them, and ten of them take ten times as long. Random splits of the
        rows stay what they are. Rows of `predictions` are then those of `average_repeats`.
    quick
        Whether ensembles (``gbr``, ``rf``) are fitted with one seed a fold: their trees average
        over ties, so that another seed changes a score by less than another layer does.
    n_jobs
        Processes; None starts one a core where the work takes longer than a few seconds.

    Returns
    -------
    Evaluation

    Raises
    ------
    PerfmlError
        If a name is unknown, or the table has too few rows, layers or backends for the task.

    Examples
    --------
    >>> import perfml
    >>> from sklearn.linear_model import Ridge
    >>> table = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    >>> found = perfml.evaluate(
    ...     table[["layer", "dram_utilization", "achieved_occupancy", "time_us"]],
    ...     "time_us", groups="layer", models=["dt", Ridge()], splits=2,
    ... )
    >>> scores = found.scores[~found.scores["baseline"]]
    >>> sorted(set(zip(scores["model"], scores["protocol"])))  # doctest: +NORMALIZE_WHITESPACE
    [('Ridge', 'leave-one-group-out'), ('Ridge', 'random'),
     ('dt', 'leave-one-group-out'), ('dt', 'random')]
    """
    _check_splits(splits)
    if y is None:
        problem = build_problem(X, task or "regression", features or "default")
        frame = X
    else:
        problem = own_problem(X, y, groups, task, features)
        frame = pd.DataFrame()
    chosen = chosen_models(models, problem.task)
    whole = problem, make_target(target, frame)
    means: _Data | None = None
    named = (protocols,) if isinstance(protocols, str) else protocols
    named = own_protocols(named, problem) if problem.words.own else named
    kept, warnings = _possible(named, problem)
    tasks = []
    for name in kept:
        data = whole
        if average and y is None and name.startswith("leave-one-"):
            data = means = means or _averaged(X, problem.task, features or "default", target)
        learned, goal = data
        protocol = make_protocol(name, learned, splits=splits, seed=seed)
        works = [
            Work(
                learned,
                goal,
                tuple(model.handle for model in chosen),
                possible_baselines(learned),
                split,
                _seeds(protocol, index, splits, seed, learned.rows),
                quick=quick,
            )
            for index, split in enumerate(protocol.splits)
        ]
        _check_trainable(learned, protocol)
        tasks.append(_Task(protocol, learned, works, []))
    notes = _run(tasks, chosen, n_jobs, progress)
    timed = problem.task == "regression" and not problem.words.own
    if timed and (note := time_note(frame)) is not None:
        warnings.append(note)
    return _result(problem, tasks, chosen, seed, target, (*warnings, *sentences(notes)))


def _averaged(layers: pd.DataFrame, task: str, features: str | Sequence[str], target: str) -> _Data:
    means = average_repeats(layers)
    return build_problem(means, task, features), make_target(target, means)


def _check_splits(splits: int) -> None:
    if splits < 1:
        msg = "at least one split is needed"
        raise PerfmlError(msg, found=str(splits), cure="Ask for one or more splits.")


def _possible(names: Sequence[str], problem: Problem) -> tuple[list[str], list[str]]:
    """Return the protocols that the table allows; leave out layer protocols where it has none."""
    kept, warnings = [], []
    for name in dict.fromkeys(names):
        lacking = _lacking(name, problem)
        if lacking is None or len(names) == 1:
            kept.append(name)
        else:
            warnings.append(
                f"Protocol {name} was left out: {lacking}. Random splits alone say nothing about "
                "a layer that was not measured."
            )
    if not kept:
        msg = "no protocol is left that this table allows"
        raise PerfmlError(msg, found=", ".join(names), cure="Name a layer in every row.")
    return kept, warnings


def _lacking(name: str, problem: Problem) -> str | None:
    base = name.partition(":")[0]
    if base == "leave-one-shape-out" and (problem.shape < 0).any():
        return "the table does not hold the shapes of its layers"
    for what in ("network", "kind", "device"):
        if base == f"leave-one-{what}-out" and not getattr(problem, what).any():
            return f"the table tells of one {what} only"
    if base not in ("leave-one-layer-out", "grouped", "leave-one-condition-out"):
        return None
    if not problem.has_layers:
        return "the table does not name the layer of every row"
    if problem.n_layers < 2 and base != "leave-one-condition-out":
        return "the table has only one layer"
    return None


def _check_trainable(problem: Problem, protocol: Protocol) -> None:
    if problem.task == "regression":
        return
    words = problem.words
    for train, test in protocol.splits:
        if len(np.unique(problem.truth[train])) < 2:
            what = "class" if words.own else "backend"
            msg = f"protocol {protocol.name} leaves one {what} to learn from"
            cure = "Profile every backend on at least two layers, or use random splits."
            if words.own:
                cure = f"Give rows of every class in at least two {words.groups}."
            raise PerfmlError(
                msg, where=f"{words.group} {problem.layer_names[test[0]]} held out", cure=cure
            )


def _seeds(protocol: Protocol, index: int, splits: int, seed: int, rows: int) -> tuple[int, ...]:
    if protocol.random and protocol.name.startswith("random"):
        return (seed + index,)
    if rows > MANY_ROWS:
        return (seed,)
    wanted = math.ceil(splits / len(protocol.splits))
    return tuple(range(seed, seed + min(MOST_SEEDS, max(LEAST_SEEDS, wanted))))


def _run(
    tasks: list[_Task],
    models: Sequence[Model],
    n_jobs: int | None,
    progress: Progress | None,
) -> Notes:
    notes: Notes = Counter()
    works = [(task, work) for task in tasks for work in task.works]
    seconds = sum(fitting_seconds(models, work.problem, len(work.seeds)) for _, work in works)
    outcomes = run_all(
        run_split,
        [work for _, work in works],
        n_jobs=n_jobs,
        seconds=seconds,
        progress=progress,
        what=f"{tasks[0].problem.task}: splits",
        notes=notes,
    )
    for (task, _), found in zip(works, outcomes, strict=True):
        task.outcomes.append(found)
    return notes


def _result(
    problem: Problem,
    tasks: list[_Task],
    models: Sequence[Model],
    seed: int,
    target: str,
    warnings: tuple[str, ...],
) -> Evaluation:
    folds = _folds(tasks)
    scores = _scores(folds, problem.task)
    leakage = _leakage(problem, scores, models, seed)
    notes = [*([] if problem.words.grouped else [NO_GROUPS]), *problem.notes]
    notes += [leakage.warning] if leakage.warning else []
    notes += _gap_warnings(scores, problem)
    return Evaluation(
        task=problem.task,
        features=problem.design.names,
        dropped=problem.design.dropped,
        scores=scores,
        predictions=_predictions(tasks),
        leakage=leakage,
        warnings=(*notes, *warnings),
        folds=folds.drop(columns="baseline"),
        classes=problem.classes,
        target=target,
        words=problem.words,
    )


def _folds(tasks: list[_Task]) -> pd.DataFrame:
    rows = [
        (each.model, task.protocol.name, split, each.seed, each.score, each.model in baselines)
        for task in tasks
        for split, (work, found) in enumerate(zip(task.works, task.outcomes, strict=True))
        for baselines in (work.baselines,)
        for each in found
    ]
    columns = ["model", "protocol", "split", "seed", "score", "baseline"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["seed"] = frame["seed"].astype("Int64").mask(frame["seed"] < 0)
    return frame


def _scores(folds: pd.DataFrame, task: str) -> pd.DataFrame:
    fits = folds.groupby(["protocol", "baseline", "model"], sort=False)["score"]
    scores = fits.agg(["mean", "median"]).assign(
        q025=fits.quantile(0.025),
        q975=fits.quantile(0.975),
        splits=fits.size(),
        score="mape" if task == "regression" else "accuracy",
    )
    scores = scores.reset_index()
    # models before the baselines they have to beat, protocols as asked for
    place = {name: index for index, name in enumerate(dict.fromkeys(folds["protocol"]))}
    order = scores["protocol"].map(place) * 2 + scores["baseline"]
    return scores.iloc[np.argsort(order, kind="stable")][list(Score.keys)].reset_index(drop=True)


def _leakage(problem: Problem, scores: pd.DataFrame, models: Sequence[Model], seed: int) -> Leakage:
    shown = scores[scores["protocol"].str.startswith("random")]
    medians = dict(zip(shown["model"], shown["median"], strict=True))
    return detect_leakage(
        problem,
        seed=seed,
        model_scores={m.name: float(medians[m.name]) for m in models if m.name in medians},
        baseline_scores={
            n: float(medians[n]) for n in baseline_names(problem.task) if n in medians
        },
    )


def _gap_warnings(scores: pd.DataFrame, problem: Problem) -> list[str]:
    """Return sentences about scores that do not survive holding out layers."""
    task, words = problem.task, problem.words
    kind = scores["protocol"].str.partition(":")[0]
    unseen = _means(scores[kind.isin(UNSEEN)])
    seen = _means(scores[scores["protocol"].str.startswith("random")])
    if not unseen:
        return []
    rivals = (*baseline_names(task), *ROOFLINE_BASELINES)
    models = [name for name in unseen if name not in rivals]
    simple = {
        name: unseen[name]
        for name in ("training-mean", "backend-mean", "most-frequent")
        if name in unseen
    }
    if task == "regression":
        rival = min(simple, key=lambda name: simple[name])
        worse = [name for name in models if unseen[name] >= simple[rival]]
    else:
        rival = max(simple, key=lambda name: simple[name])
        worse = [name for name in models if unseen[name] <= simple[rival]]
    notes = []
    if worse:
        verb = "predicts" if len(worse) == 1 else "predict"
        notes.append(
            f"On {words.groups} not seen in training "
            f"{listed([title_of(name, task) for name in worse])} {verb} no better than the "
            f"baseline {rival} ({percent(simple[rival], 3)})."
        )
    fallen = [
        name
        for name in models
        if task == "regression" and name in seen and unseen[name] > GAP * seen[name]
    ]
    if fallen:
        best = min(fallen, key=lambda name: unseen[name])
        notes.append(
            f"Expect of a new {words.group} the mean error of unseen {words.groups}, not of random "
            f"splits. For the {words.target} it is {percent(unseen[best], 3)}, not "
            f"{percent(seen[best], 3)} ({title_of(best, task)})."
        )
    return notes


def _means(scores: pd.DataFrame) -> dict[str, float]:
    means: dict[str, float] = {}
    for name, mean in zip(scores["model"].tolist(), scores["mean"].tolist(), strict=True):
        means.setdefault(name, mean)
    return means


def _predictions(tasks: list[_Task]) -> pd.DataFrame:
    frames = []
    for task in tasks:
        problem = task.problem
        truth = problem.truth
        if problem.classes:
            truth = np.asarray(problem.classes, dtype=object)[problem.truth]
        sums: dict[str, npt.NDArray[np.float64]] = {}
        width = max(1, len(problem.classes))
        counts: dict[str, npt.NDArray[np.int64]] = {}
        for work, found in zip(task.works, task.outcomes, strict=True):
            test = work.split[1]
            for each in found:
                total = sums.setdefault(each.model, np.zeros((problem.rows, width)))
                count = counts.setdefault(each.model, np.zeros(problem.rows, dtype=np.int64))
                count[test] += 1
                if problem.classes:
                    total[test, each.predicted] += 1
                else:
                    total[test, 0] += each.predicted
        for model, total in sums.items():
            rows = np.flatnonzero(counts[model])
            guess: Any = total[rows, 0] / counts[model][rows]
            if problem.classes:
                guess = np.asarray(problem.classes, dtype=object)[total[rows].argmax(axis=1)]
            frames.append(
                pd.DataFrame(
                    {
                        "row": rows,
                        "layer": problem.layer_names[rows],
                        "backend": problem.backend[rows],
                        "model": model,
                        "protocol": task.protocol.name,
                        "truth": truth[rows],
                        "predicted": guess,
                        "count": counts[model][rows],
                    }
                )
            )
    joined = pd.concat(frames, ignore_index=True)
    if tasks and tasks[0].problem.words.own:
        joined.attrs[OWN_TARGET] = tasks[0].problem.words.target
    return joined
