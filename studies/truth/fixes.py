"""Do estimates come true: the time after a fix, from the slow launch alone, beside what it was.

Run: ``python -m studies.truth.fixes [--strangers DIR] --out FILE``. A fix whose result was recorded
is a planted level taken back to the base, a step of a ladder, or a step of a stranger. For planted
causes the estimate is of the cause that was planted, for the others of the cause that comes first.
The interval of a row is made of the errors of other families and ladders; strangers and the
families kept aside have no part in any, nor have the ladders' earlier recordings.

What a step is beside the cure of its cause (`Beside`) is told from its name and from the counters
of both sides, never from the estimate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml.datasets import find
from perfml.explain import load_tables, make_side, sides_of
from perfml.explain.advice.after_fix import doubt, time_after
from perfml.explain.advice.cures import CURES
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.compared import Side
from perfml.explain.launches import Launch, Launches, LaunchReader
from perfml.explain.results import TermTotal
from perfml.explain.times import compare_times
from studies.ladders.measure import precisions, steps_of
from studies.truth.questions import Accepted, Question, stranger_questions
from studies.truth.scores import EFFECT, hand_over
from studies.truth.sets import BULK, SETS, STRANGERS, causes_of

LADDERS = ("h200-attention", "h200-conv", "h200-qkv")
ANEW = Path(__file__).resolve().parents[2] / "datasets/h200-ladders"
"""The ladders with the default metrics; their own data sets have fewer counters."""
EARLIER = ", recorded earlier"
EXAM = "h200-strangers"
_LIBRARY = re.compile(r"(to |_)(cudnn|cublas)\b")
"""Ends of steps that take another's kernel instead of curing a cause."""
KNOWN = ", size of the step known"
WITHOUT = ", without other algorithms and several causes"
OUTSIDE = 0.1
"""Of families, on either side of an interval."""
LARGEST = 20
"""Errors that are counted by what the step is beside a cure."""


class Beside(Enum):
    """What a step is beside the cure of the cause that its estimate takes out."""

    ALGORITHM = "another algorithm: a library's kernel in place of one's own"
    SEVERAL = "the cause is less than half of what the step changed"
    PART = "the step leaves half as much again of the cause as the estimate, or more"
    NOTHING = "none of these"


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
    doubt
        What intervals scale with.
    rules_us
        By the rule of Nsight Compute that says the cause; None where there is none.
    beside
        What else the step is.
    """

    group: str
    family: str
    case: str
    term: str
    now_us: float
    after_us: float
    estimate_us: float
    doubt: float
    rules_us: float | None = None
    beside: str = Beside.NOTHING.value

    @property
    def error(self) -> float:
        """How far the estimate is off, as a fraction of the time after the fix."""
        return abs(self.ratio - 1)

    @property
    def ratio(self) -> float:
        """The time estimated, over the time after the fix."""
        return self.estimate_us / self.after_us

    @property
    def spread(self) -> float:
        """The error's logarithm in units of `doubt`."""
        return math.log(self.after_us / self.estimate_us) / self.doubt

    def holds(self, spread: tuple[float, float]) -> bool:
        """Return whether the interval with this spread holds the time after the fix."""
        low, high = (self.estimate_us * math.exp(each * self.doubt) for each in spread)
        return low <= self.after_us <= min(high, self.now_us)


def fixes_of(group: str, questions: Iterable[Question], *, sized: bool = False) -> list[Fixed]:
    """Return the fixes among some questions for which there is an estimate.

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
        fast, slow = (_total(side) for side in sides)
        if slow / fast < EFFECT:
            continue
        turned = replace(question, before=sides[1], after=sides[0])
        named = _cause(turned)
        if named is None:
            continue
        term, left, share = named
        launches = _fixed_launches(turned)
        times = [(one, time_after(one, term, left if sized else None)) for one in launches]
        if any(math.isnan(fraction) for _, fraction in times):
            continue
        saved = sum(one.time_us * (1 - fraction) for one, fraction in times)
        unsure = doubt(launches, term)
        row = Fixed(group, question.family, question.case, term, slow, fast, slow - saved, unsure)
        beside = _beside(question.case, share, left, launches, term)
        found.append(replace(row, rules_us=_rules(turned, slow), beside=beside.value))
    return found


def _beside(
    case: str, share: float, left: float | None, launches: Sequence[Launch], term: str
) -> Beside:
    if _LIBRARY.search(case):
        return Beside.ALGORITHM
    if share < 0.5:
        return Beside.SEVERAL
    longest = max(launches, key=lambda one: one.time_us)
    if left is not None and left > 1.5 * CURES[term](SlowLaunch(longest)).left:
        return Beside.PART
    return Beside.NOTHING


def _total(side: Any) -> float:
    return sum(one.time_us for one in side.launches or ())


def _fixed_launches(question: Question) -> Sequence[Launch]:
    """Return what is fixed: all launches of a planted kernel, the longest of a layer of others."""
    launches = question.before.launches or ()
    if question.accepted.terms and len(set(question.before.names)) == 1:
        return launches
    return [max(launches, key=lambda one: one.time_us)]


def _cause(question: Question) -> tuple[str, float | None, float] | None:
    """Return the cause that is taken out, what is left of it, and its share of all that changed."""
    causes = causes_of(question)
    along = [each for each in causes.totals if each.log_ratio < 0]
    wanted = question.accepted.terms
    named = [each for each in along if each.term.id in wanted] or (along if not wanted else [])
    if not named and question.family and wanted:
        named = along
    if not named or named[0].term.id not in CURES:
        return None
    changed = sum(abs(each.log_ratio) for each in causes.totals)
    share = abs(named[0].log_ratio) / changed
    return named[0].term.id, _left(named[0], causes.pairs), share


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


def exam_questions() -> list[Question]:
    """Return the pairs of the first exam (`studies.truth.strangers`) that differ."""
    folder = find(EXAM)
    assert folder is not None
    labels = json.loads((folder / "accepted.json").read_text(encoding="utf-8"))["cases"]
    layers, kernels = load_tables(folder)
    before, after = sides_of(layers, "before", "after", kernels=kernels)
    found = []
    for name, one, two in _pairs(before, after):
        if name in labels:
            accepted = Accepted(frozenset(labels[name]["terms"]), frozenset(), (), ())
            found.append(Question(name, name, one, two, True, accepted))
    return found


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


def spread_of(rows: Sequence[Fixed]) -> tuple[float, float]:
    """Return what one family in ten is below, and one above; each family weighs as much.

    That holds for a family that is not among them: of n families and it, the k-th smallest of n
    has k of n + 1 below (split conformal prediction; V. Vovk and others, 2005).
    """
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.family] = sizes.get(row.family, 0) + 1
    order = sorted(rows, key=lambda row: row.spread)
    weights = np.array([1 / sizes[row.family] for row in order])
    # each row stands in the middle of its weight
    places = (np.cumsum(weights) - weights / 2) / weights.sum()
    spreads = [row.spread for row in order]
    part = (max(1, math.floor(OUTSIDE * (len(sizes) + 1))) - 0.5) / len(sizes)
    low, high = (float(np.interp(each, places, spreads)) for each in (part, 1 - part))
    return low, high


def coverage(rows: Sequence[Fixed], learnt: Sequence[Fixed]) -> float:
    """Return in how many rows the interval holds, made of other families than the row's."""
    spreads = {
        family: spread_of([each for each in learnt if each.family != family])
        for family in {row.family for row in rows}
    }
    return float(np.mean([row.holds(spreads[row.family]) for row in rows]))


def summary(rows: Sequence[Fixed], learnt: Sequence[Fixed]) -> dict[str, Any]:
    """Return the errors of a group, and of Nsight Compute's rules on the rows that it has."""
    errors = [row.error for row in rows]
    ruled = [row for row in rows if row.rules_us is not None]
    theirs = [abs((row.rules_us or math.nan) / row.after_us - 1) for row in ruled]
    return {
        "cases": len(rows),
        "median": float(np.median(errors)),
        "mean": float(np.mean(errors)),
        "coverage": coverage(rows, learnt),
        "same_rows": {
            "cases": len(ruled),
            "ours": [_round(np.median, [row.error for row in ruled]),
                     _round(np.mean, [row.error for row in ruled])],
            "rules": [_round(np.median, theirs), _round(np.mean, theirs)],
        },
    }  # fmt: skip


def _round(of: Any, values: Sequence[float]) -> float | None:
    return float(of(values)) if values else None


def measure(strangers: Path | None) -> dict[str, Any]:
    """Return the errors of every group, the spread that ships, and every row."""
    groups: dict[str, list[Fixed]] = {
        name: fixes_of(name, questions()) for name, questions in SETS.items() if name != BULK
    }
    for name in LADDERS:
        asked = ladder_questions(name, ANEW / f"{name.removeprefix('h200-')}.parquet")
        groups[name] = fixes_of(name, asked)
        groups[name + KNOWN] = fixes_of(name + KNOWN, asked, sized=True)
        groups[name + EARLIER] = fixes_of(name + EARLIER, ladder_questions(name))
    counted = {name: rows for name, rows in groups.items() if not name.endswith((KNOWN, EARLIER))}
    learnt = [row for name, rows in counted.items() if "aside" not in name for row in rows]
    groups[EXAM] = counted[EXAM] = fixes_of(EXAM, exam_questions())
    if strangers is not None:
        steps, _ = stranger_questions(strangers)
        groups[STRANGERS] = counted[STRANGERS] = fixes_of(STRANGERS, steps)
        groups[STRANGERS + KNOWN] = fixes_of(STRANGERS + KNOWN, steps, sized=True)
    every = list(itertools.chain(*counted.values()))
    sets = (*LADDERS, EXAM, STRANGERS)
    steps_of_others = [row for name in sets for row in counted.get(name, [])]
    ladders = [row for name in LADDERS for row in counted[name]]
    together = {
        "all planted": [row for name in SETS if name in counted for row in counted[name]],
        "all ladders": ladders,
        "all ladders" + EARLIER: [row for name in LADDERS for row in groups[name + EARLIER]],
        "all": every,
        "ladders" + WITHOUT: [row for row in ladders if _is_cure(row)],
        STRANGERS + WITHOUT: [row for row in counted.get(STRANGERS, []) if _is_cure(row)],
        EXAM + WITHOUT: [row for row in counted[EXAM] if _is_cure(row)],
        "all" + WITHOUT: [row for row in every if _is_cure(row)],
    }
    largest = sorted(steps_of_others, key=lambda row: -abs(math.log(row.ratio)))[:LARGEST]
    return {
        "spread": list(spread_of(learnt)),
        "groups": {name: summary(rows, learnt) for name, rows in groups.items() if rows},
        "together": {name: summary(rows, learnt) for name, rows in together.items() if rows},
        "beside": [_beside_summary(each, steps_of_others, largest) for each in Beside],
        "same_launch": same_launch(steps_of_others),
        "rows": [asdict(row) for row in itertools.chain(*groups.values())],
    }


def _is_cure(row: Fixed) -> bool:
    return row.beside not in (Beside.ALGORITHM.value, Beside.SEVERAL.value)


def _beside_summary(
    beside: Beside, rows: Sequence[Fixed], largest: Sequence[Fixed]
) -> dict[str, Any]:
    some = [row for row in rows if row.beside == beside.value]
    return {
        "beside": beside.value,
        "cases": len(some),
        "median": _round(np.median, [row.error for row in some]),
        "mean": _round(np.mean, [row.error for row in some]),
        "largest": sum(row.beside == beside.value for row in largest),
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
