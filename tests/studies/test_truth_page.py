"""The page about planted causes holds what was measured, and measuring gives that again."""

from __future__ import annotations

import json
import re

import pytest

from studies.truth import measure
from studies.truth.page import (
    COMPARED,
    NAMES,
    PAGE,
    QUESTIONS,
    TABLES,
    first_answers,
    measured,
    measured_sets,
    planted,
    table_of,
)
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

FAMILIES = ("19 older families", "18 newer families")
ANEW = "write it anew: python -m studies.truth.measure --json > F; python -m studies.truth.page F"


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_of_the_page_is_what_was_measured(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_the_goals_are_met_and_the_page_names_every_family():
    kept = measured()
    assert kept["goals"]["best"] == "causes"
    assert kept["goals"]["parts"] == {"base": True, "between": True, "mixture": True}
    assert set(kept["families"]) == {each["family"] for each in planted()}
    assert len(table_of("families").splitlines()) == 2 + 19


def test_methods_that_are_asked_something_else_have_a_table_of_their_own():
    assert set(measured()["methods"]) == {*COMPARED, *QUESTIONS}
    for name in QUESTIONS:
        method = f"| {NAMES.get(name, name)} |"
        assert method in table_of("otherquestions")
        assert not any(method in table_of(part) for part in ("base", "between", "mixtures"))


def test_the_tour_says_what_the_default_collection_gives():
    sets = measured_sets()
    planted_h200 = [sets[f"planted, {name}, H200"]["columns"] for name in FAMILIES]
    cases, first, published = (
        sum(found[columns][score] for found in planted_h200)
        for columns, score in (
            ("default", "cases"),
            ("default", "first"),
            ("the 19 columns", "first"),
        )
    )
    aside = first_answers()["six families kept aside, H200"]["columns"]["default"]
    strangers = sets["public reports of strangers"]["same_questions"]
    ours, rules = strangers["perfml, default metrics"], strangers["Nsight Compute's rules"]
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    for sentence in (
        f"first in {first} of {cases} cases of the 37 families that it was developed on (H200)",
        f"in {aside['first']} of {aside['cases']} of six families kept aside",
        f"in {ours['first']} of {ours['cases']} steps between public reports of strangers",
        f"(Nsight Compute's rules, asked the same: {rules['first']})",
        f"With the published 19 columns it is first in {published} of the {cases}",
    ):
        assert sentence in text


def test_the_page_says_what_the_published_metrics_alone_give():
    found = measured_sets()["planted, 19 older families, H200"]["columns"]["the 19 columns"]
    text = (ROOT / "docs" / "explanation" / "truth.md").read_text(encoding="utf-8")
    assert f"the cause is first in {found['first']} of {found['cases']} cases" in text


def test_the_page_begins_with_the_answer_and_folds_its_long_tables():
    text = PAGE.read_text(encoding="utf-8")
    answer = text.split("\n\n")[2]
    latest = {
        row.split(" | ")[0]: row.split(" | ") for row in table_of("firstasked").splitlines()[2:]
    }
    for row in latest.values():
        assert f"({row[4].split(',')[0]} of {row[3]})" in answer, f"the last exam of {row[0]}"
    pieces = re.split(r"<details markdown=\"1\">\n<summary>.+</summary>\n\n|\n\n</details>\n", text)
    assert "details>" not in "".join(pieces)
    assert len(pieces) % 2 == 1  # every fold is closed before the next
    for name, table in re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end -->", "".join(pieces[::2]), re.S):
        assert table.count("\n") <= 14, f"{name} is long: fold it, a phone shows a row a thumb"


@pytest.mark.slow
def test_the_program_measures_what_the_page_says(capsys):
    assert measure.main(["--json", "--no-shapley"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = measured()
    for part in ("methods", "between", "mixtures"):
        for method, scored in kept[part].items():
            if method != "Shapley":
                assert found[part][method] == scored, f"{part}, {method}: {ANEW}"
    assert found["left_out"] == kept["left_out"], ANEW
