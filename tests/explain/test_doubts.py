"""An answer is firm unless other counters contradict it; then it says what would settle it."""

import math
from dataclasses import replace

import pytest

from perfml.explain.counters.doubts import find_doubt
from perfml.explain.counters.evidence import Reason, Told
from perfml.explain.counters.experiments import check_of
from perfml.explain.counters.room import room_of, same_limit
from perfml.explain.tree.sentences import summary_sentences
from perfml.explain.tree.causes import TERMS, Contribution, Kind
from perfml.explain.results import Causes, PairCauses, Ratio
from tests.support.launches import launch

FAST = {"kernel": "k", "time_us": 100.0, "ncu_time_us": 100.0}
SLOW = {
    "kernel": "k",
    "time_us": 200.0,
    "ncu_time_us": 200.0,
    "sm_efficiency": 1.0,
    "issue_slot_utilization": 0.8,
    "stall_exec_dependency": 0.2,
}


def told(parts, *, slow=(), fast=()):
    """Return two launches with terms that are parts of the logarithm of their ratio."""
    before, after = launch({**FAST, **dict(fast)}), launch({**SLOW, **dict(slow)})
    whole = math.log(after.time_us / before.time_us)
    named = [Contribution(TERMS[name], 1.0, 2.0, part * whole) for name, part in parts.items()]
    return Told(before, after, tuple(named))


def doubt(parts, *, others=(), several=False, **sides):
    pair = told(parts, **sides)
    whole = sum(one.log_ratio for one in (*pair.contributions, *others))
    return find_doubt([pair], others, whole, several=several)


def reason(*given, **named):
    found = doubt(*given, **named)
    return None if found is None else found.reason


def test_instructions_that_fill_the_issue_slots_are_a_firm_cause():
    assert doubt({"instructions": 0.9, "wave_quantization": 0.1}) is None


def test_instructions_cannot_take_half_of_the_time_of_issue_slots_that_are_idle_four_fifths():
    idle = {"issue_slot_utilization": 0.2, "stall_sync": 0.7}
    found = doubt({"instructions": 1.0}, slow=idle)
    assert found is not None
    assert found.reason is Reason.ROOM
    assert [term.id for term in found.causes] == ["stall_sync"]
    assert "take 50 % of the slower side's time, and the counters leave it 20 %" in found.why
    assert "blocks of half the size" in found.check


def test_room_is_left_a_little_for_counters_of_several_passes():
    assert reason({"instructions": 1.0}, slow={"issue_slot_utilization": 0.36}) is None
    assert reason({"instructions": 1.0}, slow={"issue_slot_utilization": 0.34}) is Reason.ROOM


def test_memory_that_is_waited_for_has_room_without_being_busy():
    waits = {"issue_slot_utilization": 0.1, "dram_utilization": 0.1}
    cause = {"sectors_per_request": 1.0}
    assert reason(cause, slow={**waits, "stall_memory_dependency": 0.6}) is None
    assert reason(cause, slow={**waits, "stall_memory_dependency": 0.1}) is Reason.ROOM


def test_a_unit_of_which_nobody_counted_how_busy_it_is_leaves_room():
    busy = {"shared_utilization": 0.1, "stall_pipe_busy": 0.1}
    assert room_of(TERMS["shared_loads"], launch({**SLOW, **busy})) == pytest.approx(0.1)
    unknown = {**busy, "shared_utilization": math.nan}
    assert room_of(TERMS["shared_loads"], launch({**SLOW, **unknown})) == 1


def test_fewer_warps_cost_nothing_where_a_unit_is_always_busy():
    assert room_of(TERMS["theoretical_occupancy"], launch({**SLOW, "dram_utilization": 0.95})) == (
        pytest.approx(0.05)
    )
    busy = {"dram_utilization": 0.95}
    assert reason({"theoretical_occupancy": 1.0}, slow=busy) is Reason.ROOM


def test_a_cause_of_another_limit_that_is_a_third_as_large_is_a_rival():
    assert reason({"instructions": 0.70, "theoretical_occupancy": 0.20}) is None
    found = doubt({"instructions": 0.70, "wave_quantization": 0.30})
    assert found is not None
    assert found.reason is Reason.RIVAL
    assert found.sentence() == (
        "cannot tell wave quantization from instructions: it is 43 % as large, and of another "
        "limit; run it with a grid of a whole number of waves"
    )


def test_waiting_for_a_memory_is_no_rival_of_its_work():
    waits = {"stall_memory_dependency": 0.8}
    assert doubt({"l2_sectors": 0.55, "stall_memory_dependency": 0.45}, slow=waits) is None
    assert same_limit(TERMS["l2_sectors"], TERMS["stall_memory_dependency"])
    assert same_limit(TERMS["mio_throttle"], TERMS["shared_loads"])
    assert not same_limit(TERMS["shared_loads"], TERMS["l2_sectors"])
    assert not same_limit(TERMS["stall_sync"], TERMS["stall_exec_dependency"])


def test_where_the_time_goes_is_not_why():
    found = doubt({"achieved_of_theoretical": 1.0}, slow={"issue_slot_utilization": 0.1})
    assert found is not None
    assert found.reason is Reason.PLACE
    assert [term.id for term in found.causes] == ["block_imbalance", "sm_imbalance"]


def test_a_cause_in_a_guessed_counterpart_is_not_firm_beside_other_kernels():
    new = Contribution(TERMS["kernels_appeared"], 0.0, 20.0, 0.2)
    cause, renamed = {"instructions": 1.0}, {"kernel": "other"}
    assert reason(cause, others=[new], several=True) is None
    assert reason(cause, others=[new], several=True, fast=renamed) is Reason.PAIRING
    assert reason(cause, fast=renamed) is None
    small = Contribution(TERMS["kernels_appeared"], 0.0, 5.0, 0.03)
    assert reason(cause, others=[small], several=True, fast=renamed) is None


@pytest.mark.parametrize(
    ("instead_us", "why"),
    [
        ((), ""),
        ((100.0,), "in place of kernels that take 50 % of the faster side's time"),
        ((5.0,), "launches no more kernels than the faster one"),
        ((5.0, 5.0), "launches no more kernels than the faster one"),
    ],
)
def test_kernels_in_addition_are_a_reason_and_kernels_in_place_of_others_a_place(instead_us, why):
    new = launch({"kernel": "new", "time_us": 400.0, "dram_utilization": 0.8})
    old = [launch({"kernel": "old", "time_us": each}) for each in instead_us]
    parts = [
        Contribution(TERMS["kernels_appeared"], 0.0, 400.0, 1.0),
        *(Contribution(TERMS["kernels_vanished"], each, 0.0, -0.05) for each in instead_us),
    ]
    same = told({}, slow={"time_us": 100.0})
    whole = sum(each.log_ratio for each in parts)
    found = find_doubt([same], parts, whole, several=True, launches=[new, *old])
    assert (found is not None) == bool(why)
    if found is not None:
        assert found.reason is Reason.PLACE
        assert [term.id for term in found.causes] == ["dram_bytes"]
        assert why in found.why


def test_a_queue_that_several_units_share_is_only_a_place():
    assert reason({"mio_throttle": 1.0}, slow={"stall_mio_throttle": 0.9}) is Reason.PLACE


GREW = {"global_load_requests": 100.0, "global_store_requests": 0.0, "gld_transactions": 400.0}
GREW |= {"gst_transactions": 0.0, "inst_executed": 1000.0}
TWICE = {name: 2 * value for name, value in GREW.items()}


@pytest.mark.parametrize(
    ("cause", "issue", "more", "expected"),
    [
        ("global_requests", 0.68, TWICE, Reason.TOGETHER),
        ("global_requests", 0.40, TWICE, None),
        ("global_requests", 0.68, {**TWICE, "inst_executed": 1100.0}, None),
        ("sectors_per_request", 0.68, TWICE, None),
        ("instructions", 0.68, TWICE, Reason.TOGETHER),
        ("instructions", 0.68, {**TWICE, "gld_transactions": 400.0}, None),
    ],
)
def test_traffic_and_instructions_that_grew_together_in_units_as_busy_are_not_told_apart(
    cause, issue, more, expected
):
    levels = {"ldst_fu_utilization": 0.7, "issue_slot_utilization": issue}
    assert reason({cause: 1.0}, fast=GREW, slow={**more, **levels}) is expected


LOADS = {"gld_transactions": 800.0, "gst_transactions": 100.0}
ROUNDS = {"shared_load_transactions": 400.0, "shared_store_transactions": 0.0}


@pytest.mark.parametrize(
    ("cause", "fast", "slow", "other"),
    [
        # 100 requests of atomics are 400 sectors of 1,300: those of 51 grew by less than the time
        ("l2_sectors", {"global_atomic_requests": 50.0}, {"global_atomic_requests": 100.0}, "ato"),
        ("l2_sectors", {"global_atomic_requests": 51.0}, {"global_atomic_requests": 100.0}, None),
        ("l2_sectors", {"global_atomic_requests": 10.0}, {"global_atomic_requests": 24.0}, None),
        ("global_atomics", {}, {"global_atomic_requests": 100.0}, None),
        ("stall_memory_dependency", {}, {"local_load_transactions": 200.0}, "local memory"),
        ("instructions", {}, {"local_load_transactions": 200.0}, None),
        ("shared_loads", {}, {"shared_atomic_transactions": 90.0}, "shared-memory atomics"),
        ("l2_sectors", {}, {"shared_atomic_transactions": 90.0}, None),
        ("shared_loads", {}, {"inst_inter_thread_communication": 6400.0}, "lane exchange"),
        ("global_requests", {"flop_count_sp": 9.0}, {"flop_count_dp": 9.0}, "FP64"),
        ("shared_loads", {"flop_count_sp": 9.0}, {"flop_count_dp": 9.0}, None),
    ],
)
def test_a_busy_memory_does_not_say_with_which_of_two_kinds_that_grew_as_much_as_the_time(
    cause, fast, slow, other
):
    busy = {"l2_utilization": 0.8, "shared_utilization": 0.8, "issue_slot_utilization": 0.5}
    waits = {"stall_memory_dependency": 0.8}
    found = doubt({cause: 1.0}, fast=fast, slow={**LOADS, **ROUNDS, **busy, **waits, **slow})
    assert (found is None) == (other is None)
    if found is not None:
        assert found.reason is Reason.KIND
        assert other in found.sentence()
        assert "both pass the same memory" in found.sentence()


def test_how_much_of_what_passes_a_memory_is_of_the_other_kind_is_said():
    grew = {"global_atomic_requests": 100.0, "l2_utilization": 0.8, **LOADS}
    found = doubt({"l2_sectors": 1.0}, fast={"global_atomic_requests": 25.0}, slow=grew)
    assert found is not None
    assert "it is 31 % of what passes, 4 times as much" in found.sentence()


@pytest.mark.parametrize(
    ("cause", "kernels", "expected"),
    [
        ("block_slots", ("cutlass_a", "cutlass_b"), Reason.PROGRAM),
        ("stall_memory_dependency", ("mine", "cutlass_b"), Reason.PROGRAM),
        ("block_slots", ("cutlass_a", "cutlass_a"), None),
        ("block_slots", ("mine", "mine_too"), None),
        ("dram_bytes", ("cutlass_a", "cutlass_b"), None),
    ],
)
def test_how_another_kernel_of_a_library_is_built_is_not_a_firm_cause(cause, kernels, expected):
    fast, slow = ({"kernel": kernel} for kernel in kernels)
    waits = {"stall_memory_dependency": 0.9, "issue_slot_utilization": 0.1}
    found = doubt({cause: 1.0}, fast=fast, slow={**slow, **waits})
    assert (None if found is None else found.reason) is expected
    if found is not None:
        assert "change one thing at a time" in found.check


def test_a_rest_is_no_claim_and_needs_no_doubt():
    assert doubt({"throughput": 0.9, "instructions": 0.1}) is None
    assert find_doubt([], [], 0.0, several=False) is None


def test_a_difference_of_three_per_cent_is_not_firm():
    slow = {"time_us": 103.0, "ncu_time_us": 103.0}
    assert reason({"instructions": 0.9, "wave_quantization": 0.1}, slow=slow) is Reason.SMALL


def test_the_first_sentence_says_the_check_and_json_has_it_with_its_reason():
    pair = told({"instructions": 0.70, "wave_quantization": 0.30})
    ratio = math.log(2)
    untold = find_doubt([pair], [], ratio, several=False)
    causes = Causes((PairCauses("k", None, pair.contributions),), ratio, (), untold)
    time = Ratio(100.0, 200.0, ratio, None, None, (1, 1), "slower")
    assert summary_sentences(time, causes)[0].endswith("a grid of a whole number of waves")
    document = causes.to_dict()["untold"]
    assert document["reason"] == "rival"
    assert document["check"] == "run it with a grid of a whole number of waves"
    assert not causes.firm


@pytest.mark.parametrize(
    ("parts", "firm"),
    [
        ({"instructions": 0.9, "stall_sync": 0.1}, True),
        ({"instructions": 0.45, "stall_sync": 0.1, "throughput": 0.45}, False),
        ({"throughput": 0.9, "instructions": 0.1}, False),
    ],
)
def test_a_firm_cause_is_half_of_the_ratio_and_no_rest(parts, firm):
    ratio = math.log(2)
    causes = Causes((PairCauses("k", None, told(parts).contributions),), ratio)
    assert causes.firm is firm
    assert causes.to_dict()["firm"] is firm
    assert not replace(causes, log_ratio=0.0).firm


def test_who_calls_a_librarys_kernel_is_not_asked_to_launch_it_in_another_way():
    waves = TERMS["wave_quantization"]
    assert "whole number of waves" in check_of(waves, "my_kernel").text
    assert "twice the batch" in check_of(waves, "sm90_xmma_gemm_f32f32").text
    assert check_of(TERMS["stall_sync"], "sm90_xmma_gemm_f32f32").section == "SourceCounters"


@pytest.mark.parametrize("term", TERMS.values(), ids=lambda term: term.id)
def test_every_term_has_a_check_and_room_between_nothing_and_all(term):
    assert check_of(term).text
    full = dict.fromkeys(("dram_utilization", "shared_utilization", "alu_utilization"), 1.0)
    assert 0 <= room_of(term, launch({**SLOW, **full})) <= 1
    if term.kind is Kind.LAUNCH:
        assert room_of(term, launch(SLOW)) == 1
