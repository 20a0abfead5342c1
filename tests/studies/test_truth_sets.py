"""The benchmark by set: what counts as right, wrong or missing, and the numbers of the page."""

from __future__ import annotations

import json

import pytest

from perfml.errors import InputError
from perfml.explain.launches import Launches
from perfml.explain.tree.causes import TERMS
from studies.truth import sets
from studies.truth.page import measured_sets
from studies.truth.questions import Accepted, Question, judgements, label_terms, read_labels
from studies.truth.rules import Remark
from tests.support.causes import pair_with

ANEW = "python -m studies.truth.sets --strangers DIR --out tests/data/truth/sets.json"


def question(term, terms, symptoms=(), remarks=None, metrics=(), rules=()):
    before, after = (Launches(("k",), (one,), 1, 0) for one in pair_with(term))
    accepted = Accepted(frozenset(terms), frozenset(symptoms), tuple(metrics), tuple(rules))
    return Question("case", "family", before, after, True, accepted, remarks)


def test_a_cause_a_symptom_and_a_confident_mistake_are_told_apart():
    right = sets.ask_perfml(question("memory_fence", {"memory_fence"}))
    assert (right.place, right.wrong, right.symptom) == (1, False, False)
    symptom = sets.ask_perfml(question("memory_fence", {"ipc"}, {"memory_fence"}))
    assert (symptom.place, symptom.wrong, symptom.symptom) == (None, False, True)
    wrong = sets.ask_perfml(question("memory_fence", {"ipc"}))
    assert (wrong.wrong, wrong.said) == (True, right.said)


def test_without_the_counter_the_cause_is_said_to_be_missing():
    asked = question("memory_fence", {"memory_fence"})
    kept = {name for one in asked.after.launches for name in one.counters} - {"stall_membar"}
    found = sets.ask_perfml(asked.cut(kept))
    assert (found.place, found.first) == (None, "stall_sync")
    assert (found.wrong, found.said, found.named_missing) == (True, True, True)
    counts = sets.tally([found])
    assert (counts["wrong"], counts["wrong_and_silent"], counts["named_missing"]) == (1, 0, 1)


def test_the_rivals_are_asked_the_same():
    remarks = (Remark("CPIStall: on a memory barrier", 0.6), Remark("LaunchConfiguration: x", None))
    asked = question(
        "memory_fence",
        {"memory_fence"},
        remarks=remarks,
        metrics=["^stall_sync$"],
        rules=["CPIStall: .*memory barrier"],
    )
    assert sets.ask_rules(asked).place == 1
    assert sets.ask_rules(question("memory_fence", {"memory_fence"})) is None
    # 0.1 to 0.8; no time, and no count of launches, is a cause
    assert sets.ask_largest_change(asked).first == "stall_sync"


def test_judgements_name_terms_that_exist():
    table = judgements()
    assert set(table["terms"]) <= set(TERMS)
    for each in table["terms"].values():
        assert set(each["symptoms"]) <= set(TERMS)
    assert {name for ids in table["labels"].values() for name in ids} <= set(TERMS)


def test_words_of_labels_become_terms_and_an_unknown_one_is_an_error():
    words = judgements()["labels"]
    assert label_terms(["wave fill", "re:^shared.*atomic"], words) == {
        "wave_quantization",
        "shared_atomics",
    }
    with pytest.raises(InputError, match="does not know"):
        label_terms(["wave fil"], words)


def test_labels_that_were_changed_are_refused(tmp_path):
    with pytest.raises(InputError, match="no labels"):
        read_labels(tmp_path)
    (tmp_path / "labels.json").write_text('{"steps": []}')
    (tmp_path / "README.md").write_text("sha256: 0")
    with pytest.raises(InputError, match="frozen"):
        read_labels(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sets.SETS)
def test_a_planted_set_is_scored_as_the_page_says(name):
    found = json.loads(json.dumps(sets.measure_set(sets.SETS[name]())))
    assert found == measured_sets()[name], ANEW


@pytest.mark.slow
@pytest.mark.long
def test_the_default_metrics_name_what_all_metrics_name():
    for name in ("planted, 18 newer families, H100", "planted, 18 newer families, H200"):
        columns = measured_sets()[name]["columns"]
        # how certain an answer is may differ: of all counters, more tells what else grew
        named = [
            [columns[kind][score] for score in ("cases", "first", "three", "symptom", "wrong")]
            for kind in ("default", "all that was recorded")
        ]
        assert named[0] == named[1]
    asked = [each for each in sets.SETS["planted, 18 newer families, H100"]() if "_s0" in each.case]
    counts = sets.tally([sets.ask_perfml(each.cut(sets.COLUMNS["default"])) for each in asked])
    assert counts["cases"] > 40
    assert counts["first"] >= 0.93 * counts["cases"]
