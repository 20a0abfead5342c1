import csv
from collections import Counter
from importlib import resources

import numpy as np
import pandas as pd
import pytest

from perfml.errors import PerfmlError
from perfml.metrics import PUBLISHED, clock_of, load_catalogue

GLD = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
GLD_GUARD = "smsp__sass_inst_executed_op_global_ld.sum"
LDGSTS = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ldgsts.pct"
STALL = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue()


def test_it_holds_all_187_nvprof_metrics_and_perfmls_own(catalogue):
    origins = pd.Series([catalogue[name].origin for name in catalogue.names]).value_counts()
    assert origins["nvprof"] == 187
    assert origins["perfml"] >= 10


def test_names_are_unique():
    text = resources.files("perfml.metrics").joinpath("catalogue.csv").read_text(encoding="utf-8")
    names = [row["name"] for row in csv.DictReader(text.splitlines())]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("column", "words"),
    {
        "kind": {"count", "fraction", "level", "bytes", "rate", "ratio"},
        "merge": {"time_weighted", "sum", "max"},
        "better": {"lower", "higher", "neither"},
        "exactness": {"exact", "close", "approximate", "none"},
        "origin": {"nvprof", "perfml"},
    }.items(),
)
def test_every_row_uses_words_that_the_merge_and_the_readers_know(catalogue, column, words):
    unknown = {name: getattr(catalogue[name], column) for name in catalogue.names}
    unknown = {name: word for name, word in unknown.items() if word not in words}
    assert not unknown, f"column {column} of catalogue.csv holds one of {sorted(words)}"


def test_a_family_has_more_than_one_metric(catalogue):
    families = Counter(catalogue[name].family for name in catalogue.names)
    assert min(families.values()) > 1, families


def test_an_unknown_metric_names_the_nearest(catalogue):
    with pytest.raises(PerfmlError, match="Did you mean gld_efficiency"):
        catalogue["gld_eficiency"]


def test_the_request_for_the_published_metrics_has_guards_and_the_duration(catalogue):
    request = catalogue.ncu_request()
    assert {GLD, GLD_GUARD, "gpu__time_duration.sum"} <= set(request)
    assert len(request) == len(set(request)) == 26
    assert not any(name.startswith("launch__") for name in request)


def test_asking_ncu_for_a_metric_without_counterpart_is_an_error(catalogue):
    with pytest.raises(PerfmlError, match="no counterpart of sysmem_read_utilization"):
        catalogue.ncu_request(["sysmem_read_utilization"])


def test_percents_become_fractions(catalogue):
    found = catalogue.evaluate(pd.DataFrame({STALL: [57.5]}), ["stall_memory_dependency"])
    assert found.frame["stall_memory_dependency"].tolist() == [pytest.approx(0.575)]


def test_a_guard_of_zero_makes_an_efficiency_undefined(catalogue):
    raw = pd.DataFrame({GLD: [0.0, 82.5], GLD_GUARD: [0.0, 10.0]})
    found = catalogue.evaluate(raw, ["gld_efficiency"])
    assert np.isnan(found.frame["gld_efficiency"][0])
    assert found.frame["gld_efficiency"][1] == pytest.approx(0.825)
    assert found.undefined == {"gld_efficiency": 1}


def test_without_its_guard_a_zero_efficiency_is_undefined_too(catalogue):
    found = catalogue.evaluate(pd.DataFrame({GLD: [0.0]}), ["gld_efficiency"])
    assert np.isnan(found.frame["gld_efficiency"][0])


def test_asynchronous_copies_have_their_own_efficiency_and_leave_that_of_loads_alone(catalogue):
    raw = pd.DataFrame({GLD: [0.0, 50.0], GLD_GUARD: [0.0, 4.0], LDGSTS: [100.0, 0.0]})
    found = catalogue.evaluate(raw, ["gld_efficiency", "ldgsts_efficiency"]).frame
    np.testing.assert_equal(found["gld_efficiency"].to_numpy(), [np.nan, 0.5])
    np.testing.assert_equal(found["ldgsts_efficiency"].to_numpy(), [1.0, np.nan])


def test_the_default_set_asks_for_both_efficiencies_of_what_is_read_from_global_memory(catalogue):
    assert {GLD, LDGSTS} <= set(catalogue.ncu_request(["default"]))
    assert LDGSTS not in catalogue.ncu_request(["published"])


def test_a_zero_of_an_ordinary_metric_stays_zero(catalogue):
    found = catalogue.evaluate(pd.DataFrame({STALL: [0.0]}), ["stall_memory_dependency"])
    assert found.frame["stall_memory_dependency"].tolist() == [0.0]


def test_values_beyond_their_limit_are_clipped_and_counted(catalogue):
    raw = pd.DataFrame(
        {
            "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct": [149.7, 30.0],
            "smsp__sass_inst_executed_op_shared.sum": [5.0, 5.0],
        }
    )
    found = catalogue.evaluate(raw, ["shared_efficiency"])
    assert found.frame["shared_efficiency"].tolist() == [1.0, 0.3]
    assert found.clipped == {"shared_efficiency": 1}


def test_a_full_set_report_gives_stalls_through_the_stated_substitute(catalogue):
    raw = pd.DataFrame(
        {
            "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": [4.0],
            "smsp__average_warp_latency_per_inst_issued.ratio": [8.0],
        }
    )
    found = catalogue.evaluate(raw, ["stall_memory_dependency"])
    assert found.frame["stall_memory_dependency"].tolist() == [0.5]
    assert "latency" in found.substituted["stall_memory_dependency"]


def test_the_breakdown_of_a_default_set_gives_instructions_and_busy_pipes(catalogue):
    elapsed = "avg.pct_of_peak_sustained_elapsed"
    raw = pd.DataFrame(
        {
            f"sm__inst_executed.{elapsed}": [40.0],
            f"sm__issue_active.{elapsed}": [40.0],
            f"sm__pipe_fp64_cycles_active.{elapsed}": [12.0],
            "device__attribute_multiprocessor_count": [100.0],
            "gpc__cycles_elapsed.max": [1e6],
            "sm__cycles_active.avg": [5e5],
        }
    )
    names = ["inst_executed", "ipc", "issue_slot_utilization", "sm_efficiency"]
    found = catalogue.evaluate(raw, [*names, "double_precision_fu_utilization"])
    # 40 % of four a cycle on each of 100 multiprocessors, which have warps half of the time
    assert found.frame[names].iloc[0].tolist() == pytest.approx([1.6e8, 3.2, 0.8, 0.5])
    assert found.frame["double_precision_fu_utilization"].tolist() == pytest.approx([0.24])
    assert set(found.substituted) == {*names, "double_precision_fu_utilization"}


def test_older_reports_give_percents_as_ratio_over_maximum(catalogue):
    base = STALL.removesuffix(".pct")
    raw = pd.DataFrame({f"{base}.ratio": [0.25], f"{base}.max_rate": [1.0]})
    found = catalogue.evaluate(raw, ["stall_memory_dependency"])
    assert found.frame["stall_memory_dependency"].tolist() == [0.25]


def test_metrics_the_table_does_not_hold_are_named_not_zero(catalogue):
    found = catalogue.evaluate(pd.DataFrame({STALL: [1.0]}), ["published"])
    assert list(found.frame.columns) == ["stall_memory_dependency"]
    assert len(found.missing) == 18


def test_nvprof_forms_become_fractions(catalogue):
    assert catalogue.scaled_from_nvprof("gld_efficiency", [98.76]) == pytest.approx([0.9876])
    assert catalogue.scaled_from_nvprof("dram_utilization", [10, 0]).tolist() == [1.0, 0.0]
    assert catalogue.scaled_from_nvprof("achieved_occupancy", [0.73]).tolist() == [0.73]
    assert catalogue.scaled_from_nvprof("inst_executed", [1e9]).tolist() == [1e9]


def test_the_default_set_holds_the_published_and_what_explanations_read():
    catalogue = load_catalogue()
    chosen = catalogue.select(["default"])
    assert set(PUBLISHED) <= set(chosen)
    assert set(catalogue.select(["roofline"])) <= set(chosen)
    assert catalogue.lacking(["default"]) == ()
    assert "flop_count_sp" in catalogue.lacking(["published"])
    assert not set(catalogue.lacking(["published"])) & set(PUBLISHED)


def test_metrics_say_whether_they_hold_the_time():
    held = {name: clock_of(name) for name in load_catalogue().names}
    assert {held[name] for name in ("inst_executed", "gld_efficiency", "threads")} == {"counted"}
    shares = ("dram_utilization", "ipc", "stall_sync", "achieved_occupancy", "sm_efficiency")
    assert {held[name] for name in shares} == {"clocked"}
    assert {held[name] for name in ("dram_read_throughput", "sm_active_cycles_max")} == {"timed"}
    # what a launch fixes is known before it runs
    assert held["theoretical_occupancy"] == held["waves_per_sm"] == "counted"
