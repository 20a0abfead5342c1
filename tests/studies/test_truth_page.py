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
    OUTSIDE,
    TABLES,
    TRUTH,
    measured_sets,
    pooled,
    table_of,
)
from studies.truth.scores import ASIDE, DEVELOP, half_of
from studies.truth.sets import EXAM_SETS, SETS
from studies.truth.strangers import EXAMS, HALVES, Score, score
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.truth.page"


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_of_the_results_is_what_was_measured(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_the_page_of_the_documentation_pools_all_sets_after_the_outside_test():
    table = table_on(TRUTH, "pooled")
    assert table == pooled(), ANEW
    assert table.splitlines()[2].startswith("| outside test: CUDA kernels")
    text = TRUTH.read_text(encoding="utf-8")
    for code in ("CUDA", "PyTorch"):
        scores = [each.first_score() for each in EXAMS.values() if each.code.startswith(code)]
        every = sum(scores, Score())
        assert f"{every.advised} of {every.pairs} " in text
    cuda = [each.first_score() for each in EXAMS.values() if each.code == "CUDA kernels"]
    shares = [round(100 * each.first / each.pairs) for each in cuda]
    assert f"each of our six sets ({min(shares)} to {max(shares)} %)" in text


@pytest.mark.parametrize("page", [ROOT / "README.md", TRUTH])
def test_the_first_pages_give_development_figures_of_today_with_the_pairs_set_aside(page):
    text = page.read_text(encoding="utf-8")
    rows = tomllib.loads(DEVELOPMENT.read_text(encoding="utf-8"))["rows"]
    exams = [row for row in rows if "as shipped" in row["set"]]
    pairs, now = (
        sum(each) for each in zip(*((r["pairs"], r["now"][0]) for r in exams), strict=True)
    )
    assert f"{now} of {pairs}" in text
    curve = json.loads(CONFIDENCE.read_text(encoding="utf-8"))
    aside = curve["never fitted, exams, half aside"]["all that was recorded"]
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
def test_the_first_pages_give_the_outside_test_with_its_date_and_commit(page):
    outside = tomllib.loads(OUTSIDE.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    assert outside["date"] in text
    assert outside["commit"] in text
    for each in outside["parts"]:
        assert f"{each['first']} of {each['pairs']}" in text


def test_the_readme_gives_all_sets_pooled():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for row in table_on(TRUTH, "pooled").splitlines()[5:]:
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
def test_explain_answers_the_exams_today_as_the_development_figures_say():
    sums = {DEVELOP: Score(), ASIDE: Score()}
    for exam in EXAMS.values():
        answers = exam.ask(exam.recordings[0])
        for name, accepted in exam.labelled(HALVES).items():
            sums[half_of(name)] += score(answers[name], accepted)
    for half, found in sums.items():
        row = _development(f"{half}, `explain` as shipped")
        assert [found.pairs, found.first, found.wrong] == [row["pairs"], *row["now"]], half
