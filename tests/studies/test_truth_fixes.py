"""Estimates measured backwards: how a row is scored, and what the page says of the goals."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from perfml.explain.advice.fix import WIDTH, Width
from perfml.explain.launches import Launches
from studies.truth import fixes, intervals, unseen
from studies.truth.page import measured_fixes
from studies.truth.questions import Accepted, Question
from studies.truth.rules import Remark
from studies.truth.sets import BULK, SETS
from tests.support.causes import pair_with

ANEW = "python -m studies.truth.fixes --strangers DIR --out tests/data/truth/fixes.json"


def question(term, remarks=(), patterns=()):
    before, after = (Launches((one.kernel,), (one,), 1, 0) for one in pair_with(term))
    accepted = Accepted(frozenset({term}), frozenset(), (), patterns)
    return Question("case", term, before, after, True, accepted, remarks)


def test_the_slow_side_is_the_one_before_the_fix():
    remarks = (Remark("CPIStall: a memory barrier", 0.75), Remark("Other: x", 0.9))
    (row,) = fixes.fixes_of("made up", [question("memory_fence", remarks, ("memory barrier",))])
    assert (row.now_us, row.after_us, row.term) == (40.0, 10.0, "memory_fence")
    # half of the fence's waits go: three quarters of the time, five sixths of what was counted
    assert 40 * (1 - 5 / 6 / 2) < row.estimate_us < 40 * (1 - 3 / 4 / 2)
    assert row.error == pytest.approx(row.estimate_us / row.after_us - 1)
    assert row.rules_us == pytest.approx(10.0)


def row_of(author="a", family="f", after=50.0, told=1.0, group=None):
    return fixes.Fixed(group or author, family, "c", "t", 100.0, after, 60.0, told)


def test_an_interval_holds_what_lies_in_it_and_not_beyond_the_time_as_it_is():
    width = Width(math.log(50 / 60), 1.0, 2 * math.log(50 / 60), 2.0, 0.0)
    assert intervals.holds(width, row_of(after=50.1))
    assert not intervals.holds(width, row_of(after=49.9))
    # where no counter tells, twice as far
    assert intervals.holds(width, row_of(after=49.9, told=0.0))
    assert not intervals.holds(width, row_of(after=100.1))


def test_every_author_weighs_as_much_and_every_family_of_an_author():
    rows = [row_of("many", "one")] * 6 + [row_of("many", "two")] * 2 + [row_of("few", "one")] * 4
    found = intervals.weights(rows)
    assert found == pytest.approx([1 / 24] * 6 + [1 / 8] * 2 + [1 / 8] * 4)


def test_planted_sets_are_one_author_and_a_ladder_s_recordings_too():
    assert {row_of(group=name).author for name in SETS} == {fixes.PLANTED}
    for end in ("", fixes.KNOWN, fixes.EARLIER):
        assert row_of(group="h200-qkv" + end).author == "h200-qkv"


def test_an_author_has_no_part_in_the_interval_that_is_measured_on_it():
    rows = [
        row_of(author, f"{author} {at}", after=60.0 + at)
        for author in ("one", "two", "three")
        for at in range(-4, 5)
    ]
    first = [replace(row, after_us=row.after_us + 1) for row in rows if row.author == "one"]
    held = {each.author: each for each in intervals.held_out(rows, first)}
    wild = [replace(row, after_us=1.0) if row.author == "one" else row for row in rows]
    again = {each.author: each for each in intervals.held_out(wild, first)}
    assert held["one"].width == again["one"].width
    assert held["one"].share > 0.7
    assert again["one"].share == 0.0
    assert held["two"].width != again["two"].width
    assert (held["one"].first is None, held["two"].first) == (False, None)


def test_the_width_that_ships_is_the_measured_one():
    assert Width(**measured_fixes()["width"]) == WIDTH


def test_a_number_is_said_only_where_counters_tell_what_the_fix_leaves():
    assert row_of(told=1.0).number
    assert not row_of(told=0.2).number
    assert not replace(row_of(), unsaid="several").number
    held = {"a": Width(-1.0, 1.0, -0.01, 0.01, 0.0)}
    found = fixes.summary([row_of(told=1.0), row_of(told=0.0), row_of(told=0.0)], held)
    assert [found[which]["cases"] for which in ("given", "ranges", "all")] == [1, 2, 3]
    assert found["coverage"] == {"given": 1.0, "ranges": 0.0, "both": round(1 / 3, 4)}


def test_first_answers_count_as_what_they_are_today_and_only_where_something_is_said():
    kept = pd.read_csv(intervals.FIRST)
    kinds = {(each["author"], each["family"]) for each in kept.to_dict(orient="records")}
    author, family = sorted(kinds)[0]
    (found,) = intervals.first_answers([row_of(author, family, told=0.0)])
    assert (found.author, found.family, found.told) == (author, family, 0.0)
    assert {author for author, _ in kinds} == set(fixes.EXAMS)


def test_exams_that_nobody_had_read_have_no_part_in_any_width():
    assert not set(unseen.UNSEEN) & {each["author"] for each in measured_fixes()["authors"]}
    kept = pd.read_csv(unseen.KEPT)
    assert set(kept["exam"]) == set(unseen.UNSEEN)
    cuda, torch = (unseen.scored(rows)["number"] for _, rows in kept.groupby("exam"))
    assert (cuda["median"] <= 0.10, cuda["mean"] <= 0.20) == (True, False)
    assert (torch["median"] <= 0.10, torch["mean"] <= 0.20) == (False, False)


def test_what_was_said_of_unseen_pairs_is_scored_by_kind():
    rows = pd.DataFrame(
        [("number", 10.0, 12.0, 9.0, 13.0), ("number", 10.0, 20.0, 15.0, 25.0)],
        columns=["said", "after_us", "estimate_us", "low_us", "high_us"],
    )
    found = unseen.scored(rows)["number"]
    assert (found["pairs"], found["held"]) == (2, 0.5)
    assert (found["median"], found["mean"]) == pytest.approx((0.6, 0.6))


def test_what_explain_would_not_say_is_told_without_its_error():
    asked = question("memory_fence")
    (row,) = fixes.fixes_of("made up", [asked])
    assert row.unsaid is None
    library = tuple(replace(one, kernel="ampere_sgemm_64x64_nn") for one in asked.before.launches)
    turned = replace(asked, before=replace(asked.before, launches=library))
    (other,) = fixes.fixes_of("made up", [turned])
    assert other.unsaid == "algorithm"
    assert other.estimate_us == row.estimate_us


def test_a_cause_without_a_cure_is_counted_as_no_number():
    asked = question("memory_fence")
    nothing = Accepted(frozenset({"kernels_appeared"}), frozenset(), (), ())
    (row,) = fixes.fixes_of("made up", [replace(asked, family="", accepted=nothing)])
    assert row.unsaid == "counters"
    found = fixes.summary([row], {})
    assert (found["cases"], found["given"]["cases"], found["unsaid"]["COUNTERS"]) == (1, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SETS if name != BULK])
def test_the_estimates_of_a_planted_set_are_as_the_page_says(name):
    rows = fixes.fixes_of(name, SETS[name]())
    kept = measured_fixes()["groups"][name]
    assert len(rows) == kept["cases"], ANEW
    errors = [row.error for row in rows if row.number]
    assert sum(errors) / len(errors) == pytest.approx(kept["given"]["errors"][1], abs=1e-4), ANEW
