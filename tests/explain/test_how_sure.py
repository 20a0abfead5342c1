"""How sure advice is: of a launch alone, beside an explanation, and in words."""

from __future__ import annotations

import math

from perfml.explain import TERMS, Causes, Contribution, PairCauses
from perfml.explain.advice.findings import evidence_of
from perfml.explain.advice.fix import Fix
from perfml.explain.confidence import confidence_of, probability
from perfml.explain.tree.layer_causes import Reason, Untold
from perfml.util.findings import Time

ROW = {
    "rules": ("sectors_per_request",),
    "gain": 0.5,
    "gain_high": 0.6,
    "level": 0.9,
    "share": 1.0,
    "known": True,
    "potential": False,
    "idle": False,
    "counted": True,
}


def test_a_finding_is_the_surer_the_more_it_gains():
    chances = [
        probability("launch", evidence_of({**ROW, "gain": gain})) for gain in (0.02, 0.2, 0.5)
    ]
    assert chances == sorted(chances)
    assert chances[0] < chances[-1]


def test_what_idle_machinery_could_do_if_the_work_allows_it_is_less_sure():
    potential = {**ROW, "potential": True, "counted": False}
    assert probability("launch", evidence_of(potential)) < probability("launch", evidence_of(ROW))
    assert confidence_of(0.95) == "high"
    assert confidence_of(0.7) == "medium"
    assert confidence_of(0.5) == "low"


def causes(probability: float, reason: Reason | None = None) -> Causes:
    parts = (Contribution(TERMS["instructions"], 1.0, 2.0, 0.6),)
    terms = TERMS["dram_bytes"], TERMS["instructions"]
    untold = None if reason is None else Untold(terms[:1], terms[1], reason=reason, why="why")
    return Causes((PairCauses("k", None, parts),), 0.6, (), untold, probability)


def test_a_cause_is_firm_likely_or_open():
    assert causes(0.95).confidence == "high"
    assert causes(0.8, Reason.RIVAL).confidence == "medium"
    assert causes(0.4, Reason.COUNTERS).confidence == "low"
    assert causes(0.9, Reason.PIECES).confidence == "low"
    assert Causes((), 0.0).confidence == "low"


def test_a_fix_is_as_sure_as_its_cause_and_says_what_tells():
    fix = Fix("after", TERMS["instructions"], "k", "Do less.", Time(9.0), None)
    assert fix.sentence().startswith("what to do in after: Do less. What removing")
    doubted = Fix(
        "after",
        TERMS["instructions"],
        "k",
        "Do less.",
        Time(9.0),
        None,
        None,
        "low",
        "run it twice",
    )
    assert doubted.sentence().startswith("what to do in after (low confidence): Do")
    assert doubted.sentence().endswith(". To check: run it twice")
    document = doubted.to_dict()
    assert (document["confidence"], document["tells"]) == ("low", "run it twice")
    assert math.isclose(document["now_us"], 9.0)
