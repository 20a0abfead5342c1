"""The reader of ``.ncu-rep`` files, on reports recorded for this project."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from perfml.errors import InputError, MissingExtraError
from perfml.metrics import PUBLISHED
from perfml.readers import ReadOptions, Source, read, recognise
from perfml.readers.ncu import report as ncu_report
from tests.support.answers import Answers
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.long

PUBLIC = ROOT.parent / "shared" / "data" / "public_profiles"


@pytest.fixture
def vectors(recorded):
    return recorded / "ncu" / "vectors.ncu-rep"


def test_a_report_is_recognised_by_its_content(vectors, tmp_path):
    renamed = tmp_path / "profile.bin"
    renamed.write_bytes(vectors.read_bytes())
    assert recognise(Source(renamed)) is ncu_report
    assert len(read(renamed).frame) == 7


def test_the_provenance_of_a_report_names_tool_and_device(vectors):
    provenance = read(vectors).provenance
    assert provenance["format"] == "ncu-report"
    assert provenance["tool"] == "ncu"
    assert provenance["tool_version"] == "2025.3.1"
    assert provenance["device"] == "NVIDIA H200"
    assert provenance["compute_capability"] == "9.0"
    assert provenance["path"] == "vectors.ncu-rep"


@pytest.mark.parametrize("name", ["vectors", "conv_03_cublas", "conv_03_range"])
def test_a_report_and_its_csv_export_agree(recorded, name):
    report = read(recorded / "ncu" / f"{name}.ncu-rep").frame
    export = read(recorded / "ncu" / f"{name}.csv").frame
    same = ["iteration", "layer", "kernel_index", "grid", "block", "device", "time_us"]
    pd.testing.assert_frame_equal(report[same], export[same])
    metrics = [metric for metric in PUBLISHED if metric in export.columns]
    assert metrics == [metric for metric in PUBLISHED if metric in report.columns]
    # The export has six decimals of a per cent.
    np.testing.assert_allclose(report[metrics], export[metrics], rtol=0, atol=6e-8)


def test_a_result_of_a_whole_range_is_read_with_a_warning(recorded):
    kernels = read(recorded / "ncu" / "conv_03_range.ncu-rep")
    assert kernels.frame["layer"].tolist() == ["conv_03"]
    assert kernels.frame["time_us"].tolist() == [617.92]
    said = "1 result is a whole range, graph or command list, measured and read as one launch."
    assert said in kernels.warnings


def test_raw_columns_are_kept_on_request(vectors):
    frame = read(vectors, ReadOptions(raw=True)).frame
    assert frame["gpu__time_duration.sum"].iloc[0] == 4928
    assert frame["launch__thread_count"].iloc[0] == 4096 * 256
    assert frame["device__attribute_display_name"].iloc[0] == "NVIDIA H200"


def test_without_the_package_the_error_names_the_extra(vectors, monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[ncu\]'"):
        read(vectors)


def test_a_cut_report_is_an_error(vectors, tmp_path):
    # In a process of its own: the package is native code, and prints what it cannot parse.
    cuts = [tmp_path / f"{kept}.ncu-rep" for kept in (5, 100, 5_000, 60_000, 120_000, 152_000)]
    for cut in cuts:
        cut.write_bytes(vectors.read_bytes()[: int(cut.stem)])
    program = (
        "import sys; from perfml.readers import read\n"
        "from perfml.errors import InputError\n"
        "for path in sys.argv[1:]:\n"
        "    try: read(path)\n"
        "    except InputError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, cuts)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(cuts)
    for cut, line in zip(cuts, lines[::2], strict=True):
        assert line.startswith(f"{cut}: no readable Nsight Compute report (found: ")


# Reports as the package shows them


def metric(value, unit=""):
    return Answers(has_value=value is not None, kind=4, unit=unit, as_double=float(value or 0))


def domain(pushed, started=(), name="<default domain>"):
    return Answers(name=name, push_pop_ranges=tuple(pushed), start_end_ranges=tuple(started))


def state(*domains):
    return Answers(domains=tuple(range(len(domains))), domain_by_id=domains.__getitem__)


def rule(speedup):
    return Answers(
        rule_identifier="Coalescing",
        section_identifier="Memory",
        has_rule_message=True,
        rule_message={"title": "t", "message": "Read in order.", "type": 2},
        has_speedup_estimation=speedup is not None,
        speedup_estimation={"type": 2, "speedup": speedup},
    )


def launch(metrics, ranges=None, rules=(), name="gemm"):
    return Answers(
        name=name,
        workload_type=0,
        metric_names=tuple(metrics),
        metric_by_name=metrics.get,
        nvtx_state=ranges,
        rule_results=rules,
    )


def results(*launches):
    """Return the results of one range of a report."""
    return Answers(num_actions=len(launches), action_by_idx=launches.__getitem__)


def report_of(*ranges):
    return Answers(num_ranges=len(ranges), range_by_idx=ranges.__getitem__)


DURATION = {"gpu__time_duration.sum": metric(1000, "ns")}


@pytest.fixture
def reading(monkeypatch, tmp_path):
    """Return a function that writes a report as made above, and gives its path."""
    import ncu_report as package

    def run(report):
        path = tmp_path / "made.ncu-rep"
        path.write_bytes(b"NVR\x00 2024.1.0.0 (build 1) made for a test")
        monkeypatch.setattr(package, "load_report", lambda _: report)
        return path

    return run


def test_all_launches_of_all_ranges_are_read_in_order(reading):
    def named(name, nanoseconds):
        return launch({"gpu__time_duration.sum": metric(nanoseconds, "ns")}, name=name)

    report = report_of(results(named("a", 1000), named("b", 2500)), results(named("c", 4000)))
    frame = read(reading(report)).frame
    assert frame["kernel"].tolist() == ["a", "b", "c"]
    assert frame["time_us"].tolist() == [1.0, 2.5, 4.0]


def test_a_metric_that_a_launch_lacks_is_missing_there(reading):
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    actions = [
        launch(DURATION),
        launch({**DURATION, occupancy: metric(50.0, "%")}),
        launch({**DURATION, occupancy: metric(None, "%")}),
    ]
    values = read(reading(report_of(results(*actions)))).frame["achieved_occupancy"]
    assert values.isna().tolist() == [True, False, True]
    assert values.iloc[1] == 0.5


def test_ranges_of_every_domain_surround_a_launch_start_end_outermost(reading):
    ranges = state(domain(["iter_2", "block"], ["epoch"]), domain(["conv"]))
    frame = read(reading(report_of(results(launch(DURATION, ranges))))).frame
    assert frame["iteration"].tolist() == [2]
    assert frame["layer"].tolist() == ["epoch/block/conv"]


def test_ranges_of_libraries_divide_no_layer(reading):
    ranges = state(domain(["iter_2", "block"]), domain(["cub::DeviceReduce::Sum"], name="CCCL"))
    alone = state(domain([]), domain(["cub::DeviceReduce::Sum"], name="CCCL"))
    found = read(reading(report_of(results(launch(DURATION, ranges), launch(DURATION, alone)))))
    assert found.frame["layer"].tolist() == ["block", "cub::DeviceReduce::Sum"]


def test_rules_are_kept_best_first_and_once_a_kernel(reading):
    actions = [
        launch(DURATION, rules=[rule(None)], name="a"),
        launch(DURATION, rules=[rule(5.0)], name="b"),
        launch(DURATION, rules=[rule(40.0)], name="b"),
    ]
    path = reading(report_of(results(*actions)))
    found = read(path).provenance["rules"]
    assert [(rule["launch"], rule["speedup"]) for rule in found] == [(2, 40.0), (0, None)]
    assert found[0]["scope"] == "global"
    table = ncu_report.rules(Source(path))
    assert table["speedup"].tolist()[1:] == [5.0, 40.0]
    assert table["message"].unique().tolist() == ["Read in order."]


def test_a_report_without_kernels_is_an_error(reading):
    for report in (report_of(), report_of(results())):
        with pytest.raises(InputError, match="no results of kernels"):
            read(reading(report))


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="public profiles may be read, not committed")
def test_public_reports_of_other_gpus_and_versions_are_read():
    first = read(PUBLIC / "nvidia_sample_manual_nvtx.ncu-rep")
    assert first.frame["layer"].tolist() == [
        "run_test/init_data",
        "run_test/daxpy",
        "run_test/check_results",
    ]
    assert first.frame["time_us"].tolist() == [84.48, 249.216, 88.512]
    assert first.provenance["tool_version"] == "2022.3.0"
    second = read(PUBLIC / "rtx2060s_histogram_10_launches.ncu-rep")
    assert len(second.frame) == 10
    assert second.frame["time_us"].iloc[0] == 353.792
    assert second.provenance["rules"][0]["rule"] == "AchievedOccupancy"
    assert "dram_utilization" in second.provenance["substituted"]
