import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError, TableError
from perfml.ingest.merge.batches import merge_files
from perfml.ingest.merge.rule import merge, unattributed_time
from perfml.tables import BY_KERNEL, CLOCK_COLUMNS, read_table, write_table
from tests.support.tables import make_kernels

FRACTION, COUNT, MOST = "achieved_occupancy", "inst_executed", "registers_per_thread"
LOADS = "gld_efficiency"


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


def test_a_launch_that_was_measured_and_has_no_such_metric_neither_counts_nor_weighs():
    # the first loads nothing, so it has no load efficiency
    rows = [{LOADS: np.nan, FRACTION: 0.5, "time_us": 9.0}, {LOADS: 0.4, FRACTION: 0.5}]
    layers = merge(make_kernels(rows))
    assert layers[LOADS].tolist() == [0.4]
    assert layers.attrs["coverage"] == []


def test_a_count_with_an_unmeasured_launch_is_missing():
    kernels = make_kernels([{COUNT: 30_648_564.0}, {COUNT: np.nan}, {COUNT: 162_996.0}])
    layers = merge(kernels)
    assert layers[COUNT].isna().tolist() == [True]


def test_a_mean_over_most_of_the_time_is_kept_and_its_share_is_told():
    rows = [{FRACTION: 0.4, LOADS: 1.0, "time_us": 3.0}, {"time_us": 1.0}]
    layers = merge(make_kernels(rows))
    assert layers[FRACTION].tolist() == [pytest.approx(0.4)]
    told = {entry["metric"]: entry for entry in layers.attrs["coverage"]}
    for name in (FRACTION, LOADS):
        assert told[name] == {"metric": name, "rows": 1, "least": 0.75, "left_out": 0}


def test_a_mean_over_less_than_half_of_the_time_is_missing():
    rows = [{FRACTION: 0.4, LOADS: 1.0, "time_us": 1.0}, {"time_us": 1.5}]
    layers = merge(make_kernels(rows))
    assert layers[[FRACTION, LOADS]].iloc[0].isna().all()
    assert {entry["left_out"] for entry in layers.attrs["coverage"]} == {1}


def test_a_launch_that_lacks_what_every_launch_has_was_not_measured_for_it():
    rows = [{FRACTION: 0.4, LOADS: 1.0, "time_us": 1.0}, {LOADS: 0.5, "time_us": 3.0}]
    layers = merge(make_kernels(rows))
    assert layers[FRACTION].isna().all()
    assert layers[LOADS].tolist() == [pytest.approx(0.25 * 1.0 + 0.75 * 0.5)]


def test_a_row_of_many_launches_counts_and_weighs_as_many():
    # a summary: means a launch, and how many launches they are of
    summary = [
        {"kernel": "im2col", "launches": 3, "time_us": 10.0, FRACTION: 0.2, COUNT: 5.0},
        {"kernel": "sgemm", "launches": 1, "time_us": 30.0, FRACTION: 0.8, COUNT: 7.0},
    ]
    layers = merge(make_kernels([{**row, "ncu_time_us": row["time_us"]} for row in summary]))
    assert layers["kernels"].tolist() == [4]
    assert layers["time_us"].tolist() == layers["ncu_time_us"].tolist() == [60.0]
    assert layers[FRACTION].tolist() == [pytest.approx(0.5)]
    assert layers[COUNT].tolist() == [22.0]
    assert layers["kernel_names"].tolist() == ["im2col\nsgemm"]


def test_a_summary_merges_as_its_launches_do():
    single = [
        {"kernel": kernel, "time_us": time, FRACTION: value, COUNT: 3.0}
        for kernel, time, value, number in [("a", 2.0, 0.1, 5), ("b", 3.0, 0.9, 2)]
        for _ in range(number)
    ]
    rows = {row["kernel"]: row for row in single}
    together = [{**rows["a"], "launches": 5}, {**rows["b"], "launches": 2}]
    expected, found = (merge(make_kernels(rows)) for rows in (single, together))
    for name in ("kernels", "time_us", FRACTION, COUNT):
        assert found[name].tolist() == [pytest.approx(expected[name].iloc[0])]


def test_a_number_of_launches_that_is_none_is_an_error_that_names_the_kernel():
    with pytest.raises(TableError, match="sgemm"):
        merge(make_kernels([{"launches": 1}, {"kernel": "sgemm", "launches": 0}]))


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
    outside = unattributed_time(kernels)
    assert outside["launches"].tolist() == [2]
    assert outside["time_us"].tolist() == [3.0]
    assert outside["share"].tolist() == [0.5]


def test_without_any_layer_each_kernel_is_one_and_it_is_said():
    rows = [{"layer": None, "kernel": name} for name in ("gemm", "copy", "gemm")]
    merged = merge(make_kernels(rows))
    assert merged["layer"].tolist() == ["gemm", "copy", "gemm"]
    assert merged.attrs["warnings"] == [BY_KERNEL]
    with pytest.raises(PerfmlError, match="NVTX"):
        merge(make_kernels(rows)[:0])


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


@given(launches, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    pd.testing.assert_frame_equal(
        comparable(merge(make_kernels(rows))), comparable(merge(make_kernels(shuffled))), rtol=1e-9
    )


@given(launches)
def test_splitting_a_kernel_into_two_identical_halves_changes_nothing(rows):
    half = {**rows[0], "time_us": rows[0]["time_us"] / 2, COUNT: rows[0][COUNT] / 2}
    pd.testing.assert_frame_equal(
        comparable(merge(make_kernels(rows))),
        comparable(merge(make_kernels([half, half, *rows[1:]]))),
        rtol=1e-9,
    )


@given(launches)
def test_a_merged_fraction_lies_between_its_kernels(rows):
    kernels = make_kernels(rows)
    layers = merge(kernels).set_index(["iteration", "layer"])
    bounds = kernels.groupby(["iteration", "layer"])[FRACTION].agg(["min", "max"])
    measured = kernels["time_us"].where(kernels[FRACTION].notna(), 0.0)
    keys = [kernels["iteration"], kernels["layer"]]
    shares = measured.groupby(keys).sum() / kernels["time_us"].groupby(keys).sum()
    for key, low, high in bounds.itertuples():
        merged = layers.loc[key, FRACTION]
        assert np.isnan(merged) or low - 1e-9 <= merged <= high + 1e-9
        assert not np.isnan(merged) if shares[key] > 0.5001 else True
        assert np.isnan(merged) if shares[key] < 0.4999 else True


def test_a_layer_keeps_where_its_time_comes_from_and_in_which_process():
    kernels = make_kernels(
        [
            {"layer": "a", "time_source": "timing", "process": 1},
            {"layer": "a", "time_source": "apportioned", "process": 1},
            {"layer": "b", "time_source": "ncu", "process": 2},
            {"layer": "b", "time_source": "ncu", "process": 2},
            {"layer": "c", "time_source": None, "process": 2},
        ]
    )
    layers = merge(kernels)
    assert layers["time_source"].fillna("").tolist() == ["apportioned+timing", "ncu", ""]
    assert layers["process"].tolist() == [1, 2, 2]
    bare = merge(kernels.drop(columns=["time_source", "process"]))
    assert not {"time_source", "process"} & set(bare.columns)


def on_the_clock(*launches):
    """Return launches of (layer, start, time, device, stream) with a share that is weighted."""
    return make_kernels(
        [
            {"layer": layer, "start_us": start, "time_us": time, "device_id": device}
            | {"stream": stream, "gld_efficiency": time / 10}
            for layer, start, time, device, stream in launches
        ]
    )


def test_a_layer_takes_as_long_as_its_device_is_busy_with_it_and_metrics_keep_their_weights():
    rows = (("a", 0.0, 4.0, 0, 7), ("a", 2.0, 6.0, 0, 8), ("b", 9.0, 1.0, 0, 7))
    layers = merge(on_the_clock(*rows)).set_index("layer")
    assert layers.loc["a", ["time_us", "kernels_us", "wall_us", "streams"]].tolist() == [
        8,
        10,
        8,
        2,
    ]
    assert layers.loc["b", ["time_us", "kernels_us", "wall_us", "streams"]].tolist() == [1, 1, 1, 1]
    # 0.4 weighs 4 and 0.6 weighs 6, side by side or not
    assert layers.loc["a", "gld_efficiency"] == pytest.approx(0.52)


def test_of_several_devices_the_one_that_is_busy_longest_is_the_time_of_a_layer():
    rows = (("a", 0.0, 5.0, 0, 7), ("a", 0.0, 3.0, 1, 7), ("a", 9.0, 3.0, 1, 7))
    (layer,) = merge(on_the_clock(*rows)).to_dict("records")
    assert (layer["time_us"], layer["device_id"], layer["wall_us"]) == (6.0, 1, 12.0)


def test_without_one_start_a_layer_is_the_sum_of_its_launches_and_has_no_wall_time():
    rows = on_the_clock(("a", 0.0, 4.0, 0, 7), ("a", np.nan, 6.0, 0, 8))
    (layer,) = merge(rows).to_dict("records")
    assert (layer["time_us"], layer["kernels_us"], layer["streams"]) == (10.0, 10.0, 2)
    assert np.isnan(layer["wall_us"])


def test_a_merge_on_disk_keeps_the_time_on_the_clock(tmp_path):
    kernels = on_the_clock(("a", 0.0, 4.0, 0, 7), ("a", 2.0, 6.0, 0, 8), ("b", 9.0, 1.0, 0, 7))
    write_table(kernels, tmp_path / "kernels.parquet", kind="kernels", provenance={})
    merge_files(tmp_path / "kernels.parquet", tmp_path / "layers.parquet")
    stored = read_table(tmp_path / "layers.parquet").frame
    columns = ["layer", "time_us", *CLOCK_COLUMNS]
    pd.testing.assert_frame_equal(stored[columns], merge(kernels)[columns], check_dtype=False)
