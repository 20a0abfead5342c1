"""The time after a fix, worked out by hand; and what is said to whom."""

import math
from dataclasses import replace

import pytest

from perfml.explain import explain, make_side
from perfml.explain.advice.after_fix import WIDTH, Width, estimate, time_after, told
from perfml.explain.advice.cannot_say import cannot_say, share_of
from perfml.explain.advice.cures import CURES
from perfml.explain.advice.first_fix import action_for, first_fix
from perfml.explain.advice.fix import CannotSay
from perfml.explain.advice.only_there import time_without_them
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.launches import Launch
from perfml.explain.ratio import Ratio
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.layer import layer_causes
from perfml.explain.tree.sentences import cause_in_words
from perfml.explain.tree.told import PairCauses
from tests.support.causes import PLANTED, pair_with
from tests.support.launches import launch
from tests.support.tables import make_kernels

SLOWER = Ratio(10.0, 40.0, math.log(4), None, None, (1, 1), "slower")


def test_the_part_that_is_the_cause_s_goes_and_the_rest_stays():
    barriers = launch({"time_us": 100.0, "stall_sync": 0.6, "stall_exec_dependency": 0.2})
    assert time_after(barriers, "stall_sync") == pytest.approx(0.4)
    # of waits, readiness is no part: 0.6 of the 0.8 in which warps wait
    ready = launch({"time_us": 100.0, "stall_sync": 0.6, "stall_not_selected": 0.2})
    assert time_after(ready, "stall_sync") == pytest.approx(0.25)


def test_the_next_limit_takes_over():
    full = {"time_us": 100.0, "stall_sync": 0.9, "single_precision_fu_utilization": 0.45}
    # the FP32 pipe sustains 95 %, so half of the time stays
    assert time_after(launch(full), "stall_sync") == pytest.approx(0.45 / 0.95)


def test_what_a_launch_takes_to_start_stays():
    full = {"time_us": 19.0, "stall_sync": 0.9, "sm_efficiency": 0.5}
    # 1.9 us of 19 are before the first and after the last instruction; idle multiprocessors of a
    # small grid are no start
    assert time_after(launch(full), "stall_sync") == pytest.approx(0.1 + 0.9 * 0.1)
    assert time_after(launch({**full, "sm_efficiency": 1.0}), "stall_sync") == pytest.approx(0.1)


def test_more_blocks_do_not_shorten_the_start():
    few = {"time_us": 3.8, "waves_per_sm": 0.01}
    idle = {"sm_efficiency": 0.005, "sm_active_cycles_mean": 10.0, "sm_active_cycles_max": 1000.0}
    # half of 3.8 us; the one multiprocessor with a block has it for half of the time
    assert time_after(launch({**few, **idle}), "wave_quantization") == pytest.approx(0.5 + 0.005)
    # it has it for nine tenths
    longer = {**idle, "sm_efficiency": 0.009}
    assert time_after(launch({**few, **longer}), "wave_quantization") == pytest.approx(0.1 + 0.009)


def test_a_block_alone_whose_time_nobody_counted_works_as_long_as_its_units():
    limits = ("registers", "shared_memory", "warps", "slots")
    row = {
        "time_us": 2.0,
        "waves_per_sm": 0.01,
        "shared_utilization": 0.004,
        **{f"resident_blocks_limit_{name}": 1.0 for name in limits},
    }
    state = SlowLaunch(launch(row))
    # of one multiprocessor of a hundred, for 40 % of the time, which is no start then
    assert state.start == pytest.approx(0.6)
    assert state.level("shared_utilization") == pytest.approx(1.0)
    assert SlowLaunch(launch({**row, "time_us": 190.0})).start == pytest.approx(0.01)


def test_one_warp_keeps_a_quarter_of_a_multiprocessor_busy():
    row = {
        "time_us": 9000.0,
        "sm_efficiency": 0.094,
        "achieved_occupancy": 1 / 64,
        "shared_utilization": 0.127,
        "issue_slot_utilization": 0.15,
    }
    state = SlowLaunch(launch(row))
    # 50 blocks of a warp on 132 multiprocessors
    assert state.active == pytest.approx(0.376)
    assert state.level("shared_utilization") == pytest.approx(0.127 / 0.376)
    # of the part that has a warp
    assert state.level("issue_slot_utilization") == pytest.approx(0.15)
    many = SlowLaunch(launch({**row, "achieved_occupancy": 0.5}))
    assert many.active == pytest.approx(0.094)


def test_scattered_loads_leave_the_bytes_that_were_asked_for():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "shared_utilization": 0.2,
        "gld_transactions": 8e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.125,
        "l2_utilization": 0.6,
    }
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.2 + 0.8 / 8)
    # only half of it goes
    half = time_after(launch(row), "sectors_per_request", left=0.5)
    assert half == pytest.approx(0.2 + 0.8 / 2)


def test_scattered_loads_of_a_launch_that_waits_for_latency_keep_the_latency():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "shared_utilization": 0.2,
        "gld_transactions": 16e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.25,
        "global_load_requests": 1e6,
        "l2_read_transactions": 0.0,
        "achieved_occupancy": 1 / 64,
        "inst_executed": 4e6,
        "ipc": 0.1,
    }
    # a warp waits 0.8 x 40 cycles for each load from L1, which alone would take 32 + 16: so at
    # least the square root of 6 are in flight; 4 sectors instead of 16 save 12 of the 48 cycles
    left = (32 + 4) / math.sqrt(6) / 32
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.2 + 0.8 * left)


def test_waiting_for_operands_keeps_what_loads_in_flight_from_shared_memory_take():
    row = {
        "time_us": 100.0,
        "stall_exec_dependency": 0.5,
        "stall_short_scoreboard": 0.4,
        "achieved_occupancy": 1 / 64,
        "inst_executed": 4e6,
        "inst_executed_shared_loads": 1e6,
        "ipc": 0.1,
    }
    # 5 cycles an instruction, 4 of them for shared memory: of these 23 / 6 for each fourth one
    left = (23 / 6 / 4 + 0.07) / 5
    assert time_after(launch(row), "stall_exec_dependency") == pytest.approx(0.5 + 0.5 * left)


def test_values_that_are_loaded_again_need_no_addresses_either():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "shared_utilization": 0.1,
        "gld_transactions": 4e6,
        "global_load_requests": 1e6,
        "global_store_requests": 5e3,
        "dram_read_bytes": 0.0,
        "inst_executed": 4e6,
    }
    # two loads a store are enough, and half of the loads go with their addresses
    work = 1 - 2 * 0.25 * 0.5
    assert time_after(launch(row), "redundant_traffic") == pytest.approx(0.2 * work + 0.8 * 0.01)
    # if all comes from DRAM it may be needed: the middle between that and nothing
    from_dram = {**row, "dram_read_bytes": 32 * 4e6}
    assert time_after(launch(from_dram), "redundant_traffic") == pytest.approx(
        0.2 * work + 0.8 * 0.1
    )
    # the queue of loads is as long where they come from shared memory: half of it is left
    queued = {**row, "stall_memory_dependency": 0.0, "stall_memory_throttle": 0.8}
    assert time_after(launch(queued), "redundant_traffic") == pytest.approx(0.2 * work + 0.8 * 0.5)


def test_without_the_efficiency_of_loads_a_word_a_lane_is_needed():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "shared_utilization": 0.2,
        "gld_transactions": 16e6,
        "gst_transactions": 0.0,
        "global_load_requests": 1e6,
    }
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.2 + 0.8 * 4 / 16)


def test_integers_of_a_launch_whose_pipes_are_not_full_take_their_share_of_the_time():
    row = {"time_us": 100.0, "inst_executed": 1e6, "inst_integer": 32 * 6e5}
    busy = {**row, "issue_slot_utilization": 0.9, "alu_utilization": 0.5}
    # half of six tenths go
    assert time_after(launch(row), "integer_arithmetic") == pytest.approx(0.7)
    assert time_after(launch(busy), "integer_arithmetic") == pytest.approx(0.7)
    # told that none of them stays
    assert time_after(launch(row), "integer_arithmetic", left=0.0) == pytest.approx(0.4)


def test_loads_that_wait_for_longer_than_their_latency_stand_behind_atomics():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.5,
        "stall_lg_throttle": 0.1,
        "stall_memory_throttle": 0.1,
        "shared_utilization": 0.2,
        "gld_transactions": 4e6,
        "l2_read_transactions": 0.0,
        "global_load_requests": 1e6,
        "achieved_occupancy": 1.0,
        "inst_executed": 4e6,
        "ipc": 1.0,
        "l2_atomic_utilization": 0.0,
        "l2_atomic_utilization_max": 0.3,
    }
    # 64 x 4 cycles a load, half of them waited for it: 128, and a load from L1 takes 32
    behind = 0.5 * (1 - 32 / 128)
    assert time_after(launch(row), "global_atomics") == pytest.approx(1 - 0.1 - behind)


def test_warps_that_wait_for_loads_can_have_twice_as_many_in_flight():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "gld_transactions": 4e6,
        "global_load_requests": 1e6,
        "achieved_occupancy": 1 / 64,
        "inst_executed": 4e6,
        "ipc": 1.0,
    }
    # 3 cycles a load: more than six are in flight already
    assert time_after(launch(row), "stall_memory_dependency") == pytest.approx(0.2 + 0.8 / 2)


def test_levels_that_a_fix_raises():
    row = {
        "time_us": 100.0,
        "waves_per_sm": 1.25,
        "theoretical_occupancy": 0.25,
        "achieved_occupancy": 0.2,
        "warp_execution_efficiency": 0.5,
        "issue_slot_utilization": 0.9,
        "sm_active_cycles_max": 4.0,
        "sm_active_cycles_mean": 3.0,
    }
    after = {
        name: time_after(launch({**row, "issue_slot_utilization": 0.0}), name) for name in CURES
    }
    assert after["wave_quantization"] == pytest.approx(0.625)
    assert after["theoretical_occupancy"] == pytest.approx(0.2 / 0.85)
    # of 16 warps that fit, launches have 0.85 in the mean
    assert after["achieved_of_theoretical"] == pytest.approx(0.8 / 0.85)
    assert after["block_slots"] == pytest.approx(0.2 / 0.85)
    assert after["sm_imbalance"] == pytest.approx(0.75)
    # busy issue slots leave little room for more warps, but idle lanes need fewer of them
    assert time_after(launch(row), "theoretical_occupancy") == pytest.approx(0.9 / 0.95)
    assert time_after(launch(row), "active_threads_per_warp") == pytest.approx(0.5)


@pytest.mark.parametrize("term", CURES)
def test_no_fix_makes_a_launch_slower_and_nothing_is_invented(term):
    assert term in TERMS
    for each in PLANTED:
        fraction = time_after(pair_with(each)[1], term)
        assert math.isnan(fraction) or 0 <= fraction <= 1
    bare = time_after(launch({"time_us": 1.0}), term)
    assert math.isnan(bare) or 0 <= bare <= 1


def test_a_cause_without_a_cure_has_no_estimate():
    assert math.isnan(time_after(launch({"time_us": 1.0}), "kernels_appeared"))


def test_the_interval_ends_at_the_time_as_it_is():
    waiting = [launch({"time_us": 100.0, "stall_sync": 0.6, "stall_exec_dependency": 0.1})]
    small, large = (estimate(100.0, each, waiting, "stall_sync") for each in (0.95, 0.1))
    assert small.time_us == pytest.approx(95.0)
    assert small.high_us == 100.0
    assert small.low_us == pytest.approx(95 * math.exp(WIDTH.low * WIDTH.doubt(-math.log(0.95))))
    assert large.low_us < large.time_us < large.high_us


def test_intervals_are_wider_where_more_is_saved_and_where_no_counter_tells():
    width = Width(-1.0, 0.5, -2.0, 1.0, saved=0.5)
    assert (width.doubt(0.0), width.doubt(2.0)) == (1.0, 2.0)
    doubt = 1 + math.log(8) / 2
    for told_part, wide in ((1.0, 1), (0.5, 1), (0.4, 2)):
        low, high = width.around(50.0, 4000.0 / 10, told=told_part)
        ends = 50 * math.exp(-wide * doubt), 50 * math.exp(wide * doubt / 2)
        assert (low, high) == pytest.approx((ends[0], min(ends[1], 400.0)))


def test_what_the_counters_tell_is_a_part_of_the_time():
    waiting = [launch({"time_us": 100.0, "stall_sync": 0.6, "stall_exec_dependency": 0.1})]
    assert told(waiting, "stall_sync") == 1.0
    assert told(waiting, "shared_loads") == 0.0
    # a tail is filled; a grid below one wave can be split, but how far is not known
    both = [launch({"time_us": 100.0, "waves_per_sm": waves}) for waves in (0.25, 1.25)]
    assert told(both, "wave_quantization") == 0.5
    assert told(both, "achieved_of_theoretical") == 0.5
    assert told(waiting, "shared_atomics") == told(waiting, "global_atomics") == 0.0
    assert told(waiting, "lsu_pipe_time") == 0.0


@pytest.mark.parametrize("term", CURES)
def test_what_is_not_known_can_be_said_in_a_sentence(term):
    unknown = CURES[term](SlowLaunch(pair_with(PLANTED[0])[1])).unknown
    assert unknown == "" or unknown.split()[0] in ("how", "what", "which")


def test_accesses_of_local_memory_go_with_their_instructions_and_addresses():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.5,
        "stall_exec_dependency": 0.5,
        "local_load_requests": 1e6,
        "local_store_requests": 1e6,
        "local_load_transactions": 4e6,
        "local_store_transactions": 4e6,
        "global_load_requests": 0.0,
        "gld_transactions": 0.0,
        "inst_executed": 8e6,
    }
    # spilled values: a quarter of the instructions
    assert time_after(launch(row), "local_memory") == pytest.approx(0.5 * 0.75)
    array = {**row, "inst_integer": 32 * 1e6}
    assert time_after(launch(array), "local_memory") == pytest.approx(0.5 * (0.75 - 0.125))
    # of sectors, where requests were not counted
    del row["local_load_requests"], row["local_store_requests"]
    assert time_after(launch(row), "local_memory") == pytest.approx(0.5 * 0.75)


def test_misses_that_wait_for_longer_than_their_latency_wait_in_a_queue():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "stall_exec_dependency": 0.2,
        "global_load_requests": 1e6,
        "gld_transactions": 4e6,
        "l2_read_transactions": 4e6,
        "l2_write_transactions": 0.0,
        "dram_read_bytes": 32 * 4e6,
        "dram_write_bytes": 0.0,
        "achieved_occupancy": 1.0,
        "inst_executed": 4e6,
        "ipc": 0.1,
    }
    # 0.8 x 64 x 4 / 0.1 cycles a load, 688 of them latency; without misses 55 % of that
    left = 0.55 * 688 / 2048
    assert time_after(launch(row), "dram_bytes_per_sector") == pytest.approx(0.2 + 0.8 * left)
    fast = launch({**row, "ipc": 1.0})
    assert time_after(fast, "dram_bytes_per_sector") == pytest.approx(0.2 + 0.8 * 0.55)


def test_who_waits_for_room_does_not_wait_for_a_latency_and_partial_writes_cost_twice():
    row = {
        "time_us": 100.0,
        "stall_memory_throttle": 0.8,
        "shared_utilization": 0.2,
        "gld_transactions": 8e6,
        "gst_transactions": 4e6,
        "gld_efficiency": 1.0,
        "gst_efficiency": 0.25,
        "global_load_requests": 1e6,
    }
    # four sectors of which a quarter is written cost seven; one of them is asked for
    left = (8 + 1) / (8 + 7)
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.2 + 0.8 * left)


def test_in_a_full_queue_a_load_s_own_latency_is_no_limit():
    row = {
        "time_us": 100.0,
        "stall_memory_throttle": 0.6,
        "stall_memory_dependency": 0.4,
        "shared_utilization": 0.1,
        "gld_transactions": 32e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.125,
        "global_load_requests": 1e6,
        "achieved_occupancy": 0.5,
        "inst_executed": 4e6,
        "ipc": 0.1,
    }
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(1 / 8)
    assert told([launch(row)], "sectors_per_request") == 1.0


def test_sectors_that_l2_reads_beyond_those_l1_asked_for_go_too():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 1.0,
        "gld_transactions": 20e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.25,
        "l2_read_transactions": 40e6,
        "global_load_requests": 1e6,
    }
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.125)


def test_lanes_that_share_words_leave_open_which_lanes_will():
    row = {
        "time_us": 100.0,
        "stall_memory_throttle": 1.0,
        "gld_transactions": 6e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.125,
        "global_load_requests": 1e6,
    }
    # six words of 32 lanes, in six sectors: at least one sector stays
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(1 / 6)
    assert told([launch(row)], "sectors_per_request") == 0.0
    found = estimate(100.0, 1 / 6, [launch(row)], "sectors_per_request")
    assert found.unknown == "which lanes will ask for the same words"


def test_bytes_that_were_asked_for_still_come_from_dram():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 1.0,
        "gld_transactions": 8e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.125,
        "gst_efficiency": 1.0,
        "dram_utilization": 0.4,
        "dram_read_bytes": 32e6,
        "dram_write_bytes": 0.0,
    }
    # the eight fields of a structure share a line, which is read once as it is
    # while DRAM's queues fill and empty, 2.3 us pass
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.4 / 0.93 + 0.023)
    each = {**row, "dram_read_bytes": 8 * 32e6}
    assert time_after(launch(each), "sectors_per_request") == pytest.approx(0.125)


def test_fewer_instructions_do_not_shorten_the_wait_for_memory():
    row = {"time_us": 100.0, "stall_memory_dependency": 0.6, "issue_slot_utilization": 0.2}
    assert time_after(launch(row), "instructions") == pytest.approx(0.6 + 0.4 / 2)
    busy = launch({**row, "issue_slot_utilization": 0.5})
    assert time_after(busy, "tensor_unused") == pytest.approx(0.6)
    # nor any wait but that for issue slots and shared memory
    assert time_after(launch(row), "tensor_unused") == pytest.approx(0.8)


def test_conversions_go_with_doubles_and_with_divisions():
    row = {
        "time_us": 100.0,
        "inst_executed": 1e6,
        "inst_bit_convert": 32 * 2e5,
        "double_precision_fu_utilization": 0.3,
        "special_fu_utilization": 0.9,
        "issue_slot_utilization": 0.4,
    }
    # a fifth of the instructions convert; of the rest half
    assert time_after(launch(row), "fp64_pipe_time") == pytest.approx(0.5 * 0.8)
    divisions = {**row, "inst_bit_convert": 32 * 4e4, "inst_integer": 32 * 5e5}
    # two conversions and twenty instructions a division, of 1e6
    assert time_after(launch(divisions), "integer_arithmetic") == pytest.approx(1 - 0.4)


def test_constants_are_asked_for_once_a_warp_at_the_least():
    row = {"time_us": 100.0, "constant_cache_utilization": 0.8, "stall_mio_throttle": 0.0}
    least = 0.2 + 0.8 / 32
    assert time_after(launch(row), "constant_serialization") == pytest.approx(least)


def test_what_a_full_unit_is_not_busy_with_passes_meanwhile():
    row = {
        "time_us": 100.0,
        "constant_cache_utilization": 0.92,
        "stall_mio_throttle": 0.6,
        "stall_exec_dependency": 0.4,
    }
    assert time_after(launch(row), "constant_serialization") == pytest.approx(0.92 / 32 / 0.95, 0.1)
    half = {**row, "constant_cache_utilization": 0.5}
    assert time_after(launch(half), "constant_serialization") > 0.4


def fix_of(term, ratio=SLOWER):
    merged = [
        launch({**one.counters, "kernel": "", "time_us": one.time_us}) for one in pair_with(term)
    ]
    causes = layer_causes(*merged, same_device=True)
    return first_fix(ratio, causes, ("one", "two"), ((merged[0],), (merged[1],))), causes


def test_the_first_cause_s_action_stands_with_the_time_without_it():
    fix, causes = fix_of("memory_fence")
    assert fix is not None
    assert fix.term == causes.totals[0].term
    assert fix.sentence().startswith("what to do in two: Use fewer fences, or narrower ones")
    # half of the fences are assumed to stay, so no number is said, only an interval
    assert "between 7.53 µs and the 40.0 µs of now in 80 % of such cases" in fix.sentence()
    assert "no counter tells how many of the fences are needed" in fix.sentence()
    assert (fix.to_dict()["after_us"], fix.to_dict()["unknown"]) == (None, fix.after.unknown)
    assert fix.to_dict()["after_low_us"] < fix.after.time_us < fix.to_dict()["after_high_us"]


def test_a_number_is_said_where_counters_tell_what_the_fix_leaves():
    fix, _ = fix_of("block_imbalance")
    assert "without this cause about " in fix.saving()
    assert fix.to_dict()["after_us"] == pytest.approx(fix.after.time_us)
    assert fix.to_dict()["unknown"] is None


def test_no_number_is_given_for_another_algorithm_nor_for_a_part_of_what_differs():
    merged = [
        launch({**one.counters, "kernel": name, "time_us": one.time_us})
        for one, name in zip(
            pair_with("memory_fence"), ("ampere_sgemm_64x64_nn", "mine"), strict=True
        )
    ]
    causes = layer_causes(*merged, same_device=True)
    fix = first_fix(SLOWER, causes, ("one", "two"), ((merged[0],), (merged[1],)))
    assert fix.unsaid is CannotSay.ALGORITHM
    assert "this cause alone saves cannot be said: the two sides run" in fix.sentence()
    assert (fix.to_dict()["after_us"], fix.to_dict()["unsaid"]) == (None, "algorithm")
    term = causes.totals[0].term.id
    library = [merged[0]]
    other = [replace(merged[0], kernel="ampere_sgemm_128x64_nn")]
    assert cannot_say(term, causes, library, other) is CannotSay.ALGORITHM
    assert cannot_say(term, causes, library, [*other, *library]) is None
    assert cannot_say(term, causes, merged[1:], merged[1:]) is None
    assert cannot_say("stall_sync", causes, merged[1:], merged[1:]) is CannotSay.SEVERAL
    assert 0.5 <= share_of(term, causes) <= 1.0


def test_more_launches_of_a_kernel_are_no_number_for_those_that_stay_do_their_work():
    causes = fix_of("memory_fence")[1]
    sides = [launch({"time_us": 1.0})], [launch({"time_us": 1.0})]
    assert cannot_say("launch_count", causes, *sides) is CannotSay.ALGORITHM


def test_the_time_without_launches_is_not_told_where_products_go():
    def pair(kernels, times):
        return PairCauses(kernels, None, (), times_us=times)

    launches = [launch({"kernel": "nvjet_sm90_tst_64x8_64x16", "time_us": 90.0})]
    copies = pair("at::native::vectorized_elementwise_kernel<4>", (10.0, 0.0))
    product, stays = pair("nvjet_sm90_tst_64x8_64x16", (90.0, 0.0)), pair("x", (5.0, 5.0))
    causes = fix_of("memory_fence")[1]
    found = [
        time_without_them(replace(causes, pairs=pairs), launches, 0)
        for pairs in ((copies, stays), (copies, product, stays))
    ]
    assert found[0] == pytest.approx(5.0)
    assert math.isnan(found[1])


def test_where_nothing_differs_nothing_is_to_be_done():
    same = Ratio(10.0, 10.0, 0.0, None, None, (1, 1), "no difference")
    assert fix_of("memory_fence", ratio=same)[0] is None


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (
            "sm80_xmma_gemm_f32f32_f32f32_tn",
            "a library's: take the one version of this layer (4.00",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4>(int)",
            "PyTorch's: take the one version",
        ),
        ("my_kernel", "Use fewer fences"),
    ],
)
def test_a_user_of_a_library_is_told_what_a_user_can_do(kernel, said):
    text = action_for(TERMS["memory_fence"], Launch(kernel, 1.0, {}), ("one", 4.0))
    assert said in text
    two = action_for(TERMS["memory_fence"], Launch(kernel, 1.0, {}), ("b.csv", 4.0), tables=True)
    assert ("take the kernels that b.csv ran (4.00" in two) == ("take the one version" in text)
    assert "take the one" not in action_for(TERMS["memory_fence"], Launch(kernel, 1.0, {}), None)


def _in_a_loop(kernel, number):
    """Return why a layer with `number` launches of a kernel is slower than one with one of them."""
    sides = [
        make_side(
            name,
            make_kernels(
                [
                    {"iteration": step, "kernel_index": place, "kernel": kernel, "time_us": 10.0}
                    for step in range(3)
                    for place in range(count)
                ]
            ),
        )
        for name, count in (("one", 1), ("loop", number))
    ]
    (detail,) = explain(*sides, model=None).details
    return detail.causes, detail.fix


def test_launches_of_one_kernel_are_counted_and_a_librarys_are_to_be_batched():
    causes, fix = _in_a_loop("nvjet_sm90_tst_64x8_64x16", 9)
    assert "8 launches of nvjet_sm90_tst_64x8_64x16" in cause_in_words(causes.totals[0], causes)
    assert "let one call do what 8 launches of the same kernel do" in fix.action
    few, fix = _in_a_loop("nvjet_sm90_tst_64x8_64x16", 3)
    assert "2 launches of" in cause_in_words(few.totals[0], few)
    assert "let one call" not in fix.action


def test_users_of_pytorch_are_told_what_their_own_code_can_do():
    _, fix = _in_a_loop("void at::native::CatArrayBatchedCopy_vectorized<int>(char*)", 9)
    assert "write into a tensor that is made once" in fix.action
    _, fix = _in_a_loop("void at::native::vectorized_elementwise_kernel<4>(int)", 9)
    assert "fuse them (torch.compile)" in fix.action
    lookup = "void at::native::index_elementwise_kernel<128>(int)"
    assert "sort the index" in action_for(
        TERMS["sectors_per_request"], Launch(lookup, 1.0, {}), None
    )
    plain = "void at::native::elementwise_kernel<128>(int)"
    assert "contiguous" in action_for(TERMS["sectors_per_request"], Launch(plain, 1.0, {}), None)
    assert "segment_reduce" in action_for(TERMS["global_atomics"], Launch(lookup, 1.0, {}), None)
    assert "one memory_format" in action_for(TERMS["global_requests"], Launch(plain, 1.0, {}), None)
    whole = Launch("void at::native::vectorized_elementwise_kernel<4>(int)", 1.0, {})
    assert "one memory_format" not in action_for(TERMS["global_requests"], whole, None)
    scan = Launch("void at::native::tensor_kernel_scan_outer_dim<float>(float*)", 1.0, {})
    assert "contiguous dimension" in action_for(TERMS["wave_quantization"], scan, None)


def _of_one_kernel(names):
    """Return what to do where the second side executes 3.5 times the instructions."""
    sides = [
        make_side(
            side,
            make_kernels(
                [
                    {"iteration": step, "kernel": name, "time_us": time, "inst_executed": count}
                    for step in range(3)
                ]
            ),
        )
        for side, name, time, count in zip(
            ("one", "two"), names, (10.0, 40.0), (1e6, 3.5e6), strict=True
        )
    ]
    (detail,) = explain(*sides, model=None).details
    return detail.fix


def test_a_librarys_kernel_that_does_more_on_one_side_was_asked_for_more():
    fix = _of_one_kernel(("cudnn_sdpa_flash_fprop", "cudnn_sdpa_flash_fprop"))
    assert fix.term.id == "instructions"
    assert "executes 3.5 times the instructions here" in fix.action
    fix = _of_one_kernel(("cudnn_sdpa_flash_fprop_64x128", "cudnn_sdpa_flash_fprop_64x64"))
    assert "times the instructions" not in fix.action


@pytest.mark.parametrize(
    ("capability", "warps"), [("7.5", 32), ("8.6", 48), ("8.9", 48), ("9.0", 64), (None, 64)]
)
def test_waiting_is_counted_in_the_warps_that_the_chip_holds(capability, warps):
    row = {
        "time_us": 100.0,
        "capability": capability,
        "achieved_occupancy": 0.5,
        "inst_executed": 1e6,
        "ipc": 2.0,
        "global_load_requests": 1e5,
    }
    # half of the warps, each an instruction every two cycles, ten instructions a load
    assert SlowLaunch(launch(row)).per_request("global_load_requests") == warps / 2 * 10 / 2
