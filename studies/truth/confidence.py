"""How certain is a first cause? The model of `perfml.explain.tree.confidence`, fitted and measured.

Run: ``python -m studies.truth.confidence --out perfml/explain/tree/confidence.json``; a minute, no
GPU. Recorded pairs whose cause is known are asked with four sets of counters. The model is logistic
with weights that cannot be negative. It is fitted on planted pairs and on the half *develop* of the
exams (by a hash of the pair's name); the half *aside* is only measured. Held-out figures leave out
one exam or planted family at a time. *Firm* begins where held-out answers to the exams of that half
are right in 95 % or more.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from perfml.explain.launches import changes_between
from perfml.explain.tree.confidence import FEATURES, evidence_of
from perfml.explain.tree.layer import answers_of, layer_matches
from studies.truth.questions import Question, exam_questions
from studies.truth.scores import hand_over
from studies.truth.sets import COLUMNS, SETS
from studies.truth.strangers import EXAMS

PRECISION = 0.95
"""Of firm answers, held out."""
_STEP = 0.05
"""Of the probabilities that are tried: finer ones would be chosen by luck."""
DEVELOP, ASIDE, PLANTED = "develop", "aside", "planted"
_RIDGE = 0.01
"""Of the weights: keeps a weight finite where a feature decides everything."""
_PLANTED_WEIGHT = 0.2
"""Of a planted pair beside one of an exam: there are many, each in twelve variants."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """An answer whose truth is known.

    Attributes
    ----------
    part
        ``planted``, ``develop`` or ``aside``.
    group
        Exam or planted family, which is left out together.
    columns
        Set of counters.
    features
        As in `FEATURES`.
    right
        Whether the first cause is an accepted one.
    residual
        Whether it is a rest, which is never firm.
    """

    part: str
    group: str
    columns: str
    features: tuple[float, ...]
    right: bool
    residual: bool


def half_of(case: str) -> str:
    """Return the half of the exams that a pair belongs to."""
    return DEVELOP if hashlib.sha256(case.encode()).digest()[0] % 2 == 0 else ASIDE


def questions() -> Iterator[tuple[str, str, Question]]:
    """Yield part, group and question of every recorded pair."""
    for ask in SETS.values():
        for question in ask():
            yield PLANTED, question.family, question
    for name, exam in EXAMS.items():
        left_out = exam.document("decision.json")["left_out"]
        for question in exam_questions(exam.dataset):
            if question.case not in left_out:
                yield half_of(question.case), name, question


def cases() -> list[Case]:
    """Return all answers."""
    found = []
    for part, group, question in questions():
        for name, columns in COLUMNS.items():
            asked = question.cut(columns)
            changes = changes_between(asked.before.names, asked.after.names)
            answered, others, ratio = answers_of(layer_matches(changes, asked.before, asked.after))
            evidence = evidence_of(answered, others, ratio)
            if evidence is not None:
                right = evidence.first.id in question.accepted.terms
                residual = evidence.first.residual
                found.append(Case(part, group, name, evidence.features, right, residual))
    return found


def fit(some: Sequence[Case]) -> Array:
    """Return intercept and weights; no weight is negative."""
    rows = np.array([each.features for each in some])
    truth = np.array([each.right for each in some], dtype=float)
    weight = np.array([_PLANTED_WEIGHT if each.part == PLANTED else 1.0 for each in some])

    def loss(point: Array) -> float:
        value = point[0] + rows @ point[1:]
        each = np.logaddexp(0, value) - truth * value
        return float(np.average(each, weights=weight) + _RIDGE * np.sum(point[1:] ** 2) / 100)

    bounds = [(None, None), *((0.0, None) for _ in FEATURES)]
    start = np.zeros(len(FEATURES) + 1)
    found: Array = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
    return found


def predict(point: Array, some: Sequence[Case]) -> Array:
    """Return the probability of each answer."""
    value = point[0] + np.array([each.features for each in some]) @ point[1:]
    sure: Array = 1 / (1 + np.exp(-value))
    return np.where([each.residual for each in some], 0.0, sure)


def held_out(some: Sequence[Case]) -> Array:
    """Return the probability of each answer by a model that has not seen its group."""
    found = np.zeros(len(some))
    for group in {each.group for each in some}:
        inside = [at for at, each in enumerate(some) if each.group == group]
        point = fit([each for each in some if each.group != group])
        found[inside] = predict(point, [some[at] for at in inside])
    return found


def curve(sure: Array, some: Sequence[Case]) -> list[dict[str, float]]:
    """Return how many answers reach each probability, and how many of these are right."""
    right = np.array([each.right for each in some])
    rows = []
    for least in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97):
        taken = sure >= least
        count = int(taken.sum())
        rows.append(
            {"from": least, "answers": count, "right": int(right[taken].sum()), "of": len(some)}
        )
    return rows


def firm_from(sure: Array, some: Sequence[Case]) -> float:
    """Return the least probability from which on answers are right as often as `PRECISION`."""
    right = np.array([each.right for each in some])
    for least in np.arange(0.5, 1.0, _STEP):
        taken = sure >= least
        if taken.any() and right[taken].mean() >= PRECISION:
            return round(float(least), 3)
    return 0.99


def measure() -> dict[str, Any]:
    """Return the model, and what was measured of it."""
    found = cases()
    fitted = [each for each in found if each.part != ASIDE]
    point = fit(fitted)
    out = held_out(fitted)
    exams = [at for at, each in enumerate(fitted) if each.part == DEVELOP]
    of_exams = [fitted[at] for at in exams]
    aside = [each for each in found if each.part == ASIDE]
    by_columns = {
        name: curve(predict(point, some), some)
        for name in COLUMNS
        if (some := [each for each in aside if each.columns == name])
    }
    return {
        "command": "python -m studies.truth.confidence --out perfml/explain/tree/confidence.json",
        "features": list(FEATURES),
        "intercept": round(float(point[0]), 3),
        "weights": [round(float(value), 3) for value in point[1:]],
        "firm": firm_from(out[exams], of_exams),
        "held out, exams, half develop": curve(out[exams], of_exams),
        "never fitted, exams, half aside": by_columns,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, measure, and write or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*empty slice.*")
    hand_over(measure(), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
