"""The page about the atlas holds what was measured, and what was measured is of this atlas."""

from __future__ import annotations

import json

import pytest

from studies.atlas.data import features, rows
from studies.atlas.measure import RESULTS, STEPS, contents
from studies.atlas.page import PAGE

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_every_step_was_measured(results):
    assert set(STEPS) <= set(results)


@pytest.mark.slow
def test_the_results_are_of_this_atlas(results):
    assert json.loads(json.dumps(contents())) == results["contents"], (
        "measure it anew: python -m studies.atlas.measure"
    )


def test_no_model_but_the_one_beside_them_sees_what_holds_the_time():
    clocked = {"ipc", "dram_utilization", "stall_sync", "achieved_occupancy"}
    timed = {"sm_active_cycles_max", "ncu_time_us", "time_us"}
    named = {word for name in features("counted").columns for word in name.split()}
    assert not named & (clocked | timed)
    assert clocked <= set(features("clocked").columns)
    assert len(rows()) > 1000


def test_a_goal_that_was_missed_is_told_on_the_page(results):
    text = PAGE.read_text(encoding="utf-8")
    missed = [goal for goal in results["goals"] if not goal["met"]]
    assert text.count("**missed**") == len(missed)
    assert not missed or "## What was missed" in text
