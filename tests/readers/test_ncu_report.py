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


@pytest.mark.parametrize("kept", [5, 100, 5_000, 60_000, 120_000, 152_000])
def test_a_cut_report_is_an_error(vectors, tmp_path, kept):
    # In a process of its own: the package is native code, and prints what it cannot parse.
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(vectors.read_bytes()[:kept])
    program = (
        "import sys; from perfml.readers import read\n"
        "from perfml.errors import InputError\n"
        "try: read(sys.argv[1])\n"
        "except InputError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(cut)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{cut}: no readable Nsight Compute report (found: ")
    assert len(lines) == 2


class Metric:
    """A metric as the package shows it."""

    def __init__(self, value, unit=""):
        self._value, self._unit = value, unit

    def has_value(self):
        return self._value is not None

    def kind(self):
        return 2 if isinstance(self._value, str) else 4

    def unit(self):
        return self._unit

    def as_double(self):
        return float(self._value or 0)

    def as_string(self):
        return self._value


class Domain:
    def __init__(self, pushed, started=(), name="<default domain>"):
        self._pushed, self._started, self._name = pushed, started, name

    def name(self):
        return self._name

    def push_pop_ranges(self):
        return tuple(self._pushed)

    def start_end_ranges(self):
        return tuple(self._started)


class State:
    def __init__(self, *domains):
        self._domains = domains

    def domains(self):
        return tuple(range(len(self._domains)))

    def domain_by_id(self, number):
        return self._domains[number]


class Rule:
    def __init__(self, speedup):
        self._speedup = speedup

    def rule_identifier(self):
        return "Coalescing"

    def section_identifier(self):
        return "Memory"

    def has_rule_message(self):
        return True

    def rule_message(self):
        return {"title": "t", "message": "Read in order.", "type": 2}

    def has_speedup_estimation(self):
        return self._speedup is not None

    def speedup_estimation(self):
        return {"type": 2, "speedup": self._speedup}


class Action:
    def __init__(self, metrics, state=None, rules=(), name="gemm"):
        self._metrics, self._state, self._rules, self._name = metrics, state, rules, name

    def name(self, base=0):
        return self._name

    def workload_type(self):
        return 0

    def metric_names(self):
        return tuple(self._metrics)

    def metric_by_name(self, name):
        return self._metrics.get(name)

    def nvtx_state(self):
        return self._state

    def rule_results(self):
        return self._rules


class Range:
    def __init__(self, *actions):
        self._actions = actions

    def num_actions(self):
        return len(self._actions)

    def action_by_idx(self, index):
        return self._actions[index]


class Report:
    def __init__(self, *ranges):
        self._ranges = ranges

    def num_ranges(self):
        return len(self._ranges)

    def range_by_idx(self, index):
        return self._ranges[index]


@pytest.fixture
def reading(monkeypatch, tmp_path):
    """Return a function that reads a report made of the classes above."""
    import ncu_report as package

    def run(report):
        path = tmp_path / "made.ncu-rep"
        path.write_bytes(b"NVR\x00 2024.1.0.0 (build 1) made for a test")
        monkeypatch.setattr(package, "load_report", lambda _: report)
        return path

    return run


def test_all_launches_of_all_ranges_are_read_in_order(reading):
    def action(name, nanoseconds):
        return Action({"gpu__time_duration.sum": Metric(nanoseconds, "ns")}, name=name)

    report = Report(Range(action("a", 1000), action("b", 2500)), Range(action("c", 4000)))
    frame = read(reading(report)).frame
    assert frame["kernel"].tolist() == ["a", "b", "c"]
    assert frame["time_us"].tolist() == [1.0, 2.5, 4.0]


def test_older_reports_with_ratio_and_largest_rate_give_the_per_cent(reading):
    base = "smsp__thread_inst_executed_per_inst_executed"
    metrics = {
        "gpu__time_duration.sum": Metric(1000, "ns"),
        f"{base}.ratio": Metric(24.0),
        f"{base}.max_rate": Metric(32),
    }
    frame = read(reading(Report(Range(Action(metrics))))).frame
    assert frame["warp_execution_efficiency"].tolist() == [0.75]


def test_a_metric_that_a_launch_lacks_is_missing_there(reading):
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    duration = {"gpu__time_duration.sum": Metric(1000, "ns")}
    actions = [
        Action(duration),
        Action({**duration, occupancy: Metric(50.0, "%")}),
        Action({**duration, occupancy: Metric(None, "%")}),
    ]
    values = read(reading(Report(Range(*actions)))).frame["achieved_occupancy"]
    assert values.isna().tolist() == [True, False, True]
    assert values.iloc[1] == 0.5


def test_ranges_of_every_domain_surround_a_launch_start_end_outermost(reading):
    state = State(Domain(["iter_2", "block"], ["epoch"]), Domain(["conv"]))
    action = Action({"gpu__time_duration.sum": Metric(1000, "ns")}, state)
    frame = read(reading(Report(Range(action)))).frame
    assert frame["iteration"].tolist() == [2]
    assert frame["layer"].tolist() == ["epoch/block/conv"]


def test_ranges_of_libraries_divide_no_layer(reading):
    state = State(Domain(["iter_2", "block"]), Domain(["cub::DeviceReduce::Sum"], name="CCCL"))
    alone = State(Domain([]), Domain(["cub::DeviceReduce::Sum"], name="CCCL"))
    duration = {"gpu__time_duration.sum": Metric(1000, "ns")}
    found = read(reading(Report(Range(Action(duration, state), Action(duration, alone)))))
    assert found.frame["layer"].tolist() == ["block", "cub::DeviceReduce::Sum"]


def test_rules_are_kept_best_first_and_once_a_kernel(reading):
    duration = {"gpu__time_duration.sum": Metric(1000, "ns")}
    actions = [
        Action(duration, rules=[Rule(None)], name="a"),
        Action(duration, rules=[Rule(5.0)], name="b"),
        Action(duration, rules=[Rule(40.0)], name="b"),
    ]
    path = reading(Report(Range(*actions)))
    found = read(path).provenance["rules"]
    assert [(rule["launch"], rule["speedup"]) for rule in found] == [(2, 40.0), (0, None)]
    assert found[0]["scope"] == "global"
    table = ncu_report.rules(Source(path))
    assert table["speedup"].tolist()[1:] == [5.0, 40.0]
    assert table["message"].unique().tolist() == ["Read in order."]


def test_a_report_without_kernels_is_an_error(reading):
    for report in (Report(), Report(Range())):
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
