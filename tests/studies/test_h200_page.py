"""The page about the H200 holds what the data give."""

from __future__ import annotations

import pandas as pd
import pytest

from studies.h200.page import DATA, PLAIN, TABLES, best, picked, plain, put, rows_of

pytestmark = pytest.mark.page

AGAIN = "write it anew: python -m studies.h200.page"


def test_a_column_of_the_control_is_what_the_data_give():
    models = ("power-law",)  # no ties, which the last digit of a metric may break otherwise
    shown = [rows_of("control")["tf32"][PLAIN.index(name)] for name in models]
    assert plain("tf32", models) == shown, AGAIN


@pytest.mark.parametrize("data", DATA)
def test_the_goals_are_the_best_of_the_tables(data):
    cells = rows_of("goals")[data]
    assert [(cells[0], cells[2]), (cells[3], cells[5])] == best(data), AGAIN


def test_a_setting_is_picked_without_the_layer_it_is_scored_on():
    folds = pd.DataFrame({"steady": [0.2, 0.2, 0.2], "lucky once": [0.0, 0.3, 0.29]})
    assert folds.mean().min() < 0.2
    assert picked(folds) == pytest.approx((0.2 + 0.3 + 0.29) / 3)


def test_every_table_has_a_row_of_every_data():
    assert {name: list(rows_of(name)) for name in TABLES} == {key: list(DATA) for key in TABLES}


def test_a_row_is_written_in_its_place(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- control -->\n| d |\n|---|\n| fp32 | 1 |\n| fp16 | 1 |\n<!-- end -->\nb\n"
    )
    put("control", "tf32", ["2"], page)
    put("control", "fp32", ["3"], page)
    assert rows_of("control", page) == {"fp32": ["3"], "tf32": ["2"], "fp16": ["1"]}
    assert page.read_text().endswith("<!-- end -->\nb\n")
