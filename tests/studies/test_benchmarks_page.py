"""The speed table: the rows of the program that measures, and reasons where perfml is behind."""

import re

import pytest

from benchmarks import rows

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def page(root):
    return (root / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


def test_the_page_has_the_rows_of_the_program_in_its_order(page):
    found = rows.on_page(page)
    assert tuple(found[0]) == rows.COLUMNS
    expected = [rival for rivals in rows.ROWS.values() for rival in rivals]
    assert [row["other side"] for row in found] == expected


def test_every_row_has_a_time_of_both_sides_and_a_ratio_within_its_range(page):
    for row in rows.on_page(page):
        assert float(row["perfml, s"]) > 0
        assert float(row["other, s"]) > 0
        low, high = map(float, row["min to max"].split(" to "))
        assert 0 < low <= float(row["times faster"]) <= high


def test_a_row_in_which_perfml_is_behind_says_why(page):
    reasons = page.split("## Where perfml is not ahead", 1)[1].split("\n## ", 1)[0]
    for row in rows.on_page(page):
        if float(row["times faster"]) < 1:
            assert row["note"], row
            assert row["other side"].rsplit(", ", 1)[-1].lower() in reasons.lower(), row


def test_the_page_says_on_what_it_was_measured(page):
    table = page[page.index(rows.MARKS[0]) : page.index(rows.MARKS[1])]
    assert re.search(r"^Measured on \d+ cores .*; 5 turns; load [\d.]+ at the end\.$", table, re.M)


def test_a_page_with_another_row_is_noticed():
    table = "| work | other side |\n| --- | --- |\n| a | b |\n"
    assert rows.on_page(f"{rows.MARKS[0]}\n{table}{rows.MARKS[1]}") == [
        {"work": "a", "other side": "b"}
    ]
