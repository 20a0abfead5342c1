"""The report behind what a user named, however it was named, and the launches of it that count."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from perfml.datasets import read_input
from perfml.explain import reports
from perfml.explain.reports import Report, code_of, reports_behind
from perfml.readers import Source
from tests.support.paths import DATA

pytest.importorskip("ncu_report")

REPORT = DATA / "ncu" / "vectors.ncu-rep"
PAGE = DATA / "ncu" / "vectors.csv"


def places(given):
    (report,) = reports_behind(given)
    return report.launches


def test_all_launches_of_a_report_that_is_named_plainly_count():
    assert places(read_input(REPORT)) is None


def test_the_launch_that_is_named_counts_alone():
    assert places(read_input(f"{REPORT}@3")) == {3}


def test_skipped_launches_and_other_kernels_do_not_count():
    whole = read_input(REPORT).untimed
    kernel = whole["kernel"].iloc[0].split("(")[0]
    named = [row for row, name in enumerate(whole["kernel"]) if kernel in name]
    assert places(read_input(REPORT, kernel=kernel)) == set(named)
    expected = read_input(REPORT, skip=2).untimed
    kept = places(read_input(REPORT, skip=2))
    assert len(kept) == len(expected)
    assert min(kept) >= 2


def test_reports_in_a_folder_are_found_by_their_content(tmp_path):
    shutil.copy(REPORT, tmp_path / "a.ncu-rep")
    shutil.copy(DATA / "ncu" / "conv_03_range.ncu-rep", tmp_path / "b.ncu-rep")
    found = reports_behind(read_input(tmp_path))
    assert [each.source.path.name for each in found] == ["a.ncu-rep", "b.ncu-rep"]


def test_a_collected_run_that_was_read_from_its_table_has_the_report_beside_it(tmp_path):
    shutil.copy(PAGE, tmp_path / "metrics.csv")
    shutil.copy(REPORT, tmp_path / "metrics.ncu-rep")
    manifest = {"run_id": "r", "workload": "vectors", "backend": "cuda", "batch": 1}
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    (found,) = reports_behind(read_input(tmp_path))
    assert (found.source.path.name, found.run_id) == ("metrics.ncu-rep", "r")


def test_a_side_has_the_reports_of_its_own_runs_alone(tmp_path):
    shutil.copy(REPORT, tmp_path / "a.ncu-rep")
    shutil.copy(DATA / "ncu" / "conv_03_range.ncu-rep", tmp_path / "b.ncu-rep")
    given = read_input(tmp_path)
    launches = given.launches
    side = launches[launches["workload"] == "b"]
    (found,) = reports_behind(given, side)
    assert found.source.path.name == "b.ncu-rep"


def test_tables_and_other_profiles_have_none(tmp_path):
    shutil.copy(PAGE, tmp_path / "a.csv")
    assert reports_behind(read_input(tmp_path / "a.csv")) == []


def test_a_kernel_is_looked_up_in_the_first_report_that_has_it(monkeypatch, tmp_path):
    asked = []

    def of(source, *wanted):
        asked.append((source.path.name, [(sorted(each.kernels), each.launches) for each in wanted]))
        return [{"k": pd.DataFrame()} if source.path.name == "a" else {} for _ in wanted]

    monkeypatch.setattr(reports, "instructions", of)
    for name in "ab":
        (tmp_path / name).write_bytes(b"x")
    found = [Report(Source(tmp_path / name), name, frozenset({1})) for name in "ab"]
    (code,) = code_of((found, {"k", "l"}))
    assert set(code) == {"k"}
    assert asked == [("a", [(["k", "l"], {1})]), ("b", [(["l"], {1})])]


def test_a_report_behind_both_sides_is_opened_once(monkeypatch, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    opened = []
    monkeypatch.setattr(
        reports, "instructions", lambda source, *wanted: opened.append(wanted) or [{}] * len(wanted)
    )
    sides = [[Report(Source(tmp_path / "a"), "a", frozenset({place}))] for place in (0, 3)]
    assert code_of(*((side, {"k"}) for side in sides)) == [{}, {}]
    assert [[set(each.launches) for each in wanted] for wanted in opened] == [[{0}, {3}]]


def test_a_report_that_was_read_to_have_no_instructions_is_not_opened_again(monkeypatch):
    monkeypatch.setattr(reports, "instructions", lambda *_: pytest.fail("opened again"))
    given = read_input(REPORT)
    assert code_of((reports_behind(given), set(given.untimed["kernel"]))) == [{}]
