"""The labels of public reports are whole, and their first answers score as the page says."""

import json
from itertools import combinations

import pytest

from perfml.explain import TERMS
from studies.truth import public
from studies.truth.labels import RETIRED, retired_rules

exams = pytest.mark.parametrize("exam", public.EXAMS)


@exams
def test_labels_name_terms_and_rules_that_exist(exam):
    document = public.labels(exam)
    rules = set(retired_rules())
    for name, step in document["steps"].items():
        assert set(step["strict"]) | set(step["symptoms"]) <= {*TERMS, *RETIRED}, name
        assert set(step["rules"]) <= rules, name
        assert not set(step["strict"]) & set(step["symptoms"]), name


@exams
def test_every_side_is_of_a_report_that_says_where_it_is_from(exam):
    document = public.labels(exam)
    sides = [
        pair[which].partition("@")[0]
        for pair in (*document["steps"].values(), *document["equal"].values())
        for which in ("before", "after")
    ]
    assert set(sides) == set(document["files"])
    assert all(where.count("@") == where.count(":") == 1 for where in document["files"].values())


def test_no_author_is_in_two_exams():
    authors = [
        {where.partition("/")[0] for where in public.labels(exam)["files"].values()}
        for exam in public.EXAMS
    ]
    assert not any(set.intersection(*pair) for pair in combinations(authors, 2))


def test_the_labels_of_the_fourth_exam_are_those_that_were_frozen():
    document = public.labels("fourth")
    assert public.digest(document) == document["digest_of_what_was_frozen"]
    name, step = next(iter(document["steps"].items()))
    changed = document["steps"] | {name: step | {"strict": ["instructions"]}}
    assert public.digest(document | {"steps": changed}) != document["digest_of_what_was_frozen"]


def test_answers_are_kept_in_the_form_that_is_read(tmp_path, monkeypatch, capsys):
    answers = public.first_answers("third")
    monkeypatch.setattr(public, "ask", lambda exam, folder: answers)
    out = tmp_path / "answers.json"
    assert public.main([str(tmp_path), "--exam", "third", "--out", str(out)]) == 0
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert kept["answers"] == answers
    assert len(kept["commit"]) == 7
    assert "cause first" in capsys.readouterr().out


def test_an_exam_that_was_not_asked_wants_its_reports(monkeypatch):
    monkeypatch.setattr(public, "asked", lambda: ["first"])
    with pytest.raises(SystemExit, match="fourth exam has no first answers yet"):
        public.main(["--exam", "fourth"])


def test_an_answer_that_names_something_else_scores_less():
    answers = public.first_answers("first")
    right = public.result_of("first", answers).met
    other = {"term": "shared_atomics", "residual": False, "part": 0.9}
    spoiled = answers | {"ar_v3_v4": answers["ar_v3_v4"] | {"terms": [other], "doubt": None}}
    wrong = public.result_of("first", spoiled).met
    assert (wrong.first, wrong.wrong) == (right.first - 1, right.wrong + 1)
