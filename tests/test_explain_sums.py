"""Both attributions add up exactly, whatever the numbers."""

import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.explain import exact_shapley
from perfml.explain.accounts import wave_fill
from perfml.explain.launches import Launches, changes_between
from perfml.explain.physical import attribute_kernels, attribute_layer, log_mean

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
    frame = pd.DataFrame(rows)
    dropped = draw(st.sets(st.sampled_from(LEVEL_NAMES + COUNT_NAMES + ("ncu_time_us", "ipc"))))
    return Launches(tuple(names), frame.drop(columns=list(dropped)), 1, 0)


@settings(max_examples=150, deadline=None)
@given(before=sides(), after=sides(), same=st.booleans())
def test_every_account_of_a_layer_adds_up_to_its_log_ratio(before, after, same):
    changes = changes_between(before.names, after.names)
    found = attribute_kernels(changes, before, after, same_device=same)
    measured = math.log(after.frame["time_us"].sum() / before.frame["time_us"].sum())
    assert found.log_ratio == pytest.approx(measured, abs=1e-9)
    assert found.terms["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    assert found.by_kernel["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    for _, terms in found.accounts.groupby("account"):
        assert terms["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(before=sides(), after=sides(), kernels=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_merged_layer_adds_up_too(before, after, kernels):
    rows = [side.frame.iloc[0].drop("kernel").astype(float) for side in (before, after)]
    for row, count in zip(rows, kernels, strict=True):
        row["kernels"] = count
    found = attribute_layer(*rows, same_device=True)
    measured = math.log(rows[1]["time_us"] / rows[0]["time_us"])
    assert found.terms["log_ratio"].sum() == pytest.approx(measured, abs=1e-9)
    assert ("wave fill" in set(found.terms["term"])) <= (kernels == (1, 1))
    counted = found.account is not None and kernels[0] != kernels[1]
    assert ("launch count" in set(found.terms["term"])) == counted


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
    common = {"achieved_occupancy": 0.5, "single_precision_fu_utilization": 0.4, "kernel": "gemm"}
    before = pd.DataFrame([{**common, "time_us": 10.0, "flop_count_sp": 1e9}])
    after = pd.DataFrame([{**common, "time_us": 20.0, "flop_count_sp": 2e9}])
    sides = [Launches(("gemm",), frame, 1, 0) for frame in (before, after)]
    found = attribute_kernels(changes_between(("gemm",), ("gemm",)), *sides, same_device=True)
    assert found.account == "FP32 operations"
    terms = found.terms.set_index("term")["log_ratio"]
    assert terms["work: FP32 operations"] == pytest.approx(math.log(2))
    assert terms.drop("work: FP32 operations").abs().max() == pytest.approx(0.0, abs=1e-12)


def test_strided_loads_are_slower_by_their_sectors_per_request_alone():
    common = {"kernel": "copy", "l2_utilization": 0.5, "gst_transactions": 0.0}
    common |= {"global_load_requests": 1e6, "global_store_requests": 0.0}
    before = {**common, "time_us": 10.0, "gld_transactions": 4e6, "l2_read_transactions": 4e6}
    after = {**common, "time_us": 80.0, "gld_transactions": 32e6, "l2_read_transactions": 32e6}
    frames = [pd.DataFrame([row]).assign(l2_write_transactions=0.0) for row in (before, after)]
    sides = [Launches(("copy",), frame, 1, 0) for frame in frames]
    changes = changes_between(("copy",), ("copy",))
    found = attribute_kernels(changes, *sides, same_device=True)
    assert found.account == "L2 sectors"
    terms = found.terms.set_index("term")["log_ratio"]
    assert terms["sectors per request"] == pytest.approx(math.log(8))
    assert terms.drop("sectors per request").abs().max() == pytest.approx(0.0, abs=1e-12)
    assert "global_load_requests" not in found.missing


def test_a_merged_layer_of_twice_the_launches_is_slower_by_their_count():
    row = pd.Series({"time_us": 10.0, "flop_count_sp": 1e9, "single_precision_fu_utilization": 0.5})
    before, after = (row.copy() for _ in range(2))
    before["kernels"] = 2.0
    after["kernels"], after["time_us"], after["flop_count_sp"] = 4.0, 20.0, 2e9
    terms = attribute_layer(before, after, same_device=True).terms.set_index("term")["log_ratio"]
    assert terms["launch count"] == pytest.approx(math.log(2))
    assert terms.drop("launch count").abs().max() == pytest.approx(0.0, abs=1e-12)


def test_busy_fractions_of_different_devices_are_not_turned_into_work():
    frame = pd.DataFrame([{"kernel": "k", "time_us": 3.0, "dram_utilization": 0.5}])
    sides = [Launches(("k",), frame, 1, 0)] * 2
    changes = changes_between(("k",), ("k",))
    assert attribute_kernels(changes, *sides, same_device=True).account == "DRAM time"
    other = attribute_kernels(changes, *sides, same_device=False)
    assert other.account is None
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


@settings(max_examples=40, deadline=None)
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


def test_shapley_values_of_a_boosted_tree_agree_with_the_shap_package():
    shap = pytest.importorskip("shap")
    from sklearn.ensemble import GradientBoostingRegressor

    random = np.random.default_rng(3)
    X = random.normal(size=(200, 8))
    model = GradientBoostingRegressor(n_estimators=30, random_state=0)
    model.fit(X, X[:, 0] * X[:, 1] + np.abs(X[:, 2]))
    ours = exact_shapley(model.predict, X[0], X[1])
    explainer = shap.TreeExplainer(model, X[:1], feature_perturbation="interventional")
    assert ours == pytest.approx(explainer.shap_values(X[1:2])[0], abs=1e-5)


def test_time_that_is_the_profiler_s_own_duration_has_no_term_outside_it():
    frame = pd.DataFrame([{"kernel": "k", "time_us": 3.0, "ncu_time_us": 3.0}])
    other = frame.assign(time_us=2.0)
    terms = []
    for after in (frame, other):
        sides = [Launches(("k",), frame, 1, 0), Launches(("k",), after, 1, 0)]
        found = attribute_kernels(changes_between(("k",), ("k",)), *sides, same_device=True)
        terms.append(set(found.terms["term"]))
    assert terms[0] == {"kernels without counters of work"}
    assert "outside the profiler" in terms[1]
