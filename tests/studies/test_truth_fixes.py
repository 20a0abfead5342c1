"""Estimates measured backwards: how a row is scored, and what the page says of the goals."""

from __future__ import annotations

import math

import pytest

from perfml.explain.advice.after_fix import SPREAD
from perfml.explain.launches import Launches
from studies.truth import fixes
from studies.truth.page import PAGE, measured_fixes
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
    # three quarters of the time are the fence's, and half of that goes
    assert row.estimate_us == pytest.approx(40 * (1 - 0.75 / 2))
    assert row.error == pytest.approx(1.5)
    assert row.rules_us == pytest.approx(10.0)


def test_an_interval_holds_what_lies_in_it_and_not_beyond_the_time_as_it_is():
    row = fixes.Fixed("g", "f", "c", "t", 100.0, 50.0, 60.0, 0.5)
    assert row.spread == pytest.approx(math.log(50 / 60) / 0.5)
    assert row.holds((row.spread - 0.01, 0.1))
    assert not row.holds((row.spread + 0.01, 0.1))


def test_every_family_weighs_as_much_in_the_spread():
    many = [fixes.Fixed("g", "many", str(n), "t", 100.0, 60.0, 60.0, 0.5) for n in range(50)]
    few = [fixes.Fixed("g", f"few {n}", "c", "t", 100.0, 60.0 + n, 60.0, 0.5) for n in range(1, 5)]
    low, high = fixes.spread_of([*many, *few])
    assert low == 0.0
    assert high == max(row.spread for row in few)


def test_the_spread_that_ships_is_the_measured_one():
    assert tuple(round(each, 2) for each in measured_fixes()["spread"]) == SPREAD


def test_the_page_says_by_how_much_the_goals_are_missed():
    found = measured_fixes()["together"]
    text = PAGE.read_text(encoding="utf-8")
    planted, ladders, every = (found[name] for name in ("all planted", "all ladders", "all"))
    assert planted["median"] <= 0.10
    assert planted["mean"] <= 0.20
    assert f"reach them ({planted['coverage']:.0%} in".replace("%", " %") in text
    assert min(round(each["coverage"], 2) for each in (planted, ladders, every)) >= 0.75
    assert max(round(each["coverage"], 2) for each in (planted, ladders, every)) <= 0.85
    own = found["ladders, other steps"]
    said = f"off by {own['median']:.0%} in the median and {own['mean']:.0%} in the mean"
    assert said.replace("%", " %") in text
    missed = [(each["median"] - 0.10, each["mean"] - 0.20) for each in (ladders, every)]
    (median, mean), (all_median, all_mean) = [[round(100 * x) for x in each] for each in missed]
    assert f"both miss, by {median} and {mean} percentage points" in text
    assert f"median misses by {all_median} and the mean by {all_mean} points" in text
    assert f"{every['coverage']:.0%} are in the interval".replace("%", " %") in text
    same = every["same_rows"]
    assert all(ours <= 0.5 * rule for ours, rule in zip(same["ours"], same["rules"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SETS if name != BULK])
def test_the_estimates_of_a_planted_set_are_as_the_page_says(name):
    rows = fixes.fixes_of(name, SETS[name]())
    kept = measured_fixes()["groups"][name]
    assert len(rows) == kept["cases"], ANEW
    errors = sorted(row.error for row in rows)
    assert sum(errors) / len(errors) == pytest.approx(kept["mean"]), ANEW
