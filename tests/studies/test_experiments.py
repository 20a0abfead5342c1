"""Limits by experiment beside limits by counters, on recorded kernels."""

import json

import pytest

from studies.experiments import measure, repaired
from studies.experiments.recorded import by_counters, network, planted
from tests.support.paths import ROOT

RESULTS = json.loads((ROOT / "studies/experiments/results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cases():
    return planted()


def test_the_busiest_unit_is_counted_over_all_time():
    row = {"dram_utilization": 0.3, "alu_utilization": 0.9, "sm_efficiency": 0.5}
    assert by_counters(row) == ("latency", 0.45)
    assert by_counters(row | {"sm_efficiency": 0.8})[0] == "multiprocessor"
    assert by_counters(row | {"l2_atomic_utilization_max": 0.7}) == ("l2", 0.7)


@pytest.mark.slow
def test_nine_of_ten_limits_are_right_without_a_counter(cases):
    found = measure.limits(cases)
    assert found == {key: RESULTS["planted"][key] for key in found}
    assert found["right"] / found["kernels"] >= 0.9
    assert measure.limits(network()) == RESULTS["YOLOv4-Tiny on cuDNN"]


@pytest.mark.slow
def test_limits_make_planted_causes_plausible_and_others_not(cases):
    found = measure.verdicts(cases, "level_3")
    assert found == RESULTS["verdicts"]["level_3"]
    assert found["right"]["plausible"] >= 0.9 * sum(found["right"].values())
    assert found["wrong"].get("plausible", 0) <= 0.02 * sum(found["wrong"].values())


@pytest.mark.slow
def test_limits_on_another_gpu_do_too():
    found = measure.verdicts(planted("h200"), "level_3")
    assert found == RESULTS["verdicts on an H200"]["level_3"]
    assert found["right"]["plausible"] >= 0.9 * sum(found["right"].values())
    assert "plausible" not in found["wrong"]


def test_measured_gains_are_those_of_the_results():
    found = repaired.gains(repaired.pairs())
    assert found["with a measured gain"] >= 0.5 * found["cases"]
    assert set(found["verdicts"]) <= {"proven", "plausible", "not decided"}
    assert found["median error of the time"] <= 0.1
    rows = {row["case"]: row for row in found["rows"]}
    # 2139.7 us, 0.059 of it with dense stores; the repaired kernel takes 103.8 us
    assert rows["nhwc"]["real"] == pytest.approx(103.8 / 2139.7, abs=1e-3)
    assert rows["nhwc"]["measured"] == pytest.approx(0.059, abs=1e-3)
    assert found["rows"] == RESULTS["repairs of pairs"]["rows"]


@pytest.mark.slow
def test_times_on_another_gpu_are_those_of_the_results(cases):
    assert measure.other_gpu([*cases, *network()]) == RESULTS["H200 from H100"]
