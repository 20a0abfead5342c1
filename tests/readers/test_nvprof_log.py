"""What a log of nvprof says: forms of values, messages, and metrics that meet times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.ingest import ingest
from perfml.ingest.merge.groups import kernel_units
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof.kernels import join
from perfml.readers.nvprof.values import Value, canonical, parse_value
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels, validate_kernels
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "nvprof"
SHARED = ROOT.parent / "shared" / "data" / "public_profiles"
IM2COL = "void im2col<float, bool=1>(float const *, float*, int)"


def load(name: str, raw: bool = False) -> Kernels:
    return nvprof_csv.read(Source(DATA / name), ReadOptions(raw=raw))


def parse(folder: Path, text: str | bytes, raw: bool = False) -> Kernels:
    path = folder / "log.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return nvprof_csv.read(Source(path), ReadOptions(raw=raw))


@pytest.mark.parametrize(
    ("text", "number", "form"),
    [
        ("Low (2)", 2, "level"),
        ("Max (10)", 10, "level"),
        ("98.76%", 98.76, "percent"),
        ("12.3GB/s", 12.3 * 2**30, "rate"),
        ("0.00000B/s", 0, "rate"),
        ("8.0000KB", 8192, "bytes"),
        ("1.3458e+03", 1345.8, "plain"),
        ("6144", 6144, "plain"),
        ("<OVERFLOW>", np.nan, "overflow"),
        ("-nan%", np.nan, "missing"),
    ],
)
def test_every_form_of_a_value_is_read(text, number, form):
    value = parse_value(text)
    assert value is not None
    assert value.form == form
    np.testing.assert_equal(value.number, number)


@pytest.mark.parametrize("text", ["Max (11)", "GB/s", "1.5GiB", "12,5", "hello", "1..5", "(2)"])
def test_what_is_no_value_is_refused(text):
    assert parse_value(text) is None


def test_max_10_is_one_and_an_unused_efficiency_is_missing():
    level = canonical("dram_utilization", [Value(10, "level"), Value(2, "level")])
    assert level is not None
    np.testing.assert_allclose(level.values, [1.0, 0.2])
    unused = canonical("shared_efficiency", [Value(0, "percent")])
    assert unused is not None
    assert np.isnan(unused.values[0])
    assert unused.undefined == 1


def test_a_value_in_a_form_the_metric_cannot_have_is_missing_and_counted():
    found = canonical("gld_efficiency", [Value(0.98, "plain"), Value(98, "percent")])
    assert found is not None
    np.testing.assert_equal(found.values, [np.nan, 0.98])
    assert found.unusable == 1
    assert canonical("made_up_metric", [Value(1, "plain")]) is None


def test_a_value_above_its_limit_is_clipped_with_a_warning_as_for_ncu(tmp_path):
    text = (DATA / "metrics_two_devices.csv").read_text()
    assert text.count("75.00%") == 1
    found = parse(tmp_path, text.replace("75.00%", "133.3%"))
    assert found.frame["shared_efficiency"].iloc[1] == 1.0
    (warning,) = [each for each in found.warnings if "clipped" in each]
    assert "shared_efficiency (1 kernel)" in warning
    assert not [each for each in parse(tmp_path, text).warnings if "clipped" in each]


def test_metrics_log_gives_one_row_a_kernel_and_device():
    found = load("metrics_two_devices.csv")
    frame = found.frame
    assert frame["kernel"].tolist() == [IM2COL, "volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"]
    assert frame["launches"].tolist() == [12, 6, 2]
    assert frame["iteration"].tolist() == [0, 0, 0]
    assert frame["device"].unique().tolist() == ["Tesla V100-SXM2-16GB"]
    assert found.provenance["device"] == "Tesla V100-SXM2-16GB (0), Tesla V100-SXM2-16GB (1)"
    assert found.provenance["command"] == "./net --batch 1"
    np.testing.assert_allclose(frame["dram_utilization"], [0.6, 1.0, 0.1])
    np.testing.assert_allclose(frame["gld_throughput"], [18 * 2**30, 256 * 1024, 2**20])
    np.testing.assert_allclose(frame["gld_efficiency"], [0.99, 1, 1])
    np.testing.assert_equal(frame["shared_efficiency"].to_numpy(), [np.nan, 0.75, 0.5])
    np.testing.assert_equal(frame["inst_executed"].to_numpy(), [262144, np.nan, 4096])
    assert "gld_efficiency_min" not in frame


def test_program_output_between_rows_is_counted_and_overflow_is_named():
    warnings = load("metrics_two_devices.csv").warnings
    assert any("1 lines inside" in text and "line 9" in text for text in warnings)
    assert any("Counters overflowed" in text and "inst_executed (1" in text for text in warnings)
    assert not any("replayed" in text for text in warnings)


def test_summary_has_mean_times_in_microseconds_and_no_api_calls():
    found = load("summary_two_kernels.csv")
    frame = found.frame
    assert frame["kernel"].tolist() == ["volta_sgemm_128x64_nn", IM2COL]
    np.testing.assert_allclose(frame["time_us"], [800_000, 1000])
    assert frame["launches"].tolist() == [6, 12]
    assert frame["time_source"].tolist() == ["nvprof", "nvprof"]
    assert found.provenance["memory_operations"] == 2
    assert any(text.startswith("2 memory copies and sets") for text in found.warnings)


def test_trace_has_one_row_a_launch_with_its_sizes():
    found = load("trace_three.csv")
    frame = found.frame
    assert frame["kernel"].tolist() == [IM2COL, "volta_sgemm_128x64_nn", IM2COL]
    np.testing.assert_allclose(frame["time_us"], [1500, 512, 1500])
    assert frame["grid"].tolist() == ["(64, 64, 1)", "(8, 16, 1)", "(64, 64, 1)"]
    assert frame["block"].tolist() == ["(256, 1, 1)", "(128, 1, 1)", "(256, 1, 1)"]
    assert frame["registers_per_thread"].tolist() == [14, 122, 14]
    assert frame["shared_memory_per_block"].tolist() == [0, 9216, 0]
    assert frame["threads"].iloc[0] == 64 * 64 * 256
    assert frame["kernel_index"].tolist() == [0, 1, 2]
    assert found.provenance["memory_operations"] == 1


def test_nvtx_tables_of_a_summary_are_left_out_so_that_no_kernel_counts_twice(tmp_path):
    text = (DATA / "summary_two_kernels.csv").read_text()
    table = "".join(text.splitlines(keepends=True)[3:6])
    extra = f'==4100== NVTX result:\n==4100==       Range "conv_1"\n{table}'
    found = parse(tmp_path, text + extra)
    assert len(found.frame) == 2
    assert any("NVTX ranges were left out" in warning for warning in found.warnings)


def test_a_log_that_names_the_exported_file_points_to_it(tmp_path):
    text = "==5== NVPROF is profiling process 5, command: ./a\n"
    text += "==5== Generated result file: /x/a.nvvp\n"
    with pytest.raises(InputError, match=r"/x/a\.nvvp"):
        parse(tmp_path, text)


@pytest.mark.parametrize(
    "message",
    [
        "==1== Warning: One or more events or metrics can't be profiled. Rerun.",
        "==1== Error: Internal profiling error 4292:1.",
    ],
)
def test_warnings_and_errors_of_nvprof_are_passed_on(tmp_path, message):
    text = (DATA / "summary_two_kernels.csv").read_text()
    found = parse(tmp_path, text + message + "\n")
    said = message.split("== ", 1)[1]
    assert any(said in warning and "line 11" in warning for warning in found.warnings)


def test_several_processes_stay_apart(tmp_path):
    first = (DATA / "summary_two_kernels.csv").read_text()
    second = first.replace("4100", "4200").replace(",800.000000", ",400.000000")
    found = parse(tmp_path, first + second)
    assert found.frame["process"].tolist() == [4100, 4100, 4200, 4200]
    assert found.frame["time_us"].tolist() == [800_000, 1000, 400_000, 1000]
    assert found.provenance["processes"] == [4100, 4200]


def test_metrics_and_summary_in_one_log_are_joined(tmp_path):
    text = "".join(
        (DATA / name).read_text() for name in ("metrics_two_devices.csv", "summary_two_kernels.csv")
    )
    found = parse(tmp_path, text)
    assert found.frame["time_us"].tolist() == [1000, 800_000, 800_000]
    assert any("The number of invocations differs for 1 kernel" in w for w in found.warnings)


def test_a_missing_metric_of_one_kernel_is_reported(tmp_path):
    lines = (DATA / "metrics_two_devices.csv").read_text().splitlines(keepends=True)
    found = parse(tmp_path, "".join(lines[:-2]))
    assert any("lack metrics" in w and "inst_executed (1 kernel)" in w for w in found.warnings)


@pytest.mark.parametrize(
    "head",
    [
        "Invocations        Metric Name     Metric Description   Min   Max   Avg",
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name",
        " GPU activities:   60.00%  6.00000s     30000  200.00us  3.4240us  433.22us  gather_rows",
        "   Start  Duration    Grid Size      Block Size     Regs*   Name",
    ],
)
def test_what_nvprof_prints_without_csv_names_the_command_that_writes_csv(tmp_path, head):
    path = tmp_path / "log.txt"
    path.write_text(f"==4100== Profiling result:\n{head}\n")
    with pytest.raises(InputError) as caught:
        ingest([path])
    assert "nvprof --csv --log-file" in caught.value.cure


def test_join_gives_a_metrics_log_the_times_of_a_summary():
    joined = join(load("metrics_two_devices.csv"), load("summary_two_kernels.csv"))
    assert joined.frame["time_us"].tolist() == [1000, 800_000, 800_000]
    assert joined.frame["time_source"].tolist() == ["nvprof"] * 3
    assert joined.frame["gld_efficiency"].iloc[0] == pytest.approx(0.99)
    assert joined.provenance["times_path"] == "summary_two_kernels.csv"
    assert joined.provenance["path"] == "metrics_two_devices.csv"


def test_join_averages_a_trace_over_the_launches_of_a_kernel():
    times = load("trace_three.csv")
    times.frame.loc[2, "time_us"] = 2500
    joined = join(load("metrics_two_devices.csv"), times)
    assert joined.frame["time_us"].tolist() == [2000, 512, 512]
    assert joined.frame["grid"].tolist() == ["(64, 64, 1)", "(8, 16, 1)", "(8, 16, 1)"]
    assert joined.frame["registers_per_thread"].tolist() == [14, 122, 122]
    differing = next(w for w in joined.warnings if "number of invocations differs" in w)
    assert "12 with metrics, 2 with times" in differing
    assert "8 with metrics, 1 with times" in differing


def test_join_matches_cut_names_but_not_mere_beginnings():
    metrics = load("metrics_two_devices.csv")
    times = load("summary_two_kernels.csv")
    times.frame["kernel"] = ["volta_sgemm", "void im2col<float, bool=1>(float const *, fl..."]
    joined = join(metrics, times)
    assert joined.frame["time_us"].iloc[0] == 1000
    assert joined.frame["time_us"].iloc[1:].isna().all()
    assert any("have metrics and no time: volta_sgemm_128x64_nn" in w for w in joined.warnings)
    assert any("have a time and no metrics: volta_sgemm" in w for w in joined.warnings)


def test_join_knows_the_two_spellings_of_a_template_argument():
    metrics, times = load("metrics_two_devices.csv"), load("summary_two_kernels.csv")
    metrics.frame.loc[0, "kernel"] = "void f<unsigned int=1024, bool=1>(float const *)"
    times.frame.loc[1, "kernel"] = "void f<1024u, true>(float const*)"
    assert join(metrics, times).frame["time_us"].iloc[0] == 1000


def test_join_gives_layers_from_the_times_their_kernels_metrics():
    times = load("trace_three.csv")
    times.frame["layer"] = ["conv_1", "conv_1", "conv_2"]
    times.frame["iteration"] = [3, 3, 3]
    joined = join(load("metrics_two_devices.csv"), times)
    assert joined.frame["layer"].tolist() == ["conv_1", "conv_1", "conv_2"]
    assert joined.frame["iteration"].tolist() == [3, 3, 3]
    np.testing.assert_allclose(joined.frame["time_us"], [1500, 512, 1500])
    # The GEMM ran 6 times on one device and twice on the other.
    gemm = (6 * 0.75 + 2 * 0.5) / 8
    np.testing.assert_equal(joined.frame["shared_efficiency"].to_numpy(), [np.nan, gemm, np.nan])
    np.testing.assert_equal(joined.frame["inst_executed"].to_numpy(), [262144, 4096, 262144])
    averages = next(w for w in joined.warnings if "averages over all of their launches" in w)
    assert "1 kernel" in averages
    assert IM2COL[:20] in averages


def launches_of_layers(
    layers: list[str], iterations: int, counted: int
) -> tuple[Kernels, Kernels, list[float]]:
    """A metrics log and a timed profile of one kernel that every layer launches.

    Returns
    -------
    Kernels, Kernels, list of float
        The log of `counted` iterations, the profile of `iterations`, and the log's occupancies.
    """
    metrics, times = load("trace_metrics.csv"), load("trace_three.csv")
    occupancy = [(1 + number) / 64 for number in range(len(layers) * counted)]
    rows = metrics.frame.iloc[[0] * len(occupancy)].reset_index(drop=True)
    rows["achieved_occupancy"] = occupancy
    rows["kernel_index"] = range(len(rows))
    timed = times.frame.iloc[[0] * len(layers) * iterations].reset_index(drop=True)
    timed["kernel"] = rows["kernel"].iloc[0]
    timed["kernel_index"] = range(len(timed))
    timed["layer"] = layers * iterations
    timed["iteration"] = np.repeat(np.arange(iterations), len(layers))
    return (
        Kernels(validate_kernels(rows), metrics.provenance, ()),
        Kernels(validate_kernels(timed), times.provenance, ()),
        occupancy,
    )


def test_join_finds_the_launch_within_an_iteration_where_fewer_iterations_have_metrics():
    metrics, times, occupancy = launches_of_layers(["conv_01", "conv_02"], 5, 3)
    joined = join(metrics, times)
    each = [np.mean(occupancy[0::2]), np.mean(occupancy[1::2])]
    np.testing.assert_allclose(joined.frame["achieved_occupancy"], each * 5)
    assert joined.warnings == ()


@pytest.mark.parametrize("damage", ["one launch less", "other grids", "no iterations"])
def test_join_averages_with_a_warning_where_order_does_not_tell_the_layers(damage):
    metrics, times, occupancy = launches_of_layers(["conv_01", "conv_02"], 5, 3)
    if damage == "one launch less":
        metrics = Kernels(metrics.frame.iloc[:-1], metrics.provenance, ())
        occupancy = occupancy[:-1]
    elif damage == "other grids":
        metrics.frame["grid"] = ["(1, 1, 1)", "(2, 1, 1)"] * 3
        times.frame["grid"] = ["(2, 1, 1)", "(1, 1, 1)"] * 5
    else:
        times.frame["iteration"] = pd.array([None] * 10, dtype="Int64")
    joined = join(metrics, times)
    np.testing.assert_allclose(joined.frame["achieved_occupancy"], [np.mean(occupancy)] * 10)
    assert any("averages over all of their launches" in each for each in joined.warnings)
    assert any("number of invocations differs" in each for each in joined.warnings)


def test_join_refuses_two_sides_that_cannot_be_joined():
    metrics, times = load("metrics_two_devices.csv"), load("summary_two_kernels.csv")
    with pytest.raises(InputError, match="without metrics"):
        join(times, times)
    with pytest.raises(InputError, match="without times"):
        join(metrics, metrics)
    times.frame["kernel"] = ["other", "another"]
    with pytest.raises(InputError, match="no kernel in common"):
        join(metrics, times)


def test_a_log_of_several_runs_is_several_runs(tmp_path):
    path = tmp_path / "log.csv"
    rows = []
    for process, time in ((101, "110600.0"), (202, "460.0")):
        rows += [
            f"=={process}== NVPROF is profiling process {process}, command: ./nbody",
            f"=={process}== Profiling result:",
            '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,us,,us,us,us,',
            f'"GPU activities",100.0,1000000.0,10,{time},1.0,1000000.0,"bodyForce(float*)"',
        ]
    path.write_text("\n".join(rows) + "\n")
    frame = ingest([path]).frame
    assert frame["run_id"].nunique() == frame["workload"].nunique() == 2
    assert frame["time_us"].tolist() == [110_600.0, 460.0]
    units, _ = kernel_units(frame, by_workload=True)
    assert len(units) == 2
    # ranks of one job run at a time: they announce themselves before any result
    announced = [rows[0], rows[4], *rows[1:4], *rows[5:]]
    path.write_text("\n".join(announced) + "\n")
    assert ingest([path]).frame["run_id"].nunique() == 1
