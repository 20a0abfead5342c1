"""Pages of ncu that a spreadsheet or pandas saved are read as the pages that they were."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.readers import read
from tests.support.paths import ROOT

NCU = ROOT / "tests" / "data" / "ncu"
RAW = NCU / "conv_03_cublas.csv"
DETAILS = NCU / "details_with_output.csv"


def rows_of(path):
    text = path.read_text()
    return list(csv.reader(io.StringIO(text[text.find('"ID"') :])))


def saved(tmp_path, rows, start="", **how):
    out = io.StringIO()
    out.write(start)
    csv.writer(out, **how).writerows(rows)
    path = tmp_path / "page.csv"
    path.write_text(out.getvalue())
    return path


def numbered(rows):
    return [["", *rows[0]], *([str(n), *row] for n, row in enumerate(rows[1:]))]


@pytest.mark.parametrize("page", [RAW, DETAILS])
@pytest.mark.parametrize(
    ("start", "mark", "index"),
    [("", ";", False), ("sep=;\n", ";", False), ("", "\t", False), ("", ",", True)],
)
def test_other_separators_and_a_column_of_row_numbers_change_nothing(
    page, start, mark, index, tmp_path
):
    rows = rows_of(page)
    path = saved(tmp_path, numbered(rows) if index else rows, start, delimiter=mark)
    pd.testing.assert_frame_equal(read(path).frame, read(page).frame)


@pytest.mark.parametrize("index", [True, False])
def test_a_page_that_went_through_pandas_is_the_same(index, tmp_path):
    path = tmp_path / "page.csv"
    pd.read_csv(RAW).to_csv(path, index=index)
    pd.testing.assert_frame_equal(read(path).frame, read(RAW).frame)


def test_a_cut_row_is_still_told(tmp_path):
    path = saved(tmp_path, rows_of(RAW), delimiter=";")
    path.write_text(path.read_text()[:-2000])
    with pytest.raises(InputError):
        read(path)


def test_a_launch_of_no_time_has_none_and_is_told(tmp_path):
    rows = rows_of(RAW)
    rows[2][rows[0].index("gpu__time_duration.sum")] = "0"
    found = read(saved(tmp_path, rows, quoting=csv.QUOTE_ALL))
    assert found.frame["time_us"].isna().tolist() == [True, False, False, False, False]
    assert any("1 launch has no duration" in text for text in found.warnings)
