"""The kernels of a stranger: what was frozen stays, and an answer is judged by it alone."""

from __future__ import annotations

import pandas as pd
import pytest

from perfml.explain import load_tables
from perfml.explain.tree.causes import TERMS
from perfml.util.files import sha256_of_file
from studies.truth.labels import RETIRED, retired_rules
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
    rules = set(retired_rules())
    for each in exam.document("accepted.json")["cases"].values():
        assert set(each["terms"]) | set(each["action_terms"]) <= {*TERMS, *RETIRED}
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


@pytest.mark.parametrize("name", ["fourth", "fifth"])
def test_the_clock_alone_decided_which_pairs_count(name):
    exam = EXAMS[name]
    differs = different_pairs(exam)
    ratios = pd.read_csv(exam.folder / "clock.csv").set_index("case")["ratio"].to_dict()
    counts = {
        name: at >= 1.2 if differs[name] else abs(at - 1) <= 0.03 for name, at in ratios.items()
    }
    assert set(counts) == set(differs)
    assert {name for name, counted in counts.items() if not counted} == set(
        exam.document("decision.json")["left_out"]
    )
    layers, _ = load_tables(exam.folder)
    for side in ("before", "after"):
        rows = layers[layers["backend"] == side].groupby("layer").size()
        assert set(rows.index) == {name for name, counted in counts.items() if counted}
        assert set(rows) == {3}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("exam", "recording", "at_first", "least"),
    [
        pytest.param("first", "ncu", 23, 23, marks=pytest.mark.slow),
        ("first", "collect", 23, 23),
        pytest.param("second", "ncu", 31, 31, marks=pytest.mark.slow),
        pytest.param("third", "ncu", 32, 34, marks=pytest.mark.slow),
        # 26 until single layers lost a clock of their own (2026-11-28)
        ("torch", "collect", 22, 25),
    ],
)
def test_today_no_fewer_causes_are_named_than_when_last_counted(exam, recording, at_first, least):
    asked = EXAMS[exam]
    answers = asked.document("answers_first.json")[recording], asked.ask(recording)
    named = [sum(asked.half_score(found, half).first for half in HALVES) for found in answers]
    assert named[0] == at_first
    assert named[1] >= least
