"""The ladders recorded as a whole, and Darknet itself: the page says what the recordings have."""

import json

import pytest

from perfml.tables import read_table
from studies.ladders import pack
from studies.seeds import page, results, steps


@pytest.fixture(scope="module")
def tables():
    return {name: read_table(pack.OUT / f"{name}.parquet") for name in pack.LADDERS}


@pytest.mark.parametrize("name", pack.LADDERS)
def test_a_ladder_is_there_whole_from_one_recording_and_was_right_before_it_was_measured(
    tables, name
):
    runs = tables[name].provenance["runs"]
    assert [pack.Version.of(each) for each in runs] == pack.wanted(name)
    assert set(tables[name].frame["run_id"]) == {each["run_id"] for each in runs}
    for each in runs:
        assert each["profiler"] == "cupti"
        assert each["device"] == "NVIDIA H200"
        assert each["started"].startswith("2026-11-22")
        assert each["check"]["passed"], each["run_id"]
    text = json.dumps(tables[name].provenance)
    assert "/tmp/" not in text
    assert "/opt/" not in text


@pytest.mark.slow
def test_the_answers_to_the_ladders_recorded_anew_are_those_that_are_kept():
    names = ("ladder", "step", "layer", "author", "ratio")
    measured, kept = steps.measure(steps.LADDERS), page.anew_rows()
    assert [[row[each] for each in names] for row in measured] == [
        [row[each] for each in names] for row in kept
    ], "write it anew: python -m studies.seeds.steps --anew"


def test_a_later_recording_replaces_the_cases_that_it_has_and_adds_the_others(tmp_path):
    rows = [{"case": "t10", "version": "fused", "total_s": 2.0}]
    (tmp_path / "slow.json").write_text(
        json.dumps({"slow": [rows[0] | {"total_s": 1.0}, rows[0] | {"case": "t29"}]})
    )
    found = results.with_more({"attention": rows, "conv": []}, tmp_path)
    assert [(row["case"], row["total_s"]) for row in found["attention"]] == [
        ("t10", 1.0),
        ("t29", 2.0),
    ]
    assert "speed_of_light" not in found
