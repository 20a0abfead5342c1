"""Causes: what stalls, lanes and units say of a difference, adding up to what was measured."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.explain import explain, sides_of
from perfml.explain.advice.inputs import INPUTS
from perfml.explain.tree.layer import layer_causes
from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.counters.refine import DIVERGENCE
from perfml.explain.counters.requests import name_redundant_traffic
from perfml.explain.counters.resources import RESOURCES
from perfml.explain.tree.causes import TERMS, Contribution
from perfml.explain.limits.traffic import l1_level
from perfml.merge.rule import merge
from perfml.util.words import Readable
from tests.support.causes import PLANTED, pair_with
from tests.support.examples import examples
from tests.support.launches import launch
from tests.support.paths import ROOT
from tests.support.tables import make_kernels

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
    "stall_membar": 0.0,
    "stall_exec_dependency": 0.3,
    "stall_memory_dependency": 0.2,
}


def split(target, baseline=None):
    return causes(target, baseline).terms


def causes(target, baseline=None):
    before = {**BASE, **(baseline or {})}
    return layer_causes(launch(before), launch({**before, **target}), same_device=True)


def values(frame):
    return dict(zip(frame["term"], frame["log_ratio"], strict=True))


def test_time_that_went_to_barriers_is_named_after_its_stall():
    found = split({"time_us": 400.0, "stall_sync": 0.7, "stall_exec_dependency": 0.1})
    assert found["term"].iloc[0] == "stall_sync"
    # cost 1 -> 4; the part at barriers 0.1 -> 2.8, over the logarithmic mean of the costs; what no
    # counter named shrank from 0.4 to nothing, and gives way to what grew by 3.4
    mean = 3 / math.log(4) * 3.4 / 3
    assert values(found)["stall_sync"] == pytest.approx(2.7 / mean)
    assert values(found)["stall_exec_dependency"] == pytest.approx(0.1 / mean)
    assert values(found)["stall_memory_dependency"] == pytest.approx(0.6 / mean)
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))


def test_without_counters_of_stalls_the_residual_stays_as_it_was():
    nothing = {name: math.nan for name in BASE if name.startswith("stall_")}
    found = split({"time_us": 400.0}, nothing)
    (rest,) = found[found["residual"]].to_dict(orient="records")
    assert rest["term"] == "throughput_per_warp"
    assert rest["log_ratio"] == pytest.approx(math.log(4))
    assert not [cause for cause in found["term"] if cause.startswith("stall_")]


def test_idle_lanes_are_the_cause_where_work_is_counted_in_lanes():
    found = split({"time_us": 800.0, "warp_execution_efficiency": 0.125})
    assert found["term"].iloc[0] == DIVERGENCE
    assert values(found)[DIVERGENCE] == pytest.approx(math.log(8))
    assert all(abs(value) < 1e-9 for cause, value in values(found).items() if cause != DIVERGENCE)


def test_more_instructions_for_the_same_lanes_are_no_work():
    counted = {"flop_count_sp": math.nan, "single_precision_fu_utilization": math.nan}
    target = {"time_us": 800.0, "warp_execution_efficiency": 0.125, "inst_executed": 8e7}
    found = values(split(target, counted))
    assert found[DIVERGENCE] == pytest.approx(math.log(8))
    assert found["instructions"] == pytest.approx(0.0, abs=1e-9)


def test_the_time_of_the_slower_side_s_busiest_unit_is_what_counts_as_work():
    found = split(
        {"time_us": 400.0, "special_fu_utilization": 1.0, "single_precision_fu_utilization": 0.1},
        {"special_fu_utilization": 0.4},
    )
    assert found["term"].iloc[0] == "special_function_pipe_time"
    # ten times the work of a unit that was not full before: no more than all of the difference
    assert values(found)["special_function_pipe_time"] == pytest.approx(math.log(4))
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))
    counted = {"flop_count_sp": math.nan, "single_precision_fu_utilization": math.nan, "ipc": 2.0}
    same = split(
        {"time_us": 200.0, "special_fu_utilization": 1.0, "ipc": 1.0},
        {**counted, "special_fu_utilization": 0.5},
    )
    assert values(same)["special_function_pipe_time"] == pytest.approx(math.log(2))
    assert same["log_ratio"].sum() == pytest.approx(math.log(2))
    assert "issue_rate" not in set(same["term"])
    # the issue slots were busier over both sides, but not where the time was spent
    late = split(
        {"time_us": 120.0, "special_fu_utilization": 0.9, "issue_slot_utilization": 0.7},
        {**counted, "special_fu_utilization": 0.3, "issue_slot_utilization": 0.95},
    )
    assert values(late)["special_function_pipe_time"] == pytest.approx(math.log(1.2))
    idle = split({"time_us": 400.0}, {"special_fu_utilization": 0.01})
    assert "special_function_pipe_time" not in set(idle["term"])


def test_busy_units_of_different_devices_are_not_compared():
    before = launch({**BASE, "special_fu_utilization": 0.5})
    after = launch({**BASE, "special_fu_utilization": 1.0, "time_us": 400.0})
    causes = layer_causes(before, after, same_device=False)
    found = causes.terms
    assert any("peaks of both devices" in name for name in causes.missing)
    assert "special_function_pipe_time" not in set(found["term"])
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
    assert split(more, counted)["term"].iloc[0] == "sectors_per_request"
    fewer = {"time_us": 400.0, "theoretical_occupancy": 0.25, "achieved_occupancy": 0.225}
    fewer["l2_utilization"] = 0.2
    assert split(fewer, counted)["term"].iloc[0] == "theoretical_occupancy"


def test_dram_bytes_of_scattered_lanes_are_told_from_those_of_a_larger_working_set():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "dram_utilization": 0.7,
        "dram_read_bytes": 1e7,
        "dram_write_bytes": 1.0,
        "global_load_requests": 1e6,
        "global_store_requests": 1.0,
        "gld_transactions": 4e6,
        "gst_transactions": 1.0,
    }
    scattered = {"time_us": 800.0, "gld_transactions": 32e6, "dram_read_bytes": 8e7}
    found = split(scattered, counted)
    assert found["term"].iloc[0] == "sectors_per_request"
    assert values(found)["dram_bytes_per_sector"] == pytest.approx(0.0, abs=1e-6)
    larger = split({"time_us": 800.0, "dram_read_bytes": 8e7}, counted)
    assert larger["term"].iloc[0] == "dram_bytes_per_sector"


def test_stores_that_warps_wait_for_cost_what_a_memory_moves_though_it_is_not_busy():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "stall_memory_dependency": 0.8,
        "dram_utilization": 0.5,
        "dram_read_bytes": 2.7e8,
        "dram_write_bytes": 1.2e8,
        "global_load_requests": 2e6,
        "global_store_requests": 1e6,
        "gld_transactions": 8e6,
        "gst_transactions": 32e6,
        "l2_read_transactions": 12e6,
    }
    random = {"time_us": 1000.0, "dram_utilization": 0.25, "stall_memory_dependency": 0.4}
    random |= {"dram_read_bytes": 1.2e9, "dram_write_bytes": 1e9, "stall_memory_throttle": 0.4}
    waited = values(split(random | {"stall_drain": 0.4}, counted | {"stall_drain": 0.0}))
    passed = values(split(random, counted))
    step = math.log(1000.0 / 100.0)
    # busy longer: 250 of 900 us less 50; waited for at the end: 400 of them
    assert passed["dram_bytes_per_sector"] == pytest.approx(step * 200 / 900)
    assert waited["dram_bytes_per_sector"] == pytest.approx(step * 400 / 900)


def test_bytes_that_loads_and_stores_cannot_have_moved_are_no_ratio_of_their_sectors():
    # 2,500 bytes a sector: a bulk copy moved them, and passed no counter of L1
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "dram_utilization": 0.7,
        "dram_read_bytes": 1e7,
        "dram_write_bytes": 1.0,
        "global_load_requests": 1e3,
        "global_store_requests": 1.0,
        "gld_transactions": 4e3,
        "gst_transactions": 1.0,
    }
    found = split({"time_us": 800.0, "dram_read_bytes": 8e7}, counted)
    assert found["term"].iloc[0] == "dram_bytes"
    assert "dram_bytes_per_sector" not in set(found["term"])


@pytest.mark.parametrize(
    ("term", "metric"),
    [
        ("uncoalesced_loads", "gld_efficiency"),
        ("uncoalesced_copies", "ldgsts_efficiency"),
        ("uncoalesced_stores", "gst_efficiency"),
    ],
)
def test_an_efficiency_that_falls_is_named_where_no_sectors_were_counted(term, metric):
    published = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "theoretical_occupancy": math.nan,
        "l2_utilization": 0.9,
        metric: 1.0,
    }
    found = split({"time_us": 800.0, metric: 0.125}, published)
    assert found["term"].iloc[0] == term
    assert values(found)[term] == pytest.approx(math.log(8))
    # half of what moves was not asked for: the other factor of four is more work
    found = split({"time_us": 800.0, metric: 0.5}, published)
    assert values(found)[term] == pytest.approx(math.log(2))
    assert values(found)["l2_busy_time"] == pytest.approx(math.log(4))
    # with sectors and requests counted, these say it
    counted = {
        "global_load_requests": 1e6,
        "global_store_requests": 1e6,
        "gld_transactions": 4e6,
        "gst_transactions": 4e6,
    }
    assert term not in set(
        split({"time_us": 800.0, metric: 0.125}, {**published, **counted})["term"]
    )


def test_a_term_that_its_levels_contradict_is_not_named():
    # the tail wave is what keeps warps away; each multiprocessor holds as many as before
    waves = {"waves_per_sm": 4.0, "flop_count_sp": math.nan, "achieved_occupancy": 0.7}
    target = {"time_us": 150.0, "waves_per_sm": 4.3, "achieved_occupancy": 0.6995}
    found = causes(target, waves)
    named = found.by_kernel.set_index("term")["log_ratio"]
    assert named.get("block_imbalance", 0.0) >= 0.0


def test_multiprocessors_that_idle_below_one_wave_are_said_once():
    counted = {"flop_count_sp": math.nan, "single_precision_fu_utilization": math.nan, "ipc": 1.0}
    # one block of a warp on a tenth of the multiprocessors, of sixteen that fit on each
    few = {"waves_per_sm": 0.1 / 16, "achieved_occupancy": 1 / 16, "ipc": 1.0}
    spread = {"time_us": 10.0, "waves_per_sm": 1 / 16}
    found = causes(spread, {**counted, **few})
    named = values(found.terms)
    assert named["wave_quantization"] == pytest.approx(-math.log(10))
    assert named["achieved_of_theoretical"] == pytest.approx(0.0)
    assert named["clock_and_idle_sms"] == pytest.approx(0.0)
    assert sum(named.values()) == pytest.approx(-math.log(10))
    reached = found.by_kernel[found.by_kernel["term"] == "achieved_of_theoretical"]
    assert reached[["baseline", "target"]].to_numpy().max() <= 1.0


def test_below_one_wave_a_limit_that_blocks_do_not_reach_is_no_cause():
    # half as many blocks fit, so the same blocks fill twice as much of a wave
    few = {"waves_per_sm": 0.38, "theoretical_occupancy": 0.25, "achieved_occupancy": 0.1}
    half = {"time_us": 70.0, "waves_per_sm": 0.76, "theoretical_occupancy": 0.125}
    found = values(split(half, few))
    assert found["wave_quantization"] == pytest.approx(0.0, abs=1e-9)
    assert found["theoretical_occupancy"] == pytest.approx(0.0, abs=1e-9)
    assert sum(found.values()) == pytest.approx(math.log(0.7))
    # above one wave, fewer blocks that fit are more waves
    found = values(split({**half, "waves_per_sm": 2.0}, {**few, "waves_per_sm": 1.0}))
    assert found["theoretical_occupancy"] > 0.5


def test_a_second_wave_of_few_blocks_is_the_cause_though_the_one_wave_was_not_full():
    # 1120 small blocks, 17 fit on each of 132 multiprocessors; 140 large ones, one fits: eight
    # multiprocessors work in the second wave
    limits = {f"resident_blocks_limit_{name}": 16.0 for name in ("registers", "shared_memory")}
    small = {**limits, "resident_blocks_limit_warps": 16.0, "waves_per_sm": 0.53}
    small |= {"achieved_occupancy": 0.37, "sm_efficiency": 0.94, "ipc": 3.2}
    small |= {"flop_count_sp": math.nan, "issue_slot_utilization": 0.8}
    large = {"time_us": 155.0, "theoretical_occupancy": 0.5, "waves_per_sm": 1.06}
    large |= {"resident_blocks_limit_shared_memory": 1.0, "achieved_occupancy": 0.49}
    large |= {"sm_efficiency": 0.53, "ipc": 3.6, "issue_slot_utilization": 0.9}
    found = causes(large, small)
    first = found.terms.iloc[0]
    assert first["term"] == "wave_quantization"
    # nine of 8.48 blocks on the busiest multiprocessor, against two waves for 1.06
    levels = found.by_kernel.set_index("term").loc["wave_quantization"]
    assert levels["baseline"] == pytest.approx(8.48 / 9)
    assert levels["target"] == pytest.approx(0.53)
    assert values(found.terms)["theoretical_occupancy"] < 0.1


def test_a_last_wave_costs_no_more_than_the_resident_warps_leave_it():
    tail = {"time_us": 200.0, "waves_per_sm": 1.3, "achieved_occupancy": 0.65 * 0.9}
    one = {"waves_per_sm": 1.0, "sm_efficiency": 1.0, "flop_count_sp": math.nan}
    equal = values(split(tail, one))["wave_quantization"]
    assert equal == pytest.approx(math.log(2 / 1.3))
    # as many warps are there on average as if the full wave took 3/5 of the time
    short = values(split({**tail, "achieved_occupancy": 0.72}, one))["wave_quantization"]
    assert short == pytest.approx(-math.log(3 / 5 * 1.3))
    # who knows how many multiprocessors were idle meanwhile?
    unknown = values(split({**tail, "achieved_occupancy": 0.72, "sm_efficiency": math.nan}, one))
    assert unknown["wave_quantization"] == pytest.approx(equal)


def test_wavefronts_that_are_no_loads_are_not_split_by_loads():
    # a warpgroup instruction keeps shared memory busy; hardly a load is left
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "shared_utilization": 0.9,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 5e7,
    }
    target = {"time_us": 50.0, "inst_executed_shared_loads": 1e4, "shared_load_transactions": 1e4}
    found = values(split(target, counted))
    assert found["shared_memory_busy_time"] == pytest.approx(math.log(0.5))
    assert not {"shared_loads", "wavefronts_per_shared_load"} & set(found)


def test_bank_conflicts_are_told_from_more_loads_of_shared_memory():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "shared_utilization": 0.9,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 1e6,
    }
    conflicts = values(split({"time_us": 800.0, "shared_load_transactions": 8e6}, counted))
    assert conflicts["wavefronts_per_shared_load"] == pytest.approx(math.log(8))
    assert conflicts["shared_time_per_wavefront"] == pytest.approx(0.0, abs=1e-9)
    more = {"inst_executed_shared_loads": 8e6, "shared_load_transactions": 8e6}
    loads = values(split({"time_us": 800.0, **more}, counted))
    assert loads["shared_loads"] == pytest.approx(math.log(8))
    assert loads["wavefronts_per_shared_load"] == pytest.approx(0.0, abs=1e-9)


def test_waiting_for_the_queue_of_shared_memory_is_the_loads_where_these_are_more():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "issue_slot_utilization": 0.1,
        "shared_utilization": 0.55,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 2e6,
        "stall_pipe_busy": 0.1,
        "stall_mio_throttle": 0.1,
        "stall_math_pipe_throttle": 0.0,
    }
    full = {"time_us": 300.0, "stall_pipe_busy": 0.7, "stall_mio_throttle": 0.7}
    full["shared_utilization"] = 0.22
    # 1.2 times the wavefronts, but twice the instructions
    more = {"inst_executed_shared_loads": 2e6, "shared_load_transactions": 2.4e6}
    found = values(split({**full, **more}, counted))
    assert found["shared_loads"] == pytest.approx(math.log(2))
    # as many loads as before: the queue is full for another reason
    found = values(split(full, counted))
    assert found["mio_throttle"] > 0.3
    assert found.get("shared_loads", 0.0) == pytest.approx(0.0)


def test_the_cost_of_an_instruction_is_split_where_it_was_counted():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "ipc": 2.0,
    }
    found = split({"time_us": 400.0, "ipc": 0.5, "stall_sync": 0.7}, counted)
    assert found["term"].iloc[0] == "stall_sync"
    (rest,) = found[found["residual"]].to_dict(orient="records")
    assert rest["term"] == "clock_and_idle_sms"
    assert rest["log_ratio"] == pytest.approx(0.0, abs=1e-9)
    assert found["log_ratio"].sum() == pytest.approx(math.log(4))


@pytest.mark.parametrize(("slots", "first"), [(0.2, "memory_fence"), (0.9, "instructions")])
def test_fences_are_instructions_that_wait_unless_slots_to_issue_are_full(slots, first):
    # twice the instructions at the same rate: 60 us of the 100 more are waits of fences
    counted = {
        **dict.fromkeys(("flop_count_sp", "single_precision_fu_utilization"), math.nan),
        "ipc": 1.0,
        "issue_slot_utilization": slots,
        "stall_sync": 0.4,
        "stall_membar": 0.4,
    }
    more = {"time_us": 200.0, "inst_executed": 2e7, "stall_sync": 0.5, "stall_membar": 0.5}
    found = split(more, counted)
    assert found["term"].iloc[0] == first
    if first == "memory_fence":
        assert values(found)[first] == pytest.approx(0.6 * math.log(2))
    assert found["log_ratio"].sum() == pytest.approx(math.log(2))


LATENCY = {
    "flop_count_sp": math.nan,
    "single_precision_fu_utilization": 0.01,
    "issue_slot_utilization": 0.03,
    "l2_utilization": 0.05,
    "dram_utilization": 0.02,
    "shared_utilization": 0.04,
    "l2_read_transactions": 1e6,
    "l2_write_transactions": 1.0,
    "dram_read_bytes": 1e7,
    "dram_write_bytes": 1.0,
    "ipc": 0.1,
}


def test_where_no_unit_is_busy_what_warps_wait_for_tells_whose_work_counts():
    waiting = {"stall_memory_dependency": 0.9, "stall_exec_dependency": 0.05}
    missed = {"time_us": 200.0, "dram_read_bytes": 1e8, "dram_utilization": 0.10, **waiting}
    found = split({**missed, "shared_utilization": 0.12}, LATENCY)
    assert found["term"].iloc[0] == "dram_bytes"
    fetching = {"stall_memory_dependency": 0.0, "stall_inst_fetch": 0.9}
    # machine code comes through L2 too, but its warps do not wait for data
    late = {"time_us": 800.0, "l2_read_transactions": 2e7, "ipc": 0.0125, **fetching}
    late["shared_utilization"] = 0.005
    found = split(late, {**LATENCY, "stall_inst_fetch": 0.05})
    assert found["term"].iloc[0] == "stall_inst_fetch"
    busy = {**late, "l2_utilization": 0.7}
    found = split(busy, {**LATENCY, "stall_inst_fetch": 0.05})
    assert found["term"].iloc[0] == "l2_sectors"


def test_warps_that_wait_for_answers_of_atomics_wait_for_the_units_that_add():
    waiting = {"stall_memory_dependency": 0.95, "stall_exec_dependency": 0.02}
    atomics = {"global_atomic_requests": 6e4, "global_reduction_requests": 0.0}
    before = {**LATENCY, **atomics, "l2_atomic_utilization_max": 0.5}
    more = {"time_us": 220.0, "l2_read_transactions": 2e6, **waiting}
    found = split({**more, "global_atomic_requests": 1.4e5}, before)
    # as busy for 2.2 times as long
    assert found["term"].iloc[0] == "global_atomics"
    assert values(found)["global_atomics"] == pytest.approx(math.log(2.2))


def test_fewer_warps_cost_a_busy_unit_no_more_than_its_idle_time():
    counted = {"shared_utilization": 0.5, "flop_count_sp": math.nan, "ipc": 2.0}
    counted |= {"single_precision_fu_utilization": math.nan}
    fewer = {"theoretical_occupancy": 0.25, "achieved_occupancy": 0.225}
    conflicts = {"time_us": 190.0, "shared_utilization": 0.98, **fewer}
    found = split(conflicts, counted)
    assert found["term"].iloc[0] == "shared_memory_busy_time"
    # four times the warps would each take longer than that
    assert 0 <= values(found)["theoretical_occupancy"] <= -math.log(0.98)
    assert found["log_ratio"].sum() == pytest.approx(math.log(1.9))
    # with idle time to fill, it costs what it takes away, and the unit's longer work the rest
    waiting = {"time_us": 380.0, "shared_utilization": 0.15, "issue_slot_utilization": 0.1}
    idle = split({**waiting, **fewer}, counted)
    assert values(idle)["theoretical_occupancy"] == pytest.approx(math.log(3.8 / 1.14))


shares = st.floats(0.0, 1.0)


@examples(60)
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
    assert found["term"].is_unique


@examples(60)
@given(
    time=st.floats(1.0, 1e4),
    sync=shares,
    lanes=st.floats(0.03, 1.0),
    special=st.floats(0.0, 1.0),
    issue=st.floats(0.01, 1.0),
    occupancy=st.floats(0.01, 1.0),
)
def test_what_makes_one_side_slower_makes_the_other_faster_by_as_much(
    time, sync, lanes, special, issue, occupancy
):
    before = {"special_fu_utilization": 0.2, "flop_count_sp": math.nan}
    target = {
        "time_us": time,
        "stall_sync": sync,
        "warp_execution_efficiency": lanes,
        "special_fu_utilization": special,
        "issue_slot_utilization": issue,
        "achieved_occupancy": occupancy,
    }
    one = launch({**BASE, **before})
    two = launch({**BASE, **before, **target})
    there = values(layer_causes(one, two, same_device=True).terms)
    back = values(layer_causes(two, one, same_device=True).terms)
    if time != 100.0:
        assert there == pytest.approx({name: -value for name, value in back.items()}, abs=1e-9)


def test_each_kernel_of_a_layer_is_counted_in_the_work_of_its_own_unit():
    kinds = {
        "one": {"special_fu_utilization": 0.9},
        "two": {"stall_sync": 0.75, "special_fu_utilization": 0.01},
    }
    rows = []
    for backend in ("fast", "slow"):
        for iteration in range(3):
            for place, (kernel, moved) in enumerate(kinds.items()):
                slow = backend == "slow"
                rows.append(
                    {
                        **{key: value for key, value in BASE.items() if key != "kernels"},
                        "flop_count_sp": math.nan,
                        "single_precision_fu_utilization": 0.1,
                        "special_fu_utilization": 0.01,
                        "layer": "both",
                        "backend": backend,
                        "run_id": backend,
                        "iteration": iteration,
                        "kernel": kernel,
                        "kernel_index": place,
                        "time_us": (300.0 if slow else 100.0) + iteration / 10,
                        **(moved if slow else {}),
                    }
                )
    kernels = make_kernels(rows)
    pair = sides_of(merge(kernels), "fast", "slow", kernels=kernels)
    (detail,) = explain(*pair, model=None).details
    first = detail.causes.by_kernel.assign(size=lambda frame: frame["log_ratio"].abs())
    first = first[first["log_ratio"] > 0].sort_values("size").groupby("kernels")["term"].last()
    assert first.to_dict() == {
        "one": "special_function_pipe_time",
        "two": "stall_sync",
    }
    assert {"special_function_pipe_time", "stall_sync"} <= set(
        detail.causes.terms.loc[detail.causes.terms["log_ratio"] > 0, "term"].head(2)
    )
    total = detail.causes.by_kernel["log_ratio"].sum()
    assert total == pytest.approx(detail.time.log_ratio, abs=1e-9)
    assert detail.causes.log_ratio == pytest.approx(detail.time.log_ratio, abs=1e-9)


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
    found = detail.causes.terms
    assert found["term"].iloc[0] == "stall_sync"
    assert found["log_ratio"].sum() == pytest.approx(detail.time.log_ratio)
    assert detail.reasons[0].startswith("makes it slower: stall_sync (ncu: barrier + membar) ×")
    assert "(75 % of the warps' time, 5 % in the baseline)" in detail.reasons[0]
    merged = sides_of(merge(kernels), "one", "two")
    (detail,) = explain(*merged, model=None).details
    assert detail.causes.terms["term"].iloc[0] == "stall_sync"


@pytest.mark.parametrize("term", PLANTED)
def test_a_cause_is_named_first_whichever_side_is_slower(term):
    before, after = pair_with(term)
    for one, other, sign in ((before, after, 1), (after, before, -1)):
        found = layer_causes(one, other, same_device=True)
        assert found.terms["term"].iloc[0] == term
        assert sign * found.terms["log_ratio"].iloc[0] > math.log(4) / 2
        assert found.terms["log_ratio"].sum() == pytest.approx(sign * math.log(4))


def test_wider_loads_of_as_many_sectors_are_no_cause_of_a_kernel_that_got_slower():
    before, after = pair_with("narrow_access")
    later = launch({**before.counters, "kernel": "k", "time_us": 40.0, "ncu_time_us": 40.0})
    wide = launch({**after.counters, "kernel": "k", "time_us": 10.0, "ncu_time_us": 10.0})
    found = values(layer_causes(wide, later, same_device=True).terms)
    assert "narrow_access" not in found
    assert found.get("global_requests", 0.0) == pytest.approx(0.0)
    assert found.get("sectors_per_request", 0.0) == pytest.approx(0.0)


def test_atomics_are_no_cause_in_a_kernel_without_them():
    busy = {"l2_atomic_utilization_max": 0.95, "global_reduction_requests": 0.0}
    before, after = pair_with("global_atomics")
    sides = [
        replace(side, counters={**side.counters, **busy, "global_atomic_requests": 0.0})
        for side in (before, after)
    ]
    found = values(layer_causes(*sides, same_device=True).terms)
    assert found.get("global_atomics", 0.0) == 0.0


def test_idle_multiprocessors_of_launches_whose_instructions_were_counted_are_imbalance():
    one = {
        "time_us": 10.0,
        "inst_executed": 1e6,
        "issue_slot_utilization": 0.9,
        "ipc": 3.6,
        "waves_per_sm": 1.0,
        "sm_active_cycles_mean": 1e4,
        "sm_active_cycles_max": 1e4,
        "sm_efficiency": 1.0,
    }
    two = {**one, "time_us": 20.0, "sm_active_cycles_max": 2e4, "sm_efficiency": 0.5}
    causes = layer_causes(launch(one), launch(two), same_device=True)
    assert causes.totals[0].term.id == "sm_imbalance"
    assert causes.totals[0].log_ratio == pytest.approx(math.log(2))


def test_fewer_warps_of_a_unit_that_is_busy_on_both_sides_cost_no_more_than_its_work_takes_longer():
    one = {
        "time_us": 10.0,
        "inst_executed": 1e6,
        "issue_slot_utilization": 0.96,
        "ipc": 3.84,
        "theoretical_occupancy": 1.0,
        "achieved_occupancy": 0.9,
        "waves_per_sm": 1.0,
    }
    # 10 % more instructions at 96 / 94 of the time each, by two thirds of the warps
    two = {
        **one,
        "time_us": 10.0 * 1.1 * 96 / 94,
        "inst_executed": 1.1e6,
        "issue_slot_utilization": 0.94,
        "ipc": 3.76,
        "achieved_occupancy": 0.6,
    }
    found = {
        each.term.id: each.log_ratio
        for each in layer_causes(launch(one), launch(two), same_device=True).totals
    }
    assert found["instructions"] == pytest.approx(math.log(1.1))
    assert found["block_imbalance"] == pytest.approx(math.log(96 / 94))


def test_additional_instructions_are_special_functions_as_long_as_their_unit_is_busy():
    one = {
        "time_us": 10.0,
        "inst_executed": 1e6,
        "issue_slot_utilization": 0.95,
        "ipc": 4.0,
        "special_fu_utilization": 0.0,
    }
    # 1.1e6 instructions in 275,000 cycles; the unit takes half a warp in each that it is busy
    two = {**one, "time_us": 11.0, "inst_executed": 1.1e6, "special_fu_utilization": 0.1e6 / 137500}
    found = {
        each.term.id: each.log_ratio
        for each in layer_causes(launch(one), launch(two), same_device=True).totals
    }
    assert found["special_function_pipe_time"] == pytest.approx(math.log(1.1))


@pytest.mark.parametrize(
    ("level", "kind", "named"),
    [
        (0.6, "flop_count_sp", True),
        (0.6, "flop_count_hp", True),  # halves are multiplied on the same pipe
        (0.005, "flop_count_sp", False),  # constants of a kernel without matrices
    ],
)
def test_matrices_that_leave_the_tensor_cores_are_floats_or_halves(level, kind, named):
    before = {"tensor_cycles_utilization": level, "flop_count_sp": 1e6, "flop_count_hp": 0.0}
    before |= {"sm_efficiency": 1.0, "single_precision_fu_utilization": 0.05}
    lanes = {"tensor_cycles_utilization": 0.0, kind: 1e9, "single_precision_fu_utilization": 0.8}
    found = split({"time_us": 800.0, **lanes}, before)
    assert ("tensor_unused" in set(found["term"])) is named


@pytest.mark.parametrize(("slots", "least", "most"), [(0.9, 0.85, 1.0), (0.2, 0.3, 0.5)])
def test_instructions_that_feed_the_fp32_pipe_in_place_of_tensor_cores_are_theirs(
    slots, least, most
):
    before = {"tensor_cycles_utilization": 0.3, "flop_count_sp": 1e6, "flop_count_hp": 0.0}
    before |= {"sm_efficiency": 1.0, "single_precision_fu_utilization": 0.0, "time_us": 50.0}
    before |= {"inst_executed": 1e6, "issue_slot_utilization": 0.2, "dram_utilization": 0.1}
    after = {"tensor_cycles_utilization": 0.0, "flop_count_sp": 1e9, "time_us": 500.0}
    after |= {"inst_executed": 2e7, "issue_slot_utilization": slots}
    after |= {"single_precision_fu_utilization": 0.35}
    found = split(after, before).set_index("term")["log_ratio"] / math.log(10)
    assert least <= found["tensor_unused"] <= most


STREAMED = {
    "dram_utilization": 0.8,
    "dram_read_bytes": 1e8,
    "dram_write_bytes": 0.0,
    "global_load_requests": 1e6,
    "global_store_requests": 0.0,
    "gld_transactions": 4e6,
    "gst_transactions": 0.0,
}


@pytest.mark.parametrize(
    ("requests", "sectors", "moved", "first"),
    [
        (1.26, 1.26, 1.26, "dram_bytes"),  # more streams: no factor is most of the growth
        (4.0, 1.0, 0.5, "dram_bytes"),  # more requests, of which half are served above DRAM
        (4.0, 1.0, 0.98, "global_requests"),
        (1.0, 4.0, 0.5, "sectors_per_request"),
        (1.1, 1.1, 1.65, "dram_bytes_per_sector"),
    ],
)
def test_what_dram_moves_in_all_is_the_cause_where_no_factor_of_it_is(
    requests, sectors, moved, first
):
    whole = requests * sectors * moved
    target = {
        **STREAMED,
        "time_us": 100.0 * whole,
        "global_load_requests": 1e6 * requests,
        "gld_transactions": 4e6 * requests * sectors,
        "dram_read_bytes": 1e8 * whole,
    }
    found = split(target, {"time_us": 100.0, **STREAMED})
    assert found["term"].iloc[0] == first
    assert found["log_ratio"].sum() == pytest.approx(math.log(whole))


@pytest.mark.parametrize(("capability", "level"), [("9.0", 0.4), ("", 0.4), ("8.6", 0.8)])
def test_a_request_enters_l1_every_second_cycle_where_half_as_many_units_load(capability, level):
    counts = {"inst_executed": 100.0, "ipc": 1.0, "global_load_requests": 40.0}
    row = {"time_us": 1.0, "capability": capability, **counts}
    assert l1_level(launch({**row, "gld_transactions": 40.0})) == pytest.approx(level)
    # a wide load takes its cycles in the data stage
    assert l1_level(launch({**row, "gld_transactions": 400.0})) == pytest.approx(1.0)


L1_BOUND = {
    **LATENCY,
    "inst_executed": 1e8,
    "ipc": 1.0,
    "issue_slot_utilization": 0.25,
    "stall_exec_dependency": 0.1,
    "stall_memory_dependency": 0.4,
    "ldst_fu_utilization": 0.05,
    "global_load_requests": 1.2e7,
    "global_store_requests": 1e5,
    "gld_transactions": 6e7,
    "gst_transactions": 4e5,
    "gld_efficiency": 0.8,
    "gst_efficiency": 1.0,
}


@pytest.mark.parametrize(
    ("counted", "level"),
    [
        ({"gld_transactions": 3e8, "global_load_requests": 6e7}, 0.75),  # four sectors a cycle
        ({"gld_transactions": 8e7, "global_load_requests": 8e7}, 0.8),  # a request is a cycle
        ({"global_load_requests": 8e7}, 0.8),
        ({"gld_transactions": 2e8}, 0.5),
        ({}, 0.0),
        ({"gld_transactions": 9e8}, 1.0),
    ],
)
def test_l1_is_as_busy_as_its_wavefronts_of_a_launch_and_of_a_table_alike(counted, level):
    row = {"time_us": 100.0, "inst_executed": 1e8, "ipc": 1.0, **counted}
    assert l1_level(launch(row)) == pytest.approx(level)
    frame = pd.DataFrame([{**row, "alu_utilization": 0.1}])
    assert INPUTS["l1_level"].make(frame).tolist() == pytest.approx([level])


def test_l1_is_as_busy_as_the_sectors_that_pass_it():
    # 300 of 400 million sectors that 100 million cycles have room for, by a pipe that is idle
    more = {"time_us": 200.0, "gld_transactions": 3e8, "global_load_requests": 6e7}
    causes_found = causes({**more, "inst_executed": 1.2e8, "ipc": 1.2}, L1_BOUND)
    assert causes_found.pairs[0].resource == "L1 sectors"
    assert causes_found.terms["term"].iloc[0] in ("global_requests", "redundant_traffic")


def test_sectors_say_how_long_requests_keep_l1_as_measured_on_an_h200():
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / "wavefronts-h200.csv")
    rows = rows[rows["cycles"] > 2]  # more than warps need to issue the next one
    ours = [
        l1_level(launch({"time_us": 1.0, "inst_executed": 100.0, "ipc": 1.0, **asked}))
        for asked in rows.assign(
            global_load_requests=1.0, gld_transactions=rows["sectors"]
        ).to_dict("records")
    ]
    ratio = 100 * pd.Series(ours, index=rows.index) / rows["cycles"]
    regular = (rows["share"] == 1) & (rows["stride"] >= 8) & (rows["stride"] <= 32)
    regular &= rows["width"].gt(1) & rows["stride"].isin([8, 16, 32])
    assert ratio[regular].tolist() == pytest.approx([1.0] * regular.sum(), rel=0.05)
    assert ratio[rows["stride"] == 0].between(0.4, 0.8).all()
    # what takes longer than it takes to issue is queued for, whatever the pattern
    assert (rows["lg_throttle"] > 5).all()


def test_l1_counts_below_its_limit_where_warps_queue_for_it():
    # 150 of 400 million sectors: no limit, but warps wait until its queue takes a request
    slow = {"time_us": 200.0, "gld_transactions": 1.5e8, "global_load_requests": 3e7}
    slow |= {"stall_lg_throttle": 0.4, "stall_memory_throttle": 0.4, "l2_utilization": 0.06}
    assert causes(slow, L1_BOUND).pairs[0].resource == "L1 sectors"
    assert causes({**slow, "stall_lg_throttle": 0.05}, L1_BOUND).pairs[0].resource != "L1 sectors"


ASKING = {"time_us": 200.0, "inst_executed": 1.2e8, "ipc": 1.2}


def test_requests_of_diverged_warps_are_their_missing_lanes():
    # half the lanes ask at once, so twice the requests ask for the same
    half = {"gld_transactions": 3e8, "global_load_requests": 6e7, "warp_execution_efficiency": 0.5}
    baseline = {**L1_BOUND, "gld_transactions": 1.5e8, "global_load_requests": 3e7}
    found = values(split({**ASKING, **half}, baseline))
    assert found[DIVERGENCE] == pytest.approx(math.log(2), rel=0.01)
    found = values(split({**ASKING, **half, "warp_execution_efficiency": 0.9}, baseline))
    assert DIVERGENCE not in found


@pytest.mark.parametrize(
    ("efficiency", "first"), [(0.1, "narrow_access"), (0.4, "redundant_traffic")]
)
def test_more_requests_for_as_many_bytes_are_narrow_and_for_more_bytes_redundant(efficiency, first):
    # four times the requests, 17 sectors each as before: bytes out of packed records
    before = {"gld_transactions": 8.5e7, "global_load_requests": 5e6, "gld_efficiency": 0.4}
    after = {"gld_transactions": 3.4e8, "global_load_requests": 2e7, "gld_efficiency": efficiency}
    found = split({**ASKING, **after}, {**L1_BOUND, **before})
    assert found["term"].iloc[0] == first


@pytest.mark.parametrize(
    ("efficiency", "first"), [(0.125, "sectors_per_request"), (1.0, "l1_sectors")]
)
def test_more_sectors_a_request_are_wider_only_where_lanes_share_sectors(efficiency, first):
    # scattered words: lanes that had shared one go apart; dense ones: doubles in place of floats
    before = {"gld_transactions": 4e7, "global_load_requests": 1e7, "gld_efficiency": efficiency}
    after = {"gld_transactions": 3e8, "time_us": 300.0, "ipc": 0.8, "inst_executed": 1e8}
    found = split({**ASKING, **after}, {**L1_BOUND, **before})
    assert found["term"].iloc[0] == first


@pytest.mark.parametrize(
    ("kernels", "first"),
    [(["adam"] * 8, "launch_count"), (["adam", *"abcdefg"], "kernels_vanished")],
)
def test_more_launches_of_a_kernel_that_both_sides_have_are_counted(kernels, first):
    many = make_kernels([{"kernel": name, "time_us": 3.0} for name in kernels])
    found = explain(many, make_kernels([{"kernel": "adam", "time_us": 3.0}]), model=None)
    terms = found.details[0].causes.terms
    assert terms["term"].iloc[0] == first
    assert terms["log_ratio"].sum() == pytest.approx(-math.log(8))


def test_a_loop_over_one_kernel_in_place_of_one_launch_is_a_number_of_launches():
    loop = [{"kernel": "generation", "time_us": 3.0}] * 8
    others = [{"kernel": name, "time_us": 3.0} for name in ["generation", *"abcdefg"]]
    once = make_kernels([{"kernel": "generations", "time_us": 3.0}])
    for kernels, first in ((loop, "launch_count"), (others, "kernels_appeared")):
        found = explain(once, make_kernels(kernels), model=None).details[0].causes
        assert found.terms["term"].iloc[0] == first
        assert found.terms["log_ratio"].sum() == pytest.approx(math.log(8))
        row = found.by_kernel[found.by_kernel["term"] == first].iloc[0]
        if first == "launch_count":
            assert (row["baseline"], row["target"]) == (1.0, 8.0)


def test_requests_that_the_other_side_leaves_to_bulk_copies_are_the_cause():
    none = dict.fromkeys(("global_load_requests", "gld_transactions", "global_store_requests"), 0.0)
    copies = {**L1_BOUND, **none, "gst_transactions": 0.0, "inst_executed": 1e7, "ipc": 0.5}
    slow = {"time_us": 500.0, **{k: L1_BOUND[k] for k in none}, "gst_transactions": 4e5}
    slow |= {"gld_transactions": 3e8, "inst_executed": 1e8, "ipc": 1.0}
    found = split(slow, copies)
    assert found["term"].iloc[0] == "global_requests"
    assert values(found)["global_requests"] <= math.log(5) * (1 + 1e-9)


def test_a_level_is_called_what_it_is_a_count_or_a_share_of_the_warps_time():
    term = TERMS["local_memory"]
    counted = Contribution(term, 0.0, 2.71e8, 0.2).words.format(
        baseline=Readable(0.0), target=Readable(2.71e8)
    )
    waited = Contribution(term, 0.05, 0.4, 0.2, waits=True).words.format(
        baseline=Readable(0.05), target=Readable(0.4)
    )
    assert counted == "271 million sectors of it in L1, 0 in the baseline"
    assert waited == "40 % of the warps' time, 5 % in the baseline"


def test_few_atomics_are_not_whose_the_traffic_of_bulk_copies_is():
    copied = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "l2_utilization": 0.7,
        "l2_read_transactions": 1e7,
        "l2_write_transactions": 1e6,
        "gld_transactions": 0.0,
        "gst_transactions": 0.0,
        "global_load_requests": 0.0,
        "global_store_requests": 0.0,
        "global_atomic_requests": 1e3,
        "global_reduction_requests": 0.0,
        "l2_atomic_transactions": 4e3,
    }
    more = {"time_us": 500.0, "l2_read_transactions": 5e7, "global_atomic_requests": 1e5}
    assert split(more, copied)["term"].iloc[0] == "l2_sectors"
    # atomics that can have moved all of it are
    many = {**more, "global_atomic_requests": 1e7, "l2_atomic_transactions": 4e7}
    assert split(many, copied)["term"].iloc[0] == "global_atomics"


def test_loads_in_the_loop_of_an_atomic_operation_are_the_atomics():
    counted = {
        "flop_count_sp": math.nan,
        "single_precision_fu_utilization": math.nan,
        "shared_utilization": 0.7,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 1e6,
        "shared_atomic_transactions": 2e6,
    }
    loop = {"inst_executed_shared_loads": 7e6, "shared_load_transactions": 7e6}
    slow = {"time_us": 600.0, "shared_utilization": 0.8}
    found = split({**slow, **loop, "shared_atomic_transactions": 1.5e7}, counted)
    assert found["term"].iloc[0] == "shared_atomics"
    found = split({**slow, **loop}, counted)
    assert found["term"].iloc[0] == "shared_loads"


def test_the_unit_that_limits_both_sides_is_the_limit_of_one_that_is_about_as_busy():
    before = {**L1_BOUND, "issue_slot_utilization": 0.75, "inst_executed": 1e8, "ipc": 3.0}
    before |= {"gld_transactions": 4e7, "global_load_requests": 1e7}
    slow = {"time_us": 500.0, "inst_executed": 5e8, "ipc": 3.0, "issue_slot_utilization": 0.75}
    slow |= {"gld_transactions": 5e8, "global_load_requests": 1.3e8}
    assert l1_level(launch({**before, **slow})) == pytest.approx(0.78, rel=0.01)
    assert causes(slow, before).pairs[0].resource == "instructions"
    idle = {**before, "issue_slot_utilization": 0.4}
    assert causes(slow, idle).pairs[0].resource == "L1 sectors"


def test_a_unit_that_is_busy_for_as_long_on_both_sides_did_not_take_the_additional_time():
    before = {"time_us": 391.0, "dram_utilization": 0.92, "l2_utilization": 0.4}
    before |= {"dram_read_bytes": 1.3e8, "dram_write_bytes": 1.3e8}
    before |= {"l2_read_transactions": 4.2e6, "l2_write_transactions": 4.2e6}
    slow = {**before, "time_us": 532.0, "dram_utilization": 0.68, "l2_utilization": 0.71}
    slow |= {"l2_write_transactions": 1.6e7}
    assert causes(slow, before).pairs[0].resource == "L2 sectors"
    longer = {**slow, "dram_utilization": 0.75}
    assert causes(longer, before).pairs[0].resource == "DRAM bytes"


@pytest.mark.parametrize(
    ("label", "operations", "redundant"),
    [("instructions", 4e8, False), ("instructions", 1e8, True), ("L1 sectors", 4e8, True)],
)
def test_loads_with_as_much_more_arithmetic_are_redundant_unless_issuing_is_the_limit(
    label, operations, redundant
):
    before = {"time_us": 100.0, **L1_BOUND, "flop_count_sp": 1e8}
    more = {"global_load_requests": 4.8e7, "flop_count_sp": operations}
    unit = next(each for each in RESOURCES if each.label == label)
    pair = Pair(launch(before), launch({**before, **more}), unit, single=True)
    found = Decomposition(math.log(4))
    found.name("global_requests", 1.2e7, 4.8e7)
    name_redundant_traffic(found, pair)
    assert ("redundant_traffic" in found) == redundant


def test_a_loop_over_another_kernel_is_compared_launch_by_launch():
    before, after = (
        make_kernels([{"kernel": name, "time_us": time, **counted} for _ in range(5)])
        for name, time, counted in (
            ("by_list", 10.0, {"inst_executed": 1e6, "issue_slot_utilization": 0.7}),
            ("by_all", 40.0, {"inst_executed": 4e6, "issue_slot_utilization": 0.7}),
        )
    )
    found = explain(before, after, model=None).details[0].causes
    assert len(found.pairs) == 5
    assert found.terms["term"].iloc[0] == "instructions"
    assert not set(found.terms["term"]) & {"kernels_appeared", "kernels_vanished"}
