"""Causes: what stalls, lanes and units say of the residual, adding up to the same."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfml.explain import explain, find_causes, sides_of
from perfml.explain.causes import LANES, split_causes
from perfml.explain.physical import attribute_layer
from perfml.merge import merge
from tests._tables import make_kernels

BASE = {
    "time_us": 100.0,
    "kernels": 1.0,
    "flop_count_sp": 1e9,
    "inst_executed": 1e7,
    "single_precision_fu_utilization": 0.5,
    "issue_slot_utilization": 0.3,
    "warp_execution_efficiency": 1.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "stall_sync": 0.1,
    "stall_exec_dependency": 0.3,
    "stall_memory_dependency": 0.2,
}


def split(target, baseline=None):
    before = pd.Series({**BASE, **(baseline or {})})
    after = pd.Series({**before.to_dict(), **target})
    return split_causes(attribute_layer(before, after, same_device=True), before, after)


def values(frame):
    return dict(zip(frame["cause"], frame["log_ratio"], strict=True))


def test_time_that_went_to_barriers_is_named_after_its_stall():
    found = split({"time_us": 400.0, "stall_sync": 0.7, "stall_exec_dependency": 0.1})
    assert found["cause"].iloc[0] == "stalls: stall_sync"
    # cost 1 -> 4; the part at barriers 0.1 -> 2.8, over the logarithmic mean of the costs
    mean = 3 / math.log(4)
    assert values(found)["stalls: stall_sync"] == pytest.approx(2.7 / mean)
    assert values(found)["stalls: stall_exec_dependency"] == pytest.approx(0.1 / mean)
    assert values(found)["stalls: stall_memory_dependency"] == pytest.approx(0.6 / mean)
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))


def test_without_counters_of_stalls_the_residual_stays_as_it_was():
    nothing = {name: math.nan for name in BASE if name.startswith("stall_")}
    found = split({"time_us": 400.0}, nothing)
    (rest,) = found[found["residual"]].to_dict(orient="records")
    assert rest["cause"] == "rate per resident warp"
    assert rest["log_ratio"] == pytest.approx(math.log(4))
    assert not [cause for cause in found["cause"] if cause.startswith("stalls")]


def test_idle_lanes_are_the_cause_where_work_is_counted_in_lanes():
    found = split({"time_us": 800.0, "warp_execution_efficiency": 0.125})
    assert found["cause"].iloc[0] == LANES
    assert values(found)[LANES] == pytest.approx(math.log(8))
    assert all(abs(value) < 1e-9 for cause, value in values(found).items() if cause != LANES)


def test_more_instructions_for_the_same_lanes_are_no_work():
    counted = {"flop_count_sp": math.nan, "single_precision_fu_utilization": math.nan}
    target = {"time_us": 800.0, "warp_execution_efficiency": 0.125, "inst_executed": 8e7}
    found = values(split(target, counted))
    assert found[LANES] == pytest.approx(math.log(8))
    assert found["work: instructions"] == pytest.approx(0.0, abs=1e-9)


def test_a_unit_without_an_account_takes_the_place_of_one_that_is_less_busy():
    found = split(
        {"time_us": 400.0, "special_fu_utilization": 1.0, "single_precision_fu_utilization": 0.1},
        {"special_fu_utilization": 0.4},
    )
    assert found["cause"].iloc[0] == "work: special-function pipe time"
    assert values(found)["work: special-function pipe time"] == pytest.approx(math.log(10))
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))
    counted = {"flop_count_sp": math.nan, "single_precision_fu_utilization": math.nan, "ipc": 2.0}
    same = split(
        {"time_us": 200.0, "special_fu_utilization": 1.0, "ipc": 1.0},
        {**counted, "special_fu_utilization": 0.5},
    )
    assert values(same)["work: special-function pipe time"] == pytest.approx(math.log(4))
    assert same["log_ratio"].sum() == pytest.approx(math.log(2))
    assert "issue rate per resident warp" not in set(same["cause"])
    idle = split({"time_us": 400.0}, {"special_fu_utilization": 0.01})
    assert "work: special-function pipe time" not in set(idle["cause"])


def test_busy_units_of_different_devices_are_not_compared():
    before = pd.Series({**BASE, "special_fu_utilization": 0.5})
    after = pd.Series({**BASE, "special_fu_utilization": 1.0, "time_us": 400.0})
    physical = attribute_layer(before, after, same_device=False)
    found = split_causes(physical, before, after, same_device=False)
    assert "work: special-function pipe time" not in set(found["cause"])
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))


def test_sectors_and_occupancy_keep_their_terms():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "issue_slot_utilization": 0.1,
        "l2_utilization": 0.8,
        "global_load_requests": 1e6,
        "global_store_requests": 1.0,
        "gld_transactions": 4e6,
        "gst_transactions": 1.0,
        "l2_read_transactions": 4e6,
        "l2_write_transactions": 1.0,
    }
    more = {"time_us": 800.0, "gld_transactions": 32e6, "l2_read_transactions": 32e6}
    assert split(more, counted)["cause"].iloc[0] == "sectors per request"
    fewer = {"time_us": 400.0, "theoretical_occupancy": 0.25, "achieved_occupancy": 0.225}
    assert split(fewer, counted)["cause"].iloc[0] == "occupancy limit"


def test_dram_bytes_of_scattered_lanes_are_told_from_those_of_a_larger_working_set():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "dram_utilization": 0.7,
        "dram_read_bytes": 1e8,
        "dram_write_bytes": 1.0,
        "global_load_requests": 1e6,
        "global_store_requests": 1.0,
        "gld_transactions": 4e6,
        "gst_transactions": 1.0,
    }
    scattered = {"time_us": 800.0, "gld_transactions": 32e6, "dram_read_bytes": 8e8}
    found = split(scattered, counted)
    assert found["cause"].iloc[0] == "sectors per request"
    assert values(found)["DRAM bytes per sector"] == pytest.approx(0.0, abs=1e-6)
    larger = split({"time_us": 800.0, "dram_read_bytes": 8e8}, counted)
    assert larger["cause"].iloc[0] == "DRAM bytes per sector"


def test_the_cost_of_an_instruction_is_split_where_it_was_counted():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "ipc": 2.0,
    }
    found = split({"time_us": 400.0, "ipc": 0.5, "stall_sync": 0.7}, counted)
    assert found["cause"].iloc[0] == "stalls: stall_sync"
    (rest,) = found[found["residual"]].to_dict(orient="records")
    assert rest["cause"] == "clock and idle SMs"
    assert rest["log_ratio"] == pytest.approx(0.0, abs=1e-9)
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))


shares = st.floats(0.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    time=st.floats(1.0, 1e4),
    sync=shares,
    execution=shares,
    lanes=st.floats(0.03, 1.0),
    special=st.floats(0.0, 1.0),
    occupancy=st.floats(0.01, 1.0),
)
def test_causes_add_up_to_the_measured_ratio_whatever_the_counters_say(
    time, sync, execution, lanes, special, occupancy
):
    found = split(
        {
            "time_us": time,
            "stall_sync": sync,
            "stall_exec_dependency": execution,
            "warp_execution_efficiency": lanes,
            "special_fu_utilization": special,
            "achieved_occupancy": occupancy,
        },
        {"special_fu_utilization": 0.2},
    )
    assert found["log_ratio"].sum() == pytest.approx(math.log(time / 100.0), abs=1e-9)
    assert found["residual"].sum() == 1
    assert found["cause"].is_unique


def test_causes_of_two_sides_are_found_from_their_tables():
    rows = []
    for backend, time, sync in (("one", 100.0, 0.05), ("two", 300.0, 0.75)):
        for iteration in range(3):
            rows.append(
                {
                    **{key: value for key, value in BASE.items() if key != "kernels"},
                    "backend": backend,
                    "run_id": backend,
                    "iteration": iteration,
                    "time_us": time + iteration / 10,
                    "stall_sync": sync,
                }
            )
    kernels = make_kernels(rows)
    pair = sides_of(merge(kernels), "one", "two", kernels=kernels)
    (detail,) = explain(*pair, model=None).details
    found = find_causes(*pair, detail)
    assert found["cause"].iloc[0] == "stalls: stall_sync"
    assert found["log_ratio"].sum() == pytest.approx(detail.time.log_ratio)
