"""The reader of nvprof's text output."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.account import ACCOUNT, Account
from perfml.errors import InputError
from perfml.ingest import ingest
from perfml.ingest.merge.groups import kernel_units
from perfml.metrics import load_catalogue
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof import text_log as nvprof_text
from perfml.readers.nvprof.kernels import join
from perfml.readers.nvprof.values import Value, canonical, parse_value
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels, metric_columns, validate_kernels
from tests.support.examples import examples
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "nvprof"
SHARED = ROOT.parent / "shared" / "data" / "public_profiles"
IM2COL = "void im2col<float, bool=1>(float const *, float*, int)"


def load(name: str, raw: bool = False) -> Kernels:
    return nvprof_text.read(Source(DATA / name), ReadOptions(raw=raw))


def parse(folder: Path, text: str | bytes, raw: bool = False) -> Kernels:
    path = folder / "log.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return nvprof_text.read(Source(path), ReadOptions(raw=raw))


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
    np.testing.assert_allclose(level[0], [1.0, 0.2])
    unused = canonical("shared_efficiency", [Value(0, "percent")])
    assert unused is not None
    assert np.isnan(unused[0][0])


def test_a_value_in_a_form_the_metric_cannot_have_is_missing_and_counted():
    found = canonical("gld_efficiency", [Value(0.98, "plain"), Value(98, "percent")])
    assert found is not None
    np.testing.assert_equal(found[0], [np.nan, 0.98])
    assert found[1:] == (1, 0)
    assert canonical("made_up_metric", [Value(1, "plain")]) is None


def test_a_value_above_its_limit_is_clipped_with_a_warning_as_for_ncu(tmp_path):
    text = (DATA / "metrics_two_devices.txt").read_text()
    assert text.count("75.00%") == 1
    found = parse(tmp_path, text.replace("75.00%", "133.3%"))
    assert found.frame["shared_efficiency"].iloc[1] == 1.0
    (warning,) = [each for each in found.warnings if "clipped" in each]
    assert "shared_efficiency (1 kernel)" in warning
    assert not [each for each in parse(tmp_path, text).warnings if "clipped" in each]


def test_recorded_gtx1080_log_has_its_numbers_and_its_overflow_warning():
    found = load("gtx1080_flash_attention_overflow.txt")
    assert len(found.frame) == 1
    row = found.frame.iloc[0]
    assert row["kernel"].startswith("flash_attention_kernel(float4 const *, float4 const *")
    assert row["device"] == "NVIDIA GeForce GTX 1080"
    assert row["launches"] == 1
    assert np.isnan(row["time_us"])
    assert row["achieved_occupancy"] == 0.125
    assert row["shared_load_throughput"] == pytest.approx(3995.3 * 2**30)
    assert row["gst_throughput"] == pytest.approx(55.923 * 2**30)
    assert any(
        "line 12, process 605878" in text and "overflowed" in text for text in found.warnings
    )
    assert found.provenance["processes"] == [605878]
    assert found.provenance["tool"] == "nvprof"
    assert found.provenance["path"] == "gtx1080_flash_attention_overflow.txt"


def test_recorded_event_counts_are_named_as_left_out():
    found = load("gtx1080_flash_attention_events.txt")
    assert len(found.frame) == 1
    assert found.frame["sm_efficiency"].iloc[0] == pytest.approx(0.9833)
    assert any("shared_ld_bank_conflict, shared_st_bank_conflict" in w for w in found.warnings)


def test_metrics_log_gives_one_row_a_kernel_and_device():
    found = load("metrics_two_devices.txt")
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
    warnings = load("metrics_two_devices.txt").warnings
    assert any("1 lines inside" in text and "line 14" in text for text in warnings)
    assert any("Counters overflowed" in text and "inst_executed (1" in text for text in warnings)
    assert not any("replayed" in text for text in warnings)


def test_summary_has_mean_times_in_microseconds_and_no_api_calls():
    found = load("summary.txt")
    frame = found.frame
    assert frame["kernel"].tolist() == ["volta_sgemm_128x64_nn", IM2COL]
    np.testing.assert_allclose(frame["time_us"], [800_000, 1000])
    assert frame["launches"].tolist() == [6, 12]
    assert frame["time_source"].tolist() == ["nvprof", "nvprof"]
    assert found.provenance["memory_operations"] == 2
    # by hand: 6 x 800 ms and 12 x 1 ms of kernels, 2 x 0.96 us of copies
    step = Account.from_dict(found.provenance[ACCOUNT]).busiest
    assert step.step.computing_us == pytest.approx(4_812_000)
    assert [(each.kind, each.us, each.times) for each in step.copies] == [("to_device", 1.92, 2)]
    assert not any("left out" in text for text in found.warnings)


def test_a_log_of_copies_alone_has_them_as_its_rows(tmp_path):
    lines = (DATA / "summary.txt").read_text().splitlines(keepends=True)
    found = parse(tmp_path, "".join(lines[:4] + lines[7:]))
    assert found.frame["kernel"].tolist() == ["[CUDA memcpy HtoD]"]
    assert found.frame["launches"].tolist() == [2]
    assert Account.from_dict(found.provenance[ACCOUNT]).busiest.step.copying_us == 1.92


@pytest.mark.parametrize(
    ("last", "launches"),
    [
        ("        50.0%  2.0ms    2  1.0ms  1.0ms  1.0ms  add(int, float*)", [2]),
        ("        50.0%  2.0ms    2  1.0ms  1.0ms  1.0ms  add(int, fl", None),
    ],
)
def test_a_last_row_without_a_line_break_is_read_where_it_is_seen_to_be_whole(
    last, launches, tmp_path
):
    head = "".join((DATA / "summary.txt").read_text().splitlines(keepends=True)[:4])
    if launches is None:
        with pytest.raises(InputError, match="cut off"):
            parse(tmp_path, head + last)
    else:
        assert parse(tmp_path, head + last).frame["launches"].tolist() == launches
    # a row of a table that is not read may end anywhere
    rest = f"{head}{last[:-4]} k)\n==1== Unified Memory profiling result:\n"
    rest += "   Count  Avg Size  Min Size  Max Size  Total Size  Total Time  Name\n       1  1.5"
    assert len(parse(tmp_path, rest).frame) == 1


def test_summary_of_old_nvprof_without_a_type_column():
    frame = load("summary_old.txt").frame
    assert frame["kernel"].tolist() == ["saxpy(float*, float*)"]
    assert frame["time_us"].tolist() == [1000]


def test_trace_has_one_row_a_launch_with_its_sizes():
    found = load("trace.txt")
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


def test_a_trace_without_its_footnotes_is_reported_as_perhaps_cut(tmp_path):
    text = (DATA / "trace.txt").read_text().split("\nRegs:")[0]
    assert any("may be cut" in warning for warning in parse(tmp_path, text).warnings)
    assert not any("may be cut" in warning for warning in load("trace.txt").warnings)


def test_nvtx_tables_of_a_summary_are_left_out_so_that_no_kernel_counts_twice(tmp_path):
    text = (DATA / "summary.txt").read_text()
    table = "".join(text.splitlines(keepends=True)[3:6])
    extra = f'==4100== NVTX result:\n==4100==       Range "conv_1"\n{table}'
    found = parse(tmp_path, text + extra)
    assert len(found.frame) == 2
    assert any("NVTX ranges were left out" in warning for warning in found.warnings)


def test_no_kernels_profiled_is_an_error_that_says_what_was_found():
    with pytest.raises(InputError) as caught:
        load("no_kernels.txt")
    assert "holds no kernels" in caught.value.what
    found = str(caught.value.found)
    assert "No kernels were profiled" in found
    assert "unified memory" in found
    assert "invalid timestamps" in found
    assert len(str(caught.value).splitlines()) <= 2


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
    text = (DATA / "summary.txt").read_text()
    found = parse(tmp_path, text + message + "\n")
    said = message.split("== ", 1)[1]
    assert any(said in warning and "line 11" in warning for warning in found.warnings)


def test_several_processes_stay_apart(tmp_path):
    first = (DATA / "summary.txt").read_text()
    second = first.replace("4100", "4200").replace("800.00ms", "400.00ms")
    found = parse(tmp_path, first + second)
    assert found.frame["process"].tolist() == [4100, 4100, 4200, 4200]
    assert found.frame["time_us"].tolist() == [800_000, 1000, 400_000, 1000]
    assert found.provenance["processes"] == [4100, 4200]


def test_metrics_and_summary_in_one_log_are_joined(tmp_path):
    text = (DATA / "metrics_two_devices.txt").read_text() + (DATA / "summary.txt").read_text()
    found = parse(tmp_path, text)
    assert found.frame["time_us"].tolist() == [1000, 800_000, 800_000]
    assert any("The number of invocations differs for 1 kernel" in w for w in found.warnings)


def test_a_missing_metric_of_one_kernel_is_reported(tmp_path):
    lines = (DATA / "metrics_two_devices.txt").read_text().splitlines(keepends=True)
    found = parse(tmp_path, "".join(lines[:-2]))
    assert any("lack metrics" in w and "inst_executed (1 kernel)" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("metrics_two_devices.txt", "98.76%", "98x76%", 12),
        ("metrics_two_devices.txt", "Max (10)     Mid", "Max (40)     Mid", 16),
        ("metrics_two_devices.txt", "512.00KB/s", "512.00KQ/s", 22),
        ("summary.txt", "800.00ms", "800.0ams", 5),
        ("summary.txt", "        12  1.0", "        1x  1.0", 6),
        ("trace.txt", "(8 16 1)", "(8 16 )", 8),
        ("trace.txt", "  512.00us", "  ", 8),
    ],
)
def test_a_damaged_row_is_an_error_and_never_the_programs_output(tmp_path, name, old, new, line):
    text = (DATA / name).read_text()
    assert text.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse(tmp_path, text.replace(old, new))
    assert str(caught.value.where).endswith(f":{line}")


def test_only_nvprofs_text_is_recognised():
    for name in sorted(path.name for path in DATA.iterdir() if path.suffix == ".txt"):
        assert nvprof_text.recognises(Source(DATA / name)), name
        assert not nvprof_csv.recognises(Source(DATA / name)), name
    for name in ("metrics.csv", "summary.csv", "trace.csv", "trace_metrics.csv", "README.md"):
        assert not nvprof_text.recognises(Source(DATA / name)), name


def test_join_gives_a_metrics_log_the_times_of_a_summary():
    joined = join(load("metrics_two_devices.txt"), load("summary.txt"))
    assert joined.frame["time_us"].tolist() == [1000, 800_000, 800_000]
    assert joined.frame["time_source"].tolist() == ["nvprof"] * 3
    assert joined.frame["gld_efficiency"].iloc[0] == pytest.approx(0.99)
    assert joined.provenance["times_path"] == "summary.txt"
    assert joined.provenance["path"] == "metrics_two_devices.txt"


def test_join_averages_a_trace_over_the_launches_of_a_kernel():
    times = load("trace.txt")
    times.frame.loc[2, "time_us"] = 2500
    joined = join(load("metrics_two_devices.txt"), times)
    assert joined.frame["time_us"].tolist() == [2000, 512, 512]
    assert joined.frame["grid"].tolist() == ["(64, 64, 1)", "(8, 16, 1)", "(8, 16, 1)"]
    assert joined.frame["registers_per_thread"].tolist() == [14, 122, 122]
    differing = next(w for w in joined.warnings if "number of invocations differs" in w)
    assert "12 with metrics, 2 with times" in differing
    assert "8 with metrics, 1 with times" in differing


def test_join_matches_cut_names_but_not_mere_beginnings():
    metrics = load("metrics_two_devices.txt")
    times = load("summary.txt")
    times.frame["kernel"] = ["volta_sgemm", "void im2col<float, bool=1>(float const *, fl..."]
    joined = join(metrics, times)
    assert joined.frame["time_us"].iloc[0] == 1000
    assert joined.frame["time_us"].iloc[1:].isna().all()
    assert any("have metrics and no time: volta_sgemm_128x64_nn" in w for w in joined.warnings)
    assert any("have a time and no metrics: volta_sgemm" in w for w in joined.warnings)


def test_join_knows_the_two_spellings_of_a_template_argument():
    metrics, times = load("metrics_two_devices.txt"), load("summary.txt")
    metrics.frame.loc[0, "kernel"] = "void f<unsigned int=1024, bool=1>(float const *)"
    times.frame.loc[1, "kernel"] = "void f<1024u, true>(float const*)"
    assert join(metrics, times).frame["time_us"].iloc[0] == 1000


def test_join_gives_layers_from_the_times_their_kernels_metrics():
    times = load("trace.txt")
    times.frame["layer"] = ["conv_1", "conv_1", "conv_2"]
    times.frame["iteration"] = [3, 3, 3]
    joined = join(load("metrics_two_devices.txt"), times)
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
    metrics, times = load("trace_metrics.csv"), load("trace.txt")
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
    metrics, times = load("metrics_two_devices.txt"), load("summary.txt")
    with pytest.raises(InputError, match="without metrics"):
        join(times, times)
    with pytest.raises(InputError, match="without times"):
        join(metrics, metrics)
    times.frame["kernel"] = ["other", "another"]
    with pytest.raises(InputError, match="no kernel in common"):
        join(metrics, times)


HEADER = (
    "Invocations                               Metric Name                        "
    "Metric Description         Min         Max         Avg\n"
)
PERCENT = [n for n in load_catalogue().names if load_catalogue()[n].nvprof_unit == "percent"]
LEVEL = [
    n for n in load_catalogue().names if load_catalogue()[n].nvprof_unit.startswith("utilization")
]
NAMES = st.from_regex(
    r"[a-z_]{1,12}(<int=[0-9]{1,3}>)?(\((int|float\*|, ){0,4}\))?", fullmatch=True
)


def metric_log(table: dict[str, tuple[int, dict[str, str]]]) -> str:
    lines = ["==7== Profiling result:\n==7== Metric result:\n", HEADER, 'Device "GPU (0)"\n']
    for kernel, (launches, metrics) in table.items():
        lines.append(f"    Kernel: {kernel}\n")
        for name, value in metrics.items():
            cells = "".join(f"{value:>12}" for _ in range(3))
            lines.append(f"{launches:>11}{name:>42}{'Some Description':>42}{cells}\n")
    return "".join(lines)


@given(
    st.dictionaries(
        NAMES,
        st.tuples(
            st.integers(1, 10**6),
            st.integers(0, 10_000),
            st.integers(0, 10),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(sorted(set(PERCENT) - {"gld_efficiency"})),
    st.sampled_from(LEVEL),
)
@examples(60)
def test_a_random_metrics_log_is_read_back(tmp_path_factory, rows, percent, level):
    words = {0: "Idle", 10: "Max"}
    table = {
        kernel: (
            launches,
            {percent: f"{share / 100:.2f}%", level: f"{words.get(grade, 'Mid')} ({grade})"},
        )
        for kernel, (launches, share, grade) in rows.items()
    }
    frame = parse(tmp_path_factory.mktemp("log"), metric_log(table)).frame
    assert frame["kernel"].tolist() == list(rows)
    assert frame["launches"].tolist() == [row[0] for row in rows.values()]
    np.testing.assert_allclose(frame[level], [row[2] / 10 for row in rows.values()])
    metric = load_catalogue()[percent]
    wanted = np.clip([row[1] / 10_000 for row in rows.values()], metric.low, metric.high)
    if metric.zero_undefined:
        wanted = np.where(wanted == 0, np.nan, wanted)
    np.testing.assert_allclose(frame[percent], wanted)


def test_a_very_long_line_is_read_in_linear_time(tmp_path):
    text = (DATA / "summary.txt").read_text() + "  1 a  " * 100_000 + "\n"
    assert len(parse(tmp_path, text).frame) == 2


if SHARED.is_dir():

    def test_public_v100_metrics_log():
        found = nvprof_text.read(Source(SHARED / "darknet19_v100_metrics_all.txt"))
        frame = found.frame
        assert len(frame) == 16
        assert len([name for name in metric_columns(frame) if frame[name].notna().any()]) >= 150
        first = frame.iloc[0]
        assert first["launches"] == 18
        assert first["warp_nonpred_execution_efficiency"] == pytest.approx(0.9369)
        assert first["gld_throughput"] == pytest.approx(281.84 * 2**30)
        assert first["l2_tex_read_hit_rate"] == pytest.approx(0.9342)
        assert frame["device"].unique().tolist() == ["Tesla V100-PCIE-32GB"]
        assert any("can't be profiled" in warning for warning in found.warnings)
        assert not any("not in the catalogue" in warning for warning in found.warnings)

    def test_public_titan_xp_trace():
        found = nvprof_text.read(Source(SHARED / "titanxp_babelstream_print_gpu_trace.txt"))
        assert len(found.frame) == 501
        assert found.provenance["memory_operations"] == 103
        assert found.frame["time_us"].iloc[:3].tolist() == pytest.approx([1678.2, 1239.6, 1237.6])
        dot = found.frame[found.frame["kernel"].str.startswith("void dot_kernel")]
        assert len(dot) == 100
        assert dot["grid"].unique().tolist() == ["(256, 1, 1)"]
        assert dot["shared_memory_per_block"].unique().tolist() == [8192]
        assert not found.frame["kernel"].str.contains(re.escape("[")).any()


def test_a_log_of_several_runs_is_several_runs(tmp_path):
    path = tmp_path / "log.txt"
    rows = []
    for process, time in ((101, "110.60ms"), (202, "460.00us")):
        rows += [
            f"=={process}== NVPROF is profiling process {process}, command: ./nbody",
            f"=={process}== Profiling result:",
            "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name",
            f" GPU activities:  100.00%  1.0s        10  {time}  1us  1s  bodyForce(float*)",
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
