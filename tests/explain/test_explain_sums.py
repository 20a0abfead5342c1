"""Causes and Shapley values add up exactly, whatever the numbers."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.explain import exact_shapley
from perfml.explain.launches import Launches, changes_between
from perfml.explain.limits.state import wave_fill
from perfml.explain.tree.layer import kernel_causes, layer_causes
from perfml.explain.tree.pair import log_mean
from tests.support.examples import examples
from tests.support.launches import launch

TIMES = st.floats(1e-2, 1e5)
LEVELS = st.one_of(st.just(float("nan")), st.just(0.0), st.floats(1e-4, 1.0))
COUNTS = st.one_of(st.just(float("nan")), st.just(0.0), st.floats(1.0, 1e12))
LEVEL_NAMES = (
    "single_precision_fu_utilization",
    "tensor_utilization",
    "dram_utilization",
    "l2_utilization",
    "theoretical_occupancy",
    "achieved_occupancy",
    "sm_efficiency",
)
COUNT_NAMES = (
    "inst_executed",
    "flop_count_sp",
    "dram_read_bytes",
    "dram_write_bytes",
    "l2_read_transactions",
    "l2_write_transactions",
    "gld_transactions",
    "gst_transactions",
    "global_load_requests",
    "global_store_requests",
)


@st.composite
def sides(draw):
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=5))
    rows = []
    for name in names:
        row = {"kernel": name, "time_us": draw(TIMES)}
        row |= {each: draw(LEVELS) for each in LEVEL_NAMES}
        row |= {each: draw(COUNTS) for each in COUNT_NAMES}
        row["ncu_time_us"] = draw(st.one_of(st.just(float("nan")), TIMES))
        row["waves_per_sm"] = draw(st.floats(0.01, 50.0))
        row["ipc"] = draw(st.floats(0.01, 4.0))
        rows.append(row)
    dropped = draw(st.sets(st.sampled_from(LEVEL_NAMES + COUNT_NAMES + ("ncu_time_us", "ipc"))))
    kept = [{key: row[key] for key in row if key not in dropped} for row in rows]
    return Launches(tuple(names), tuple(map(launch, kept)), 1, 0)


def one_kernel(row):
    return Launches((row["kernel"],), (launch(row),), 1, 0)


def causes_of(before, after, same_device=True):
    changes = changes_between(before.names, after.names)
    return kernel_causes(changes, before, after, same_device=same_device)


@examples(150)
@given(before=sides(), after=sides(), same=st.booleans())
def test_causes_of_a_layer_add_up_to_its_log_ratio(before, after, same):
    found = causes_of(before, after, same)
    times = [sum(one.time_us for one in side.launches) for side in (before, after)]
    measured = math.log(times[1] / times[0])
    assert found.log_ratio == pytest.approx(measured, abs=1e-9)
    assert found.terms["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    assert found.by_kernel["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    assert sum(found.by_kind.values()) == pytest.approx(measured, abs=1e-9)


@pytest.mark.parametrize("order", [("gemm", "copy"), ("copy", "gemm"), ("copy", "new", "gemm")])
def test_a_kernel_of_one_name_is_compared_with_itself_wherever_it_stands(order):
    times = {"gemm": 10.0, "copy": 4.0, "new": 1.0}
    before, after = (
        Launches(
            names, tuple(launch({"kernel": name, "time_us": times[name]}) for name in names), 1, 0
        )
        for names in (("gemm", "copy"), order)
    )
    pairs = causes_of(before, after).pairs
    assert sorted(pair.kernels for pair in pairs) == sorted(order)
    for pair in pairs:
        if pair.kernels != "new":
            assert sum(part.log_ratio for part in pair.contributions) == pytest.approx(0)


@examples(50)
@given(before=sides(), after=sides(), kernels=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_merged_layer_adds_up_too(before, after, kernels):
    rows = [
        replace(side.launches[0], counters={**side.launches[0].counters, "kernels": count})
        for side, count in zip((before, after), kernels, strict=True)
    ]
    found = layer_causes(*rows, same_device=True)
    measured = math.log(rows[1].time_us / rows[0].time_us)
    assert found.terms["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    assert ("wave_quantization" in set(found.terms["term"])) <= (kernels == (1, 1))
    assert ("launch_count" in set(found.terms["term"])) == (kernels[0] != kernels[1])


@given(a=st.floats(1e-6, 1e9), b=st.floats(1e-6, 1e9))
def test_the_logarithmic_mean_lies_between_its_arguments(a, b):
    mean = log_mean(a, b)
    assert min(a, b) * (1 - 1e-12) <= mean <= max(a, b) * (1 + 1e-12)
    assert mean * math.log(a / b) == pytest.approx(a - b, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("waves", "fill"), [(0.13, 0.13), (1.0, 1.0), (1.25, 0.625), (7.5, 0.9375)]
)
def test_wave_fill_is_the_used_share_of_the_waves_that_run(waves, fill):
    assert wave_fill(waves) == pytest.approx(fill)


def test_a_kernel_of_twice_the_work_at_the_same_rate_is_slower_by_its_work_alone():
    common = {"achieved_occupancy": 0.5, "single_precision_fu_utilization": 0.9, "kernel": "gemm"}
    found = causes_of(
        one_kernel({**common, "time_us": 10.0, "flop_count_sp": 1e9}),
        one_kernel({**common, "time_us": 20.0, "flop_count_sp": 2e9}),
    )
    assert found.pairs[0].resource == "FP32 pipe"
    terms = found.terms.set_index("term")["log_ratio"]
    # the pipe is busy 9 us longer of the 10 us that it takes longer
    assert terms["fp32_pipe_time"] == pytest.approx(0.9 * math.log(2))
    assert terms["throughput"] == pytest.approx(0.1 * math.log(2))


def test_strided_loads_are_slower_by_their_sectors_per_request_alone():
    common = {"kernel": "copy", "l2_utilization": 0.5, "gst_transactions": 0.0}
    common |= {"global_load_requests": 1e6, "global_store_requests": 0.0}
    common |= {"l2_write_transactions": 0.0}
    before = {**common, "time_us": 10.0, "gld_transactions": 4e6, "l2_read_transactions": 4e6}
    after = {**common, "time_us": 80.0, "gld_transactions": 32e6, "l2_read_transactions": 32e6}
    found = causes_of(one_kernel(before), one_kernel(after))
    assert found.pairs[0].resource == "L2"
    terms = found.terms.set_index("term")["log_ratio"]
    # L2 is busy for 5 and for 40 us: half of what is added
    assert terms["sectors_per_request"] == pytest.approx(math.log(8) / 2)
    assert terms["throughput"] == pytest.approx(math.log(8) / 2)
    assert "global_load_requests" not in found.missing


def test_a_merged_layer_of_twice_the_launches_is_slower_by_their_count():
    row = {"flop_count_sp": 1e9, "single_precision_fu_utilization": 0.5}
    before = launch({**row, "time_us": 10.0, "kernels": 2.0})
    after = launch({**row, "time_us": 20.0, "kernels": 4.0, "flop_count_sp": 2e9})
    found = layer_causes(before, after, same_device=True)
    terms = found.terms.set_index("term")["log_ratio"]
    assert terms["launch_count"] == pytest.approx(math.log(2))
    assert terms.drop("launch_count").abs().max() == pytest.approx(0.0, abs=1e-12)


def test_busy_fractions_of_different_devices_are_said_not_to_compare():
    side = one_kernel({"kernel": "k", "time_us": 3.0, "dram_utilization": 0.5})
    other = causes_of(side, side, same_device=False)
    assert any("peaks of both devices" in each for each in other.missing)
    assert other.terms["residual"].all()


def shapley_by_orders(predict, baseline, target):
    """Average the marginal contributions over all orders: the definition, n! predictions."""
    count = len(baseline)
    values = np.zeros(count)
    orders = list(permutations(range(count)))
    for order in orders:
        point = baseline.copy()
        last = predict(point[None])[0]
        for place in order:
            point[place] = target[place]
            now = predict(point[None])[0]
            values[place] += (now - last) / len(orders)
            last = now
    return values


@examples(40)
@given(
    data=st.data(),
    count=st.integers(1, 5),
)
def test_shapley_values_are_the_mean_over_all_orders_and_add_up(data, count):
    numbers = st.lists(st.floats(-3, 3), min_size=count, max_size=count)
    baseline, target = (np.array(data.draw(numbers)) for _ in range(2))
    weights = np.random.default_rng(count).normal(size=(count, count))

    def predict(X):
        return np.einsum("ri,ij,rj->r", X, weights, X) + np.where(X[:, 0] > 0.5, 2.0, X[:, -1])

    values = exact_shapley(predict, baseline, target)
    ends = predict(np.vstack([baseline, target]))
    assert values.sum() == pytest.approx(ends[1] - ends[0], abs=1e-9)
    assert values == pytest.approx(shapley_by_orders(predict, baseline, target), abs=1e-9)
    assert np.all(values[baseline == target] == 0)


def test_an_undefined_metric_is_a_value_of_its_own():
    def predict(X):
        return np.where(np.isnan(X[:, 0]), 5.0, 1.0) + X[:, 1]

    values = exact_shapley(predict, np.array([np.nan, 1.0]), np.array([0.2, 1.0]))
    assert values.tolist() == [-4.0, 0.0]
    both = exact_shapley(predict, np.array([np.nan, 1.0]), np.array([np.nan, 3.0]))
    assert both.tolist() == [0.0, 2.0]


def test_too_many_features_for_exact_values_is_an_error():
    with pytest.raises(PerfmlError, match="exact Shapley values of 20 features"):
        exact_shapley(lambda X: X.sum(axis=1), np.zeros(20), np.ones(20))


def test_time_that_is_the_profiler_s_own_duration_has_no_term_outside_it():
    row = {"kernel": "k", "time_us": 3.0, "ncu_time_us": 3.0}
    side = one_kernel(row)
    assert set(causes_of(side, side).terms["term"]) == {"throughput"}
    # under the profiler the other side takes longer: its counters are of another difference
    faster = causes_of(side, one_kernel({**row, "time_us": 2.0, "ncu_time_us": 4.0}))
    assert faster.terms["term"].tolist() == ["unprofiled_time"]
