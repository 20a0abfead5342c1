"""Every spelling of a metric that a report may hold is read, and is on the scale of the metric."""

import numpy as np
import pandas as pd
import pytest

from perfml.metrics import STALLS, load_catalogue
from perfml.readers import ReadOptions, read
from tests.support.paths import DATA, PUBLIC

RELATIVE, PER_CENT = 0.15, 0.12
"""How far a substitute may be off: of the value, and in points, the noise between two passes."""

BEFORE_2020 = ("smsp__warp_cycles_per_issue_", "_sum", "_per_active_cycle", "_per_sec")
OLD_NAMES = frozenset(
    {
        "dram__read_bytes",
        "dram__write_bytes",
        "dram__read_sectors",
        "dram__write_sectors",
        "dram__read_pct",
        "dram__write_pct",
        "smsp__inst_executed_tex_ops",
        "smsp__thread_inst_executed_per_inst_executed",
        "smsp__thread_inst_executed_not_pred_off_per_inst_executed",
        "sm__active_warps_avg_per_active_cycle_pct",
        "smsp__issue_active_per_active_cycle_pct",
    }
)
NEVER_HAPPENED = {
    "stall_sleeping",
    "stall_gmma",
    "stall_membar",
    "flop_count_dp_mul",
    "flop_count_hp_add",
    "flop_count_hp_mul",
}
"""What no launch with both forms does: a sleeping warp, a wgmma, a fence, a bare multiplication."""

NOT_RECORDED = {
    "smsp__sass_inst_executed_op_ldgsts.sum",
    "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
}
"""The first is compared on a GPU (``tests/gpu/test_cupti_on_a_gpu.py``). The second and its writes
were 67.8 and 20.9 % in a stranger's report whose busiest part of memory was at 88.8 %."""

GPC_CYCLES = "gpc__cycles_elapsed.max"
BREAKDOWN = ".avg.pct_of_peak_sustained_elapsed"
"""How a part of the throughput is spelled, which the section SpeedOfLight holds of every launch."""

WAITING_COPIES = ("copies_only", "scattered_copies_and_loads", "wide_copies")
SHARED_LOADS = {"inst_executed_shared_loads", "shared_load_transactions_per_request"}


@pytest.fixture(scope="module")
def both_forms():
    """Launches with every spelling, as raw counters in base units."""
    return read(DATA / "ncu" / "both_forms.csv.xz", ReadOptions(raw=True)).frame


def lookup(frame):
    def column(name):
        if name in frame.columns:
            return frame[name].to_numpy(dtype=float, na_value=np.nan)
        base = name.removesuffix(".pct")
        return 100 * column(f"{base}.ratio") / column(f"{base}.max_rate")

    return column


def held(frame, formula):
    return set(formula.names) <= set(frame.columns)


def is_old(name):
    return name in OLD_NAMES or (name.endswith(BEFORE_2020[1:]) or name.startswith(BEFORE_2020[0]))


def is_breakdown(formula):
    return formula.names[0].startswith("sm__") and formula.names[0].endswith(BREAKDOWN)


def spelled():
    catalogue = load_catalogue()
    for metric in map(catalogue.__getitem__, catalogue.names):
        for formula in metric.substitutes:
            yield pytest.param(metric, formula, id=f"{metric.name}: {formula.text[:60]}")


def substitutes():
    return [
        each
        for each in spelled()
        if not any(map(is_old, each.values[1].names))
        and not NOT_RECORDED & set(each.values[1].names)
        and not is_breakdown(each.values[1])
        and GPC_CYCLES not in each.values[1].names
    ]


@pytest.mark.parametrize(("metric", "substitute"), substitutes())
def test_a_substitute_is_on_the_scale_of_what_it_replaces(both_forms, metric, substitute):
    launches = both_forms
    if metric.name in SHARED_LOADS:  # see the next test
        launches = launches[~launches["kernel"].str.startswith(WAITING_COPIES)]
    assert held(launches, metric.ncu)
    assert held(launches, substitute)
    asked, instead = (
        np.broadcast_to(formula(lookup(launches)), len(launches))
        for formula in (metric.ncu, substitute)
    )
    both = ~np.isnan(asked) & ~np.isnan(instead)
    if metric.name not in NEVER_HAPPENED:
        assert (asked[both] > 0).any()
    floor = PER_CENT if metric.kind in {"fraction", "level"} else 0.0
    assert instead[both] == pytest.approx(asked[both], rel=RELATIVE, abs=floor)


@pytest.fixture(scope="module")
def full_set():
    """Launches that hold the parts of the throughput and what they stand in for."""
    return read(DATA / "ncu" / "breakdown.csv.xz", ReadOptions(raw=True)).frame


@pytest.mark.parametrize(
    ("metric", "formula"), [each for each in spelled() if is_breakdown(each.values[1])]
)
def test_a_part_of_the_throughput_is_the_metric_that_was_counted(full_set, metric, formula):
    counted = next(
        each
        for each in (metric.ncu, *metric.substitutes)
        if held(full_set, each) and not is_breakdown(each)
    )
    expected, found = (each(lookup(full_set)) for each in (counted, formula))
    used = expected > 1e-3 * np.nanmax(expected)
    np.testing.assert_allclose(found[~used], 0, atol=0.01)
    assert used.any() == (metric.name != "double_precision_fu_utilization")  # it holds no doubles
    ratio = found[used] / expected[used]
    if "smsp__cycles_elapsed.avg" in formula.names:
        np.testing.assert_allclose(ratio, 1, rtol=0.002)
    else:
        # cycles of another pass, in which a kernel of some microseconds takes another time
        assert not used.any() or np.median(ratio) == pytest.approx(1, abs=0.1)
        assert ((ratio > 0.4) & (ratio < 1.3)).all()


def test_what_is_asked_for_instead_is_a_substitute():
    catalogue = load_catalogue()
    asked = [metric for metric in map(catalogue.__getitem__, catalogue.names) if metric.asked]
    assert len(asked) == 3
    for metric in asked:
        assert metric.asked.text in {each.text for each in metric.substitutes}
        assert set(metric.asked.names) <= set(catalogue.ncu_request([metric.name]))


def test_loads_and_copies_together_are_weighed_by_their_bytes(both_forms):
    names = ["gld_efficiency", "ldgsts_efficiency", "global_load_bytes_efficiency"]
    found = load_catalogue().evaluate(both_forms, names).frame
    found.index = both_forms["kernel"].str.split("(").str[0]
    nan = float("nan")
    # 32 lanes ask for 4 bytes each: 4 sectors if they are neighbours, 32 if they are scattered
    expected = {
        "copies_only": [nan, 1, 1],
        "scattered_copies_and_loads": [1, 4 / 32, (128 + 128) / (32 * (4 + 32))],
        "scattered_loads": [4 / 32, nan, 4 / 32],
        "atomics": [nan, nan, nan],
    }
    for kernel, values in expected.items():
        np.testing.assert_allclose(found.loc[kernel], values, rtol=1e-4)


def test_the_load_unit_of_a_multiprocessor_is_brought_to_the_scale_of_its_partitions(both_forms):
    unit = both_forms["kernel"].str.startswith("scattered_loads").idxmax()
    whole = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
    asked = both_forms.loc[[unit]].drop(
        columns="smsp__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
    )
    found = load_catalogue().evaluate(asked, ["ldst_fu_utilization"]).columns
    assert found["ldst_fu_utilization"][0] < 0.3 * asked[whole].iloc[0] / 100


def test_operations_are_derived_from_a_full_set_report(both_forms):
    launches = both_forms.drop(
        columns=[name for name in both_forms if name.endswith("_pred_on.sum")]
    )
    found = load_catalogue().evaluate(launches, ["flop_count_dp", "flop_count_sp"])
    operations = dict(
        zip(launches["kernel"].str.split("(").str[0], found.columns["flop_count_dp"], strict=True)
    )
    threads, rounds = 528 * 256, 512
    # two fused multiply-adds a round
    assert operations["double_fma"] == pytest.approx(threads * rounds * 2 * 2, rel=0.01)
    assert "per_cycle_elapsed" in found.substituted["flop_count_dp"]


def test_shared_loads_are_known_under_the_spelling_of_a_full_set():
    for name in ("smsp__sass_inst_executed_op_shared_ld.sum", "sass__inst_executed_shared_loads"):
        found = load_catalogue().evaluate(
            pd.DataFrame({name: [7.0]}), ["inst_executed_shared_loads"]
        )
        assert found.columns["inst_executed_shared_loads"].tolist() == [7.0]


def test_counters_of_ncu_2019_are_known_under_their_names():
    """Values that ncu 2019 recorded of a kernel on a GTX 1080."""
    raw = {
        "dram__read_bytes": [386528.0],
        "smsp__inst_executed_sum": [482008452.0],
        "sm__active_warps_avg_per_active_cycle_pct": [5.584475350374015],
        "smsp__thread_inst_executed_per_inst_executed": [19.23148583294967],
        "smsp__warp_cycles_per_issue_stall_long_scoreboard": [9.771189832465524],
        "smsp__warp_cycles_per_issue_active": [18.852599791194987],
    }
    found = load_catalogue().evaluate(pd.DataFrame(raw)).columns
    assert found["dram_read_bytes"][0] == 386528
    assert found["inst_executed"][0] == 482008452
    assert found["achieved_occupancy"][0] == pytest.approx(0.0558, abs=1e-4)
    assert found["warp_execution_efficiency"][0] == pytest.approx(0.601, abs=1e-3)
    assert found["stall_memory_dependency"][0] == pytest.approx(0.518, abs=1e-3)


if PUBLIC.is_dir():

    def test_a_report_of_ncu_2019_has_its_time_and_stalls_that_fill_the_whole():
        pytest.importorskip("ncu_report", reason="needs the extra ncu")
        kernels = read(PUBLIC / "pmkid_2019.nsight-cuprof-report.xz")
        row = kernels.frame.iloc[0]
        assert row["time_us"] == pytest.approx(1288368.224)
        stalls = [name for name in row.index if name in STALLS]
        # what is left are reasons of that time, such as waiting for an allocation
        assert 0.95 < row[stalls].astype(float).sum() <= 1.0

    def test_a_report_of_the_default_set_tells_instructions_and_pipes_as_derived():
        pytest.importorskip("ncu_report", reason="needs the extra ncu")
        kernels = read(PUBLIC / "rtx2060s_histogram_10_launches.ncu-rep", ReadOptions(raw=True))
        launches = kernels.frame
        assert "smsp__inst_executed.sum" not in launches.columns
        pipes = {"alu_utilization", "single_precision_fu_utilization", "issue_slot_utilization"}
        assert {"inst_executed", "ipc", *pipes} <= set(kernels.provenance["substituted"])
        # instructions a cycle and multiprocessor, told by two formulas
        cycles = (
            launches["sm_active_cycles_mean"]
            * kernels.provenance["device_facts"]["multiprocessors"]
        )
        np.testing.assert_allclose(launches["inst_executed"] / cycles, launches["ipc"], rtol=1e-6)
        assert launches["ipc"].between(0.01, 4).all()
