"""The kernels of a stranger: what was frozen stays, and an answer is judged by it alone."""

from __future__ import annotations

import pytest

from perfml.explain.advice.rules import load_rules
from perfml.explain.counters.terms import TERMS
from perfml.util.digest import sha256_of_file
from studies.truth.page import PAGE
from studies.truth.strangers import EXAMS, HALVES, Score, score

ACCEPTED = {"terms": ["local_memory"], "rules": ["local_memory"], "action_terms": ["local_memory"]}


def answer(*terms, verdict="faster", residual=False, part=0.9, todo=None, advice=(), doubt=None):
    return {
        "verdict": verdict,
        "doubt": doubt,
        "terms": [{"term": each, "residual": residual, "part": part} for each in terms],
        "what_to_do_term": todo,
        "advice": [{"rules": [rule]} for rule in advice],
    }


every_exam = pytest.mark.parametrize("exam", EXAMS.values(), ids=EXAMS)


def different_pairs(exam):
    """Return whether each labelled pair differs; exams say it in their own words."""
    pairs = exam.document("labels.json")["pairs"]
    if isinstance(pairs, dict):
        return {name: each["kind"] != "equal" for name, each in pairs.items()}
    return {each["case"]: not each["equal"] for each in pairs}


@every_exam
def test_the_labels_are_the_frozen_ones(exam):
    card = (exam.folder / "README.md").read_text(encoding="utf-8")
    assert sha256_of_file(exam.folder / "labels.json") in card


@every_exam
def test_every_pair_is_in_a_half_or_left_out_and_has_a_label(exam):
    labels = different_pairs(exam)
    halves = [name for half in HALVES for name in exam.document("halves.json")[half]]
    left_out = list(exam.document("decision.json")["left_out"])
    assert len(set(halves)) == len(halves)
    assert {*halves, *left_out} == set(labels)
    assert set(exam.document("accepted.json")["cases"]) == {n for n in halves if labels[n]}


@every_exam
def test_what_is_accepted_exists(exam):
    rules = {rule.id for rule in load_rules(None)}
    for each in exam.document("accepted.json")["cases"].values():
        assert set(each["terms"]) | set(each["action_terms"]) <= set(TERMS)
        assert set(each["rules"]) <= rules


def test_a_cause_first_a_cause_behind_and_a_confident_mistake_are_told_apart():
    right = answer("local_memory", "ipc", todo="local_memory", advice=["local_memory"])
    assert score(right, ACCEPTED) == Score(1, 1, 1, 0, 1, 1, 1)
    behind = answer("instructions", "local_memory", advice=["divergence", "local_memory"])
    assert score(behind, ACCEPTED) == Score(1, 0, 1, 1, 0, 0, 1)
    assert score(answer("throughput", residual=True), ACCEPTED) == Score(pairs=1)
    assert score(answer("instructions", part=0.4), ACCEPTED) == Score(pairs=1)
    assert score(answer(), ACCEPTED) == Score(pairs=1)
    unsure = answer("instructions", doubt="cannot tell local memory from instructions: ...")
    assert score(unsure, ACCEPTED) == Score(pairs=1, doubted=1)


@pytest.mark.parametrize(
    ("verdict", "told", "claimed"),
    [("no difference", 1, 0), ("undecided", 0, 0), ("faster", 0, 1)],
)
def test_equal_kernels_are_told_claimed_or_left_open(verdict, told, claimed):
    assert score(answer(verdict=verdict), None) == Score(equal=1, told=told, claimed=claimed)


OUTSIDE = ("descent_host", "solves_queue", "workspace_clear")
"""Pairs of the third exam whose cause is in no kernel."""


def test_the_page_says_what_the_third_exam_found():
    exam, page = EXAMS["third"], PAGE.read_text(encoding="utf-8")
    answers, cases = exam.document("answers_first.json"), exam.document("accepted.json")["cases"]
    each = {name: score(answers["ncu"][name], cases[name]) for name in cases}
    every = sum(each.values(), Score())
    assert f"{every.first} of {every.pairs} causes (84 %" in page
    assert f"{every.three} (92 %) in three; {every.wrong} of {every.pairs} (8 %) were wrong" in page
    assert f"a right rule first for {every.advised} of {every.pairs}" in page
    inside = sum((found for name, found in each.items() if name not in OUTSIDE), Score())
    assert f"Of the {inside.pairs} whose cause is in a kernel {inside.first} (91 %)" in page
    assert f"{inside.three} (97 %) in three, and one (3 %) wrong" in page
    assert inside.wrong == 1
    both, dev, aside = (answers["estimates"][half] for half in ("both", "dev", "aside"))
    assert [half["given"]["cases"] for half in (both, dev, aside)] == [24, 15, 9]
    medians, means = (
        [round(100 * half["given"]["errors"][at]) for half in (both, dev, aside)] for at in (0, 1)
    )
    assert (medians, means) == ([50, 68, 18], [85, 122, 23])
    assert "off by 50 % in the median and 85 % in the mean" in page
    assert "(dev: 15, 68 and 122 %; aside: 9, 18 and 23 %)" in page
    assert round(100 * both["coverage"]) == 79
    assert "holds 19 of the 24 (79 %)" in page


def test_the_page_says_what_the_exam_of_torch_blocks_found():
    exam, page = EXAMS["torch"], PAGE.read_text(encoding="utf-8")
    answers = exam.document("answers_first.json")["collect"]
    halves = [exam.half_score(answers, half) for half in HALVES]
    every = sum(halves, Score())
    assert [(half.first, half.pairs) for half in halves] == [(12, 16), (10, 13)]
    assert "dev: 75 %, 51 to 90; aside: 77 %, 50 to 92" in page
    assert f"{every.first} of {every.pairs} causes (76 %" in page
    assert f"{every.three} (90 %) in three" in page
    assert f"{every.wrong} of {every.pairs} (21 %) were wrong and confident" in page
    assert f"a right rule first for {every.advised} of {every.pairs} (59 %)" in page
    assert every.told == every.equal == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("exam", "recording", "at_first", "least"),
    [
        ("first", "ncu", 23, 23),
        ("first", "collect", 23, 23),
        ("second", "ncu", 31, 31),
        ("third", "ncu", 32, 32),
        ("torch", "collect", 22, 22),
    ],
)
def test_today_no_fewer_causes_are_named_than_when_last_counted(exam, recording, at_first, least):
    asked = EXAMS[exam]
    answers = asked.document("answers_first.json")[recording], asked.ask(recording)
    named = [sum(asked.half_score(found, half).first for half in HALVES) for found in answers]
    assert named[0] == at_first
    assert named[1] >= least
