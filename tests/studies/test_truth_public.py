"""The labels of public reports are whole, and their first answers score as the page says."""

from perfml.explain import TERMS
from perfml.explain.advice.rules import load_rules
from studies.truth import public
from studies.truth.page import PAGE


def test_labels_name_terms_and_rules_that_exist():
    document = public.labels()
    rules = {rule.id for rule in load_rules(None)}
    for name, step in document["steps"].items():
        assert set(step["strict"]) | set(step["symptoms"]) <= set(TERMS), name
        assert set(step["rules"]) <= rules, name
        assert not set(step["strict"]) & set(step["symptoms"]), name


def test_every_side_is_of_a_report_that_says_where_it_is_from():
    document = public.labels()
    sides = [
        pair[which].partition("@")[0]
        for pair in (*document["steps"].values(), *document["equal"].values())
        for which in ("before", "after")
    ]
    assert set(sides) == set(document["files"])
    assert all(where.count("@") == where.count(":") == 1 for where in document["files"].values())


def test_steps_differ_by_a_twelfth_and_equal_pairs_do_not():
    document = public.labels()
    assert all(not 1 / 1.08 < step["ratio"] < 1.08 for step in document["steps"].values())
    assert all(abs(pair["ratio"] - 1) < 0.0101 for pair in document["equal"].values())


def test_the_page_has_the_scores_of_the_first_answers():
    result = public.result_of(public.first_answers())
    assert public.table(result) in PAGE.read_text(encoding="utf-8")


def test_an_answer_that_names_something_else_scores_less():
    answers = public.first_answers()
    right = public.result_of(answers).met
    other = {"term": "shared_atomics", "residual": False, "part": 0.9}
    spoiled = answers | {"ar_v3_v4": answers["ar_v3_v4"] | {"terms": [other], "doubt": None}}
    wrong = public.result_of(spoiled).met
    assert (wrong.first, wrong.wrong) == (right.first - 1, right.wrong + 1)
