"""The line that carries the planted cause: what is recorded, and what is named."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import pytest

from perfml.util.machine_code import Place
from studies.truth import lines
from studies.truth.page import measured_lines
from studies.workloads.planted.families import BY_NAME

ANEW = "python -m studies.truth.lines --out tests/data/truth/lines.json; studies.truth.page"


def test_nine_of_ten_planted_lines_are_named_and_every_family_has_one_answer():
    found = measured_lines()
    families = [row["family"] for row in found["rows"]]
    assert len(set(families)) == len(families) == found["cases"] >= 34
    assert set(families) <= set(lines.PLANTED) <= set(BY_NAME)
    assert found["right"] == sum(row["right"] for row in found["rows"]) >= 0.9 * found["cases"]


def test_what_is_recorded_tells_of_no_folder_and_holds_the_planted_sources_alone():
    for folder in lines.recordings():
        table = pd.read_parquet(folder / "instructions.parquet")
        for told in (table["file"].dropna(), table["callers"]):
            folders = told.str.replace("/cuda/include/", "", regex=False)
            assert not folders.str.contains(r"[/\\]").any()
        source = pd.read_csv(folder / "source.csv")
        assert source["file"].str.endswith((".cu", ".cuh")).all()


def test_calls_are_written_and_read_again():
    places = (Place("a.cu", 3), Place("b.cuh", 9))
    assert lines._read(lines._written(places)) == places
    assert lines._read("") == ()


@pytest.mark.slow
def test_the_program_names_what_the_page_says():
    rows = [asdict(row) for folder in lines.recordings() for row in lines.measure(folder)]
    kept = measured_lines()["rows"]
    for mine, theirs in zip(rows, kept, strict=True):
        share = mine.pop("share")
        assert mine == {name: value for name, value in theirs.items() if name != "share"}, ANEW
        assert share == pytest.approx(theirs["share"]), ANEW
