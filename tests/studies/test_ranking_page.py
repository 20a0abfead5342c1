"""The results of simulated rankings are those that are stored, on both pages."""

import pytest

from studies.page_tables import table_on
from studies.ranking import page
from tests.support.paths import ROOT

pytestmark = pytest.mark.page


@pytest.mark.parametrize("name", list(page.TABLES))
def test_the_table_is_what_was_measured(name):
    assert table_on(page.PAGE, name) == page.TABLES[name](), "python -m studies.ranking.page"


def test_false_alarms_are_the_stored_ones():
    said, tables = page.alarms()
    assert f"{said} of {tables} had one" in page.PAGE.read_text(encoding="utf-8")


def test_the_page_of_results_says_how_often_half_of_the_variance_is_found():
    found = [
        round(100 * case["said"] / case["tables"])
        for case in page.cases()
        if case["r2"] == 0.5 and case["rows"] == [1, 1]
    ]
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"half of the variance is found in {min(found)} to {max(found)} %" in text
