"""Answers beside whose tables experiments lie: verdicts and gains are those that were measured."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from perfml.explain import advise
from perfml.explain.advice.measured import keep_answer
from perfml.tables import metric_columns
from tests.support.command_line import run as command
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

DATA = ROOT / "studies" / "data"
LAYERS = ("atomic_count_s0", "memory_fence_s0", "local_array_s0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of two levels of the planted kernels, each with its experiments."""
    table = pd.read_parquet(DATA / "h100-planted-causes" / "kernels.parquet")
    folders = []
    for level in ("base", "level_3"):
        folder = tmp_path_factory.mktemp(level)
        chosen = table["layer"].isin(LAYERS) & (table["backend"] == level)
        table[chosen].to_parquet(folder / "kernels.parquet")
        recorded = DATA / "h100-experiments" / f"repairs-{level}.csv.xz"
        rows = pd.read_csv(recorded, keep_default_na=False, dtype=str)
        about = (rows["launch"] == "") | rows["range"].str.endswith(LAYERS)
        rows[about].to_csv(folder / "experiments.csv", index=False)
        folders.append(str(folder))
    return folders


def run(*words):
    result = command(*map(str, words), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_first_cause_is_proven_and_its_gain_is_the_measured_one(runs):
    (detail,) = run("explain", *runs, "--layer", "atomic_count_s0", "--model", "none")["details"]
    assert detail["causes"]["terms"][0]["term"] == "global_atomics"
    assert detail["causes"]["confidence"] == detail["fix"]["confidence"] == "proven"
    # 174.2 us with, 19.3 us without its atomics: the same part of the profile's 166.6 us
    assert detail["fix"]["after_us"] == pytest.approx(166.6 * 19.3 / 174.2, abs=1)
    assert detail["fix"]["after_low_us"] <= detail["fix"]["after_us"]
    assert detail["reasons"][0].startswith("Proven by experiment. Measured (no atomics")


def test_experiments_of_the_one_run_in_a_folder_are_read(runs, tmp_path):
    """`perfml collect --out FOLDER` puts a run into a folder of its own."""
    outer = [tmp_path / Path(run).name for run in runs]
    for run_, folder in zip(runs, outer, strict=True):
        shutil.copytree(run_, folder / "run")
        shutil.move(folder / "run" / "kernels.parquet", folder)
    words = ("--layer", "atomic_count_s0", "--model", "none")
    (detail,) = run("explain", *outer, *words)["details"]
    assert detail["fix"]["confidence"] == "proven"
    shutil.copytree(outer[1] / "run", outer[1] / "other")
    (detail,) = run("explain", *outer, *words)["details"]
    assert detail["fix"]["confidence"] != "proven"  # whose are they?


def test_advice_carries_verdicts_and_what_is_refuted_stands_last(runs):
    found = run("advise", runs[1])["findings"]
    sure = [each["confidence"] for each in found]
    assert sorted(sure, key="refuted".__eq__) == sure
    atomics = [each for each in found if "global_atomics" in each["rules"]]
    assert atomics[0]["confidence"] == "proven"
    assert atomics[0]["gain"] == pytest.approx(1 - 0.111, abs=0.05)
    assert "by experiment" in atomics[0]["evidence"]


def test_kernels_without_ranges_are_known_by_their_names(runs, tmp_path):
    for name, folder in zip(("base", "level_3"), runs, strict=True):
        (tmp_path / name).mkdir()
        table = pd.read_parquet(f"{folder}/kernels.parquet")
        table = table[table["layer"] == "atomic_count_s0"].assign(layer=None)
        table.to_parquet(tmp_path / name / "kernels.parquet")
        rows = pd.read_csv(f"{folder}/experiments.csv", keep_default_na=False, dtype=str)
        chosen = rows["range"].str.endswith("atomic_count_s0") | (rows["launch"] == "")
        rows[chosen].assign(range="").to_csv(tmp_path / name / "experiments.csv", index=False)
    (detail,) = run("explain", str(tmp_path / "base"), str(tmp_path / "level_3"))["details"]
    assert (detail["layer"], detail["fix"]["confidence"]) == ("atomic_bins", "proven")


def test_an_at_in_a_folder_s_name_is_no_place_of_a_launch(runs, tmp_path):
    folder = tmp_path / "me@host"
    shutil.copytree(runs[1], folder)
    found = run("advise", str(folder))["findings"]
    assert "proven" in {each["confidence"] for each in found}


def test_a_measured_repair_without_a_counter_is_a_finding_alike_on_every_surface(runs, tmp_path):
    """A launch that counters say nothing of: the repair that was measured comes first."""
    folder = tmp_path / "run"
    shutil.copytree(runs[1], folder)
    table = pd.read_parquet(folder / "kernels.parquet")
    table = table[table["layer"] == "atomic_count_s0"]
    counted = metric_columns(table)
    table.assign(**dict.fromkeys(counted, math.nan)).to_parquet(folder / "kernels.parquet")
    (first, *_) = run("advise", str(folder))["answer"]
    assert first["rules"][0] == "global_atomics"
    assert (first["probability"], first["gain"]["known_by"]) == (1.0, "measured")
    # of one repeat of the layer: 154.9 of 174.2 us go
    assert first["gain"]["likely"]["us"] == pytest.approx(166.6 * 154.9 / 174.2, rel=0.02)
    brief = run("advise", str(folder), "--brief")
    assert "by experiment" in json.dumps(brief["layers"][0]["causes"][0])
    out = tmp_path / "report.md"
    assert command("report", str(folder), "--out", str(out)).exit_code == 0
    assert first["mitigation"].split(".")[0] in out.read_text().split("## ")[0]


def test_an_error_of_an_answer_is_a_line(runs):
    said = []
    assert keep_answer(Path(runs[0]), lambda name: {}[name], said.append) is None
    answer = keep_answer(Path(runs[0]) / "kernels.parquet", lambda _: advise(runs[0]), said.append)
    assert answer.findings
    assert len(said) == 2


def test_explain_and_gate_say_what_was_promised_and_what_came(runs, tmp_path):
    fast, slow = (shutil.copytree(each, tmp_path / Path(each).name) for each in runs)
    assert run("explain", slow, fast, "--model", "none")["promised"] == []  # no answer is kept
    answer = keep_answer(slow, advise, pytest.fail)
    rows = json.loads((slow / "answer.json").read_text())["answer"]
    assert [row["rules"] for row in rows] == [list(one.rules) for one in answer.findings]
    assert set(rows[0]) == {"rules", "where", "holds", "gain", "probability", "confidence"}
    explained = run("explain", slow, fast, "--model", "none")
    came = {(e["cause"], *e["layers"]): e for e in explained["promised"]}
    atomics = came["global_atomics", "atomic_count_s0"]
    assert atomics["gone"]
    assert atomics["probability"] == 1.0
    layers = {row["layer"]: row for row in explained["layers"]}
    saved = layers["atomic_count_s0"]["baseline_us"] - layers["atomic_count_s0"]["target_us"]
    assert atomics["measured_us"] == pytest.approx(saved)
    # measured by experiment, and by the clock after the fix
    assert atomics["low_us"] == pytest.approx(saved, rel=0.05)
    text = command("explain", str(slow), str(fast), "--model", "none").stdout
    assert "atomic_count_s0" in text.splitlines()[-1] or "is gone" in text
    (gated,) = [e for e in run("gate", slow, fast)["promised"] if e["cause"] == "global_atomics"]
    assert gated["gone"]
    assert gated["measured_us"] == pytest.approx(saved, rel=0.02)
    # the same side again: nothing is gone, and nothing came
    again = {e["cause"]: e for e in run("explain", slow, slow, "--model", "none")["promised"]}
    assert not again["global_atomics"]["gone"]
    assert again["global_atomics"]["measured_us"] == pytest.approx(0)


def test_an_answer_that_is_damaged_promises_nothing(runs, tmp_path):
    fast, slow = (shutil.copytree(each, tmp_path / Path(each).name) for each in runs)
    for text in ("", "[]", '{"answer": 3}', "{", '{"answer": [{"rules": ["x"], "gain": {}}]}'):
        (slow / "answer.json").write_text(text)
        assert run("explain", slow, fast, "--model", "none")["promised"] == []


def test_a_measured_repair_is_one_finding_whichever_of_its_causes_counters_name(runs):
    table = advise(runs[1])
    proven = [one for one in table.findings if one.confidence == "proven"]
    said = [(one.layer, one.where.kernel, one.evidence.partition("µs less")[0]) for one in proven]
    assert len(set(said)) == len(said)
