"""Counters of one launch that tell how it got to its cause; each is told only where all agree."""

import pytest

from perfml.explain import advise
from perfml.explain.advice.first_fix import action_for
from perfml.explain.advice.rules import shipped_rules
from perfml.explain.advice.situations import action_here
from perfml.explain.launches import Launch
from perfml.explain.tree.causes import TERMS
from tests.support.tables import make_kernels

ALONE = {"warp_execution_efficiency": 0.24, "stall_sync": 0.91}
SINES = {
    "local_load_transactions": 6e6,
    "inst_bit_convert": 67e6,
    "flop_count_dp_mul": 17e6,
    "flop_count_dp_add": 0.0,
    "flop_count_dp_fma": 0.0,
    "flop_count_sp": 380e6,
}
HOST = {
    "stall_memory_dependency": 0.97,
    "dram_utilization": 0.07,
    "l2_utilization": 0.05,
    "gld_efficiency": 0.9,
    "gld_transactions": 2.6e6,
    "l2_read_transactions": 3.9e6,
    "dram_read_bytes": 67e6,
    "global_load_requests": 2.6e5,
    "inst_executed": 5.9e6,
    "ipc": 0.07,
    "achieved_occupancy": 0.81,
    "global_atomic_requests": 0.0,
    "global_reduction_requests": 0.0,
    "local_load_transactions": 0.0,
}
SCATTERED = {
    "gst_efficiency": 0.125,
    "gst_transactions": 33.6e6,
    "gld_transactions": 8.4e6,
    "dram_read_bytes": 1.2e9,
    "dram_write_bytes": 1.0e9,
    "stall_drain": 0.33,
    "global_atomic_requests": 0.0,
    "global_reduction_requests": 0.0,
    "local_load_transactions": 0.0,
}
WAYS = [
    ("dram_bytes_per_sector", SCATTERED, "Store in order"),
    ("stall_sync", ALONE, "all threads of the block"),
    ("integer_arithmetic", SINES, "sinpif"),
    ("stall_memory_dependency", HOST, "copy it to the device"),
]


def said(term, counters, kernel="mine"):
    return action_for(TERMS[term], Launch(kernel, 100.0, counters), None)


@pytest.mark.parametrize(("term", "counters", "words"), WAYS)
def test_the_author_is_told_the_fix_for_this_way_to_the_cause(term, counters, words):
    assert words in said(term, counters)
    assert said("memory_fence", counters) == TERMS["memory_fence"].action
    assert words not in said(term, counters, kernel="sm80_xmma_gemm_f32f32_f32f32_tn")


@pytest.mark.parametrize(("term", "counters", "words"), WAYS)
def test_without_one_of_its_counters_nothing_more_is_claimed(term, counters, words):
    for missing in counters:
        fewer = {name: value for name, value in counters.items() if name != missing}
        # without an occupancy it is taken to be full, which makes no wait longer
        if missing != "achieved_occupancy":
            assert action_here(term, Launch("mine", 100.0, fewer)) is None, missing


@pytest.mark.parametrize(
    ("term", "counters"),
    [
        ("stall_sync", ALONE | {"warp_execution_efficiency": 1.0}),
        ("stall_sync", ALONE | {"stall_sync": 0.2}),
        ("integer_arithmetic", SINES | {"flop_count_dp_fma": 5e6}),
        ("integer_arithmetic", SINES | {"local_load_transactions": 0.0}),
        ("dram_bytes_per_sector", SCATTERED | {"gst_efficiency": 1.0}),
        ("dram_bytes_per_sector", SCATTERED | {"dram_read_bytes": 0.4e9}),
        ("stall_memory_dependency", HOST | {"ipc": 0.7}),
        ("stall_memory_dependency", HOST | {"dram_utilization": 0.5}),
        ("stall_memory_dependency", HOST | {"gld_efficiency": 0.1}),
        ("stall_memory_dependency", HOST | {"global_reduction_requests": 9e5}),
    ],
)
def test_another_way_to_the_same_cause_keeps_the_general_action(term, counters):
    assert said(term, counters) == TERMS[term].action


@pytest.mark.parametrize("kernel", ["mine", "sm80_xmma_gemm_f32f32_f32f32_tn"])
def test_advise_tells_the_author_before_what_the_rule_says(kernel):
    table = make_kernels([{"kernel": kernel, "time_us": 100.0, **ALONE}])
    findings = advise(table).table.to_dict("records")
    (row,) = [each for each in findings if "barrier_stalls" in each["rules"]]
    text = row["mitigation"] if kernel == "mine" else row["for_author"]
    assert text.startswith("Few threads work while")
    rules = {rule.id: rule for rule in shipped_rules()}
    assert text.endswith(rules[row["rules"][0]].mitigation)
    assert (row["for_author"] is None) == (kernel == "mine")
