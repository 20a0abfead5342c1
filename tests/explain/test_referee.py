"""The laws of what a fix can save, on launches that broke them and on any others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.explain import advise
from perfml.explain.advice.answer import file_rules, in_one_order
from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.advice.findings import Layer, launch_findings
from perfml.explain.advice.referee import most_saved
from perfml.explain.advice.symptoms import situation_of
from perfml.explain.limits.state import LaunchState
from perfml.explain.remedies import Situation, remedy_for
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.ideal import ideal_of
from perfml.explain.tree.limits import fullest, limit_of
from perfml.explain.tree.one_side import has_ideal
from perfml.util.findings import Time
from tests.support.launches import launch
from tests.support.paths import PUBLIC
from tests.support.tables import make_kernels

CASES = PUBLIC.parents[1] / "cases" / "recordings_2026_11_28"
CAUSES = sorted(name for name in TERMS if has_ideal(name))


def most(cause, **counters):
    return most_saved(LaunchState(launch({"kernel": "k", "time_us": 100.0, **counters})), cause)


def test_no_occupancy_helps_a_launch_whose_memory_is_full():
    counters = {"theoretical_occupancy": 0.67, "achieved_occupancy": 0.65}
    assert most("theoretical_occupancy", **counters, memory_level=0.975) <= 0.025 + 1e-9
    assert most("theoretical_occupancy", **counters) > 0.2


def test_a_pipe_that_is_hardly_busy_saves_no_more_than_that():
    busy = {"double_precision_fu_utilization": 0.07, "dram_utilization": 0.08}
    assert most("fp64_pipe_time", **busy) <= 0.07 + 1e-9


def test_nothing_is_shorter_than_the_start_of_a_launch():
    state = LaunchState(launch({"kernel": "k", "time_us": 3.39, "waves_per_sm": 0.01}))
    assert most_saved(state, "wave_quantization") <= 1 - 1.9 / 3.39
    short = LaunchState(launch({"kernel": "k", "time_us": 1.9}))
    assert most_saved(short, "stall_constant_memory_dependency") == 0


def test_equal_blocks_in_many_waves_have_one_tail():
    counters = {"waves_per_sm": 85.33, "achieved_occupancy": 0.3, "theoretical_occupancy": 1.0}
    assert most("block_imbalance", **counters) <= 1 / 86


def test_what_moves_no_more_than_is_asked_for_is_no_waste():
    stores = {"gst_transactions": 4e6, "global_store_requests": 1e6, "gld_transactions": 0.0}
    asked = {"gst_efficiency": 1.0, "global_load_requests": 0.0, "dram_utilization": 0.91}
    assert most("sectors_per_request", **stores, **asked) == 0


def test_another_limit_that_allows_as_many_blocks_keeps_the_remedy_away():
    limits = {"registers": 1.0, "warps": 1.0, "shared_memory": 8.0, "slots": 16.0}
    counters = {f"resident_blocks_limit_{name}": value for name, value in limits.items()}
    tied = launch({"time_us": 1.0, "registers_per_thread": 36.0, **counters})
    assert situation_of(tied).limit == ""


@pytest.mark.skipif(not CASES.is_dir(), reason="made by hand, not committed")
@pytest.mark.parametrize(
    ("name", "denied"),
    [
        ("saturated_unit_occupancy.csv", "theoretical_occupancy"),
        ("one_thread_imc.csv", "constant_serialization"),
        ("fill_four_sectors.csv", "sectors_per_request"),
        ("sequential_products.sqlite", "repeated_products"),
    ],
)
def test_what_the_recording_rules_out_is_not_said(name, denied):
    assert not any(denied in one.rules for one in advise(str(CASES / name)).findings)


LEVELS = st.floats(0.0, 1.0)


@given(
    cause=st.sampled_from(CAUSES),
    time=st.floats(0.5, 1e5),
    levels=st.dictionaries(
        st.sampled_from(
            (
                *("dram_utilization", "l2_utilization", "shared_utilization", "memory_level"),
                *("issue_slot_utilization", "double_precision_fu_utilization", "compute_level"),
                *("achieved_occupancy", "theoretical_occupancy", "sm_efficiency"),
                *("stall_sync", "stall_memory_dependency", "stall_exec_dependency"),
            )
        ),
        LEVELS,
    ),
)
def test_of_any_launch_a_fix_leaves_its_start_and_what_it_does_not_touch(cause, time, levels):
    state = LaunchState(launch({"kernel": "k", "time_us": time, **levels}))
    saved = most_saved(state, cause)
    assert 0 <= saved <= 1
    assert (1 - saved) * time >= min(1.9, time) * (1 - 1e-9)
    if cause in ("stall_sync", "theoretical_occupancy", "achieved_of_theoretical"):
        assert saved <= 1 - min(1.0, fullest(state)) + 1e-9
        most_of = max(levels.get("memory_level", 0.0), levels.get("compute_level", 0.0))
        assert saved <= 1 - most_of + 1e-9


def step(cause, us):
    gain = Gain(Time(us, "step"), Time(us, "step"), "clock")
    texts = {"hazard": cause, "evidence": "", "mitigation": "", "command": "tf32"}
    where = {"where": Where(), "holds": Time(100.0, "step"), "probability": 0.6}
    return Finding(rules=(cause,), gain=gain, **where, **texts)


def test_the_order_is_probability_times_likely_gain_and_what_has_no_number_is_last():
    sure, large = step("a", 50.0), step("b", 60.0)
    nothing = replace(step("Rule", 0.0), where=Where(("k",), "k"), gain=None)
    found = in_one_order((), (sure, large), [(nothing, frozenset())])
    assert [one.rules for one in found] == [("b",), ("a",), ("Rule",)]


def said_by_ncu(launches=(), **rule):
    """Return what a rule of Nsight Compute says of the one kernel of a table."""
    table = make_kernels([{"kernel": "k", "time_us": 100.0}])
    shape = dict(zip(("grid", "block"), table[["grid", "block"]].iloc[0], strict=True))
    words = "limited by the number of registers"
    known = {"rule": "TheoreticalOccupancy", "message": words, "kernel": "k", **shape, **rule}
    return file_rules(table, [{"rules": [known]}], launches)


def test_what_nsight_compute_estimates_obeys_the_laws_of_the_cause_that_it_names():
    full = launch({"kernel": "k", "time_us": 100.0, "theoretical_occupancy": 0.5})
    counters = {**full.counters, "dram_utilization": 0.9}
    ((bounded, _),) = said_by_ncu((replace(full, counters=counters),), saves=0.5, scope="global")
    assert bounded.saved_us <= 100.0 * (1 - 0.9) + 1e-6
    ((free, means),) = said_by_ncu(saves=0.5, scope="global")
    assert (free.saved_us, free.rules) == (50.0, ("TheoreticalOccupancy",))
    assert "theoretical_occupancy" in means


def test_a_rule_that_estimates_nothing_and_names_no_cause_has_no_content():
    assert said_by_ncu(rule="SOLBottleneck", message="Low throughput. Look elsewhere.") == ()
    assert said_by_ncu(rule="Unheard", message="It waits. Wait less.", saves=0.2)


SHARED = {"rule": "UncoalescedSharedAccess", "message": "uncoalesced shared accesses"}
STORES = {"rule": "MemoryCacheAccessPattern", "message": "global stores to L1TEX might not be"}


def test_an_estimate_is_no_longer_than_the_unit_is_busy_by_any_total_of_the_file():
    idle = launch({"kernel": "k", "time_us": 100.0, "memory_level": 0.06, "ipc": 0.8})
    ((one, _),) = said_by_ncu((idle,), **SHARED, saves=0.8, scope="global")
    assert one.saved_us <= 6.0 + 1e-6


def test_an_estimate_is_no_more_than_its_accesses_have_of_the_unit_s_work():
    counters = {
        "gld_transactions": 4e6,
        "global_load_requests": 1e6,
        "gld_efficiency": 1.0,
        "gst_transactions": 8e4,
        "global_store_requests": 5e3,
        "gst_efficiency": 0.25,
        "dram_utilization": 0.2,
        "l2_utilization": 0.2,
        "memory_level": 0.3,
    }
    few = launch({"kernel": "k", "time_us": 100.0, **counters})
    ((one, _),) = said_by_ncu((few,), **STORES, saves=0.35, scope="global")
    assert one.likely_us < 5.0
    assert one.probability < 0.2


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("MemoryL2Compression", "Out of 9 bytes sent to the L2 Compression unit only 0.00% were"),
        ("", "All compute pipelines are under-utilized. Either"),
        ("CPIStall", "stalled waiting for the micro scheduler to select the warp to issue"),
        ("PMSamplingData", "Sampling interval is larger: very few collected samples."),
    ],
)
def test_a_result_without_anything_to_do_is_not_said(rule, message):
    assert said_by_ncu(rule=rule, message=message, saves=0.4, scope="global") == ()


@pytest.mark.parametrize(
    ("rule", "message", "cause"),
    [
        ("CPIStall", "waiting for the MIO (memory input/output) instruction queue", "mio_throttle"),
        ("CPIStall", "for an MIO instruction queue to be not full", "mio_throttle"),
        ("CPIStall", "the local/global instruction queue to be", "stall_memory_throttle"),
        ("CPIStall", "queue for local and global (LG) memory", "stall_memory_throttle"),
        ("CPIStall", "an immediate constant cache (IMC)", "stall_constant_memory_dependency"),
        ("", "Threads are executed in groups of 32 threads called warps.", "partial_warps"),
        ("", "The memory access pattern for local loads from L1TEX", "local_memory"),
        ("WorkloadImbalance", "One or more SMs have a much lower number", "sm_imbalance"),
    ],
)
def test_a_rule_is_said_in_the_words_of_the_cause_that_its_message_names(rule, message, cause):
    ((one, means),) = said_by_ncu(rule=rule, message=message, saves=0.4, scope="global")
    assert cause in means
    assert one.mitigation == remedy_for(cause, Situation()).say != ""


def test_what_names_no_known_cause_has_no_number():
    ((one, means),) = said_by_ncu(rule="Unheard", message="It waits. Wait less.", saves=0.2)
    assert (one.gain, means) == (None, frozenset())


def test_waits_of_kinds_of_traffic_are_not_known_where_copies_wait_too():
    counters = {"gld_transactions": 1.0, "gst_transactions": 1.0, "l2_read_transactions": 1e6}
    counters |= {"l2_write_transactions": 1.0, "stall_memory_dependency": 0.7}
    state = LaunchState(launch({"kernel": "k", "time_us": 100.0, **counters}))
    assert np.isnan(state["wait.local_memory"])


UNITS = {"dram_utilization": 0.97, "l2_utilization": 0.66, "shared_utilization": 1.0}
PLANTED = {"sectors_per_request": 32.0, "bank_conflicts": 32.0, "dram_bytes": 20.0, "stall_sync": 0}
"""A cause, and by how much it is more than needed at most."""
OVERLAPS = 2.5  # how far units work at the same time (`thresholds.OVERLAP`)


def machine(rng, cause):
    """Return a launch of a machine whose units overlap in part, and what mending a cause saves."""
    more = rng.uniform(2, PLANTED[cause]) if PLANTED[cause] else 1.0
    busy = dict(zip(UNITS, rng.uniform(1, 30, 3), strict=True))
    slow = "shared_utilization" if cause == "bank_conflicts" else "dram_utilization"
    busy[slow] += 60 if PLANTED[cause] else 0
    waits = rng.uniform(5, 20)
    barrier = rng.uniform(30, 300) if cause == "stall_sync" else 0.0
    after = busy | {slow: busy[slow] / more}
    if cause in ("sectors_per_request", "dram_bytes"):
        after["l2_utilization"] = busy["l2_utilization"] / more

    def time(units, barrier):
        return waits + barrier + sum(us**OVERLAPS for us in units.values()) ** (1 / OVERLAPS)

    now = time(busy, barrier)
    sectors = 4 * more if cause == "sectors_per_request" else 4.0
    counters = {name: UNITS[name] * us / now for name, us in busy.items()} | {
        "gld_transactions": sectors * 1e6,
        "gst_transactions": 0.0,
        "global_load_requests": 1e6,
        "global_store_requests": 0.0,
        "gld_efficiency": 4 / sectors,
        "gst_efficiency": 1.0,
        "shared_load_transactions": 1e6 * (more if cause == "bank_conflicts" else 1.0),
        "shared_store_transactions": 0.0,
        "inst_executed_shared_loads": 1e6,
        "shared_efficiency": 1 / more if cause == "bank_conflicts" else 1.0,
        "dram_read_bytes": 32 * sectors * 1e6,
        "dram_write_bytes": 0.0,
        "stall_sync": barrier / now,
        "stall_memory_dependency": waits / now,
    }
    row = {"kernel": "k", "time_us": now, "sm_efficiency": 1.0, **counters}
    return row, 1 - time(after, 0.0) / now


@pytest.mark.parametrize("cause", PLANTED)
def test_what_a_machine_saves_without_a_cause_lies_between_least_and_most(cause):
    rng, inside, named = np.random.default_rng(3), 0, 0
    for _ in range(60):
        row, saved = machine(rng, cause)
        layer = Layer({"layer": "k", "layer_us": row["time_us"]}, (launch(row),), ("k",))
        for one in launch_findings(layer):
            if cause in {ideal_of(rule) for rule in one.rules}:
                named += 1
                inside += one.least_us <= saved * one.holds.us <= one.saved_us * (1 + 1e-6)
    assert named >= 30
    assert inside >= 0.8 * named


def at_roof(rules, column="dram_utilization", level=0.91, time=100.0):
    """Return the findings of a report of one kernel at its roof, with rules of Nsight Compute."""
    table = make_kernels([{"kernel": "k", "time_us": time, column: level}])
    shape = dict(zip(("grid", "block"), table[["grid", "block"]].iloc[0], strict=True))
    total = {"kernel": "k", **shape, "compute": 0.2, "memory": level}
    results = [{"kernel": "k", **shape, **rule} for rule in rules]
    return advise(table, sources=[{"rules": results, "speed_of_light": [total]}]).findings


WAITS = {
    "rule": "CPIStall",
    "message": "On average, each warp spends 40 cycles being stalled waiting for a scoreboard "
    "dependency on a L1TEX operation.",
}


@pytest.mark.parametrize(
    "estimate", [{}, {"saves": 0.6, "scope": "local"}, {"saves": 0.6, "scope": "global"}]
)
@pytest.mark.parametrize(
    ("column", "unit"), [("threads", "Memory"), ("l1_utilization", limit_of("l1").label)]
)
def test_of_a_kernel_at_its_roof_the_full_unit_stands_before_what_it_waits_for(
    estimate, column, unit
):
    first, *others = at_roof([{**WAITS, **estimate}], column)
    assert {"memory", "not_known"} == {*first.rules}
    assert first.hazard.startswith(unit)
    assert first.level == pytest.approx(0.91)
    assert any("CPIStall" in one.rules for one in others)
    assert all(not one.saved_us > 9.0 + 1e-6 for one in others)


def test_of_a_kernel_below_its_roof_a_wait_that_saves_much_stands_first():
    first = at_roof([{**WAITS, "saves": 0.6, "scope": "global"}], level=0.3)[0]
    assert first.rules == ("CPIStall",)


def test_what_lessens_the_work_of_the_unit_at_its_roof_stands_first():
    first = at_roof([{**WAITS, "saves": 0.6, "scope": "global"}], "dram_utilization")[0]
    assert first.rules == ("dram_busy_time",)
    assert first.likely_us > 9.0
