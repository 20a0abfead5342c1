"""The tree of causes: what holds the additional time, what grew there, and sums that stay exact."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.explain.tree.engine import account, decompose_pair
from perfml.explain.tree.pair import Pair
from tests.support.causes import PLANTED, pair_with
from tests.support.examples import examples
from tests.support.launches import launch

WAITS = {"kernel": "k", "time_us": 10.0, "stall_memory_dependency": 0.8, "achieved_occupancy": 0.8}
WAITS |= {"theoretical_occupancy": 1.0, "waves_per_sm": 8.0, "sm_efficiency": 1.0}
WAITS |= {"global_load_requests": 1e6, "global_store_requests": 1e5, "gld_transactions": 4e6}
WAITS |= {"gst_transactions": 4e5, "l2_utilization": 0.1, "dram_utilization": 0.1}


def first(before, after, single=True):
    found = decompose_pair(before, after, single=single)
    sign = 1 if after.time_us > before.time_us else -1
    return max(found.contributions, key=lambda one: sign * one.log_ratio)


def slower(row, factor=4.0, **changes):
    return launch(row), launch({**row, "time_us": factor * row["time_us"], **changes})


@pytest.mark.parametrize("term", PLANTED)
@pytest.mark.parametrize("turned", [False, True])
def test_what_alone_grew_stands_first_in_both_directions(term, turned):
    pair = pair_with(term)
    assert first(*(pair[::-1] if turned else pair)).term.id == term


@examples(50)
@given(
    term=st.sampled_from(PLANTED),
    other=st.sampled_from(PLANTED),
    factor=st.floats(0.1, 10.0),
    single=st.booleans(),
)
def test_the_parts_of_any_two_launches_add_up(term, other, factor, single):
    before, after = pair_with(term)[0], pair_with(other)[1]
    after = replace(after, time_us=factor * before.time_us)
    found = decompose_pair(before, after, single=single)
    assert sum(one.log_ratio for one in found.contributions) == pytest.approx(math.log(factor))
    assert sum(each.share for each in found.held) <= 1 + 1e-9


def test_half_the_resident_warps_take_twice_as_long_for_the_same_waits():
    fewer = {"theoretical_occupancy": 0.5, "achieved_occupancy": 0.4}
    pair = slower(WAITS, 2.0, l2_utilization=0.05, dram_utilization=0.05, **fewer)
    found = {one.term.id: one.log_ratio for one in decompose_pair(*pair, single=True).contributions}
    # by Little's law all of it: as many warps wait, for as long each
    assert found["theoretical_occupancy"] == pytest.approx(math.log(2))


def test_warps_that_are_missing_explain_no_more_than_the_fullest_unit_leaves_room_for():
    # L2 sustains 62 % of its peak; from 55.8 % on, a tenth is left
    pair = slower(
        WAITS, 2.0, theoretical_occupancy=0.5, achieved_occupancy=0.4, l2_utilization=0.558
    )
    found = {one.term.id: one.log_ratio for one in decompose_pair(*pair, single=True).contributions}
    assert found.get("theoretical_occupancy", 0.0) <= -math.log(0.9) + 1e-9


def test_below_one_wave_the_grid_is_short_of_blocks_however_many_fit():
    row = {**WAITS, "waves_per_sm": 1.0}
    pair = slower(row, 4.0, waves_per_sm=0.25, achieved_occupancy=0.2)
    assert first(*pair).term.id == "wave_quantization"
    # half as many blocks fit, so that the same grid is a whole wave: as many warps are there
    fits = slower({**row, "waves_per_sm": 0.5}, 1.5, theoretical_occupancy=0.5, waves_per_sm=1.0)
    assert first(*fits).term.id != "theoretical_occupancy"


def test_more_bytes_of_a_full_memory_are_the_cause_though_their_factors_went_apart():
    # as records of 32 bytes instead of 28: fewer requests of more sectors, DRAM full on both sides
    row = {**WAITS, "dram_utilization": 0.9, "dram_read_bytes": 9e7, "dram_write_bytes": 1e7}
    row |= {"l2_read_transactions": 4e6, "l2_write_transactions": 4e5}
    more = {"dram_read_bytes": 1.03e8, "global_load_requests": 3e5, "gld_transactions": 1.3e6}
    assert first(*slower(row, 1.13, **more)).term.id == "dram_bytes"


def test_a_queue_belongs_to_the_client_whose_own_time_grew():
    row = {**WAITS, "stall_memory_dependency": 0.1, "stall_pipe_busy": 0.3}
    row |= {"stall_mio_throttle": 0.3, "stall_math_pipe_throttle": 0.0, "shared_utilization": 0.4}
    row |= {"inst_executed_shared_loads": 1e6, "shared_load_transactions": 1e6}
    row |= {"special_fu_utilization": 0.1}
    busy = {"stall_pipe_busy": 0.8, "stall_mio_throttle": 0.8}
    one = slower(row, 2.0, shared_utilization=0.2, special_fu_utilization=0.8, **busy)
    assert first(*one).term.id == "special_function_pipe_time"
    two = slower(row, 2.0, shared_utilization=0.8, special_fu_utilization=0.05, **busy)
    assert first(*two).term.id in ("shared_memory_busy_time", "mio_throttle")


def test_a_cause_is_not_named_where_its_own_number_is_better_on_the_slow_side():
    row = {**WAITS, "issue_slot_utilization": 0.2, "inst_executed": 2e7}
    pair = slower(row, 2.0, issue_slot_utilization=0.9, inst_executed=1e7)
    found = decompose_pair(*pair, single=True)
    assert "instructions" not in {one.term.id for one in found.contributions}


def test_counters_that_nobody_collected_prove_nothing():
    bare = launch({"kernel": "k", "time_us": 1.0}), launch({"kernel": "k", "time_us": 2.0})
    found = decompose_pair(*bare, single=True)
    assert [one.term.id for one in found.contributions] == ["throughput"]
    assert found.limiter is None


@pytest.mark.parametrize("term", PLANTED)
def test_fewer_counters_never_name_a_cause_without_its_own(term):
    before, after = pair_with(term)
    for lacking in before.counters:
        pair = [
            replace(side, counters={k: v for k, v in side.counters.items() if k != lacking})
            for side in (before, after)
        ]
        for one in decompose_pair(*pair, single=True).contributions:
            proofs = (one.term.evidence, one.term.or_evidence)
            assert one.term.residual or any(lacking not in each for each in proofs if each)


def test_limits_are_weighed_by_how_near_they_stand_to_what_they_sustain():
    row = {**WAITS, "single_precision_fu_utilization": 0.2, "stall_memory_dependency": 0.0}
    pair = slower(row, 2.0, l2_utilization=0.6, single_precision_fu_utilization=0.3)
    held = {each.limit.id: each for each in account(Pair(*pair, single=True))}
    assert held["l2"].nearness == pytest.approx(0.6 / 0.66)
    assert held["fp32"].nearness == pytest.approx(0.3)
    assert held["l2"].share > 2 * held["fp32"].share


ARITHMETIC = {"kernel": "k", "time_us": 10.0, "sm_efficiency": 0.25, "stall_exec_dependency": 1.0}
ARITHMETIC |= {"stall_short_scoreboard": 0.0, "inst_executed": 1e6, "achieved_occupancy": 0.5}
ARITHMETIC |= {"theoretical_occupancy": 0.5, "dram_utilization": 0.1}


def parts_of(pair):
    found = decompose_pair(*pair, single=True).contributions
    return {one.term.id: one.log_ratio for one in found if one.log_ratio > 1e-9}


def test_multiprocessors_that_are_idle_on_both_sides_add_nothing():
    # three quarters of them have no block, before and after; the others execute four times as much
    pair = slower(ARITHMETIC, 4.0, inst_executed=4e6, dram_utilization=0.025)
    assert parts_of(pair) == {"instructions": pytest.approx(math.log(4))}


def test_idle_multiprocessors_hold_what_their_part_of_the_time_grew_by():
    pair = slower(ARITHMETIC, 4.0, sm_efficiency=0.125, inst_executed=2e6, dram_utilization=0.025)
    held = {each.limit.id: each.share for each in account(Pair(*pair, single=True))}
    # half as many work, and each for twice as long: half of the logarithm of four
    assert held["idle"] == pytest.approx(0.5)


def test_idle_multiprocessors_cost_no_more_than_a_full_memory_leaves_room_for():
    # DRAM sustains 97 % of its peak; from 87.3 % on, a tenth is left
    pair = slower(ARITHMETIC, 4.0, sm_efficiency=0.125, dram_utilization=0.873)
    held = {each.limit.id: each.share for each in account(Pair(*pair, single=True))}
    assert held["idle"] == pytest.approx(-math.log(0.9) / math.log(4))


def test_lanes_without_work_are_the_cause_of_instructions_that_warps_wait_for():
    row = {**ARITHMETIC, "warp_execution_efficiency": 1.0}
    pair = slower(row, 2.0, inst_executed=2e6, warp_execution_efficiency=0.5, dram_utilization=0.05)
    assert parts_of(pair) == {"active_threads_per_warp": pytest.approx(math.log(2))}


def test_a_unit_holds_no_more_time_than_its_own_work_grew_by():
    local = {"local_load_transactions": 4e6, "local_store_transactions": 4e6}
    row = {**WAITS, **local, "local_load_requests": 1e6, "local_store_requests": 1e6}
    # as many accesses to local memory, in twice the time of a busier L2
    pair = slower(row, 2.0, l2_utilization=0.3)
    held = {each.limit.id for each in account(Pair(*pair, single=True))}
    assert "l2" in held
    assert "local" not in held


@pytest.mark.parametrize(("fences", "cause"), [(0.6, "sectors_per_request"), (0.0, "memory_fence")])
def test_a_fence_waits_for_what_was_stored_before_it(fences, cause):
    row = {**WAITS, "stall_memory_dependency": 0.05, "stall_sync": fences, "stall_membar": fences}
    scattered = {} if fences == 0 else {"gst_transactions": 3.2e6, "gld_transactions": 32e6}
    pair = slower(row, 8.0, stall_sync=0.6, stall_membar=0.6, l2_utilization=0.02, **scattered)
    assert first(*pair).term.id == cause


@pytest.mark.parametrize(
    ("integers", "conversions", "cause"),
    [
        (1.12e9, 8e7, "integer_division"),  # fourteen a conversion
        (1.12e9, 8e6, "integer_arithmetic"),  # so many that few divide
        (1.12e8, 1.12e8, "special_function_pipe_time"),  # floats become integers
    ],
)
def test_integers_that_are_divided_are_told_from_others_by_their_conversions(
    integers, conversions, cause
):
    row = {**WAITS, "inst_executed": 1e6, "issue_slot_utilization": 0.8, "flop_count_sp": 0.0}
    row |= {"inst_integer": 1.6e7, "inst_bit_convert": 1e6, "stall_memory_dependency": 0.0}
    row |= {"special_fu_utilization": 0.1, "alu_utilization": 0.2}
    more = (integers + conversions) / 32
    changes = {"inst_integer": integers, "inst_bit_convert": conversions, "inst_executed": more}
    pair = slower(row, more / 1e6, **changes)
    assert first(*pair).term.id == cause
    assert first(*pair[::-1]).term.id == cause
