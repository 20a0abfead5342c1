"""Nsight Compute's own rules on the slow sides of exams, beside `advise`, which is asked the same.

Run: ``python -m studies.truth.exam_rules --out tests/data/truth/exam_rules.json``; no GPU. Both see
the slow side alone. What `advise` said is the frozen first answer; what says a pair's cause is in
``accepted.json`` for `advise`, and what means the same in Nsight Compute is what the planted sets
are scored by (`questions.ncu_patterns`). Only counts are kept, for one half is not read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from studies.page_tables import markdown
from studies.truth.questions import ncu_patterns
from studies.truth.rules import Remark, exam_remarks
from studies.truth.scores import run_study
from studies.truth.strangers import EXAMS, Exam, accepted_rules

KEPT = Path(__file__).resolve().parents[2] / "tests/data/truth/exam_rules.json"
RULED = ("third", "fourth")
"""Exams whose slow sides Nsight Compute's rules were recorded of."""


@dataclass(frozen=True)
class Beside:
    """Counts over some pairs.

    Attributes
    ----------
    pairs
        How many they are.
    ncu_first, ncu_three, ours_first, ours_three
        The cause is first, and among the first three, of Nsight Compute's remarks and of the
        findings of `advise`.
    """

    pairs: int
    ncu_first: int
    ncu_three: int
    ours_first: int
    ours_three: int


def place_among(remarks: Sequence[Remark], patterns: Sequence[str]) -> int | None:
    """Return the place, from 1, of the first remark that says the cause."""
    places = (
        at
        for at, each in enumerate(remarks, 1)
        if any(re.search(pattern, each.text) for pattern in patterns)
    )
    return next(places, None)


def _patterns(accepted: Mapping[str, Any]) -> tuple[str, ...]:
    return ncu_patterns(accepted["terms"], accepted_rules(accepted))


def beside(exam: Exam, remarks: Mapping[str, Sequence[Remark]], known: Sequence[Remark]) -> Any:
    """Return the counts of an exam: of all pairs that are remarked on, and of those with a word.

    Parameters
    ----------
    exam
        The exam.
    remarks
        On each pair's slow side.
    known
        All remarks that were recorded of any pair: what says no cause of a pair among them was not
        recorded, or Nsight Compute has no word for the cause.
    """
    answers = exam.document("answers_first.json")[exam.recordings[0]]
    counted = exam.labelled()
    said = [name for name in counted if remarks.get(name)]
    patterns = {name: _patterns(counted[name]) for name in said}
    word = [name for name in said if place_among(known, patterns[name]) is not None]

    def of(names: Sequence[str]) -> dict[str, int]:
        theirs = [place_among(remarks[name], patterns[name]) for name in names]
        ours = [_place_of_ours(answers[name], accepted_rules(counted[name])) for name in names]
        places = (_within(found, limit) for found in (theirs, ours) for limit in (1, 3))
        return asdict(Beside(len(names), *places))

    return {"pairs": len(counted), "said": of(said), "word": of(word)}


def _place_of_ours(answer: Mapping[str, Any], right: set[str]) -> int | None:
    found = (at for at, each in enumerate(answer["advice"], 1) if right & set(each["rules"]))
    return next(found, None)


def _within(places: Sequence[int | None], limit: int) -> int:
    return sum(at is not None and at <= limit for at in places)


def measure() -> dict[str, Any]:
    """Return the counts of every exam."""
    remarks = {name: exam_remarks(EXAMS[name].folder) for name in RULED}
    known = [each for found in remarks.values() for some in found.values() for each in some]
    return {name: beside(EXAMS[name], found, known) for name, found in remarks.items()}


def measured() -> dict[str, Any]:
    """Return what was measured."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def table() -> str:
    """Return the counts, for the page."""
    rows = []
    for name, found in measured().items():
        for which, words in _WHICH.items():
            each = Beside(**found[which])
            hits = (each.ncu_first, each.ncu_three, each.ours_first, each.ours_three)
            shares = (f"{one} ({one / each.pairs:.0%})" for one in hits)
            rows.append([f"{name}, {words}", each.pairs, *shares])
    header = ["pairs of the exam", "pairs", "Nsight Compute, cause first", "in three"]
    return markdown([*header, "`advise`, cause first", "in three"], rows)


_WHICH = {
    "said": "all that Nsight Compute remarks on",
    "word": "those whose cause a recorded remark could say",
}


if __name__ == "__main__":
    sys.exit(run_study(measure, __doc__))
