"""The roofline of kernels and layers, by hand and on the recorded runs."""

import json

import numpy as np
import pandas as pd
import pytest

from perfml.datasets import load
from perfml.errors import PerfmlError
from perfml.explain import known_peaks, roofline
from perfml.explain.load import load_tables
from perfml.explain.roofs.by_layer import PIPE, UNKNOWN
from perfml.explain.roofs.peaks import REPORTED
from perfml.ingest import IngestSettings, ingest
from perfml.readers import ReadOptions, read
from perfml.tables import read_table, write_table
from tests.support.command_line import run as command
from tests.support.ncu_pages import raw_page
from tests.support.paths import DATA

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
    assert counted["bound"] == "unknown"
    shaped = roofline(row.assign(flops=4e9), {**PEAKS, "tf32": 50e12}).iloc[0]
    assert (shaped["flops_source"], shaped["bound"]) == ("shape", "compute")
    assert shaped["fraction"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    "absent",
    [
        ["flop_count_sp"],
        ["dram_read_bytes", "l2_read_transactions", "gld_transactions"],
    ],
)
def test_without_operations_or_without_bytes_the_bound_is_unknown(absent):
    found = roofline(table().drop(columns=absent), PEAKS).iloc[0]
    assert found["bound"] == "unknown"
    assert np.isnan(found["fraction"])


def test_the_time_is_that_of_every_other_output_and_rates_are_over_the_counted_one():
    found = roofline(table(ncu_time_us=50.0), PEAKS).iloc[0]
    assert (found["time_us"], found["ncu_time_us"]) == (100.0, 50.0)
    assert found["flop_rate"] == pytest.approx(1e8 / 50e-6)


def test_operations_of_a_full_set_report_are_derived_and_marked_so(tmp_path):
    kernels = ingest(
        [DATA / "ncu" / "both_forms.csv.xz"], settings=IngestSettings(options=ReadOptions(raw=True))
    )
    counts = [name for name in kernels.frame if str(name).endswith("_pred_on.sum")]
    frame, provenance = kernels.frame.drop(columns=counts), kernels.provenance
    [source] = provenance["sources"]
    marked = {**source, "substituted": {"flop_count_sp": "rates and cycles"}}
    path = tmp_path / "kernels.parquet"
    write_table(frame, path, kind="kernels", provenance={**provenance, "sources": [marked]})
    table, _ = load_tables(path)
    found = roofline(table, {**PEAKS, "fp64": 5e12})
    # of kernels on tensor cores their busy cycles are known
    assert set(found["flops_source"].dropna()) == {"derived", PIPE}


def test_a_report_without_a_label_of_precision_has_the_roof_of_what_it_counted():
    row = table(precision="unknown", flop_count_dp=5e8, flop_count_sp=0.0)
    peaks = {**PEAKS, "fp64": 10e12}
    assert roofline(row, peaks)["bound"].iloc[0] == "unknown"
    assert roofline(row.assign(tensor_utilization=0.0), peaks)["bound"].iloc[0] == "compute"
    assert roofline(row.assign(tensor_utilization=0.5), peaks)["bound"].iloc[0] == "unknown"
    assert roofline(row.assign(tensor_cycles_utilization=0.5), peaks)["bound"].iloc[0] == "unknown"
    assert roofline(row.assign(tensor_cycles_utilization=0.0), peaks)["bound"].iloc[0] == "compute"


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
        root / "datasets" / "h200-yolov4-tiny",
        ["batch=8", "precision=fp32", "backend=cudnn", "iteration=0"],
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
    conditions = ["batch=8", "precision=fp32", "backend=cudnn", "iteration=0", "layer=conv_20"]
    layers, kernels = load_tables(folder, conditions)
    counted = roofline(kernels)["flops"].max()
    assert counted == pytest.approx(roofline(layers)["flops"].iloc[0], rel=0.05)


def test_measured_peaks_come_first_and_the_vendor_s_fill_the_gaps():
    peaks = known_peaks("NVIDIA H200")
    assert (peaks.values["fp32"], peaks.kinds["fp32"]) == (51.2e12, "measured")
    assert (peaks.values["fp64"], peaks.kinds["fp64"]) == (
        pytest.approx(34e12, rel=0.02),
        "data sheet",
    )
    assert peaks.kinds["l2"] == "counter peak"
    vendor = known_peaks("NVIDIA H200", "data sheet")
    assert vendor.values["fp32"] == 67e12
    assert set(vendor.kinds.values()) == {"data sheet"}
    assert "measured: fp32 51.2 TFLOP/s" in peaks.sentence()
    with pytest.raises(PerfmlError, match="not known"):
        known_peaks("GPU of tomorrow")
    with pytest.raises(PerfmlError, match="not known"):
        known_peaks("Tesla V100-SXM2-16GB", "measured")


def test_peaks_from_device_attributes_are_the_data_sheet_s(recorded):
    kernels = read(recorded / "ncu" / "vectors.csv")
    facts = kernels.provenance["device_facts"]
    assert facts["multiprocessors"] == 132
    peaks = known_peaks("GPU of tomorrow", None, {**facts, "compute_capability": "9.0"})
    assert set(peaks.kinds.values()) == {REPORTED}
    vendor = known_peaks("NVIDIA H200", "data sheet").values
    assert {name: peaks.values[name] / vendor[name] for name in ("fp32", "fp64", "dram")} == (
        pytest.approx(dict.fromkeys(("fp32", "fp64", "dram"), 1.0), rel=0.02)
    )
    unknown = {**facts, "compute_capability": "99.0"}
    assert known_peaks("GPU of tomorrow", None, unknown).values.keys() == {"dram"}
    with pytest.raises(PerfmlError, match="not known"):
        known_peaks("GPU of tomorrow", None, {"clock_khz": 1e6})


def test_a_card_without_tensor_cores_has_no_peak_of_them():
    peaks = known_peaks("NVIDIA GeForce GTX 1660 SUPER", None, {"compute_capability": "7.5"})
    assert peaks.values.keys() == {"fp64", "fp32", "dram"}


def test_a_report_that_says_what_the_data_sheet_says_leaves_its_name():
    facts = {"multiprocessors": 132, "clock_khz": 1.98e6, "compute_capability": "9.0"}
    slower = {**facts, "clock_khz": 0.99e6}
    assert known_peaks("NVIDIA H100 80GB HBM3", None, facts).kinds["fp32"] == "data sheet"
    halved = known_peaks("NVIDIA H100 80GB HBM3", None, slower)
    assert (halved.kinds["fp32"], halved.kinds["dram"]) == (REPORTED, "data sheet")
    assert halved.values["fp32"] == pytest.approx(67e12 / 2, rel=0.01)


FACTS = {
    "multiprocessor_count": "24",
    "clock_rate": "2,370,000",
    "memory_clock_rate": "8,001,000",
    "global_memory_bus_width": "128",
}
OPERATION = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def test_a_device_that_nobody_tabulated_has_the_roofs_its_report_says(tmp_path):
    columns = {
        "device__attribute_display_name": ("", ["GPU of tomorrow"]),
        **{f"device__attribute_{name}": ("", [cell]) for name, cell in FACTS.items()},
        "gpu__time_duration.sum": ("us", ["10.0"]),
        "dram__bytes_read.sum": ("Mbyte", ["1.0"]),
        "dram__bytes_write.sum": ("Mbyte", ["0.28016"]),
        **{OPERATION.format(name): ("inst", ["1,000"]) for name in ("fadd", "ffma", "fmul")},
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("%", ["0"]),
    }
    path = tmp_path / "export.csv"
    path.write_text(raw_page(columns), encoding="utf-8")
    found = json.loads(run(path, "--json").stdout)
    # 24 multiprocessors of 128 lanes at 2.37 GHz, two operations each; 16 byte twice a cycle
    assert found["peaks"]["values"]["fp32"] == pytest.approx(14.561e12, rel=1e-4)
    assert found["peaks"]["values"]["dram"] == pytest.approx(256.03e9, rel=1e-4)
    assert "24 multiprocessors at 2.37 GHz" in found["peaks"]["sources"][0]
    (row,) = found["rows"]
    assert (row["bound"], row["flops"]) == ("dram", 4000)
    assert row["fraction"] == pytest.approx(0.5, rel=1e-3)
    # 2048 multiply-adds of halves on tensor cores of 9.0; of 8.9 cards have that rate or half of it
    half = tmp_path / "gemm_cublas_b1_fp16.csv"
    path.rename(half)
    peaks = json.loads(run(half, "--json").stdout)["peaks"]["values"]
    assert peaks["fp16"] == pytest.approx(24 * 2 * 2048 * 2.37e9)
    half.write_text(raw_page(columns).replace('"9.0"', '"8.9"'), encoding="utf-8")
    assert "bounds in fp16 are unknown" in run(half).stderr


def test_a_device_of_which_the_profile_says_nothing_is_refused_with_what_would_say_it(
    recorded, tmp_path
):
    text = (recorded / "ncu" / "details_with_output.csv").read_text(encoding="utf-8")
    path = tmp_path / "details.csv"
    path.write_text(text, encoding="utf-8")
    result = run(path, "--per", "kernel")
    assert result.exit_code == 1
    assert "device__attribute_" in result.stderr
    assert "--page raw" in result.stderr


FOLDER = "h200-yolov4-tiny"
CONDITION = ("--where", "batch=8", "--where", "precision=fp32", "--where", "backend=cudnn")


def run(*words):
    return command("roofline", *words)


@pytest.mark.long
def test_a_peaks_file_moves_the_roofs(root, tmp_path):
    path = tmp_path / "peaks.json"
    peaks = {"fp32": 102.4e12, "dram": 8e12}
    path.write_text(json.dumps({"device": "NVIDIA H200", "kind": "measured", "peaks": peaks}))
    words = (root / "datasets" / FOLDER, *CONDITION, "--layer", "conv_20", "--json")
    ours = json.loads(run(*words).stdout)
    given = json.loads(run(*words, "--peaks", path).stdout)
    vendor = json.loads(run(*words, "--peaks", "data-sheet").stdout)
    fraction = ours["rows"][0]["fraction"]
    assert given["peaks"]["values"] == peaks
    assert given["rows"][0]["fraction"] == pytest.approx(fraction / 2)
    assert vendor["rows"][0]["fraction"] == pytest.approx(fraction * 51.2 / 67, rel=0.01)


def test_operations_of_a_run_s_own_layers_place_tensor_core_kernels():
    words = ("h200-attention", "--where", "precision=fp16", "--json")
    rows = json.loads(run(*words).stdout)["rows"]
    assert len(rows) == 27
    assert {row["flops_source"] for row in rows} == {"shape"}
    assert {row["bound"] for row in rows} <= {"compute", "l2"}
    row = next(row for row in rows if (row["backend"], row["layer"]) == ("wgmma", "b48_n25600_d64"))
    # two products of 48 heads, 741 TFLOP/s measured
    flops = 4 * 48 * 25_600**2 * 64
    assert row["fraction"] == pytest.approx(flops / 741e12 / (row["ncu_time_us"] * 1e-6), rel=0.01)


def test_busy_cycles_of_tensor_cores_are_their_roof_where_operations_are_not_known():
    row = {
        "time_us": [100.0, 100.0, 100.0],
        "precision": ["fp16"] * 3,
        "tensor_cycles_utilization": [0.8, 0.8, np.nan],
        "tensor_utilization": [0.1, 0.1, 0.5],
        "sm_efficiency": [0.5, np.nan, 0.5],
        "dram_read_bytes": [1e8, 1e8, 1e8],
        "dram_write_bytes": [0.0, 0.0, 0.0],
    }
    found = roofline(pd.DataFrame(row), {"fp16": 1e15, "dram": 4e12})
    assert found["bound"].tolist() == ["compute", UNKNOWN, UNKNOWN]
    # busy for 0.8 of half of the time; DRAM takes 25 of 100 us
    assert found["fraction"].iloc[0] == pytest.approx(0.4)
    assert found["flops_source"].iloc[0] == PIPE
    assert found["flops"].isna().all()


def test_kernels_have_their_own_place(root):
    words = (root / "datasets" / FOLDER, *CONDITION, "--layer", "conv_20", "--per", "kernel")
    rows = json.loads(run(*words, "--json").stdout)["rows"]
    assert len(rows) == 3
    assert "implicit_gemm" in rows[0]["kernel"]
    assert rows[0]["l2_intensity"] > rows[1]["l2_intensity"]
    assert "implicit_gemm" in run(*words, "-q").stdout


def test_a_file_of_peaks_that_is_not_there_is_named(root):
    result = run(root / "datasets" / FOLDER, *CONDITION, "--peaks", "nothing.json")
    assert result.exit_code == 1
    assert "no such file" in result.stderr


def test_merged_layers_alone_have_no_kernels_to_place(tmp_path):
    table = load(FOLDER)
    write_table(table.frame, tmp_path / "layers.parquet", kind="layers", provenance={})
    result = run(tmp_path / "layers.parquet", *CONDITION, "--per", "kernel")
    assert result.exit_code == 1
    assert "--launches" in result.stderr


def test_our_l2_rate_is_what_the_profiler_calls_busy(root):
    """The counter peak of L2 is the one Nsight Compute divides by."""
    kernels = read_table(root / "datasets" / FOLDER / "kernels.parquet", kind="kernels").frame
    mine = kernels[(kernels["batch"] == 8) & (kernels["precision"] == "fp32")]
    found = roofline(mine)
    ratio = found["l2_rate"] / known_peaks("NVIDIA H200").values["l2"] / mine["l2_utilization"]
    assert 0.8 < ratio.median() < 1.1
