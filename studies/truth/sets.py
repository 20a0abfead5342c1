"""Whose answer is right, set by set: perfml's causes, Nsight Compute's rules, the largest change.

Run: ``python -m studies.truth.sets [--strangers DIR] --out FILE``. No GPU is needed. All methods
are asked the same questions: the table of Nsight Compute's rules is of the questions that they were
recorded for, and has the other two on those, too. ``python -m studies.truth.page`` writes what is
found on the page.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from perfml.datasets import find
from perfml.explain.launches import Launches, changes_between
from perfml.explain.tree.layer import kernel_causes
from perfml.explain.tree.layer_causes import Causes
from perfml.metrics import PUBLISHED
from studies.truth.factorial import pairs
from studies.truth.questions import (
    Question,
    columns_of,
    exam_half,
    planted_questions,
    stranger_questions,
)
from studies.truth.scores import ASIDE, CONFIDENT, DEVELOP, half_of, run_study

COLUMNS: dict[str, tuple[str, ...] | None] = {
    "all that was recorded": None,
    "default": columns_of("default"),
    "published, with launch facts": columns_of("published"),
    "the 19 columns": PUBLISHED,
}
"""Metrics that perfml is given."""

BULK = "planted, two families of bulk copies, H200"

SETS: dict[str, Callable[[], list[Question]]] = {
    "planted, 19 older families, H200": lambda: planted_questions(find("h200-planted")),
    "planted, 18 newer families, H200": lambda: planted_questions(
        find("h200-planted-causes"), newer=True
    ),
    "planted, 18 newer families, H100": lambda: planted_questions(
        find("h100-planted-causes"), newer=True
    ),
    BULK: lambda: planted_questions(find("h200-planted-causes") / "bulk", newer=True),
    "six families kept aside, H200": lambda: planted_questions(
        find("h200-planted-causes"), held_out=True
    ),
    "six families kept aside, H100": lambda: planted_questions(
        find("h100-planted-causes"), held_out=True
    ),
}
STRANGERS = "public reports of strangers"


def factorial_half(half: str) -> list[Question]:
    """Return the pairs of kernels with several causes, by the half of the kernel."""
    found = (pair.question for pair in pairs())
    return [question for question in found if half_of(question.family) == half]


EXAM_SETS = {half: f"ten exams, {half}" for half in (DEVELOP, ASIDE)}
FACTORIAL_SETS = {half: f"ten kernels with five toggles, {half}, H100" for half in (DEVELOP, ASIDE)}
"""What was read by those who mended, and what was counted alone."""

EVERY = {
    **SETS,
    **{name: partial(exam_half, half) for half, name in EXAM_SETS.items()},
    **{name: partial(factorial_half, half) for half, name in FACTORIAL_SETS.items()},
}


@dataclass(frozen=True)
class Verdict:
    """How good one answer is.

    Attributes
    ----------
    place
        Of the cause, from 1; None if it is not named.
    symptom
        Whether a symptom of the cause stands first.
    wrong
        Whether something else stands first, with confidence, and is no rest.
    said
        Whether the first line says that something cannot be told: confidence is below high.
    named_missing
        Whether the cause is among what that line says.
    first
        What stands first.
    """

    place: int | None
    symptom: bool
    wrong: bool
    said: bool
    named_missing: bool
    first: str


def causes_of(question: Question) -> Causes:
    """Return what `perfml explain` finds."""
    changes = changes_between(question.before.names, question.after.names)
    return kernel_causes(changes, question.before, question.after, same_device=question.comparable)


def ask_perfml(question: Question) -> Verdict:
    """Return how good the causes are."""
    causes = causes_of(question)
    sign = math.copysign(1.0, causes.log_ratio)
    totals = [each for each in causes.totals if sign * each.log_ratio > 0]
    names = [each.term.id for each in totals]
    accepted = question.accepted
    place = next((at for at, name in enumerate(names, 1) if name in accepted.terms), None)
    symptom = bool(names) and names[0] in accepted.symptoms
    sure = bool(totals) and not totals[0].term.residual
    sure = sure and totals[0].log_ratio / causes.log_ratio >= CONFIDENT
    untold = causes.untold
    missing = {term.id for term in untold.causes} if untold is not None else set()
    return Verdict(
        place,
        symptom,
        sure and place != 1 and not symptom,
        untold is not None,
        bool(missing & accepted.terms),
        names[0] if names else "",
    )


def ask_largest_change(question: Question) -> Verdict:
    """Return how good the naive rival is: the metric with the largest relative change is the cause.

    Metrics are those of the longest launch; times and shapes of the launch are no causes.
    """
    sides = [max(side.launches or (), key=lambda one: one.time_us) for side in _both(question)]
    change = {
        name: abs(math.log(sides[1][name] / value))
        for name, value in sides[0].counters.items()
        if value > 0 and sides[1][name] > 0 and not _NO_CAUSE.search(name)
    }
    order = sorted(change, key=lambda name: -change[name])
    patterns = question.accepted.metrics
    hits = (at for at, name in enumerate(order, 1) if any(re.search(p, name) for p in patterns))
    place = next(hits, None)
    wrong = bool(order) and place != 1
    return Verdict(place, False, wrong, False, False, order[0] if order else "")


_NO_CAUSE = re.compile(r"time|duration|^kernels$|^launches$|^threads$|_per_thread$|_per_block$")


def _both(question: Question) -> tuple[Launches, Launches]:
    return question.before, question.after


def ask_rules(question: Question) -> Verdict | None:
    """Return how good Nsight Compute's rules are; None where they were not recorded."""
    if question.remarks is None:
        return None
    texts = [remark.text for remark in question.remarks]
    patterns = question.accepted.rules
    hits = (at for at, text in enumerate(texts, 1) if any(re.search(p, text) for p in patterns))
    place = next(hits, None)
    first = question.remarks[0] if texts else None
    sure = first is not None and (first.speedup or 0.0) >= CONFIDENT
    return Verdict(place, False, sure and place != 1, False, False, texts[0][:60] if texts else "")


def tally(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Count."""
    return {
        "cases": len(verdicts),
        "first": sum(each.place == 1 for each in verdicts),
        "three": sum(each.place is not None and each.place <= 3 for each in verdicts),
        "symptom": sum(each.symptom and each.place != 1 for each in verdicts),
        "wrong": sum(each.wrong for each in verdicts),
        "wrong_and_silent": sum(each.wrong and not each.said for each in verdicts),
        "said": sum(each.said for each in verdicts),
        "right_and_hedged": sum(each.said and each.place == 1 for each in verdicts),
        "named_missing": sum(each.named_missing and each.place != 1 for each in verdicts),
        "not_first": sum(each.place != 1 for each in verdicts),
    }


def measure_set(questions: Sequence[Question]) -> dict[str, Any]:
    """Return the scores of all methods on one set, and what is not first with all counters."""
    found: dict[str, Any] = {"columns": {}, "same_questions": {}}
    for name, columns in COLUMNS.items():
        verdicts = [ask_perfml(each.cut(columns)) for each in questions]
        found["columns"][name] = tally(verdicts)
    found["largest change"] = tally([ask_largest_change(each) for each in questions])
    ruled = [each for each in questions if each.remarks is not None]
    if ruled:
        found["same_questions"] = {
            "perfml, default metrics": tally(
                [ask_perfml(each.cut(COLUMNS["default"])) for each in ruled]
            ),
            "Nsight Compute's rules": tally([_known(ask_rules(each)) for each in ruled]),
            "largest change": tally([ask_largest_change(each) for each in ruled]),
        }
    return found


def _known(verdict: Verdict | None) -> Verdict:
    assert verdict is not None
    return verdict


def measure_all(strangers: Path | None = None) -> dict[str, Any]:
    """Return the scores of every set; without the strangers where there is no folder of them."""
    found = {name: measure_set(questions()) for name, questions in EVERY.items()}
    if strangers is not None:
        steps, same = stranger_questions(strangers)
        found[STRANGERS] = measure_set(steps)
        apart = [abs(math.expm1(causes_of(each).log_ratio)) for each in same]
        found[STRANGERS]["equal"] = {"cases": len(same), "largest": float(np.max(apart))}
    return found


if __name__ == "__main__":
    sys.exit(run_study(measure_all, __doc__))
