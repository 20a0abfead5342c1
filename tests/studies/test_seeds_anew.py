"""The ladders recorded anew, and Darknet itself: the page says what the recordings have."""

import json

import pytest

from studies.seeds import page, results, steps


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
