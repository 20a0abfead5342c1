import numpy as np
import pandas as pd
import pytest
from _tables import make_kernels
from hypothesis import given, settings
from hypothesis import strategies as st

from perfml.errors import PerfmlError, TableError
from perfml.merge import merge, unattributed

FRACTION, COUNT, MOST = "achieved_occupancy", "inst_executed", "registers_per_thread"


def test_one_ms_of_im2col_and_four_ms_of_sgemm_weigh_a_fifth_and_four_fifths():
    kernels = make_kernels(
        [
            {"kernel": "im2col_gpu_kernel_ext", "time_us": 1000.0, "gld_efficiency": 0.5},
            {"kernel": "sgemm_32x32x32_NN_vec", "time_us": 4000.0, "gld_efficiency": 1.0},
        ]
    )
    layers = merge(kernels)
    assert layers["gld_efficiency"].tolist() == [pytest.approx(0.2 * 0.5 + 0.8 * 1.0, abs=1e-15)]
    assert layers["time_us"].tolist() == [5000.0]
    assert layers["kernels"].tolist() == [2]
    assert layers["kernel_names"].tolist() == ["im2col_gpu_kernel_ext\nsgemm_32x32x32_NN_vec"]


def test_counts_add_up_and_registers_take_the_largest():
    kernels = make_kernels(
        [
            {COUNT: 10.0, MOST: 32.0, "time_us": 1.0},
            {COUNT: 5.0, MOST: 64.0, "time_us": 9.0},
        ]
    )
    layers = merge(kernels)
    assert layers[COUNT].tolist() == [15.0]
    assert layers[MOST].tolist() == [64.0]


def test_the_same_kernel_in_two_layers_stays_apart():
    kernels = make_kernels(
        [{"layer": "conv_01", FRACTION: 0.2}, {"layer": "conv_02", FRACTION: 0.8}]
    )
    layers = merge(kernels)
    assert layers["layer"].tolist() == ["conv_01", "conv_02"]
    assert layers[FRACTION].tolist() == [0.2, 0.8]


def test_iterations_and_runs_stay_apart():
    kernels = make_kernels(
        [{"iteration": 0}, {"iteration": 1}, {"run_id": "other", "iteration": 0}]
    )
    assert len(merge(kernels)) == 3


def test_a_kernel_without_the_metric_neither_counts_nor_weighs():
    kernels = make_kernels([{FRACTION: np.nan, "time_us": 100.0}, {FRACTION: 0.4, "time_us": 1.0}])
    assert merge(kernels)[FRACTION].tolist() == [0.4]


def test_a_layer_whose_kernels_all_lack_a_metric_has_none():
    kernels = make_kernels(
        [
            {FRACTION: np.nan, COUNT: np.nan, MOST: np.nan},
            {"layer": "conv_02", FRACTION: 0.1, COUNT: 1.0, MOST: 2.0},
        ]
    )
    layers = merge(kernels)
    assert layers[[FRACTION, COUNT, MOST]].iloc[0].isna().all()
    assert layers[[FRACTION, COUNT, MOST]].iloc[1].tolist() == [0.1, 1.0, 2.0]


@pytest.mark.parametrize("time", [0.0, -1.0, np.nan, np.inf])
def test_a_time_that_is_not_positive_is_an_error_that_names_the_kernel(time):
    kernels = make_kernels([{}, {"kernel": "volta_sgemm_128x64_nn", "time_us": time}])
    with pytest.raises(TableError, match="volta_sgemm_128x64_nn"):
        merge(kernels)


def test_launches_outside_every_layer_are_left_out_and_accounted_for():
    kernels = make_kernels(
        [{"time_us": 3.0}, {"layer": None, "time_us": 1.0}, {"layer": None, "time_us": 2.0}]
    )
    assert merge(kernels)["time_us"].tolist() == [3.0]
    outside = unattributed(kernels)
    assert outside["launches"].tolist() == [2]
    assert outside["time_us"].tolist() == [3.0]
    assert outside["share"].tolist() == [0.5]


def test_no_layer_at_all_is_an_error_that_says_what_to_do():
    with pytest.raises(PerfmlError, match="NVTX"):
        merge(make_kernels([{"layer": None}]))


def test_mean_weights_keep_a_rows_own_time_out_of_its_metrics():
    rows = [
        {"iteration": i, "kernel": name, "time_us": time, FRACTION: value}
        for i, (first, second) in enumerate([(1.0, 3.0), (3.0, 1.0)])
        for name, time, value in (("a", first, 0.0), ("b", second, 1.0))
    ]
    own = merge(make_kernels(rows))
    mean = merge(make_kernels(rows), weights="layer-mean")
    assert own[FRACTION].tolist() == [0.75, 0.25]
    assert mean[FRACTION].tolist() == [0.5, 0.5]
    assert own["time_us"].tolist() == mean["time_us"].tolist() == [4.0, 4.0]


def test_a_missing_column_is_named():
    with pytest.raises(TableError, match="time_us"):
        merge(make_kernels([{}]).drop(columns="time_us"))


times = st.floats(0.001, 1e6)
# no fraction is so small that its product with a time leaves the range of a double
values = st.one_of(st.just(0.0), st.floats(1e-100, 1), st.just(float("nan")))
launches = st.lists(
    st.fixed_dictionaries(
        {
            "layer": st.sampled_from(["conv_01", "conv_02", "conv_03"]),
            "iteration": st.integers(0, 1),
            "kernel": st.sampled_from(["gemm", "im2col"]),
            "time_us": times,
            FRACTION: values,
            COUNT: st.one_of(st.integers(0, 10**9).map(float), st.just(float("nan"))),
        }
    ),
    min_size=1,
    max_size=12,
)


def comparable(layers: pd.DataFrame) -> pd.DataFrame:
    kept = layers.set_index(["iteration", "layer"]).sort_index()
    return kept[["time_us", FRACTION, COUNT]].astype(float)


@settings(deadline=None)
@given(st.lists(st.tuples(times, values), min_size=1, max_size=8))
def test_a_merge_of_one_kernel_is_itself(rows):
    kernels = make_kernels(
        [{"layer": f"l{i}", "time_us": t, FRACTION: v} for i, (t, v) in enumerate(rows)]
    )
    layers = merge(kernels)
    np.testing.assert_allclose(layers[FRACTION], kernels[FRACTION], rtol=1e-12)
    np.testing.assert_array_equal(layers["time_us"], kernels["time_us"])


@settings(deadline=None)
@given(launches, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    pd.testing.assert_frame_equal(
        comparable(merge(make_kernels(rows))), comparable(merge(make_kernels(shuffled))), rtol=1e-9
    )


@settings(deadline=None)
@given(launches)
def test_splitting_a_kernel_into_two_identical_halves_changes_nothing(rows):
    half = {**rows[0], "time_us": rows[0]["time_us"] / 2, COUNT: rows[0][COUNT] / 2}
    pd.testing.assert_frame_equal(
        comparable(merge(make_kernels(rows))),
        comparable(merge(make_kernels([half, half, *rows[1:]]))),
        rtol=1e-9,
    )


@settings(deadline=None)
@given(launches)
def test_weights_add_up_to_one(rows):
    constant = [{**row, FRACTION: 0.37} for row in rows]
    np.testing.assert_allclose(merge(make_kernels(constant))[FRACTION], 0.37, rtol=1e-12)


@settings(deadline=None)
@given(launches)
def test_a_merged_fraction_lies_between_its_kernels(rows):
    kernels = make_kernels(rows)
    layers = merge(kernels).set_index(["iteration", "layer"])
    bounds = kernels.groupby(["iteration", "layer"])[FRACTION].agg(["min", "max"])
    for key, low, high in bounds.itertuples():
        found = layers.loc[key, FRACTION]
        assert np.isnan(found) == np.isnan(low)
        assert np.isnan(found) or low - 1e-9 <= found <= high + 1e-9
