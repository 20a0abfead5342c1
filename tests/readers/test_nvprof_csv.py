"""The reader of nvprof's CSV output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfml.errors import InputError
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof import text_log as nvprof_text
from perfml.readers.nvprof.kernels import join
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "nvprof"
SHARED = ROOT.parent / "shared" / "data" / "public_profiles"
IM2COL = "void im2col<float, bool=1>(float const *, float*, int)"


def load(name: str, raw: bool = False) -> Kernels:
    return nvprof_csv.read(Source(DATA / name), ReadOptions(raw=raw))


def parse(folder: Path, text: str | bytes) -> Kernels:
    path = folder / "out.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return nvprof_csv.read(Source(path))


def test_metrics_are_averages_with_their_own_units():
    found = load("metrics.csv")
    frame = found.frame
    assert frame["kernel"].tolist() == [IM2COL, "gemm"]
    assert frame["launches"].tolist() == [3, 1]
    assert frame["device"].tolist() == ["Tesla K20c"] * 2
    np.testing.assert_allclose(frame["achieved_occupancy"], [0.850643, 0.25])
    np.testing.assert_allclose(frame["gld_efficiency"], [0.83340104, 1])
    np.testing.assert_allclose(frame["l2_utilization"], [0.5, 0])
    np.testing.assert_allclose(frame["gld_throughput"], [2 * 2**30, 1024])
    assert frame["time_us"].isna().all()
    assert any("1 lines inside" in warning and "line 7" in warning for warning in found.warnings)
    assert found.provenance["format"] == "nvprof-csv"
    assert found.provenance["command"] == "./net"


def test_raw_keeps_minimum_and_maximum_in_canonical_units():
    frame = load("metrics.csv", raw=True).frame
    np.testing.assert_allclose(frame["l2_utilization_max"], [1.0, 0.0])
    np.testing.assert_allclose(frame["gld_throughput_min"], [2**30, 1024])


def test_summary_times_follow_the_units_row_column_by_column():
    found = load("summary.csv")
    assert found.frame["kernel"].tolist() == [IM2COL, "gemm"]
    np.testing.assert_allclose(found.frame["time_us"], [100, 50])
    assert found.frame["launches"].tolist() == [3, 1]
    assert found.provenance["memory_operations"] == 2


def test_trace_has_launches_with_sizes_and_bytes_by_unit():
    found = load("trace.csv")
    frame = found.frame
    assert frame["kernel"].tolist() == ["gemm", IM2COL]
    np.testing.assert_allclose(frame["time_us"], [12.5, 25])
    assert frame["grid"].tolist() == ["(64, 2, 1)", "(128, 1, 1)"]
    assert frame["block"].tolist() == ["(256, 1, 1)", "(32, 4, 1)"]
    assert frame["shared_memory_per_block"].tolist() == [1.5 * 1024 + 512, 0]
    assert frame["registers_per_thread"].tolist() == [32, 16]
    assert any("3 records have invalid timestamps" in warning for warning in found.warnings)


def test_trace_with_metrics_has_one_row_a_launch_and_no_time():
    frame = load("trace_metrics.csv").frame
    assert frame["kernel"].tolist() == ["gemm", IM2COL]
    np.testing.assert_allclose(frame["achieved_occupancy"], [0.5, 0.25])
    np.testing.assert_allclose(frame["gld_throughput"], [2 * 2**30, 2**30])
    np.testing.assert_allclose(frame["dram_utilization"], [1.0, 0.1])
    np.testing.assert_allclose(frame["stall_sync"], [0.125, 0])
    assert frame["time_us"].isna().all()


def test_repeated_launches_keep_their_own_times_when_traces_join():
    metrics, times = load("trace_metrics.csv"), load("trace.csv")
    for side in (metrics, times):
        side.frame["kernel"] = "gemm"
    joined = join(metrics, times)
    assert joined.frame["time_us"].tolist() == [12.5, 25]


def test_metrics_and_summary_join_without_a_difference():
    joined = join(load("metrics.csv"), load("summary.csv"))
    np.testing.assert_allclose(joined.frame["time_us"], [100, 50])
    assert not any("invocations differs" in warning for warning in joined.warnings)


def test_a_csv_behind_much_program_output_is_found_by_the_text_reader(tmp_path):
    lines = (DATA / "summary.csv").read_text().splitlines(keepends=True)
    path = tmp_path / "late.csv"
    path.write_text(lines[0] + "epoch done, all is well\n" * 4000 + "".join(lines[1:]))
    source = Source(path)
    assert not nvprof_csv.recognises(source)
    assert nvprof_text.recognises(source)
    assert len(nvprof_text.read(source).frame) == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("metrics.csv", '"Mid (5)"', '"Mid (x)"', 9),
        ("metrics.csv", ',3,"gld_efficiency"', ',three,"gld_efficiency"', 8),
        ("metrics.csv", '"Tesla K20c (0)","gemm",1,"l2', '"Tesla K20c (0)"gemm",1,"l2', 13),
        ("summary.csv", ",%,ms,,us,ns,s,\n", "", 5),
        ("summary.csv", ",50.000000,", ",5o.000000,", 7),
        ("trace.csv", ",64,2,1,", ",64,,1,", 6),
        ("trace.csv", ",12.500000,", ",,", 6),
        ("trace_metrics.csv", '"Max (10)"', '"Max (100)"', 6),
    ],
)
def test_a_damaged_row_is_an_error_with_its_line(tmp_path, name, old, new, line):
    text = (DATA / name).read_text()
    assert text.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse(tmp_path, text.replace(old, new))
    assert str(caught.value.where).endswith(f":{line}")


def test_a_csv_with_only_fills_has_these(tmp_path):
    lines = (DATA / "summary.csv").read_text().splitlines(keepends=True)
    frame = parse(tmp_path, "".join(lines[:5] + lines[7:8])).frame
    assert frame[["kernel", "launches"]].to_numpy().tolist() == [["[CUDA memset]", 2]]


def test_unknown_metrics_are_named_and_left_out(tmp_path):
    text = (DATA / "metrics.csv").read_text().replace("l2_utilization", "l9_utilization")
    found = parse(tmp_path, text)
    assert "l9_utilization" not in found.frame
    assert any("not in the catalogue" in w and "l9_utilization" in w for w in found.warnings)


if SHARED.is_dir():

    def test_public_summary_with_unified_memory():
        source = Source(SHARED / "titanxp_cfd_gpu_summary_unified_memory.csv")
        assert nvprof_csv.recognises(source)
        found = nvprof_csv.read(source)
        assert found.frame["launches"].tolist() == [6000, 6000, 2000, 3]
        np.testing.assert_allclose(found.frame["time_us"], [44.725, 14.68, 7.047, 252.287])
        assert found.provenance["memory_operations"] == 2006
        assert found.provenance["processes"] == [308050]


def test_metrics_have_one_name_whichever_nvprof_wrote_them(tmp_path):
    # as nvprof with a GTX 1080 Ti wrote them: sm_activity and executed_ipc
    head = '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
    lines = (
        '"G (0)","k",1,"sm_activity","Multiprocessor Activity",95.4%,95.4%,95.4%\n'
        '"G (0)","k",1,"executed_ipc","Executed IPC",2.25,2.25,2.25\n'
    )
    path = tmp_path / "log.csv"
    path.write_text("==7== Profiling result:\n==7== Metric result:\n" + head + lines)
    found = nvprof_csv.read(Source(path))
    assert found.frame["sm_efficiency"].tolist() == [pytest.approx(0.954)]
    assert found.frame["ipc"].tolist() == [2.25]
    assert not any("catalogue" in text for text in found.warnings)
