"""Metrics to collect within a budget of passes, judged on layers that did not choose them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.errors import PerfmlError
from perfml.metrics.passes import load_passes
from perfml.modeling import plan
from tests.support.modeling_data import linear_layers, six_conditions

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def linear():
    return plan(linear_layers(layers=12), model="lmt", target="time", most=3, repeats=1, n_jobs=1)


@pytest.mark.slow
def test_the_two_metrics_that_make_the_time_are_planned_in_few_passes(linear):
    assert set(linear.metrics) == {"dram_utilization", "stall_sync"}
    assert linear.passes == 1
    assert linear.searches == 4
    row = linear.curve[linear.curve["budget"] == "1"].iloc[0]
    assert row["nested"] < 0.02 < linear.baseline


@pytest.mark.slow
def test_no_set_breaks_its_budget():
    found = plan(linear_layers(layers=12), target="time", most=3, repeats=1, n_jobs=1)
    counts = load_passes()
    for row in found.curve.itertuples():
        estimate = counts.estimate(row.metrics)
        assert row.passes == estimate.passes
        if row.budget != "all":
            assert estimate.passes <= int(row.budget)
    assert found.curve["budget"].tolist() == [*map(str, range(1, 9)), "all"]


@pytest.mark.slow
def test_a_budget_keeps_out_what_does_not_fit():
    layers = linear_layers(layers=12)
    # most of the time is made by a metric of instrumented code: three passes
    layers["time_us"] = 100 + 900 * layers["gld_efficiency"] + 2500 * layers["dram_utilization"]
    features = ["gld_efficiency", "dram_utilization", "stall_sync", "l2_utilization"]
    options = {"model": "lmt", "target": "time", "features": features, "repeats": 1, "n_jobs": 1}
    cheap, enough = (plan(layers, passes=passes, **options) for passes in (2, 3))
    assert "gld_efficiency" not in cheap.metrics
    assert "gld_efficiency" in enough.metrics
    curve = enough.curve.set_index("budget")
    assert curve.loc["2", "worse_low"] > 0
    assert curve.loc["3", "nested"] < 0.02 < curve.loc["2", "nested"]
    assert "the smaller request costs accuracy" in cheap.verdict
    assert "no loss" in enough.verdict


def test_the_rows_that_judge_took_no_part_in_choosing():
    noise = linear_layers(layers=12)
    noise["time_us"] = np.random.default_rng(0).uniform(100, 1000, len(noise))
    found = plan(noise, target="time", most=3, repeats=2, n_jobs=1)
    row = found.curve[found.curve["budget"] == "3"].iloc[0]
    # among noise a search finds something on its own folds, and nothing elsewhere
    assert row["chosen_on"] < row["nested"]
    assert "no better than the baseline" in found.verdict
    assert any("other metrics do as well" in each for each in found.warnings)


def test_what_needs_no_counter_is_always_there_and_may_be_enough():
    layers = linear_layers(layers=12)
    layers["waves_per_sm"] = layers["time_us"] / 100
    found = plan(
        layers,
        model="lmt",
        target="time",
        features=["waves_per_sm", "stall_sync", "l2_utilization"],
        most=2,
        repeats=1,
        n_jobs=1,
    )
    assert found.free == ("waves_per_sm",)
    none = found.curve.iloc[0]
    assert (none["budget"], none["passes"], none["metrics"]) == ("0", 0, ())
    assert none["nested"] < 0.01


def test_metrics_of_unknown_cost_are_left_out_and_named():
    layers = linear_layers(layers=12).assign(nvlink_total_data_received=1.0)
    layers["nvlink_total_data_received"] = np.arange(len(layers), dtype=float)
    features = ["stall_sync", "dram_utilization", "nvlink_total_data_received"]
    found = plan(layers, features=features, repeats=1, most=1, n_jobs=1)
    assert found.left_out == {"nvlink_total_data_received": "its replay passes were not measured"}
    with pytest.raises(PerfmlError, match="no metric of these features has known replay passes"):
        plan(layers, features=["nvlink_total_data_received"])


def test_two_layers_cannot_judge_a_choice_and_it_is_said():
    found = plan(six_conditions(repeats=5), repeats=1, most=1, n_jobs=1)
    assert found.searches == 0
    assert "unjudged" in found.verdict
    assert any("could not be judged" in each for each in found.warnings)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["curve"][0]["nested"] is None


@pytest.mark.parametrize(("name", "value"), [("passes", 0), ("most", 0), ("repeats", 0)])
def test_senseless_numbers_are_refused(name, value):
    with pytest.raises(PerfmlError, match=name):
        plan(linear_layers(), **{name: value})


WHERE = ["--where", "precision=fp32", "--where", "batch=1"]


def test_the_verb_writes_a_list_that_collect_takes(tmp_path):
    out = tmp_path / "metrics.txt"
    ran = CliRunner().invoke(
        app,
        ["plan", "h200-yolov4-tiny", *WHERE, "--most", "2", "--out", str(out), "--json"],
    )
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["passes"] <= 3
    assert document["curve"][-1]["passes"] == len(document["curve"]) - 1 >= 7
    dry = CliRunner().invoke(
        app,
        [
            "collect",
            "yolov4-tiny",
            "--metrics",
            str(out),
            "--out",
            str(tmp_path / "runs"),
            "--dry-run",
        ],
    )
    assert dry.exit_code == 0, dry.output
    from collectors.run_spec import metric_names

    assert metric_names([str(out)]) == (tuple(document["metrics"]), ())


def test_select_names_a_set_its_alternatives_and_its_stability():
    ran = CliRunner().invoke(app, ["select", "h200-yolov4-tiny", *WHERE, "--most", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["metrics"] == ["stall_inst_fetch", "special_fu_utilization"]
    assert len(document["checks"]) == 4
    assert 0 < document["held_out"] < document["held_out_baseline"]
    shown = CliRunner().invoke(app, ["select", "h200-yolov4-tiny", *WHERE, "--most", "1", "-q"])
    assert "share of searches" in shown.stdout
