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

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml.datasets import find
from perfml.explain import load_tables, make_side, sides_of
from perfml.explain.advice.after_fix import SAID, Width, time_after, told
from perfml.explain.advice.cannot_say import cannot_say
from perfml.explain.advice.cures import CURES
from perfml.explain.advice.first_fix import launches_with
from perfml.explain.advice.fix import CannotSay
from perfml.explain.advice.only_there import time_without_them
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.compared import Side
from perfml.explain.launches import Launch, Launches, LaunchReader
from perfml.explain.results import Causes, TermTotal
from perfml.explain.times import compare_times
from perfml.explain.tree.causes import ONE_SIDED
from studies.ladders.measure import precisions, steps_of
from studies.truth.intervals import choose, first_answers, held_out, holds
from studies.truth.questions import Accepted, Question, stranger_questions
from studies.truth.scores import EFFECT, hand_over
from studies.truth.sets import BULK, SETS, STRANGERS, causes_of

LADDERS = ("h200-attention", "h200-conv", "h200-qkv")
ANEW = Path(__file__).resolve().parents[2] / "datasets/h200-ladders"
"""The ladders with the default metrics; their own data sets have fewer counters."""
EARLIER = ", recorded earlier"
EXAMS = ("h200-strangers", "h200-strangers2", "h200-strangers3", "h200-torch-pairs")
"""Of these the estimate is of the cause that `explain` says first, right or wrong."""
KNOWN = ", size of the step known"
LARGEST = 20
"""Errors that are counted by what the step is."""
READ, OFF = 10, 0.1
"""Largest errors of each author that somebody has read: so many, from so much on."""
OTHERS = (*EXAMS, STRANGERS)
"""Authors who had not seen perfml."""
PART = "the step leaves half as much again of the cause as the estimate, or more"
CURE = "none of these"
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
    unknown
        What no counter tells of what the fix leaves.
    part
        Whether the step leaves more of its cause than the estimate.
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
    unknown: str = ""
    part: bool = False
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

    @property
    def step(self) -> str:
        """What the step is beside the cure of its cause."""
        return self.unsaid.value if self.unsaid else PART if self.part else CURE


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
        sides = sorted((question.before, question.after), key=_total)
        if _total(sides[1]) / _total(sides[0]) >= EFFECT:
            found.append(_fixed(group, replace(question, before=sides[1], after=sides[0]), sized))
    return found


def _fixed(group: str, turned: Question, sized: bool) -> Fixed:
    slow, fast = _total(turned.before), _total(turned.after)
    causes = causes_of(turned)
    named = _cause(turned, causes)
    unknown = Fixed(group, turned.family, turned.case, "", slow, fast, math.nan, 0.0)
    unknown = replace(unknown, unsaid=CannotSay.COUNTERS, rules_us=_rules(turned, slow))
    if named is None:
        return unknown
    if named.term.id in ONE_SIDED:
        return _without_launches(turned, causes, replace(unknown, term=named.term.id))
    term, left = named.term.id, _left(named, causes.pairs)
    launches = _fixed_launches(turned, causes, term)
    times = [(one, time_after(one, term, left if sized else None)) for one in launches]
    estimate_us = slow - sum(one.time_us * (1 - fraction) for one, fraction in times)
    if math.isnan(estimate_us):
        return replace(unknown, term=term)
    longest = max(launches, key=lambda one: one.time_us)
    return replace(
        unknown,
        term=term,
        estimate_us=estimate_us,
        told=told(launches, term),
        unknown=CURES[term](SlowLaunch(longest)).unknown,
        unsaid=cannot_say(term, causes, turned.before.launches or (), turned.after.launches or ()),
        part=left is not None and left > 1.5 * CURES[term](SlowLaunch(longest)).left,
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


def _total(side: Any) -> float:
    return sum(one.time_us for one in side.launches or ())


def _fixed_launches(question: Question, causes: Causes, term: str) -> Sequence[Launch]:
    """Return what is fixed: all launches of a planted kernel, of others those with the cause."""
    launches = question.before.launches or ()
    if question.accepted.terms and len(set(question.before.names)) == 1:
        return launches
    return launches_with(term, causes, launches, 0)


def _cause(question: Question, causes: Causes) -> TermTotal | None:
    """Return the cause that is taken out."""
    along = [each for each in causes.totals if each.log_ratio < 0]
    wanted = question.accepted.terms
    if "kernels_appeared" in wanted:  # the slower side is the one before
        wanted |= {"kernels_vanished"}
    named = [each for each in along if each.term.id in wanted] or (along if not wanted else [])
    if not named and question.family and wanted:
        named = along
    return named[0] if named and named[0].term.id in (*CURES, *ONE_SIDED) else None


def _left(total: TermTotal, pairs: Sequence[Any]) -> float | None:
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
    nothing = Accepted(frozenset(), frozenset(), (), ())
    found = []
    for before, after in steps_of(layers):
        for pair in precisions(layers, before, after):
            sides = [
                make_side(side, _rows(layers, side, precision), _rows(kernels, side, precision))
                for side, precision in zip((before, after), pair, strict=True)
            ]
            step = f"{name}: {before} to {after}"
            found += [
                Question(f"{step}, {layer}", step, one, two, True, nothing)
                for layer, one, two in _pairs(sides[0], sides[1])
            ]
    return found


def exam_questions(name: str) -> list[Question]:
    """Return the pairs of an exam (`studies.truth.strangers`) that differ."""
    folder = find(name)
    assert folder is not None
    labels = json.loads((folder / "accepted.json").read_text(encoding="utf-8"))["cases"]
    layers, kernels = load_tables(folder)
    before, after = sides_of(layers, "before", "after", kernels=kernels)
    found = []
    for layer, one, two in _pairs(before, after):
        if layer in labels:
            accepted = Accepted(frozenset(labels[layer]["terms"]), frozenset(), (), ())
            found.append(Question(layer, layer, one, two, True, accepted))
    return found


def first_cause(question: Question) -> Question:
    """Return a question whose estimate is of the cause that stands first."""
    return replace(question, accepted=Accepted(frozenset(), frozenset(), (), ()))


def _pairs(before: Side, after: Side) -> Iterator[tuple[str, Launches, Launches]]:
    """Return every layer with its launches on both sides, where both have some."""
    readers = [LaunchReader(side) for side in (before, after)]
    there = set(after.layers["layer"])
    for layer in before.layers["layer"].drop_duplicates().dropna():
        if layer not in there:
            continue
        times = [side.rows(layer)["time_us"].to_numpy(dtype=float) for side in (before, after)]
        ratio = compare_times(times[0], times[1])
        one = readers[0].read(layer, ratio.baseline_us)
        two = readers[1].read(layer, ratio.target_us)
        if one.launches and two.launches:
            yield layer, one, two


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
        "unsaid": {why.name: sum(row.unsaid is why for row in rows) for why in CannotSay},
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


def measure(strangers: Path | None) -> dict[str, Any]:
    """Return the errors of every group, the width that ships, and every row."""
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
    numbers = [row for row in given if row.number]
    able = [row for row in every if not math.isnan(row.estimate_us) and row.author != PLANTED]
    largest = sorted(able, key=lambda row: -abs(math.log(row.ratio)))[:LARGEST]
    kinds = (CannotSay.ALGORITHM.value, CannotSay.SEVERAL.value, PART, CURE)
    return {
        "width": asdict(width),
        "levels": levels,
        "authors": [asdict(each) for each in held],
        "groups": {name: summary(rows, widths) for name, rows in groups.items()},
        "by_author": {
            each.author: summary([row for row in every if row.author == each.author], widths)
            for each in held
        },
        "together": {name: summary(rows, widths) for name, rows in together.items() if rows},
        "unknowns": unknowns([row for row in given if row.author in OTHERS], widths),
        "steps": [_step_summary(each, able, largest) for each in kinds],
        "same_launch": same_launch(able),
        "worst": {each.author: worst(numbers, each.author) for each in held},
        "rows": [_row(row) for row in itertools.chain(*groups.values())],
    }


def worst(rows: Sequence[Fixed], author: str) -> list[dict[str, Any]]:
    """Return the families, steps or pairs of an author whose numbers are off the most."""
    order = sorted(
        (row for row in rows if row.author == author), key=lambda row: -abs(math.log(row.ratio))
    )
    largest: dict[str, Fixed] = {}
    for row in order:
        # the public reports have a family for each of their authors
        largest.setdefault(row.case if author == STRANGERS else row.family, row)
    return [
        {"family": name, "term": row.term, "ratio": round(row.ratio, 2)}
        for name, row in list(largest.items())[:READ]
        if row.error >= OFF
    ]


def unknowns(rows: Sequence[Fixed], widths: Mapping[str, Width]) -> list[dict[str, Any]]:
    """Return the errors of fixes by what no counter tells of them, most frequent first."""
    by: dict[str, list[Fixed]] = {}
    for row in rows:
        by.setdefault(row.unknown, []).append(row)
    return [
        {
            "unknown": unknown,
            "cases": len(some),
            "errors": _both([row.error for row in some]),
            "low": _round(np.min, [row.ratio for row in some]),
            "high": _round(np.max, [row.ratio for row in some]),
            "coverage": _round(np.mean, [holds(widths[row.author], row) for row in some]),
        }
        for unknown, some in sorted(by.items(), key=lambda each: -len(each[1]))
    ]


def _row(row: Fixed) -> dict[str, Any]:
    return asdict(row) | {"unsaid": row.unsaid and row.unsaid.name}


def _step_summary(step: str, rows: Sequence[Fixed], largest: Sequence[Fixed]) -> dict[str, Any]:
    some = [row.error for row in rows if row.step == step]
    return {
        "step": step,
        "cases": len(some),
        "median": _round(np.median, some),
        "mean": _round(np.mean, some),
        "largest": sum(row.step == step for row in largest),
    }


def same_launch(rows: Sequence[Fixed]) -> dict[str, Any]:
    """Return how far results of fixes are apart that started from one launch and cured one cause.

    No estimate from that launch alone can be right for all of them: ``least`` is the median error
    of the estimate that would be best for each launch, their geometric mean.
    """
    starts: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        starts.setdefault((row.term, row.now_us), []).append(row.after_us)
    several = [after for after in starts.values() if len(after) > 1]
    means = [math.exp(float(np.mean(np.log(after)))) for after in several]
    errors = [
        abs(mean / one - 1) for mean, after in zip(means, several, strict=True) for one in after
    ]
    return {
        "launches": len(several),
        "fixes": len(errors),
        "apart": _round(np.median, [max(after) / min(after) for after in several]),
        "least": _round(np.median, errors),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=Path, help="folder with labels.json and the reports")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    document = measure(given.strangers)
    if given.out is not None:
        del document["rows"]
    hand_over(document, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
