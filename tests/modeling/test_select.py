"""Few metrics that predict as well as many, and an honest word on what they are worth."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfml.errors import PerfmlError
from perfml.modeling import smallest_sufficient_set
from tests.support.modeling_data import linear_layers, six_conditions

pytestmark = pytest.mark.long

FEW = ("l2_utilization", "dram_utilization", "stall_sync", "gst_efficiency", "tex_fu_utilization")
"""For the linear model tree, whose search over all nineteen takes ten seconds."""


@pytest.fixture(scope="module")
def linear():
    return smallest_sufficient_set(linear_layers(layers=12), model="lmt", features=FEW, n_jobs=1)


@pytest.fixture(scope="module")
def found():
    """Return what the default model, a decision tree, finds in the same layers."""
    return smallest_sufficient_set(linear_layers(layers=12), n_jobs=1)


@pytest.mark.slow
def test_the_two_metrics_that_make_the_time_are_the_set(linear):
    assert set(linear.metrics) == {"dram_utilization", "stall_sync"}
    assert linear.score < 0.01
    assert linear.held_out < 0.01 < linear.held_out_baseline
    assert linear.stability["stall_sync"] == 1.0
    assert linear.path["sufficient"].tolist() == [False, True, True]


@pytest.mark.slow
def test_the_rows_of_a_check_take_no_part_in_its_choice(linear):
    layers = linear_layers(layers=12)
    held = layers["layer"].isin(linear.checks["layers"].iloc[0].split(", "))
    # in the layers of the first check alone another metric makes the time
    other = layers.assign(
        time_us=layers["time_us"].mask(held, 5000 * (0.1 + layers["gst_efficiency"]))
    )
    found = smallest_sufficient_set(other, model="lmt", features=FEW, n_jobs=1)
    assert set(found.checks["metrics"].iloc[0].split(", ")) == {"dram_utilization", "stall_sync"}
    assert found.checks["score"].iloc[0] > 10 * linear.checks["score"].iloc[0]


def test_layers_stay_whole_in_the_checks(found):
    held = [name for names in found.checks["layers"] for name in names.split(", ")]
    assert sorted(held) == sorted(linear_layers(layers=12)["layer"].unique())


def test_noise_explains_nothing_and_it_is_said():
    layers = linear_layers(layers=12)
    noise = np.random.default_rng(0).uniform(100, 1000, len(layers))
    found = smallest_sufficient_set(layers.assign(time_us=noise), n_jobs=1)
    assert found.score < found.held_out
    assert found.verdict.startswith("No set suffices")


@pytest.mark.slow
def test_metrics_that_do_as_well_are_named_as_alternatives():
    layers = linear_layers(layers=12)
    layers["l2_utilization"] = layers["dram_utilization"]
    found = smallest_sufficient_set(layers, model="lmt", features=FEW, n_jobs=1)
    row = found.path.set_index("metric").loc["l2_utilization"]
    assert "dram_utilization" in row["alternatives"]


def test_one_metric_names_the_backend():
    found = smallest_sufficient_set(linear_layers(), task="classification", n_jobs=1)
    assert found.metrics == ("tex_fu_utilization",)
    assert found.held_out == 1.0
    assert found.held_out_baseline == pytest.approx(1 / 3)


def test_two_layers_leave_nothing_to_check_on_and_it_is_said():
    found = smallest_sufficient_set(six_conditions(repeats=5), n_jobs=1)
    assert found.checks.empty
    assert np.isnan(found.held_out)
    assert "unchecked" in found.verdict
    assert any("at least 2 layers" in each for each in found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["held_out"] is None


def test_the_result_is_json_and_html(found):
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["path"][0]["size"] == 1
    assert len(document["checks"]) == 4
    shown = found._repr_html_()
    assert "optimistic" in shown
    assert " + ".join(found.metrics) in shown


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"most": 0}, "at least one metric"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"model": "xgb"}, "no regression model"),
        ({"protocol": "leave-two-out"}, "no protocol"),
        ({"task": "clustering"}, "no task"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, what):
    with pytest.raises(PerfmlError, match=what):
        smallest_sufficient_set(linear_layers(), **wrong)
