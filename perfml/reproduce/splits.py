"""Fit every model on every split: the published protocol, and whole layers held out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lstsq
from sklearn.linear_model import LinearRegression

from perfml.modeling.features import Problem
from perfml.modeling.models.registry import Model, get_model
from perfml.modeling.parallel import LinearTreeRegressorCompat, run_all
from perfml.modeling.scoring.folds import Outcome, Work, run_split
from perfml.modeling.scoring.protocols import Target, leave_one_out, random_splits
from perfml.reproduce.published import KEY_METRIC
from perfml.util.typing import Floats, Progress

FEW = 10
"""Splits up to which starting worker processes takes longer than the fits."""

OWN = "lmt:perfml"
REGRESSION = ("dt", "gbr", "lmt", OWN)
"""``lmt`` is linear-tree, which the study used; ``lmt:perfml`` is perfml's own."""

CLASSIFICATION = ("dt", "lr", "lr:0.1", "lr:standardized", "rf")


class UncheckedRegression(LinearRegression):  # type: ignore[misc]
    """scikit-learn's LinearRegression without its checks, fitting the same rows once.

    A tree comes back to the same rows by cutting twice in either order. Its first fit is compared
    with LinearRegression's bit by bit; if they differed, that one would do all the fits. `state` is
    what was fitted before, shared by the copies that linear-tree makes.
    """

    coef_: Any
    intercept_: Any

    def __init__(self, state: dict[Any, Any] | None = None) -> None:
        super().__init__()
        self.state = state

    def __deepcopy__(self, memo: dict[int, Any]) -> UncheckedRegression:
        return UncheckedRegression(self.state)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> UncheckedRegression:
        """Fit as LinearRegression does."""
        known = None if self.state is None else self.state.get("equal")
        if sample_weight is not None or self.state is None or known is False:
            super().fit(X, y, sample_weight)
            return self
        rows = (X.tobytes(), y.tobytes())
        if rows in self.state:
            self.coef_, self.intercept_ = self.state[rows]
            return self
        self._solve(X, y)
        self.state[rows] = (self.coef_, self.intercept_)
        if known is None:
            ours = (self.coef_, self.intercept_)
            super().fit(X, y)
            equal = np.array_equal(ours[0], self.coef_) and ours[1] == self.intercept_
            self.state["equal"] = bool(equal)
        return self

    def _solve(self, X: Any, y: Any) -> None:
        # linear-tree hands on single precision, to which LinearRegression rounds y as well
        y = y.astype(X.dtype)
        x_mean, y_mean = np.average(X, axis=0).astype(X.dtype), np.average(y)
        self.coef_ = lstsq(X - x_mean, y - y_mean, cond=getattr(self, "tol", None))[0]
        self.intercept_ = y_mean - x_mean @ self.coef_

    def predict(self, X: Any) -> Any:
        """Return what LinearRegression does, without checking X again."""
        return X @ self.coef_ + self.intercept_


class StudiedTree(LinearTreeRegressorCompat):
    """linear-tree's regressor, trying each partition of a node's rows once.

    It tries up to 23 thresholds a metric; on metrics of two decimals many of them part the rows as
    an earlier one does. Of equal losses it keeps the first, so leaving the later ones out changes
    nothing but the time.
    """

    def _split(self, X: Any, y: Any, bins: Any, *rest: Any, **named: Any) -> Any:
        seen: set[bytes] = set()
        fewest = self._min_samples_leaf
        kept = []
        for column, thresholds in enumerate(bins):
            parts = X[:, column, None] > thresholds
            right = parts.sum(axis=0)
            few = (right < fewest) | (len(X) - right < fewest)
            first = []
            for place, threshold in enumerate(thresholds):
                part = parts[:, place]
                if not few[place] and part.tobytes() not in seen:
                    # the same two sides the other way round have the same sum of losses
                    seen |= {part.tobytes(), (~part).tobytes()}
                    first.append(threshold)
            kept.append(np.array(first, dtype=np.asarray(thresholds).dtype))
        return super()._split(X, y, kept, *rest, **named)


def studied_model(name: str, task: str) -> Model:
    """Return a model of this analysis; `get_model` with the study's linear-tree as ``lmt``."""
    if name == "lmt":
        return dataclasses.replace(
            get_model("lmt:linear-tree", task),
            name="lmt",
            make=lambda seed: StudiedTree(base_estimator=UncheckedRegression({})),
        )
    if name == OWN:
        return dataclasses.replace(get_model("lmt", task), name=OWN)
    return get_model(name, task)


@dataclass(frozen=True)
class Scores:
    """What one model did over the splits of one protocol."""

    score: Floats  # Shape (fits,)
    importance: Floats | None  # Shape (fits, metrics), or None for baselines
    # Shape (fits, classes, metrics): absolute coefficients of the logistic regression
    coefficients: Floats | None
    group: npt.NDArray[np.int64]  # Shape (fits,): which split; for held-out layers, which layer


@dataclass(frozen=True)
class Runs:
    """All fits of one task."""

    problem: Problem  # what was modelled
    # model or baseline to `Scores`, on random splits and on held-out layers; `unseen` is empty
    # where the layers are unknown
    random: dict[str, Scores]
    unseen: dict[str, Scores]
    layers: tuple[str, ...]  # names of the held-out layers, in the order of `Scores.group`
    test_size: float  # share of test rows of a random split


@dataclass(frozen=True)
class Plan:
    """How much to fit."""

    splits: int = 500  # random splits; split i and the models on it use seed i
    test_size: float = 0.3  # share of test rows
    # model seeds a held-out layer: ties between metrics make a single fit arbitrary
    model_seeds: int = 10
    # splits of perfml's own linear model tree, which no published number is compared with
    own_splits: int = 100
    # splits of linear-tree, which is slow on more rows than the study had; None means all. It
    # holds no layer out where there are more layers than this
    study_splits: int | None = None
    n_jobs: int = -1  # Processes; -1 is one a core


def run_tasks(
    problems: Sequence[Problem], plan: Plan, progress: Progress | None = None
) -> list[Runs]:
    """Fit the models of each task under both protocols."""
    planned = [_works(problem, plan) for problem in problems]
    every = [work for works in planned for work in works]
    fits = iter(run_works(every, plan, 0.1, progress, "splits"))
    runs = []
    for problem, works in zip(problems, planned, strict=True):
        found = [next(fits) for _ in works]
        layers = tuple(
            str(problem.layer_names[np.flatnonzero(problem.layer == code)[0]])
            for code in range(problem.n_layers if problem.has_layers else 0)
        )
        scores = (scores_of(found[: plan.splits]), scores_of(found[plan.splits :]))
        runs.append(Runs(problem, *scores, layers, plan.test_size))
    return runs


def run_works(
    works: list[Work], plan: Plan, seconds: float, progress: Progress | None, what: str
) -> list[list[Outcome]]:
    """Fit every piece of work, in processes where `seconds` each make that worth while."""
    return run_all(
        run_split,
        works,
        n_jobs=plan.n_jobs if plan.splits > FEW else 1,
        seconds=seconds * len(works),
        progress=progress,
        what=what,
    )


def _works(problem: Problem, plan: Plan) -> list[Work]:
    """Return one piece of work a random split, and then one a layer that is held out."""
    regression = problem.task == "regression"
    models = REGRESSION if regression else CLASSIFICATION
    random = ["condition-mean", "training-mean"] if regression else ["most-frequent"]
    random += ["lookup"] + [f"lookup:{KEY_METRIC}"] * (KEY_METRIC in problem.design.names)
    most = {OWN: plan.own_splits}
    if plan.study_splits is not None:
        most["lmt"] = plan.study_splits
    splits = random_splits(problem.rows, plan.splits, test_size=plan.test_size)
    works, work = [], work_maker(problem)
    for seed, split in enumerate(splits):
        some = tuple(name for name in models if seed < most.get(name, plan.splits))
        works.append(work(some, tuple(random), split, (seed,), ("builtin", "classes")))
    if not problem.has_layers or problem.n_layers < 2:
        return works
    # many layers average over the seeds by themselves
    seeds = tuple(range(max(2, plan.model_seeds * 2 // problem.n_layers)))
    unseen = tuple(name for name in random if name != "condition-mean")
    layers = problem.n_layers
    some = tuple(name for name in models if name != "lmt" or layers <= most.get(name, layers))
    for split in leave_one_out(problem.layer, "layer"):
        works.append(work(some, unseen, split, seeds, ("builtin",)))
    return works


def work_maker(problem: Problem) -> Callable[..., Work]:
    """Return what makes work of models, baselines, split, model seeds, and importances."""
    return functools.partial(Work, problem, Target("time"), find=studied_model)


def scores_of(found: Sequence[Sequence[Outcome]]) -> dict[str, Scores]:
    """Return what each model and baseline did, given its outcomes on each split."""
    by_model: dict[str, list[tuple[int, Outcome]]] = {}
    for group, outcomes in enumerate(found):
        for each in outcomes:
            by_model.setdefault(each.model, []).append((group, each))
    return {
        name: Scores(
            np.array([each.score for _, each in fits]),
            _stacked([next(iter(each.importances.values()), None) for _, each in fits]),
            _stacked([each.importances.get("classes") for _, each in fits if name == "lr"]),
            np.array([group for group, _ in fits], dtype=np.int64),
        )
        for name, fits in by_model.items()
    }


def _stacked(values: Sequence[Floats | None]) -> Floats | None:
    present = [value for value in values if value is not None]
    return np.stack(present) if present and len(present) == len(values) else None
