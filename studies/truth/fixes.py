"""Do estimates come true: the time after a fix, from the slow launch alone, beside what it was.

Run: ``python -m studies.truth.fixes [--strangers DIR] --out FILE``. A fix whose result was recorded
is a planted level taken back to the base, a step of a ladder, a pair of an exam, or a step of a
stranger. For planted causes and exams the estimate is of the cause that was planted, for the others
of the cause that comes first. Where `explain` says that it cannot say how much (`unsaid`), the
error that its number would have had is counted among all, and not among those given.

The interval of a row is made without the row's author (`studies.truth.intervals`); the ladders'
earlier recordings have no part in any.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from perfml.datasets import find
from perfml.explain import load_tables, make_side
from perfml.explain.advice.first_fix import cannot_say, launches_with, time_without_them
from perfml.explain.advice.fix import SAID, CannotSay, Width, told
from perfml.explain.advice.referee import saved_alone
from perfml.explain.launches import Launch
from perfml.explain.tree.causes import ONE_SIDED, Contribution
from perfml.explain.tree.layer_causes import Causes
from perfml.explain.tree.one_side import has_ideal, time_after
from studies.ladders.measure import precisions, steps_of
from studies.truth.intervals import choose, first_answers, held_out, holds
from studies.truth.questions import (
    NOTHING,
    Question,
    exam_questions,
    layer_sides,
    stranger_questions,
    total_us,
)
from studies.truth.scores import EFFECT, run_study
from studies.truth.sets import BULK, SETS, STRANGERS, causes_of

LADDERS = ("h200-attention", "h200-conv", "h200-qkv")
ANEW = Path(__file__).resolve().parents[2] / "studies/data/h200-ladders"
"""The ladders with the default metrics; their own data sets have fewer counters."""
EARLIER = ", recorded earlier"
EXAMS = ("h200-strangers", "h200-strangers2", "h200-strangers3", "h200-torch-pairs")
"""Of these the estimate is of the cause that `explain` says first, right or wrong."""
KNOWN = ", size of the step known"
PLANTED = "planted"


@dataclass(frozen=True)
class Fixed:
    """A fix with its result.

    Attributes
    ----------
    group, family, case
        Where it is from.
    term
        The cause that was taken out.
    now_us, after_us
        Measured before and after the fix.
    estimate_us
        Estimated from the launches before it.
    told
        The part of the time whose cure the counters tell.
    unsaid
        Why `explain` gives no number; None where it does.
    rules_us
        By the rule of Nsight Compute that says the cause; None where there is none.
    """

    group: str
    family: str
    case: str
    term: str
    now_us: float
    after_us: float
    estimate_us: float
    told: float
    unsaid: CannotSay | None = None
    rules_us: float | None = None

    @property
    def author(self) -> str:
        """Who wrote the kernels."""
        name = self.group.removesuffix(KNOWN).removesuffix(EARLIER)
        return PLANTED if name in SETS else name

    @property
    def error(self) -> float:
        """How far the estimate is off, as a fraction of the time after the fix."""
        return abs(self.ratio - 1)

    @property
    def ratio(self) -> float:
        """The time estimated, over the time after the fix."""
        return self.estimate_us / self.after_us

    @property
    def number(self) -> bool:
        """Whether `explain` says a number, and not only an interval or nothing."""
        return self.unsaid is None and self.told >= SAID


def fixes_of(group: str, questions: Iterable[Question], *, sized: bool = False) -> list[Fixed]:
    """Return the fixes among some questions.

    Parameters
    ----------
    group
        What they are called together.
    questions
        Two sides each; the slower one is the one before the fix.
    sized
        Tell the estimate how much of the cause went, not how long it took.
    """
    found = []
    for question in questions:
        sides = sorted((question.before, question.after), key=total_us)
        if total_us(sides[1]) / total_us(sides[0]) >= EFFECT:
            found.append(_fixed(group, replace(question, before=sides[1], after=sides[0]), sized))
    return found


def _fixed(group: str, turned: Question, sized: bool) -> Fixed:
    slow, fast = total_us(turned.before), total_us(turned.after)
    causes = causes_of(turned)
    named = _cause(turned, causes)
    unknown = Fixed(group, turned.family, turned.case, "", slow, fast, math.nan, 0.0)
    unknown = replace(unknown, unsaid="counters", rules_us=_rules(turned, slow))
    if named is None:
        return unknown
    if named.term.id in ONE_SIDED:
        return _without_launches(turned, causes, replace(unknown, term=named.term.id))
    term, left = named.term.id, _left(named, causes.pairs)
    launches = _fixed_launches(turned, causes, term)
    saved = [
        one.time_us * (1 - time_after(one, term, left) if sized else saved_alone(one, term))
        for one in launches
    ]
    estimate_us = slow - sum(saved)
    if math.isnan(estimate_us):
        return replace(unknown, term=term)
    return replace(
        unknown,
        term=term,
        estimate_us=estimate_us,
        told=told(launches, term),
        unsaid=cannot_say(term, causes, turned.before.launches or (), turned.after.launches or ()),
    )


def _without_launches(turned: Question, causes: Causes, unknown: Fixed) -> Fixed:
    """Return the fix that leaves out the launches that the slower side has alone."""
    sides = [side.launches or () for side in (turned.before, turned.after)]
    estimate_us = time_without_them(causes, sides[0], 0)
    if math.isnan(estimate_us):
        return unknown
    return replace(
        unknown,
        estimate_us=estimate_us,
        told=1.0,
        unsaid=cannot_say(unknown.term, causes, *sides),
    )


def _fixed_launches(question: Question, causes: Causes, term: str) -> Sequence[Launch]:
    """Return what is fixed: all launches of a planted kernel, of others those with the cause."""
    launches = question.before.launches or ()
    if question.accepted.terms and len(set(question.before.names)) == 1:
        return launches
    return launches_with(term, causes, launches, 0)


def _cause(question: Question, causes: Causes) -> Contribution | None:
    """Return the cause that is taken out."""
    along = [each for each in causes.totals if each.log_ratio < 0]
    wanted = question.accepted.terms
    if "kernels_appeared" in wanted:  # the slower side is the one before
        wanted |= {"kernels_vanished"}
    named = [each for each in along if each.term.id in wanted] or (along if not wanted else [])
    if not named and question.family and wanted:
        named = along
    able = bool(named) and (named[0].term.id in ONE_SIDED or has_ideal(named[0].term.id))
    return named[0] if able else None


def _left(total: Contribution, pairs: Sequence[Any]) -> float | None:
    parts = [one for pair in pairs for one in pair.contributions if one.term == total.term]
    most = min(parts, key=lambda one: one.log_ratio)
    if total.term.id.startswith("stall_") or not (most.baseline > 0 and most.target > 0):
        return None
    ratio = most.target / most.baseline
    return min(1.0, 1 / ratio if total.term.falls else ratio)


def _rules(question: Question, now_us: float) -> float | None:
    for remark in question.remarks or ():
        known = any(re.search(each, remark.text) for each in question.accepted.rules)
        if known and remark.speedup is not None:
            return now_us * (1 - min(remark.speedup, 0.999))
    return None


def ladder_questions(name: str, data: Path | None = None) -> list[Question]:
    """Return the steps of a ladder on every layer, of `data` in place of what it is named after."""
    layers, kernels = load_tables(data or find(name))
    assert kernels is not None
    found = []
    for before, after in steps_of(layers):
        for pair in precisions(layers, before, after):
            sides = [
                make_side(side, _rows(layers, side, precision), _rows(kernels, side, precision))
                for side, precision in zip((before, after), pair, strict=True)
            ]
            step = f"{name}: {before} to {after}"
            found += [
                Question(f"{step}, {layer}", step, one, two, True, NOTHING)
                for layer, one, two in layer_sides(sides[0], sides[1])
            ]
    return found


def first_cause(question: Question) -> Question:
    """Return a question whose estimate is of the cause that stands first."""
    return replace(question, accepted=NOTHING)


def _rows(table: pd.DataFrame, backend: str, precision: str) -> pd.DataFrame:
    return table[(table["backend"] == backend) & (table["precision"] == precision)]


def summary(rows: Sequence[Fixed], widths: Mapping[str, Width]) -> dict[str, Any]:
    """Return the errors of a group, and of Nsight Compute's rules on the rows that it has.

    Parameters
    ----------
    rows
        The group.
    widths
        Of the intervals, by author: made without that author.

    Returns
    -------
    dict
        ``given``: where a number is said; ``ranges``: where only an interval is, with the errors
        that the middle has; ``all``: of every estimate that can be computed.
    """
    able = [row for row in rows if not math.isnan(row.estimate_us)]
    kinds = {
        "given": [row for row in able if row.number],
        "ranges": [row for row in able if row.unsaid is None and not row.number],
    }
    held = {
        name: _round(np.mean, [holds(widths[row.author], row) for row in some])
        for name, some in (*kinds.items(), ("both", [*kinds["given"], *kinds["ranges"]]))
    }
    return {
        "cases": len(rows),
        "unsaid": {
            why.upper(): sum(row.unsaid == why for row in rows) for why in get_args(CannotSay)
        },
        "all": _errors(able),
        **{name: _errors(some) for name, some in kinds.items()},
        "coverage": held,
    }


def _errors(rows: Sequence[Fixed]) -> dict[str, Any]:
    ruled = [row for row in rows if row.rules_us is not None]
    theirs = [abs((row.rules_us or math.nan) / row.after_us - 1) for row in ruled]
    return {
        "cases": len(rows),
        "errors": _both([row.error for row in rows]),
        "ruled": len(ruled),
        "ours": _both([row.error for row in ruled]),
        "rules": _both(theirs),
    }


def _both(errors: Sequence[float]) -> list[float | None]:
    return [_round(np.median, errors), _round(np.mean, errors)]


def _round(of: Any, values: Sequence[float]) -> float | None:
    return round(float(of(values)), 4) if values else None


def measure(strangers: Path | None = None) -> dict[str, Any]:
    """Return the errors of every group, and the width that ships."""
    groups: dict[str, list[Fixed]] = {
        name: fixes_of(name, questions()) for name, questions in SETS.items() if name != BULK
    }
    for name in LADDERS:
        asked = ladder_questions(name, ANEW / f"{name.removeprefix('h200-')}.parquet")
        groups[name] = fixes_of(name, asked)
        groups[name + KNOWN] = fixes_of(name + KNOWN, asked, sized=True)
        groups[name + EARLIER] = fixes_of(name + EARLIER, ladder_questions(name))
    for name in EXAMS:
        groups[name] = fixes_of(name, map(first_cause, exam_questions(name)))
    if strangers is not None:
        steps, _ = stranger_questions(strangers)
        groups[STRANGERS] = fixes_of(STRANGERS, steps)
        groups[STRANGERS + KNOWN] = fixes_of(STRANGERS + KNOWN, steps, sized=True)
    counted = {name: rows for name, rows in groups.items() if not name.endswith((KNOWN, EARLIER))}
    every = list(itertools.chain(*counted.values()))
    together = {
        "all planted": [row for row in every if row.author == PLANTED],
        "all ladders": [row for row in every if row.author in LADDERS],
        "all ladders" + EARLIER: [row for name in LADDERS for row in groups[name + EARLIER]],
        "all exams": [row for row in every if row.author in EXAMS],
        "all": every,
    }
    given = [row for row in every if row.unsaid is None]
    first = first_answers(given)
    held = held_out(given, first)
    widths = {each.author: each.width for each in held}
    width, levels = choose(given, first)
    return {
        "width": asdict(width),
        "levels": levels,
        "authors": [asdict(each) for each in held],
        "groups": {name: summary(rows, widths) for name, rows in groups.items()},
        "together": {name: summary(rows, widths) for name, rows in together.items() if rows},
    }


if __name__ == "__main__":
    sys.exit(run_study(measure, __doc__))
