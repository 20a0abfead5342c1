"""What every search for a set of metrics needs: its question, its folds, a score."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling.features import Design, Problem, build_problem
from perfml.modeling.models.registry import get_model
from perfml.modeling.scoring.baselines import baseline_names, predict_baseline
from perfml.modeling.scoring.folds import fit, predict, prepare, score
from perfml.modeling.scoring.protocols import Split, make_protocol
from perfml.modeling.scoring.targets import Target, make_target

FOLDS = 4
"""Folds of a search; a protocol with more has them dealt into so many, groups kept whole."""


@dataclass(frozen=True)
class Search:
    """What a search is asked, and the rows it may see; small enough for another process."""

    layers: pd.DataFrame
    task: str
    model: str
    protocol: str
    features: tuple[str, ...]
    target: str
    most: int
    seed: int

    @property
    def sign(self) -> float:
        """What a score is multiplied by to be a loss: minus one where more is better."""
        return -1.0 if self.task == "classification" else 1.0

    def prepared(self) -> tuple[Problem, Target, tuple[Split, ...]]:
        """Return the rows as a problem, what is predicted, and the folds to choose on."""
        layers = self.layers.reset_index(drop=True)
        problem = build_problem(layers, self.task, self.features)
        goal = make_target(self.target, layers)
        return problem, goal, search_folds(problem, self.protocol, self.seed)

    def repeatable(self, folds: tuple[Split, ...]) -> tuple[tuple[Split, ...], str | None]:
        """Return the folds a search can be repeated without; none, and why, where it cannot."""
        for train, _ in folds:
            part = dataclasses.replace(self, layers=self.layers.iloc[train])
            try:
                problem, _, inner = part.prepared()
            except PerfmlError as error:
                return (), error.what
            if problem.classes and any(
                len(np.unique(problem.truth[each])) < 2 for each, _ in inner
            ):
                return (), "a part of the data has one backend only"
        return folds, None


def search_folds(problem: Problem, protocol: str, seed: int) -> tuple[Split, ...]:
    """Return the protocol's splits, dealt into `FOLDS` where there are more."""
    made = make_protocol(protocol, problem, splits=FOLDS, seed=seed)
    splits = made.splits
    if len(splits) <= FOLDS:
        return splits
    order = np.random.default_rng(seed).permutation(len(splits))
    every = np.arange(problem.rows)
    dealt = []
    for start in range(FOLDS):
        test = np.sort(np.concatenate([splits[index][1] for index in order[start::FOLDS]]))
        dealt.append((np.setdiff1d(every, test), test))
    return tuple(dealt)


def predictions(
    problem: Problem,
    goal: Target,
    model: str,
    split: Split,
    columns: Sequence[int],
    seed: int,
) -> np.ndarray:
    """Return what a model fitted on some columns of the training rows says of the test rows."""
    # columns in the table's order: the order of choice must not decide a tie in a tree
    ordered = sorted(columns)
    part = dataclasses.replace(
        problem,
        design=Design(
            problem.design.values[:, ordered],
            tuple(problem.design.names[column] for column in ordered),
            {},
        ),
    )
    train, test = split
    prepared = prepare(part, train, test)
    fitted = fit(get_model(model, problem.task), part, goal, prepared.train, train, seed)
    return predict(fitted, part, goal, prepared.test, test)


def mean_score(
    problem: Problem,
    goal: Target,
    model: str,
    folds: Sequence[Split],
    columns: Sequence[int],
    seed: int,
) -> float:
    """Return the mean score over folds of a model on some columns; fold i uses ``seed + i``."""
    scores = [
        score(
            problem.task,
            problem.truth[split[1]],
            predictions(problem, goal, model, split, columns, seed + index),
        )
        for index, split in enumerate(folds)
    ]
    return float(np.mean(scores))


def best_baseline(problem: Problem, split: Split) -> tuple[str, float]:
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
