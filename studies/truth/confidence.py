"""How certain is a first cause? The model of `perfml.explain.tree.confidence`, fitted and measured.

Run: ``python -m studies.truth.confidence --out perfml/explain/tree/confidence.json``; a minute, no
GPU. Recorded pairs whose cause is known are asked with four sets of counters. The model is logistic
with weights that cannot be negative. It is fitted on planted pairs, on the exams and on the kernels
with five toggles. Held-out figures leave out one exam (an author) or family of kernels at a time.
*High* begins where 95 % is in the interval of how often held-out answers are right, in every part:
planted pairs, both halves of the exams, kernels in which several things changed; *medium* at 60 %.
"""

from __future__ import annotations

import argparse
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
from studies.truth.factorial import pairs
from studies.truth.questions import Question, exam_half
from studies.truth.scores import ASIDE, DEVELOP, hand_over, wilson
from studies.truth.sets import COLUMNS, SETS

PRECISION, MEDIUM = 0.95, 0.6
"""Of answers of high confidence, and of medium, held out."""
_ALL = next(iter(COLUMNS))
_STEP = 0.05
"""Of the probabilities that are tried: finer ones would be chosen by luck."""
_CHANCE = 1.645  # standard deviations of Wilson's interval, at 90 %
PLANTED, FACTORIAL = "planted", "factorial"
_RIDGE = 0.01
"""Of the weights: keeps a weight finite where a feature decides everything."""
WEIGHTS = {PLANTED: 0.2, DEVELOP: 1.0, ASIDE: 1.0, FACTORIAL: 0.1}
"""Of a pair: planted ones are in twelve variants, and ten kernels have a hundred pairs each."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """An answer whose truth is known.

    Attributes
    ----------
    part
        ``planted``, ``factorial``, ``develop`` or ``aside``.
    group
        Exam or family of kernels, which is left out together.
    columns
        Set of counters.
    features
        As in `FEATURES`.
    right
        Whether the first cause is an accepted one.
    residual
        Whether it is a rest, which never has high confidence.
    """

    part: str
    group: str
    columns: str
    features: tuple[float, ...]
    right: bool
    residual: bool


def questions() -> Iterator[tuple[str, Question]]:
    """Yield part and question of every recorded pair; of several causes the largest is right."""
    for ask in SETS.values():
        yield from ((PLANTED, question) for question in ask())
    for half in (DEVELOP, ASIDE):
        yield from ((half, question) for question in exam_half(half))
    yield from ((FACTORIAL, pair.question) for pair in pairs())


def cases() -> list[Case]:
    """Return all answers."""
    found = []
    for part, question in questions():
        for name, columns in COLUMNS.items():
            asked = question.cut(columns)
            changes = changes_between(asked.before.names, asked.after.names)
            answered, others, ratio = answers_of(layer_matches(changes, asked.before, asked.after))
            evidence = evidence_of(answered, others, ratio)
            if evidence is not None:
                right = evidence.first.id in question.accepted.terms
                residual = evidence.first.residual
                found.append(Case(part, question.family, name, evidence.features, right, residual))
    return found


def fit(some: Sequence[Case]) -> Array:
    """Return intercept and weights; no weight is negative."""
    rows = np.array([each.features for each in some])
    truth = np.array([each.right for each in some], dtype=float)
    weight = np.array([WEIGHTS[each.part] for each in some])

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


def curve(sure: Array, some: Sequence[Case], high: float = 0.9) -> list[dict[str, float]]:
    """Return how many answers reach each probability, and how many of these are right."""
    right = np.array([each.right for each in some])
    rows = []
    for least in sorted({0.5, 0.6, 0.7, 0.8, 0.9, high}):
        taken = sure >= least
        count = int(taken.sum())
        rows.append(
            {"from": least, "answers": count, "right": int(right[taken].sum()), "of": len(some)}
        )
    return rows


def _curve_of(part: str, sure: Array, some: Sequence[Case], high: float) -> list[dict[str, float]]:
    mine = [at for at, each in enumerate(some) if each.part == part]
    return curve(sure[mine], [some[at] for at in mine], high)


def firm_from(sure: Array, some: Sequence[Case]) -> float:
    """Return the least probability from which on no part is surely right less often than that."""
    # with all counters: of fewer ones the feature that says so makes high rare
    full = [each.columns == _ALL for each in some]
    for least in np.arange(0.5, 0.99, _STEP):
        firm = [one for one, p, all_ in zip(some, sure, full, strict=True) if all_ and p >= least]
        counts = [[one.right for one in firm if one.part == part] for part in WEIGHTS]
        if firm and all(wilson(sum(c), len(c), _CHANCE)[1] >= PRECISION for c in counts):
            return round(float(least), 3)
    return 0.99


def words(sure: Array, some: Sequence[Case], high: float, medium: float) -> dict[str, list[int]]:
    """Return how many answers of each word are right, and how many there are."""
    right = np.array([each.right for each in some])
    bands = {"high": (high, 1.01), "medium": (medium, high), "low": (0.0, medium)}
    said = {word: (sure >= least) & (sure < most) for word, (least, most) in bands.items()}
    return {word: [int(right[taken].sum()), int(taken.sum())] for word, taken in said.items()}


def measure() -> dict[str, Any]:
    """Return the model, and what was measured of it with one group after the other left out."""
    found = cases()
    point, out = fit(found), held_out(found)
    high = firm_from(out, found)
    exams = [at for at, each in enumerate(found) if each.part in (DEVELOP, ASIDE)]
    groups = {
        group: [at for at in exams if found[at].group == group and found[at].columns == _ALL]
        for group in dict.fromkeys(found[at].group for at in exams)
    }
    groups |= {
        f"{part}, {name}": [
            at for at, each in enumerate(found) if each.part == part and each.columns == name
        ]
        for part in (PLANTED, FACTORIAL)
        for name in COLUMNS
    }
    return {
        "command": "python -m studies.truth.confidence --out perfml/explain/tree/confidence.json",
        "features": list(FEATURES),
        "intercept": round(float(point[0]), 3),
        "weights": [round(float(value), 3) for value in point[1:]],
        "high": high,
        "medium": MEDIUM,
        "held out": {part: _curve_of(part, out, found, high) for part in WEIGHTS},
        "words, right of said, held out": {
            name: words(out[mine], [found[at] for at in mine], high, MEDIUM)
            for name, mine in groups.items()
        },
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
