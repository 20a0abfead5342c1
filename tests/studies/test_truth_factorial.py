"""Kernels with several causes: what each toggle truly holds, and which pairs have one answer."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from perfml.explain.tree.causes import TERMS
from studies.truth.factorial import FactorialPair, Toggle, pairs, shapley
from studies.truth.questions import NOTHING, Question
from studies.truth.several import Scored, counts, measure
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

STORED = ROOT / "tests/data/truth/factorial.json"


@pytest.fixture(scope="module")
def recorded():
    return pairs()


def test_two_toggles_share_what_they_do_together():
    # alone twice and 1.5 times as long, together eight times: ln 2 and ln 1.5, and half of the rest
    times = {0: 1.0, 1: 2.0, 2: 1.5, 3: 8.0}
    both = math.log(8 / 3) / 2
    parts = shapley(times, 0, 3)
    assert parts[0] == pytest.approx((math.log(2) + both) / math.log(8))
    assert parts[1] == pytest.approx((math.log(1.5) + both) / math.log(8))
    # a toggle that is on on both sides is none
    assert shapley(times, 1, 3) == {1: pytest.approx(1.0)}


def test_recorded_pairs_take_longer_and_their_true_shares_are_the_whole(recorded):
    assert len(recorded) > 1700
    assert set(Counter(pair.question.family for pair in recorded)) == {
        "map", "window", "product", "bins", "forces", "filters", "turn", "walks", "sparse",
        "lookups",
    }  # fmt: skip
    for pair in recorded:
        assert sum(toggle.share for toggle in pair.toggles) == pytest.approx(1.0)
        assert all(toggle.terms <= set(TERMS) for toggle in pair.toggles)
        (fast,), (slow,) = pair.question.before.launches, pair.question.after.launches
        assert slow.time_us > fast.time_us


def test_a_toggle_that_another_makes_idle_is_no_right_answer(recorded):
    # without a tile its pitch in shared memory matters to nobody, however much it held before
    (pair,) = (each for each in recorded if each.question.case == "window 0 to 3")
    assert "bank_conflicts" in pair.toggles[0].terms
    assert not pair.clear
    (alone,) = (each for each in recorded if each.question.case == "window 0 to 1")
    assert alone.clear


def made_up(shares, said, *, first, high):
    question = Question("case", "family", None, None, True, NOTHING)
    toggles = tuple(Toggle(frozenset([f"t{at}"]), share) for at, share in enumerate(shares))
    return Scored(FactorialPair(question, toggles, True), first, first, high, said)


def test_answers_are_counted_and_shares_ranked():
    right = made_up([0.8, 0.2], [0.7, 0.3], first=True, high=True)
    wrong = made_up([0.9, 0.1], [0.2, 0.0], first=False, high=True)
    alone = made_up([1.0], [0.0], first=False, high=False)
    found = counts([right, wrong, alone])
    assert (found["pairs"], found["first"], found["high"], found["high_right"]) == (3, 1, 2, 1)
    # true 0.8 0.2 0.9 0.1, said 0.7 0.3 0.2 0.0: ranks 3 2 4 1 and 4 3 2 1, so 1 - 6 * 6 / 60
    assert found["rank"] == pytest.approx(0.4)


def test_a_cause_of_several_toggles_is_given_to_all_alike():
    toggles = (Toggle(frozenset("ab"), 0.6), Toggle(frozenset("bc"), 0.4))
    pair = FactorialPair(Question("", "", None, None, True, NOTHING), toggles, True)
    assert pair.said({"a": 0.5, "b": 0.4, "x": 0.1}) == pytest.approx([0.7, 0.2])


@pytest.mark.slow
def test_the_stored_scores_are_those_of_today():
    assert measure() == json.loads(STORED.read_text(encoding="utf-8"))
