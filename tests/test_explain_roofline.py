"""The roofline of kernels and layers, by hand and on the recorded runs."""

import numpy as np
import pandas as pd
import pytest

from perfml.errors import PerfmlError
from perfml.explain import roofline
from perfml.explain.load import load_tables
from perfml.tables import read_table

PEAKS = {"fp32": 10e12, "dram": 1e12, "l2": 4e12, "l1": 8e12}


def table(**columns):
    defaults = {
        "time_us": 100.0,
        "precision": "fp32",
        "flop_count_sp": 1e8,
        "dram_read_bytes": 1e6,
        "dram_write_bytes": 1e6,
        "l2_read_transactions": 1e5,
        "l2_write_transactions": 1e5,
        "gld_transactions": 1e5,
        "gst_transactions": 1e5,
    }
    return pd.DataFrame([{**defaults, **columns}])


@pytest.mark.parametrize(
    ("columns", "bound", "fraction"),
    [
        ({"flop_count_sp": 5e8}, "compute", 0.5),
        ({"dram_read_bytes": 4e7, "dram_write_bytes": 1e7}, "dram", 0.5),
        ({"l2_read_transactions": 1e6, "l2_write_transactions": 2.5e6}, "l2", 0.28),
        ({"gld_transactions": 1e7, "gst_transactions": 0.0}, "l1", 0.4),
        ({"flop_count_sp": 5e8, "ncu_time_us": 50.0}, "compute", 1.0),
    ],
)
def test_the_lowest_roof_bounds_and_its_achieved_fraction_is_right(columns, bound, fraction):
    found = roofline(table(**columns), PEAKS).iloc[0]
    assert found["bound"] == bound
    assert found["fraction"] == pytest.approx(fraction)


def test_intensity_is_operations_a_byte_of_each_level():
    found = roofline(table(), PEAKS).iloc[0]
    assert found["dram_intensity"] == pytest.approx(1e8 / 2e6)
    assert found["l2_intensity"] == pytest.approx(1e8 / (2e5 * 32))
    assert found["l1_intensity"] == pytest.approx(1e8 / (2e5 * 32))
    assert found["flop_rate"] == pytest.approx(1e12)


def test_a_level_without_a_peak_bounds_nothing_and_one_without_counters_is_left_out():
    peaks = {"fp32": 10e12, "dram": 1e12}
    row = table(l2_read_transactions=1e9)
    assert roofline(row, peaks)["bound"].iloc[0] == "compute"
    assert roofline(row, peaks)["l2_intensity"].iloc[0] == pytest.approx(
        1e8 / (1e9 * 32 + 1e5 * 32)
    )
    assert "l1_bytes" not in roofline(table().drop(columns="gld_transactions"), PEAKS)


def test_work_of_tensor_cores_is_not_taken_from_the_counters_of_cuda_cores():
    row = table(precision="tf32")
    counted = roofline(row, {**PEAKS, "tf32": 50e12}).iloc[0]
    assert np.isnan(counted["flops"])
    assert counted["bound"] in ("dram", "l2", "l1")
    shaped = roofline(row.assign(flops=4e9), {**PEAKS, "tf32": 50e12}).iloc[0]
    assert (shaped["flops_source"], shaped["bound"]) == ("shape", "compute")
    assert shaped["fraction"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("peaks", "row", "said"),
    [
        (None, table(), "peaks of this device are not known"),
        (None, table(device="GPU of tomorrow"), "GPU of tomorrow"),
        ({"fp32": -1.0}, table(), "positive rate"),
        ({}, table(), "positive rate"),
        ({"l2": 1e12}, table()[["time_us", "precision"]], "neither operations nor bytes"),
    ],
)
def test_what_has_no_roof_is_an_error(peaks, row, said):
    with pytest.raises(PerfmlError, match=said):
        roofline(row, peaks)


def test_recorded_layers_of_fp32_are_bound_by_compute_where_their_filters_are_3x3(root):
    layers, _ = load_tables(
        root / "datasets" / "h200-yolov4-tiny", ["batch=8", "precision=fp32", "iteration=0"]
    )
    found = roofline(layers).set_index("layer")
    assert found.loc["conv_20", "bound"] == "compute"
    assert found.loc["conv_20", "fraction"] == pytest.approx(
        0.430, abs=0.001
    )  # of the measured 51.2 TFLOP/s
    assert found.loc["conv_21", "bound"] == "dram"
    assert (found["fraction"] > 0).all()
    assert (found["fraction"] < 1).all()


def test_counted_operations_agree_with_the_shape_of_the_convolution(root):
    folder = root / "datasets" / "h200-yolov4-tiny"
    conditions = ["batch=8", "precision=fp32", "iteration=0", "layer=conv_20"]
    layers, _ = load_tables(folder, conditions)
    kernels = read_table(folder / "kernels.parquet", kind="kernels").frame
    mine = kernels[
        (kernels["batch"] == 8)
        & (kernels["precision"] == "fp32")
        & (kernels["iteration"] == 0)
        & (kernels["layer"] == "conv_20")
    ]
    counted = roofline(mine)["flops"].max()
    assert counted == pytest.approx(roofline(layers)["flops"].iloc[0], rel=0.05)
