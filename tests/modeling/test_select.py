"""Metrics to collect: few, or within a budget of passes, judged on layers that did not choose."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.errors import PerfmlError
from perfml.metrics.passes import load_passes
from perfml.modeling import select_metrics
from tests.support.modeling_data import linear_layers, six_conditions

pytestmark = pytest.mark.long

FEW = ("l2_utilization", "dram_utilization", "stall_sync", "gst_efficiency", "tex_fu_utilization")
"""For the linear model tree, whose search over all nineteen takes ten seconds."""

QUICK = {"target": "time", "repeats": 1, "n_jobs": 1}

BUDGETS = pytest.mark.parametrize("passes", [None, 2])


@pytest.fixture(scope="module", params=[None, 3])
def linear(request):
    layers = linear_layers(layers=12)
    return select_metrics(layers, passes=request.param, model="lmt", features=FEW, **QUICK)


@pytest.mark.slow
def test_the_two_metrics_that_make_the_time_are_the_set(linear):
    assert set(linear.metrics) == {"dram_utilization", "stall_sync"}
    assert (linear.chosen["passes"], linear.searches) == (1, 4)
    assert linear.chosen["nested"] < 0.02 < linear.baseline
    assert linear.stability["stall_sync"] == 1.0


@pytest.mark.slow
def test_no_set_breaks_its_limit():
    layers = linear_layers(layers=12)
    found = select_metrics(layers, passes=3, most=3, **QUICK)
    for row in found.curve[:-2].itertuples():
        estimate = load_passes().estimate(row.metrics)
        assert row.passes == estimate.passes <= int(row.limit)
    assert found.curve["limit"].tolist() == [*map(str, range(1, 9)), "chosen", "all"]
    counted = select_metrics(layers, most=2, **QUICK).curve[:-2]
    assert all(len(row.metrics) <= int(row.limit) for row in counted.itertuples())


@pytest.mark.slow
def test_a_budget_keeps_out_what_does_not_fit():
    layers = linear_layers(layers=12)
    # most of the time is made by a metric of instrumented code: three passes
    layers["time_us"] = 100 + 900 * layers["gld_efficiency"] + 2500 * layers["dram_utilization"]
    features = ["gld_efficiency", "dram_utilization", "stall_sync", "l2_utilization"]
    cheap, enough = (
        select_metrics(layers, passes=passes, model="lmt", features=features, **QUICK)
        for passes in (2, 3)
    )
    assert "gld_efficiency" not in cheap.metrics
    assert "gld_efficiency" in enough.metrics
    curve = enough.curve.set_index("limit")
    assert curve.loc["2", "worse_low"] > 0
    assert curve.loc["3", "nested"] < 0.02 < curve.loc["2", "nested"]
    assert cheap.chosen["worse_low"] > 0 >= enough.chosen["worse_low"]


@pytest.mark.slow
@BUDGETS
def test_the_rows_that_judge_took_no_part_in_choosing(passes):
    noise = linear_layers(layers=12)
    noise["time_us"] = np.random.default_rng(0).uniform(100, 1000, len(noise))
    found = select_metrics(noise, passes=passes, most=3, **(QUICK | {"repeats": 2}))
    # among noise a search finds something on its own folds, and nothing elsewhere
    assert found.chosen["chosen_on"] < found.chosen["nested"]
    assert found.chosen["nested"] > found.baseline
    assert min(found.stability.get(name, 0.0) for name in found.metrics) < 0.5


@pytest.mark.slow
def test_metrics_that_do_as_well_are_named_as_alternatives():
    layers = linear_layers(layers=12)
    layers["l2_utilization"] = layers["dram_utilization"]
    found = select_metrics(layers, model="lmt", features=FEW, **QUICK)
    named = zip(found.curve["metrics"], found.curve["alternatives"], strict=True)
    last = {names[-1]: others for names, others in named if names}
    assert "dram_utilization" in last["l2_utilization"]


def test_what_needs_no_counter_is_always_there_and_may_be_enough():
    layers = linear_layers(layers=12)
    layers["waves_per_sm"] = layers["time_us"] / 100
    features = ["waves_per_sm", "stall_sync", "l2_utilization"]
    found = select_metrics(layers, passes=3, model="lmt", features=features, most=2, **QUICK)
    assert found.free == ("waves_per_sm",)
    none = found.curve.iloc[0]
    assert (none["limit"], none["passes"], none["metrics"]) == ("0", 0, ())
    assert none["nested"] < 0.01


@pytest.mark.slow
def test_one_metric_names_the_backend():
    found = select_metrics(linear_layers(), task="classification", **QUICK)
    assert found.metrics == ("tex_fu_utilization",)
    assert found.chosen["nested"] == 1.0
    assert found.baseline == pytest.approx(1 / 3)


def test_metrics_of_unknown_passes_count_as_metrics_and_are_left_out_of_a_budget():
    layers = linear_layers(layers=12)
    unknown = "nvlink_total_data_received"
    layers[unknown] = layers["time_us"].to_numpy(dtype=float)
    features = ["stall_sync", "dram_utilization", unknown]
    found = select_metrics(layers, features=features, most=1, **QUICK)
    assert found.metrics == (unknown,)
    assert np.isnan(found.chosen["passes"])
    planned = select_metrics(layers, passes=3, features=features, most=1, **QUICK)
    assert planned.left_out == {unknown: "its replay passes were not measured"}
    with pytest.raises(PerfmlError, match="no metric of these features has known replay passes"):
        select_metrics(layers, passes=3, features=[unknown])


@BUDGETS
def test_two_layers_cannot_judge_a_choice_and_it_is_said(passes):
    found = select_metrics(six_conditions(repeats=5), passes=passes, most=1, **QUICK)
    assert found.searches == 0
    assert any("could not be judged" in note for note in found.warnings)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["curve"][0]["nested"] is None
    assert document["baseline"] is None
    assert "unjudged" in found._repr_html_()


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"most": 0}, "most"),
        ({"passes": 0}, "passes"),
        ({"repeats": 0}, "repeats"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"model": "xgb"}, "no regression model"),
        ({"protocol": "leave-two-out"}, "no protocol"),
        ({"task": "clustering"}, "no task"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, what):
    with pytest.raises(PerfmlError, match=what):
        select_metrics(linear_layers(), **wrong)


WHERE = ["--where", "precision=fp32", "--where", "batch=1"]


def test_the_verb_writes_a_list_that_collect_takes(tmp_path):
    out = tmp_path / "metrics.txt"
    words = ["select", "h200-yolov4-tiny", *WHERE, "--passes", "3", "--most", "2"]
    ran = CliRunner().invoke(app, [*words, "--out", str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    chosen, everything = document["curve"][-2:]
    assert (chosen["limit"], everything["limit"]) == ("chosen", "all")
    assert chosen["passes"] <= 3 < everything["passes"]
    collect = ["collect", "yolov4-tiny", "--metrics", str(out), "--dry-run"]
    dry = CliRunner().invoke(app, [*collect, "--out", str(tmp_path / "runs")])
    assert dry.exit_code == 0, dry.output
    from collectors.run_spec import metric_names

    assert metric_names([str(out)]) == (tuple(document["metrics"]), ())


@pytest.mark.slow
def test_the_verb_without_a_budget_names_few_metrics():
    ran = CliRunner().invoke(app, ["select", "h200-yolov4-tiny", *WHERE, "--most", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["metrics"] == ["stall_inst_fetch", "special_fu_utilization"]
    assert document["searches"] == 12
    assert 0 < document["curve"][-2]["nested"] < document["baseline"]
