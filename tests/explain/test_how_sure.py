"""How sure advice is: of a launch alone, beside an explanation, and in words."""

from __future__ import annotations

import math
from dataclasses import replace

from perfml.explain import TERMS, Causes, Contribution, PairCauses
from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.advice.findings import evidence_of
from perfml.explain.advice.fix import Fix
from perfml.explain.confidence import confidence_of, probability
from perfml.explain.remedies import Remedy
from perfml.explain.tree.layer_causes import Reason, Untold
from perfml.util.findings import Time

ROW = Finding(
    rules=("sectors_per_request",),
    where=Where(("l",), "k"),
    holds=Time(100.0),
    gain=Gain(Time(50.0), Time(60.0), "counters"),
    probability=0.0,
    level=0.9,
    marks=frozenset({"known", "counted"}),
    **dict.fromkeys(("hazard", "evidence", "mitigation"), ""),
)


def test_a_finding_is_the_surer_the_more_it_gains():
    gains = (replace(ROW.gain, likely=Time(us)) for us in (2.0, 20.0, 50.0))
    chances = [probability("launch", evidence_of(replace(ROW, gain=gain))) for gain in gains]
    assert chances == sorted(chances)
    assert chances[0] < chances[-1]


def test_what_idle_machinery_could_do_if_the_work_allows_it_is_less_sure():
    potential = replace(ROW, marks=frozenset({"known", "potential"}))
    assert probability("launch", evidence_of(potential)) < probability("launch", evidence_of(ROW))
    assert confidence_of(0.95) == "high"
    assert confidence_of(0.7) == "medium"
    assert confidence_of(0.5) == "low"


def causes(probability: float, reason: Reason | None = None) -> Causes:
    parts = (Contribution(TERMS["instructions"], 1.0, 2.0, 0.6),)
    terms = TERMS["dram_bytes"], TERMS["instructions"]
    untold = None if reason is None else Untold(terms[:1], terms[1], reason=reason)
    return Causes((PairCauses("k", None, parts),), 0.6, (), untold, probability)


def test_a_cause_is_firm_likely_or_open():
    assert causes(0.95).confidence == "high"
    assert causes(0.8, "rival").confidence == "medium"
    assert causes(0.4, "counters").confidence == "low"
    assert causes(0.9, "pieces").confidence == "low"
    assert Causes((), 0.0).confidence == "low"


def test_a_fix_is_as_sure_as_its_cause_and_says_what_tells():
    fix = Fix("after", TERMS["instructions"], "k", Remedy(say="Do less."), Time(9.0), None)
    assert (fix.do, fix.confidence, fix.stay) == ("Do less.", "high", "")
    doubted = Fix(
        "after",
        TERMS["instructions"],
        "k",
        Remedy(say="Do less."),
        Time(9.0),
        None,
        None,
        "low",
        "run it twice",
    )
    assert (doubted.confidence, doubted.tells) == ("low", "run it twice")
    document = doubted.to_dict()
    assert (document["confidence"], document["tells"]) == ("low", "run it twice")
    assert math.isclose(document["now_us"], 9.0)
