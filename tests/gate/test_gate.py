"""The gate: counted work decides, times confirm, and what nobody can tell is said to be so."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.datasets import load
from perfml.errors import InputError, PerfmlError
from perfml.gate import Policy, Verdict, judge, load_policy
from perfml.gate.render import junit, markdown, text
from perfml.gate.work import COUNTED
from perfml.tables import write_table
from tests.support.paths import ROOT

pytestmark = pytest.mark.long


def layers(time=10.0, scatter=0.02, repeats=8, seed=0, layer="conv", **counters):
    """Return a Layers table of one layer with counted work."""
    counted = {
        "kernels": 2,
        "inst_executed": 1e6,
        "global_load_requests": 2e4,
        "gld_transactions": 8e4,
        "global_store_requests": 1e4,
    }
    rng = np.random.default_rng(seed)
    rows = {**counted, **counters}
    return pd.DataFrame(
        {
            "run_id": "r",
            "workload": "w",
            "backend": "b",
            "precision": "fp32",
            "batch": 1,
            "device": "d",
            "compute_capability": "9.0",
            "iteration": range(repeats),
            "layer": layer,
            "kernel_names": "k",
            "time_us": time * np.exp(rng.normal(0, scatter, repeats)),
            **rows,
        }
    )


def verdict(before, after, policy=None):
    return judge(before, after, policy).verdict


def test_the_same_work_is_the_same_however_the_times_scatter():
    assert verdict(layers(seed=1, scatter=0.05), layers(seed=2, scatter=0.05)) is Verdict.SAME


def test_two_per_cent_more_instructions_are_worse_and_named():
    result = judge(layers(seed=1), layers(seed=2, inst_executed=1.02e6))
    assert result.verdict is Verdict.WORSE
    assert result.exit_code == 1
    assert result.layers[0].reason == "inst_executed +2.0 %, not seen in the time"


def test_less_work_is_better():
    result = judge(layers(seed=1), layers(seed=2, time=8, gld_transactions=4e4))
    assert (result.verdict, result.exit_code) == (Verdict.BETTER, 0)
    assert "confirmed by the time" in result.layers[0].reason


def test_more_instructions_that_run_faster_are_no_regression():
    assert verdict(layers(), layers(time=5, inst_executed=1.5e6)) is Verdict.BETTER


def test_work_that_moves_both_ways_is_decided_by_the_time_or_unclear():
    vectors = {"global_load_requests": 5e3, "gld_transactions": 9e4}
    assert verdict(layers(seed=1), layers(seed=2, **vectors)) is Verdict.UNCLEAR
    assert verdict(layers(), layers(time=20, **vectors)) is Verdict.WORSE


def test_slower_with_equal_work_is_unclear_not_worse():
    result = judge(layers(), layers(time=12))
    assert (result.verdict, result.exit_code) == (Verdict.UNCLEAR, 3)
    assert "measure both sides again" in result.layers[0].reason


def test_without_counters_nobody_can_tell():
    bare = layers().drop(columns=[name for name in COUNTED if name != "kernels"], errors="ignore")
    result = judge(bare, bare)
    assert result.verdict is Verdict.UNCLEAR
    assert "--metrics default" in result.layers[0].reason


def test_a_counter_that_a_repeat_lacks_is_no_count():
    torn = layers(inst_executed=9e6)
    torn.loc[3, "inst_executed"] = np.nan
    assert verdict(layers(), torn) is Verdict.SAME


def test_a_layer_without_a_partner_is_not_passed_over():
    both = pd.concat([layers(), layers(layer="pool")])
    result = judge(both, layers())
    assert (result.verdict, result.missing) == (Verdict.UNCLEAR, ("pool",))


def test_repeats_that_differ_widen_the_tolerance():
    noisy = layers()
    noisy["inst_executed"] *= np.linspace(0.97, 1.03, len(noisy))
    assert verdict(noisy, layers(inst_executed=1.02e6)) is Verdict.SAME


def test_an_exception_holds_for_the_layers_it_names(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_text('work = 0.01\n[layers]\n"con*" = 0.05\n')
    assert verdict(layers(), layers(inst_executed=1.02e6), load_policy(file)) is Verdict.SAME
    file.write_text('[layers]\n"pool*" = 0.05\n')
    assert verdict(layers(), layers(inst_executed=1.02e6), load_policy(file)) is Verdict.WORSE


@pytest.mark.parametrize(
    "content", ["work = -1", "work = true", "wrok = 1", "layers = 3", "work = ["]
)
def test_tolerances_that_cannot_be_meant_are_refused(tmp_path, content):
    file = tmp_path / "gate.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=r"gate\.toml"):
        load_policy(file)


def test_several_backends_on_a_side_are_refused():
    two = pd.concat([layers(), layers().assign(backend="c")])
    with pytest.raises(PerfmlError, match="several values of backend"):
        judge(two, layers())


def recorded():
    """Return recorded layers with counted work: three profiled iterations, ten timed ones."""
    frame = load("h200-yolov4-tiny").frame
    return frame[(frame.backend == "cudnn") & (frame.precision == "fp32") & (frame.batch == 8)]


def test_iterations_of_one_recorded_run_are_never_worse_than_each_other():
    run = recorded()
    policy = Policy()
    halves = [run[run.iteration % 2 == half] for half in (0, 1)]
    verdicts = [layer.verdict for layer in judge(*halves, policy).layers]
    assert Verdict.WORSE not in verdicts
    assert Verdict.BETTER not in verdicts


def test_two_per_cent_in_one_recorded_layer_close_the_gate_and_are_named():
    run = recorded()
    for layer in sorted(run.layer.unique())[::4]:
        planted = run.copy()
        planted.loc[planted.layer == layer, "inst_executed"] *= 1.02
        worse = judge(run, planted).of(Verdict.WORSE)
        assert [row.layer for row in worse] == [layer]
        assert worse[0].changed[0].counter == "inst_executed"


def test_the_renderings_escape_what_comes_from_outside():
    name = "<b>|conv_1"
    result = judge(layers(layer=name), layers(layer=name, inst_executed=2e6))
    assert "inst_executed +100.0 %" in text(result, "a", "b")
    assert "&lt;b&gt;\\|conv_1" in markdown(result, "a", "b")
    suite = ElementTree.fromstring(junit(result, "a", "b").encode())
    assert suite.attrib["failures"] == "1"
    assert suite.find("testcase").attrib["name"] == name


def test_markdown_for_a_pull_request_lists_what_changed_and_what_was_not_compared():
    both = pd.concat([layers(seed=1), layers(layer="pool"), layers(layer="norm")])
    new = pd.concat([layers(seed=2, time=20, inst_executed=1.5e6), layers(layer="pool")])
    lines = markdown(judge(both, new), "main", "@someone/pr").splitlines()
    assert lines[0] == (
        "**More work: of 2 layers 1 worse, 1 same** (@\u2060someone/pr against main)"
    )
    assert lines[2:4] == ["| layer | verdict | why | time |", "|---|---|---|---|"]
    (row,) = (line for line in lines if line.startswith("| conv"))
    assert "| worse | inst_executed +50.0 %, confirmed by the time | 1.993 [1.9" in row
    assert "- Only in the baseline, not compared: norm." in lines


def test_junit_has_a_case_a_layer_and_skips_what_nobody_can_tell():
    before = pd.concat([layers(layer=name) for name in ("a", "b", "c")])
    after = pd.concat(
        [layers(layer="a"), layers(layer="b", time=13), layers(layer="c", inst_executed=2e6)]
    )
    suite = ElementTree.fromstring(junit(judge(before, after), "main", "pr").encode())
    assert suite.attrib["name"] == "perfml gate: pr against main"
    counts = {name: suite.attrib[name] for name in ("tests", "failures", "skipped")}
    assert counts == {"tests": "3", "failures": "1", "skipped": "1"}
    outcome = {case.attrib["name"]: [part.tag for part in case] for case in suite}
    assert outcome == {"a": [], "b": ["skipped"], "c": ["failure"]}


def test_the_document_for_programs_holds_every_layer_and_nothing_that_json_lacks():
    after = layers(inst_executed=2e6, global_store_requests=0, flop_count_sp=5.0)
    document = judge(layers(flop_count_sp=0.0), after).to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    (layer,) = document["layers"]
    growth = {change["counter"]: change["growth"] for change in layer["changed"]}
    assert growth == {
        "flop_count_sp": None,
        "inst_executed": 1.0,
        "global_store_requests": -1.0,
    }
    assert (document["verdict"], document["exit_code"]) == ("cannot tell", 3)


def gate(*words):
    return CliRunner().invoke(app, ["gate", *map(str, words)])


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Write a baseline and a version with more work; return their folder, the working one."""
    monkeypatch.chdir(tmp_path)
    for name, table in (("base", layers(seed=1)), ("more", layers(seed=2, inst_executed=1.1e6))):
        write_table(table, tmp_path / f"{name}.parquet", kind="layers", provenance={})
    return tmp_path


def test_the_exit_code_is_the_verdict(tables):
    assert gate("base.parquet", "base.parquet").exit_code == 0
    worse = gate("base.parquet", "more.parquet")
    assert worse.exit_code == 1
    assert "More work: of 1 layer 1 worse" in worse.stdout
    broken = gate("base.parquet", "missing.parquet")
    assert broken.exit_code == 3
    assert "missing.parquet" in broken.stderr


@pytest.mark.slow
def test_the_program_that_ci_starts_ends_with_the_verdict(tables):
    words = ("-m", "perfml", "gate", "base.parquet", "more.parquet")
    done = subprocess.run([sys.executable, *words], cwd=tables, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr


def test_a_saved_baseline_is_used_by_its_name(tables):
    assert gate("--save", "main", "base.parquet").exit_code == 0
    done = gate("main", "more.parquet", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["layers"][0]["changed"][0]["counter"] == "inst_executed"


def test_a_baseline_that_nobody_saved_names_those_that_are(tables):
    gate("--save", "main", "base.parquet")
    done = gate("mian", "more.parquet")
    assert done.exit_code == 3
    assert "baselines: main" in done.stderr


def test_a_report_for_ci_is_written_whole(tables):
    words = ("base.parquet", "more.parquet", "--format", "junit", "--out", "gate.xml")
    assert gate(*words).exit_code == 1
    assert ElementTree.parse(tables / "gate.xml").getroot().tag == "testsuite"


def test_recorded_repeats_of_equal_code_never_close_the_gate_and_two_per_cent_do():
    counts = json.loads((ROOT / "benchmarks/results/gate-repeats.json").read_text())
    equal = {what: found for what, found in counts.items() if "," not in what}
    assert sum(found["comparisons"] for found in equal.values()) >= 5000
    for found in equal.values():
        assert not {"gate: worse", "gate: better"} & set(found)
    planted = [found for what, found in counts.items() if "," in what]
    named, asked = (
        sum(found[key] for found in planted)
        for key in ("gate: worse, and that counter named", "comparisons")
    )
    assert named >= 0.99 * asked


def test_a_single_launch_cannot_confirm_what_was_counted():
    result = judge(layers(repeats=1), layers(repeats=1, time=50.0, inst_executed=2e6))
    assert result.verdict is Verdict.WORSE
    assert result.layers[0].reason == (
        "inst_executed +100.0 %, without repeats by which the time could confirm it"
    )
