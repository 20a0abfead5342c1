"""Firm answers: the page says what was measured, and limits are chosen from other authors alone."""

from __future__ import annotations

import json
import math

import pytest

from perfml.explain.counters import refine, resources
from perfml.explain.counters.claims import Claim
from perfml.explain.counters.doubts import LIMITS
from perfml.explain.counters.evidence import Reason
from perfml.explain.tree.causes import TERMS
from studies.truth import firm
from studies.truth.page import PAGE, measured_firm
from studies.truth.scores import wilson
from studies.truth.strangers import EXAMS, READ
from tests.support.paths import ROOT

STRANGERS = ROOT.parent / "shared/data/strangers"
ANEW = (
    "measure it anew: python -m studies.truth.firm --strangers DIR --out tests/data/truth/firm.json"
)


def answered(rival, *, right):
    """Return an answer whose second cause, of another limit, is a part of its first."""
    along = [(TERMS["instructions"], 0.6), (TERMS["wave_quantization"], 0.6 * rival)]
    return firm.Answered("pair", right, Claim(along, math.log(2)))


def test_limits_that_doubt_everything_are_not_chosen():
    answers = [answered(0.22, right=True)] * 9 + [answered(0.9, right=False)]
    limits = firm.chosen([firm.tally(answers)])
    assert limits.rival > 0.22
    assert firm.counts(answers, limits) == {"right": 9, "wrong": 0}


def test_a_rule_that_hedges_three_right_answers_for_a_wrong_one_is_not_chosen():
    wrong, right = answered(0.9, right=False), answered(0.9, right=True)
    assert firm.chosen_rules([wrong, right, right]) == (Reason.RIVAL,)
    assert firm.chosen_rules([wrong, right, right, right]) == ()


def test_of_an_exam_whose_second_half_nobody_has_read_the_first_is_asked():
    for name in EXAMS:
        halves = EXAMS[name].document("halves.json")
        asked = {each.case for each in firm._pairs(name)}
        assert asked & set(halves["dev"])
        assert bool(asked & set(halves["aside"])) == (name in READ)


def test_without_limits_every_confident_answer_is_firm():
    answers = [answered(0.9, right=False), answered(0.0, right=True)]
    assert firm.counts(answers, None) == {"right": 1, "wrong": 1}
    assert firm.counts(answers, LIMITS) == {"right": 1, "wrong": 0}


def test_a_formula_that_was_taken_out_comes_back():
    formulas, units = refine.REFINEMENTS, resources.RESOURCES
    with firm._without(formulas[0], "global_atomics"):
        assert len(refine.REFINEMENTS) == len(formulas) - 1
        assert len(resources.RESOURCES) == len(units) - 1
    assert (formulas, units) == (refine.REFINEMENTS, resources.RESOURCES)


@pytest.mark.long
def test_what_did_nothing_to_an_answer_changes_nothing_if_it_is_taken_out():
    for question in firm._pairs(READ[0])[::6]:
        usual, acted = firm._traced(question)
        works = firm._works(question)
        outs = [(each, None) for each in refine.REFINEMENTS if each not in acted]
        outs += [(None, unit.work.id) for unit in resources.RESOURCES if unit.work.id not in works]
        assert acted
        assert works
        assert outs
        for refinement, work in outs:
            with firm._without(refinement, work):
                assert repr(firm._causes(question)) == repr(usual)


def test_firm_first_answers_are_seldom_wrong_and_most_right_ones_stay_firm():
    found = measured_firm()["authors"]
    pairs = sum(each["pairs"] for each in found.values())
    for limits, most in {"firm": 0.04, "left out": 0.05}.items():
        assert sum(each[limits]["wrong"] for each in found.values()) <= most * pairs
        right = sum(each[limits]["right"] for each in found.values())
        assert right >= 0.7 * sum(each["before"]["right"] for each in found.values())


@pytest.mark.page
def test_the_text_says_what_was_measured():
    found, text = measured_firm(), PAGE.read_text(encoding="utf-8")
    words = found["without words"]
    hedged, wrong = words["hedged"], words["wrong"]
    assert (
        f"{wrong:,} answers became wrong and confident, and {hedged:,} of them "
        f"({hedged / wrong:.0%}) are not firm ({words['told before']} without the new rules)"
    ) in text, ANEW
    pairs = sum(each["pairs"] for each in found["authors"].values())
    still = sum(each["firm"]["wrong"] for each in found["authors"].values())
    low, high = wilson(still, pairs)
    assert f"interval of {still} of {pairs} is {low:.0%} to {high:.0%}".replace("%", " %") in (
        text.replace("%", " %").replace("  %", " %")
    ), ANEW
    assert f"Firm and wrong still: {'; '.join(found['still wrong'])}." in text.replace("`", ""), (
        ANEW
    )


@pytest.mark.long
@pytest.mark.parametrize(("title", "name"), firm.asked_of().items())
def test_first_answers_are_as_firm_as_the_page_says(title, name):
    answers = firm.first_answers(name)
    kept = measured_firm()["authors"][title]
    assert firm.counts(answers, None) == kept["before"], ANEW
    assert firm.counts(answers) == kept["firm"], ANEW


@pytest.mark.slow
@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the reports of strangers are not here")
def test_the_measurement_gives_what_was_kept():
    assert json.loads(json.dumps(firm.measure(STRANGERS))) == measured_firm(), ANEW
