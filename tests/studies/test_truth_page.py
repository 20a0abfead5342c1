"""The tables of causes hold what was measured, and measuring gives that again."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from studies.page_tables import table_on
from studies.truth.page import (
    CONFIDENCE,
    DEVELOPMENT,
    FACTORIAL_FIRST,
    TABLES,
    TRUTH,
    measured_sets,
    outside_tests,
    pooled,
    table_of,
)
from studies.truth.questions import exam_half
from studies.truth.scores import ASIDE, DEVELOP
from studies.truth.sets import EXAM_SETS, SETS, ask_perfml, tally
from studies.truth.strangers import EXAMS, Score
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.truth.page"


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_of_the_results_is_what_was_measured(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_the_page_of_the_documentation_pools_all_sets_after_the_outside_test():
    table = table_on(TRUTH, "pooled")
    assert table == pooled(), ANEW
    assert table.splitlines()[2].startswith("| outside: CUDA kernels")
    text = TRUTH.read_text(encoding="utf-8")
    for code in ("CUDA", "PyTorch"):
        scores = [each.first_score() for each in EXAMS.values() if each.code.startswith(code)]
        every = sum(scores, Score())
        assert f"{every.advised} of {every.pairs} " in text
    cuda = [each.first_score() for each in EXAMS.values() if each.code == "CUDA kernels"]
    shares = [round(100 * each.first / each.pairs) for each in cuda]
    assert f"each of our six sets ({min(shares)} to {max(shares)} %)" in text


@pytest.mark.parametrize("page", [ROOT / "README.md", TRUTH])
def test_the_first_pages_give_the_figures_of_one_scorer_with_its_command(page):
    text = page.read_text(encoding="utf-8")
    found = [exam_counts(name) for name in EXAM_SETS.values()]
    pairs, first, high, right = (sum(each) for each in zip(*found, strict=True))
    assert f"{first} of {pairs}" in text
    assert re.search(rf"\b{right} of {high} answers|Of {high} answers .* {right} are", text)
    assert "`python -m studies truth.sets`" in text


def exam_counts(name):
    """Return pairs, first causes, answers of high confidence, and how many of these are right."""
    found = measured_sets()[name]["columns"]["all that was recorded"]
    high = found["cases"] - found["said"]
    return found["cases"], found["first"], high, found["first"] - found["right_and_hedged"]


def test_pairs_set_aside_are_on_the_pages_by_both_measures_of_confidence():
    pairs, first, high, right = exam_counts(EXAM_SETS[ASIDE])
    text = TRUTH.read_text(encoding="utf-8")
    assert f"{first} of {pairs} causes are first" in text
    assert f"{right} of {high} answers of high confidence" in text
    curve = json.loads(CONFIDENCE.read_text(encoding="utf-8"))
    aside = curve["held out"]["aside"]
    (high,) = (each for each in aside if each["from"] == curve["high"])
    for each in (text, (ROOT / "docs/explanation/attributions.md").read_text(encoding="utf-8")):
        assert f"{high['right']} of {high['answers']}" in each


def test_the_page_of_the_documentation_gives_kernels_with_several_causes_as_first_answered():
    halves = [
        json.loads(FACTORIAL_FIRST.read_text("utf-8"))[each]["all"] for each in (DEVELOP, ASIDE)
    ]
    first, pairs, right, high = (
        sum(half[name] for half in halves) for name in ("first", "pairs", "high_right", "high")
    )
    text = TRUTH.read_text(encoding="utf-8")
    assert f"{first:,} of {pairs:,} pairs ({first / pairs:.0%})".replace("%", " %") in text
    assert f"of answers of high confidence in {right} of {high:,}" in text
    assert f"came first in {first / pairs:.0%}".replace("%", " %") in (
        ROOT / "README.md"
    ).read_text("utf-8")
    curve = json.loads(CONFIDENCE.read_text(encoding="utf-8"))
    for pairs_of in ("develop", "factorial"):
        (held,) = (each for each in curve["held out"][pairs_of] if each["from"] == curve["high"])
        assert f"{held['right']:,} of {held['answers']:,}" in text


def test_the_page_of_the_documentation_gives_what_advice_finds_today():
    text = TRUTH.read_text(encoding="utf-8")
    rows = dict(
        re.findall(
            r"^\| \*\*(all that was \w+ ?\w*)\*\* \| (.*) \|$", table_of("advisedsure"), re.M
        )
    )
    counts = {
        name: [tuple(map(int, each)) for each in re.findall(r"(\d+) of (\d+)", row)]
        for name, row in rows.items()
    }
    every = [each for cells in counts.values() for each in cells]
    right, pairs = (sum(numbers) for numbers in zip(*every, strict=True))
    assert f"right in {right} of these {pairs} pairs" in text
    high = [sum(cells) for cells in zip(*(each[0] for each in counts.values()), strict=True)]
    assert f"Findings of high confidence are right in {high[0]} of {high[1]}" in text
    assert "of pairs never read in {} of {}".format(*counts["all that was not"][0]) in text


@pytest.mark.parametrize("page", [ROOT / "README.md", TRUTH])
def test_the_first_pages_give_the_newest_outside_test_with_its_date_and_commit(page):
    text = page.read_text(encoding="utf-8")
    newest = max(outside_tests(), key=lambda test: test["date"])
    assert newest == outside_tests()[0]
    assert newest["date"] in text
    assert newest["commit"] in text
    for part in newest["parts"]:
        assert f"{part['first']} of {part['pairs']}" in text
    assert "{} of {}".format(*newest["medium"]) in text


def test_the_readme_gives_high_confidence_of_the_newest_outside_test():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for recording in (slice(0, 4, 2), slice(1, 4, 2)):  # by collect, by Nsight Compute
        parts = outside_tests()[0]["parts"][recording]
        right, answers = (sum(part["high"][at] for part in parts) for at in (0, 1))
        assert f"{right} of {answers}" in text


def test_the_readme_gives_all_sets_pooled():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    outside = len(outside_tests()[0]["parts"])
    for row in table_on(TRUTH, "pooled").splitlines()[2 + outside :]:
        right, wrong = row.split(" | ")[2:]
        assert right.split(" (")[0] in text
        assert wrong.split(" of ")[0] in text


def _development(part):
    rows = tomllib.loads(DEVELOPMENT.read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if part in row["set"])


@pytest.mark.parametrize(
    ("part", "columns"),
    [("all counters", "all that was recorded"), ("default counters", "default")],
)
def test_planted_causes_of_the_development_figures_are_the_sum_of_the_sets(part, columns):
    planted_sets = [kept for name, kept in measured_sets().items() if name in SETS]
    found = [kept["columns"][columns] for kept in planted_sets]
    row = _development(part)
    assert row["pairs"] == sum(each["cases"] for each in found)
    assert row["now"][0] == sum(each["first"] for each in found)
    assert row["now"][1] == sum(each["wrong_and_silent"] for each in found)


@pytest.mark.parametrize("half", EXAM_SETS)
def test_exams_of_the_development_figures_are_those_of_the_sets(half):
    found = measured_sets()[EXAM_SETS[half]]["columns"]["all that was recorded"]
    row = _development(f"{half}, kernels alone")
    firm_right = found["first"] - found["right_and_hedged"]
    wrong_and_firm = found["cases"] - found["said"] - firm_right
    assert [found["cases"], found["first"], wrong_and_firm] == [row["pairs"], *row["now"]]


@pytest.mark.slow
@pytest.mark.parametrize("half", EXAM_SETS)
def test_causes_of_the_exams_are_today_what_the_development_figures_say(half):
    found = tally([ask_perfml(question) for question in exam_half(half)])
    assert found == measured_sets()[EXAM_SETS[half]]["columns"]["all that was recorded"], half
