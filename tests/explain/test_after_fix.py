"""The time after a fix, worked out by hand; and what is said to whom."""

import math
from dataclasses import replace

import pytest

from perfml.explain import explain, make_side
from perfml.explain.advice.first_fix import (
    cannot_say,
    first_fix,
    share_of,
    time_without_them,
)
from perfml.explain.advice.fix import WIDTH, Width, gain_of, told
from perfml.explain.times import Ratio
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.ideal import load_ideals
from perfml.explain.tree.layer import layer_causes
from perfml.explain.tree.layer_causes import PairCauses
from perfml.explain.tree.one_side import has_ideal, time_after
from perfml.explain.words import levels_in_words
from perfml.util.findings import Time
from tests.support.causes import PLANTED, pair_with
from tests.support.launches import launch
from tests.support.tables import make_kernels

SLOWER = Ratio(10.0, 40.0, math.log(4), None, None, (1, 1), "slower")


def test_the_part_that_is_the_cause_s_goes_and_the_rest_stays():
    barriers = launch({"time_us": 100.0, "stall_sync": 0.6, "stall_exec_dependency": 0.4})
    assert time_after(barriers, "stall_sync") == pytest.approx(0.4)
    # told that half of it stays
    assert time_after(barriers, "stall_sync", left=0.5) == pytest.approx(0.7)


def test_what_no_reason_was_collected_for_is_waited_for_still():
    alone = launch({"time_us": 100.0, "stall_sync": 0.2})
    assert time_after(alone, "stall_sync") == pytest.approx(0.8)


def test_the_next_limit_takes_over():
    full = {"time_us": 100.0, "stall_sync": 0.9, "stall_exec_dependency": 0.1}
    full |= {"single_precision_fu_utilization": 0.45}
    assert time_after(launch(full), "stall_sync") == pytest.approx(0.45)


def test_what_a_launch_takes_to_start_stays():
    full = {"time_us": 19.0, "stall_sync": 0.9, "stall_exec_dependency": 0.1, "sm_efficiency": 0.5}
    # 1.9 us of 19 are before the first and after the last instruction
    assert time_after(launch(full), "stall_sync") == pytest.approx(0.1 + 0.9 * 0.1)
    assert time_after(launch({**full, "sm_efficiency": 1.0}), "stall_sync") == pytest.approx(0.1)


def test_scattered_loads_leave_the_bytes_that_were_asked_for():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "stall_exec_dependency": 0.2,
        "gld_transactions": 32e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 0.125,
        "global_load_requests": 1e6,
        "global_store_requests": 0.0,
        "l2_utilization": 0.3,
    }
    # an eighth of the sectors, and of the queue for them
    assert time_after(launch(row), "sectors_per_request") == pytest.approx(0.2 + 0.8 / 8)


def test_fewer_requests_are_waited_for_less_where_none_stands_in_a_queue():
    row = {
        "time_us": 100.0,
        "stall_memory_dependency": 0.8,
        "gld_transactions": 1e6,
        "gst_transactions": 0.0,
        "gld_efficiency": 1.0,
        "global_load_requests": 1e6,
        "global_store_requests": 0.0,
        "l2_read_transactions": 0.0,
        "dram_read_bytes": 0.0,
        "dram_write_bytes": 0.0,
        "achieved_occupancy": 1 / 64,
        "inst_executed": 4e6,
        "ipc": 0.2,
        "l2_utilization": 0.01,
    }
    # a byte a lane: with sixteen, a sixteenth of the requests; nearly no part is a queue
    after = time_after(launch(row), "narrow_access")
    assert after == pytest.approx(0.2 + 0.8 / 16, abs=0.02)


def test_more_resident_warps_hide_more_and_full_waves_leave_no_tail():
    row = {"time_us": 100.0, "waves_per_sm": 1.25, "theoretical_occupancy": 0.25}
    row |= {"achieved_occupancy": 0.225, "stall_memory_dependency": 0.9}
    assert time_after(launch(row), "theoretical_occupancy") == pytest.approx(0.25)
    assert time_after(launch(row), "wave_quantization") == pytest.approx(0.625)
    # busy issue slots leave little room for more warps
    busy = {**row, "issue_slot_utilization": 0.9}
    assert time_after(launch(busy), "theoretical_occupancy") == pytest.approx(0.9)


def test_constants_are_asked_for_once_a_warp_at_the_least():
    row = {"time_us": 100.0, "constant_cache_utilization": 0.95, "stall_exec_dependency": 0.6}
    # beside a full unit all else passes meanwhile
    assert time_after(launch(row), "constant_serialization") == pytest.approx(1 / 32)


IDEALS = sorted({row.cause for row in load_ideals()} | {"theoretical_occupancy", "sm_imbalance"})


@pytest.mark.parametrize("term", IDEALS)
def test_no_fix_makes_a_launch_slower_and_nothing_is_invented(term):
    assert term in TERMS
    assert has_ideal(term)
    for each in PLANTED:
        assert 0 <= time_after(pair_with(each)[1], term) <= 1
    assert 0 <= time_after(launch({"time_us": 1.0}), term) <= 1


def test_a_cause_without_an_ideal_has_no_estimate():
    assert math.isnan(time_after(launch({"time_us": 1.0}), "kernels_appeared"))


def test_what_the_counters_tell_is_a_part_of_the_time():
    waiting = [launch({"time_us": 100.0, "stall_sync": 0.6, "stall_exec_dependency": 0.1})]
    assert told(waiting, "stall_sync") == 1.0
    assert told(waiting, "shared_loads") == told(waiting, "global_atomics") == 0.0
    # a tail is filled; a grid below one wave can be split, but how far is not known
    both = [launch({"time_us": 100.0, "waves_per_sm": waves}) for waves in (0.25, 1.25)]
    assert told(both, "wave_quantization") == 0.5


def test_the_interval_ends_at_the_time_as_it_is():
    small, large = (gain_of(Time(100.0), part) for part in (0.05, 0.9))
    assert (small.likely.us, small.low.us) == pytest.approx((5.0, 0.0))
    least = 95 * math.exp(WIDTH.low * WIDTH.doubt(-math.log(0.95)))
    assert small.high.us == pytest.approx(100 - least)
    assert large.low.us < large.likely.us < large.high.us


def test_intervals_are_wider_where_more_is_saved_and_where_no_counter_tells():
    width = Width(-1.0, 0.5, -2.0, 1.0, saved=0.5)
    assert (width.doubt(0.0), width.doubt(2.0)) == (1.0, 2.0)
    doubt = 1 + math.log(8) / 2
    for told_part, wide in ((1.0, 1), (0.5, 1), (0.4, 2)):
        low, high = width.around(50.0, 4000.0 / 10, told=told_part)
        ends = 50 * math.exp(-wide * doubt), 50 * math.exp(wide * doubt / 2)
        assert (low, high) == pytest.approx((ends[0], min(ends[1], 400.0)))


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
    assert "Use fewer fences, or narrower ones" in fix.do
    # half of the fences are assumed to stay, so no number is said, only an interval
    # (and a tenth of the time, of which no reason was collected)
    assert fix.after_low_us == pytest.approx(11.1, abs=0.05)
    assert fix.after_high_us == fix.now.us
    assert "no counter tells how many of the fences are needed" in fix.saves
    assert (fix.to_dict()["after_us"], fix.to_dict()["unknown"]) == (None, fix.unknown)
    assert fix.after_low_us < fix.now.us - fix.likely_us < fix.after_high_us


def test_a_number_is_said_where_counters_tell_what_the_fix_leaves():
    fix, _ = fix_of("block_imbalance")
    assert "without this cause about " in fix.saving()
    assert fix.to_dict()["after_us"] == pytest.approx(fix.now.us - fix.likely_us)
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
    assert fix.unsaid == "algorithm"
    assert "this cause alone saves cannot be said: the two sides run" in fix.saves
    assert (fix.to_dict()["after_us"], fix.to_dict()["unsaid"]) == (None, "algorithm")
    term = causes.totals[0].term.id
    library = [merged[0]]
    other = [replace(merged[0], kernel="ampere_sgemm_128x64_nn")]
    assert cannot_say(term, causes, library, other) == "algorithm"
    assert cannot_say(term, causes, library, [*other, *library]) is None
    assert cannot_say(term, causes, merged[1:], merged[1:]) is None
    assert cannot_say("stall_sync", causes, merged[1:], merged[1:]) == "several"
    assert 0.5 <= share_of(term, causes) <= 1.0


def test_more_launches_of_a_kernel_are_no_number_for_those_that_stay_do_their_work():
    causes = fix_of("memory_fence")[1]
    sides = [launch({"time_us": 1.0})], [launch({"time_us": 1.0})]
    assert cannot_say("launch_count", causes, *sides) == "algorithm"


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
        ("mine", "Use fewer fences"),
        ("nvjet_sm90_tst_64x8_64x16", "The kernel is a library's. "),
        ("triton_poi_fused_0", "The kernel is PyTorch's. "),
    ],
)
def test_a_user_of_a_library_is_told_what_a_user_can_do(kernel, said):
    sides = [
        make_side(
            name,
            make_kernels(
                [
                    {"iteration": step, "kernel": kernel, "time_us": time, **stalls}
                    for step in range(3)
                ]
            ),
        )
        for name, time, stalls in (
            ("one", 10.0, {"stall_membar": 0.0, "stall_sync": 0.0}),
            ("two", 40.0, {"stall_membar": 0.8, "stall_sync": 0.8}),
        )
    ]
    (detail,) = explain(*sides, model=None).details
    assert detail.fix is not None
    assert said in detail.fix.action


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
    assert "8 launches of nvjet_sm90_tst_64x8_64x16" in levels_in_words(causes.totals[0], causes)
    assert "Let one call do what 8 launches" in fix.action
    few, fix = _in_a_loop("nvjet_sm90_tst_64x8_64x16", 3)
    assert "2 launches of" in levels_in_words(few.totals[0], few)
    assert "Let one call" not in fix.action


def test_users_of_pytorch_are_told_what_their_own_code_can_do():
    _, fix = _in_a_loop("void at::native::CatArrayBatchedCopy_vectorized<int>(char*)", 9)
    assert "Write into a tensor that is made once" in fix.action
    _, fix = _in_a_loop("void at::native::vectorized_elementwise_kernel<4>(int)", 9)
    assert "Fuse them (torch.compile)" in fix.action


def _of_one_kernel(names):
    """Return what to do where the second side executes 3.5 times the instructions."""
    sides = [
        make_side(
            side,
            make_kernels(
                [
                    {"iteration": step, "kernel": name, "time_us": time, "inst_executed": count}
                    | {"issue_slot_utilization": 0.9}
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
    assert "executes 3.5 times the instructions" in fix.action
    fix = _of_one_kernel(("cudnn_sdpa_flash_fprop_64x128", "cudnn_sdpa_flash_fprop_64x64"))
    assert "times the instructions" not in fix.action
