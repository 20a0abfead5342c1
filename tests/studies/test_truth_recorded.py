"""The truth test on recorded data: a part of it, for the fast tests."""

from __future__ import annotations

import pytest

from perfml.datasets import find
from perfml.explain.tree import engine
from studies.truth.questions import planted_questions
from studies.truth.sets import ask_perfml, causes_of

pytestmark = pytest.mark.long

SIZE = "_s1"
"""One size of every family; the slow tests ask about all."""


@pytest.fixture(scope="module")
def questions():
    """Return the same pairs with nothing but their launches: what causes are told by."""
    return [each for each in planted_questions(find("h200-planted")) if f"{SIZE} at" in each.case]


@pytest.mark.slow
@pytest.mark.parametrize("value", [1.0, 4.0])
def test_how_fast_queues_grow_is_not_tuned(questions, monkeypatch, value):
    assert len(questions) >= 50
    monkeypatch.setattr(engine, "QUEUED", value)
    assert [each.case for each in questions if ask_perfml(each).place != 1] == []


@pytest.mark.slow
def test_what_moves_along_in_a_confounded_family_is_not_named_first(questions):
    rows = [each for each in questions if each.family.startswith("confound")]
    assert len(rows) >= 10
    along = ("theoretical_occupancy", "stall_sync", "global_requests")
    firsts = {each.case: causes_of(each).totals[0].term.id for each in rows}
    assert not [case for case, first in firsts.items() if first in along]


def test_wrong_truth_is_not_found(questions):
    others = [*questions[20:], *questions[:20]]
    right = [
        one.accepted.terms & other.accepted.terms or ask_perfml(one).first in other.accepted.terms
        for one, other in zip(questions, others, strict=True)
    ]
    assert sum(map(bool, right)) < 0.5 * len(questions)
