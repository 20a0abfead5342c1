"""The reader of ``ncu --csv``: recorded exports with pinned numbers, and other people's."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from perfml.readers import ReadOptions, Source, read, recognise
from perfml.readers.ncu import csv_page as ncu_csv
from perfml.readers.ncu import table as ncu_table
from tests.support.ncu_pages import (
    BYTES,
    DURATION,
    IDENTITY,
    OCCUPANCY,
    THREADS,
    launch,
    raw_page,
    table,
)


@pytest.fixture(scope="session")
def cudnn_frame(recorded):
    return read(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").frame


# Recorded exports


def test_the_two_recorded_exports_hold_172_kernels_in_21_layers_each(recorded):
    cublas = read(recorded / "ncu" / "yolov4tiny_cublas_b1_fp32.csv.xz").frame
    cudnn = read(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").frame
    assert (len(cublas), len(cudnn)) == (100, 72)
    names = [f"conv_{number:02}" for number in range(1, 22)]
    assert list(cublas["layer"].dropna().unique()) == names
    assert list(cudnn["layer"].dropna().unique()) == names
    assert cublas["layer"].isna().sum() == 11
    assert cudnn["layer"].isna().sum() == 11


@pytest.mark.parametrize("share", [1, 700, 20_000])
def test_rows_parsed_in_shares_are_those_parsed_whole(recorded, cudnn_frame, monkeypatch, share):
    monkeypatch.setattr(ncu_table, "_BLOCK", share)
    monkeypatch.setattr(ncu_table, "cores", lambda: 5)
    path = recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"
    pd.testing.assert_frame_equal(read(path).frame, cudnn_frame)


def test_the_first_recorded_launch_has_the_printed_numbers(recorded):
    kernels = read(recorded / "ncu" / "yolov4tiny_cublas_b1_fp32.csv.xz")
    first = kernels.frame.iloc[0]
    assert first["kernel"].startswith("void at::native::elementwise_kernel<(int)128, (int)2, ")
    assert (first["iteration"], first["layer"]) == (0, "conv_01")
    assert (first["grid"], first["block"]) == ("(5408, 1, 1)", "(128, 1, 1)")
    assert (first["device"], first["compute_capability"]) == ("NVIDIA H200", "9.0")
    assert first["time_us"] == first["ncu_time_us"] == 5.824
    assert first["time_source"] == "ncu"
    assert first["achieved_occupancy"] == pytest.approx(0.48024642, abs=1e-12)
    assert first["stall_exec_dependency"] == pytest.approx((8.160010 + 16.530146) / 100, abs=1e-12)
    assert np.isnan(first["shared_efficiency"])
    assert kernels.frame["time_us"].sum() == pytest.approx(725.984, abs=1e-9)
    assert kernels.provenance["format"] == "ncu-csv"
    assert kernels.provenance["process"] == "python3.12"


def test_nested_ranges_and_iterations_of_a_recorded_program(recorded):
    frame = read(recorded / "ncu" / "vectors.csv").frame
    assert frame["layer"].fillna("").tolist() == ["", *["update/scale", "update", "reduce"] * 2]
    assert frame["iteration"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert frame["kernel"].iloc[3] == "void reduce<256>(const float *, float *, int)"


def test_a_range_measured_as_one_is_read_with_a_warning(recorded):
    kernels = read(recorded / "ncu" / "conv_03_range.csv")
    assert kernels.frame["kernel"].tolist() == ["range"]
    assert kernels.frame["time_us"].tolist() == [617.92]
    said = "1 result is a whole range, graph or command list, measured and read as one launch."
    assert said in kernels.warnings


def test_raw_columns_are_kept_on_request(recorded):
    path = recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"
    frame = read(path, ReadOptions(raw=True)).frame
    assert frame[DURATION].iloc[0] == 12992
    assert frame["launch__thread_count"].iloc[0] == 86528
    assert frame["launch__func_cache_config"].iloc[0] == "CachePreferNone"
    assert frame["device__attribute_clock_rate"].iloc[0] == 1_980_000
    assert DURATION not in read(path).frame.columns


# The same export as other people's machines would have written it


def test_output_of_the_program_around_and_between_the_rows_is_left_out(cudnn, cudnn_frame, reading):
    lines = cudnn.split(b"\n")
    lines[40:40] = [b"==WARNING== Half way.", b"", '🔥 loss 1,234 said "hi, 5","6'.encode()]
    lines[9] = b"step 3... " + lines[9]
    head = [b"==PROF== Connected to process 3 (/opt/app)", b'warming "up', b"12,13"]
    tail = [b"==PROF== Disconnected from process 3"]
    kernels = reading(b"\n".join([*head, *lines[:-1], *tail, b""]))
    pd.testing.assert_frame_equal(kernels.frame, cudnn_frame)
    assert kernels.provenance["process"] == "/opt/app"
    assert "Nsight Compute said: Half way." in kernels.warnings
    assert any(warning.startswith("1 lines among the rows") for warning in kernels.warnings)


def test_a_newline_within_a_name_is_kept(cudnn, cudnn_frame, reading):
    lines = cudnn.split(b"\n")
    lines[5] = lines[5].replace(b"conv_02/", b"conv_02/a\nb", 1)
    frame = reading(b"\n".join(lines)).frame
    assert frame["kernel"].iloc[3].startswith("a\nb")
    unchanged = frame.drop(index=3).drop(columns="kernel")
    pd.testing.assert_frame_equal(unchanged, cudnn_frame.drop(index=3).drop(columns="kernel"))


# Cells


def test_missing_values_stay_missing(reading):
    cells = ["12.5", "", "n/a", "no data", "nan"]
    frame = reading(raw_page({DURATION: ("ns", ["10"] * 5), OCCUPANCY: ("%", cells)})).frame
    assert frame["achieved_occupancy"].isna().tolist() == [False, True, True, True, True]
    assert frame["achieved_occupancy"].iloc[0] == 0.125


def test_infinite_values_are_missing_with_a_warning(reading):
    columns = {DURATION: ("ns", ["10", "10"]), OCCUPANCY: ("%", ["inf", "50.0"])}
    kernels = reading(raw_page(columns))
    assert np.isnan(kernels.frame["achieved_occupancy"].iloc[0])
    assert any("infinite in 1 launch" in warning for warning in kernels.warnings)


def test_units_are_scaled_column_by_column(reading):
    columns = {
        DURATION: ("ms", ["1.500000"]),
        BYTES: ("Gbyte", ["2.250000"]),
        THREADS: ("thread", ["1,234,567"]),
    }
    frame = reading(raw_page(columns)).frame
    assert frame["time_us"].iloc[0] == 1500
    assert frame["dram_read_bytes"].iloc[0] == 2.25e9
    assert frame["threads"].iloc[0] == 1_234_567


@pytest.mark.parametrize("cell", ["1,234", "1.234", "10,500000"])
def test_numbers_that_may_be_german_are_an_error_with_the_locale_to_export_with(cell, failing):
    error = failing(raw_page({DURATION: ("ns", [cell]), THREADS: ("thread", ["64"])}))
    assert cell in error.found
    assert "LC_ALL=C" in error.cure


def test_a_german_number_among_english_ones_names_its_line(failing):
    error = failing(raw_page({DURATION: ("us", ["10.500000", "10,500000"])}))
    assert error.where.endswith(":4")
    assert "LC_ALL=C" in error.cure


def test_a_negative_duration_is_an_error_that_names_the_kernel(failing):
    error = failing(raw_page({DURATION: ("ns", ["-5"])}, kernel="gemm_x"))
    assert "gemm_x" in error.found


def test_an_export_without_durations_says_so(reading):
    kernels = reading(raw_page({OCCUPANCY: ("%", ["50.0"])}))
    assert kernels.frame["time_us"].isna().all()
    assert any(DURATION in warning for warning in kernels.warnings)


def test_the_range_that_ncu_put_before_a_kernel_is_taken_off(reading):
    page = raw_page({DURATION: ("ns", ["10"])}, kernel="conv_01/void gemm<a/b>(int)")
    assert reading(page).frame["kernel"].iloc[0] == "void gemm<a/b>(int)"
    page = raw_page({DURATION: ("ns", ["10"])}, kernel="conv_01/gemm", ranges=())
    assert reading(page).frame["kernel"].iloc[0] == "conv_01/gemm"


def test_older_pages_without_shapes_take_them_from_the_metrics(recorded, reading):
    rows = list(csv.reader(io.StringIO((recorded / "ncu" / "vectors.csv").read_text())))
    kept = [i for i, name in enumerate(rows[0]) if name not in {"Block Size", "Grid Size"}]
    header, units, *cells = [[row[i] for i in kept] for row in rows]
    frame = reading(table(header, units, cells)).frame
    expected = read(recorded / "ncu" / "vectors.csv").frame
    pd.testing.assert_frame_equal(frame, expected)


# Details page


def test_the_details_page_gives_a_row_a_launch(recorded):
    path = recorded / "ncu" / "details_with_output.csv"
    assert recognise(Source(path)) is ncu_csv
    kernels = read(path)
    frame = kernels.frame
    assert frame["kernel"].tolist() == ["scale(float *, float)", "add(float *, float *)"]
    assert frame["grid"].tolist() == ["(4096, 1, 1)", "(16, 1, 1)"]
    assert frame["time_us"].tolist() == [10.59, 1500.0]
    assert frame["achieved_occupancy"].tolist() == pytest.approx([0.815, 0.1225])
    assert frame["threads"].tolist() == [1048576, 4096]
    assert frame["shared_memory_per_block"].iloc[0] == 1036
    assert frame["warp_execution_efficiency"].iloc[0] == 0.75
    assert frame["dram_utilization"].iloc[0] == pytest.approx(0.7425)
    assert np.isnan(frame["dram_utilization"].iloc[1])
    assert np.isnan(frame["l2_utilization"].iloc[0])
    assert frame["l2_utilization"].iloc[1] == pytest.approx(0.335)


def test_the_details_page_keeps_what_ncu_and_its_rules_said(recorded):
    kernels = read(recorded / "ncu" / "details_with_output.csv")
    assert kernels.provenance["process"] == "/usr/bin/python3.12"
    assert kernels.provenance["passes"] == 9
    assert "Nsight Compute said: Note: Running with unmodified GPU clocks." in kernels.warnings
    first, second = kernels.provenance["rules"]
    assert (first["rule"], first["launch"], first["kind"]) == (
        "LaunchConfiguration",
        0,
        "optimization",
    )
    assert (first["speedup"], first["scope"]) == (50.0, "global")
    assert second["message"].startswith('Memory is used more than compute: "look" at')
    assert second["speedup"] is None


def test_all_rule_results_can_be_had_as_a_table(recorded):
    found = ncu_csv.rules(Source(recorded / "ncu" / "details_with_output.csv"))
    assert found["rule"].tolist() == ["SOLBottleneck", "LaunchConfiguration"]
    assert found["launch"].tolist() == [0, 0]
    assert ncu_csv.rules(Source(recorded / "ncu" / "vectors.csv")).empty


def test_a_details_page_cut_between_two_rows_is_warned_of(reading):
    header = [*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [
        launch(number, ["Command line profiler metrics", name, unit, "5.25"])
        for number in range(4)
        for name, unit in ((DURATION, "ns"), (OCCUPANCY, "%"))
    ]
    whole = reading(table(header, rows[0], rows[1:]))
    cut = reading(table(header, rows[0], rows[1:-1]))
    assert not any("is the file cut?" in warning for warning in whole.warnings)
    assert any("has 1 metric, the others 2 or more" in warning for warning in cut.warnings)
    assert np.isnan(cut.frame["achieved_occupancy"].iloc[-1])


def test_raw_labels_that_are_names_of_metrics_do_not_stand_in_for_them(recorded):
    path = recorded / "ncu" / "rules_cublas_fp32.csv.xz"  # a details page with such labels
    kept = read(path, ReadOptions(raw=True)).frame
    plain = read(path).frame
    assert len(kept.columns) > len(plain.columns)
    pd.testing.assert_frame_equal(kept[plain.columns], plain)
