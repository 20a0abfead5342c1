"""A cause is denied by what must be seen beside it, and only by that; its part is given on."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache

import pytest

from perfml.chips import chip
from perfml.datasets import find
from perfml.explain import explain, load_tables, make_side
from perfml.explain.advice.findings import in_order, launch_findings
from perfml.explain.advice.table import Layer
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.engine import decompose_pair
from perfml.explain.tree.pair import Pair, why_denied
from perfml.explain.tree.work import KINDS
from perfml.ingest.merge.rule import merge
from perfml.metrics.sets import STALLS
from perfml.report.sections.layer_detail import layer_section
from tests.support.launches import launch
from tests.support.paths import ROOT

ALIKE = ROOT / "studies/workloads/planted/alike.toml"
FAST = {
    "kernel": "k",
    "time_us": 50.0,
    "ncu_time_us": 50.0,
    "sm_efficiency": 1.0,
    "waves_per_sm": 4.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "global_load_requests": 1e6,
    "global_store_requests": 1e5,
    "gld_transactions": 16e6,
    "gst_transactions": 4e5,
    "gld_efficiency": 1.0,
    "gst_efficiency": 1.0,
    "ipc": 1.0,
    "l2_read_transactions": 4e6,
    "l2_write_transactions": 4e5,
    "l2_utilization": 0.2,
    "dram_read_bytes": 1e8,
    "dram_write_bytes": 1e6,
    "dram_utilization": 0.2,
    "inst_executed": 1e7,
    "constant_cache_requests": 1e6,
    "constant_cache_utilization": 0.1,
    "inst_executed_shared_loads": 1e6,
    "shared_load_transactions": 1e6,
    "shared_store_transactions": 1e5,
    "shared_efficiency": 1.0,
    "imbalance": 1.0,
    "sm_active_cycles_max": 1000.0,
    "sm_active_cycles_mean": 1000.0,
    "special_fu_utilization": 0.01,
    "single_precision_fu_utilization": 0.3,
    "double_precision_fu_utilization": 0.3,
    "tensor_utilization": 0.3,
    "alu_utilization": 0.3,
    "issue_slot_utilization": 0.4,
    "shared_utilization": 0.4,
    "flop_count_sp": 1e8,
    "flop_count_dp": 1e7,
    "flop_count_hp": 0.0,
    "inst_integer": 1.6e9,
    "inst_bit_convert": 1e7,
    "inst_inter_thread_communication": 1.6e7,
    "ldgsts_efficiency": 1.0,
    "warp_execution_efficiency": 1.0,
    "l2_atomic_utilization_max": 0.3,
    "shared_atomic_transactions": 1e6,
    "local_load_transactions": 1e4,
    "local_store_transactions": 0.0,
    "inst_executed_bulk_copies": 1e4,
    "bulk_copy_bytes": 1e8,
    "resident_blocks_limit_slots": 1.0,
    "resident_blocks_limit_registers": 1.0,
    "resident_blocks_limit_shared_memory": 1.0,
    "resident_blocks_limit_warps": 1.0,
    **dict.fromkeys((*STALLS, "stall_membar"), 0.1),
    "stall_math_pipe_throttle": 0.1,
    "stall_mio_throttle": 0.1,
    "stall_sync": 0.2,
    "stall_pipe_busy": 0.8,
}


def denied(cause, fast=(), **slow):
    """Why a cause is denied of a launch of twice the time, with counters that differ."""
    sides = launch(FAST | dict(fast)), launch({**FAST, "time_us": 100.0, **slow})
    return why_denied(Pair(*sides, single=True), cause)


BUSY = {
    # by cause: what it is with, and without what must be seen beside it
    "tensor_pipe_time": ({"tensor_utilization": 0.8}, {"flop_count_hp": 6.4e8}),
    "fp32_operations": ({"flop_count_sp": 4e8}, {"single_precision_fu_utilization": 0.1}),
    "fp32_pipe_time": ({"flop_count_sp": 4e8}, {}),
    "fp64_pipe_time": ({"flop_count_dp": 1e8}, {"flop_count_dp": 0.0}),
    "special_function_pipe_time": ({"special_fu_utilization": 0.6}, {}),
    "instructions": ({}, {"issue_slot_utilization": 0.2}),
    "dram_bytes": ({"dram_read_bytes": 2e8}, {"dram_utilization": 0.1}),
    "dram_busy_time": ({}, {"dram_read_bytes": 2.2e8}),
    "l2_sectors": ({"l2_read_transactions": 8e6}, {"l2_utilization": 0.1}),
    "l2_busy_time": ({}, {"l2_read_transactions": 9e6}),
    "l1_sectors": ({"gld_transactions": 64e6}, {}),
    "shared_memory_busy_time": (
        {"shared_load_transactions": 4e6},
        {"shared_load_transactions": 0.0, "shared_store_transactions": 0.0},
    ),
    "integer_arithmetic": (
        {"inst_integer": 3.2e9},
        {"inst_integer": 1.65e9, "global_load_requests": 4e6},
    ),
    "integer_division": (
        # divisions; conversions of floats
        {"inst_integer": 3.2e9, "inst_bit_convert": 2.1e8},
        {"inst_integer": 1.7e9, "inst_bit_convert": 2.1e8},
    ),
    "constant_serialization": (
        # eight constants a warp; one, by an index that is computed
        {"constant_cache_requests": 1e7, "constant_cache_utilization": 0.9},
        {"constant_cache_requests": 2e6, "constant_cache_utilization": 0.9},
    ),
    "indexed_constants": ({"constant_cache_requests": 2e6}, {"inst_executed": 2e8}),
    "global_atomics": ({"l2_atomic_transactions": 1e6}, {"l2_atomic_transactions": 0.0}),
    "active_threads_per_warp": (
        {"inst_executed": 2e7, "warp_execution_efficiency": 0.5},
        {"warp_execution_efficiency": 0.5},
    ),
    "global_requests": ({"global_load_requests": 4e7}, {"global_load_requests": 2e6}),
    "sectors_per_request": (
        {"gld_transactions": 64e6},
        {"global_load_requests": 2.5e5, "gld_transactions": 15e6},
    ),
    "uncoalesced_loads": ({"gld_efficiency": 0.5}, {"gld_efficiency": 0.99}),
    "uncoalesced_copies": ({"ldgsts_efficiency": 0.5}, {"ldgsts_efficiency": 0.99}),
    "uncoalesced_stores": ({"gst_efficiency": 0.5}, {"gst_efficiency": 0.99}),
    "l2_sectors_per_l1_sector": (
        {"l2_read_transactions": 8e6},
        {"gld_transactions": 4e6, "l2_read_transactions": 3e6},
    ),
    "dram_bytes_per_sector": (
        {"dram_read_bytes": 2e8},
        {"gld_transactions": 4e6, "dram_read_bytes": 9e7},
    ),
    "shared_loads": (
        {"inst_executed_shared_loads": 4e6},
        {"inst_executed_shared_loads": 4e6, "shared_utilization": 0.1},
    ),
    "wavefronts_per_shared_load": (
        # lanes that meet in a bank; loads four times as wide
        {"shared_load_transactions": 4e6, "shared_efficiency": 0.25},
        {"inst_executed_shared_loads": 5e5, "shared_load_transactions": 2e6},
    ),
    "bank_conflicts": (
        {"shared_efficiency": 0.25, "shared_load_transactions": 4e6},
        {"shared_efficiency": 0.25},
    ),
    "shared_atomics": (
        {"shared_atomic_transactions": 1e7},
        {"shared_atomic_transactions": 1e7, "shared_utilization": 0.1},
    ),
    "lsu_pipe_time": (
        {"inst_inter_thread_communication": 3.2e8},
        {"inst_inter_thread_communication": 3.2e7, "shared_load_transactions": 9e6},
    ),
    "local_memory": ({"local_load_transactions": 4e6}, {"local_load_transactions": 1e5}),
    "narrow_access": (
        # four times the requests for the same sectors; broadcasts that are loaded on top
        {"global_load_requests": 4e6},
        {"global_load_requests": 4e6, "gld_transactions": 32e6, "gld_efficiency": 0.5},
    ),
    "redundant_traffic": (
        # loaded again from L2; as much more that was never read
        {"global_load_requests": 2e6, "gld_transactions": 32e6},
        {"global_load_requests": 2e6, "gld_transactions": 32e6, "dram_read_bytes": 2e8},
    ),
    "async_copy": ({"stall_memory_dependency": 0.5}, {"stall_memory_dependency": 0.01}),
    "narrow_copies": (
        {"inst_executed_bulk_copies": 4e4, "bulk_copy_bytes": 1e8},
        {"bulk_copy_bytes": 5e7},
    ),
    "tensor_unused": (
        # floats in place of matrices; in place of packed halves
        {"tensor_utilization": 0.0},
        {"tensor_utilization": 0.0, "fast": {"flop_count_hp": 6.4e8}},
    ),
    "theoretical_occupancy": (
        {"theoretical_occupancy": 0.5, "achieved_occupancy": 0.4},
        {"theoretical_occupancy": 0.9},
    ),
    "achieved_of_theoretical": ({"achieved_occupancy": 0.4}, {"theoretical_occupancy": 1.01}),
    "wave_quantization": (
        {"waves_per_sm": 1.1, "sm_efficiency": 0.6},
        {"waves_per_sm": 3.9},
    ),
    "block_slots": (
        {"theoretical_occupancy": 0.5, "achieved_occupancy": 0.4},
        {"theoretical_occupancy": 0.9},
    ),
    "block_imbalance": (
        # a few waves of uneven blocks; 85 waves with few warps
        {"achieved_occupancy": 0.4, "sm_active_cycles_max": 1400.0},
        {"achieved_occupancy": 0.4, "sm_active_cycles_max": 1400.0, "waves_per_sm": 85.0},
    ),
    "sm_imbalance": (
        # a block with most of the work; 198 equal blocks on 132 multiprocessors
        {"sm_active_cycles_max": 1400.0},
        {"sm_active_cycles_max": 1330.0, "waves_per_sm": 1.5},
    ),
    "memory_fence": ({"stall_membar": 0.4, "stall_sync": 0.5}, {"stall_membar": 0.01}),
    "math_throttle": ({"stall_math_pipe_throttle": 0.4}, {"stall_math_pipe_throttle": 0.01}),
    "mio_throttle": ({"stall_mio_throttle": 0.4}, {"stall_mio_throttle": 0.01}),
    "stall_exec_dependency": ({}, {"stall_exec_dependency": 0.01}),
    **{
        name: ({name: 0.6}, {name: 0.01})
        for name, term in TERMS.items()
        if term.kind is Kind.STALL and term.evidence == (name,) and name != "stall_exec_dependency"
    },
}
COUNTED = (Kind.LAUNCH, Kind.MEASUREMENT, Kind.RESIDUAL)
"""Kinds of what is counted, or left over, and not concluded from counters."""


@pytest.mark.parametrize("cause", [n for n, term in TERMS.items() if term.kind not in COUNTED])
def test_each_cause_holds_and_its_look_alike_is_denied_with_a_reason(cause):
    assert cause in BUSY, f"give BUSY a launch with {cause} and a look-alike that `beside` denies"
    true, alike = BUSY[cause]
    assert denied(cause, **true) == ""
    assert denied(cause, **alike) in TERMS[cause].beside
    heir = TERMS[cause].gives
    assert heir != cause
    assert heir == "" or heir in TERMS


class Side:
    """A side of a pair of which every formula has one number."""

    def __init__(self, number):
        self.value = lambda formula: number


@pytest.mark.parametrize("cause", [term.id for term in TERMS.values() if term.level is not None])
def test_a_cause_is_denied_where_it_is_better_on_the_slower_side(cause):
    term, made = TERMS[cause], object.__new__(Pair)
    for slow, fast in ((2.0, 1.0), (1.0, 2.0)):
        made.slow, made.fast, made.ideal = Side(slow), Side(fast), True
        made.quantity = lambda name: float("nan")
        better = (slow > fast) if term.falls else (slow < fast)
        # what warps wait for is a share of a time that changed too
        assert bool(why_denied(made, cause)) is (better and term.kind is not Kind.STALL)


def test_look_alikes_say_which_causes_may_stand_first():
    text = ALIKE.read_text(encoding="utf-8")
    source = ALIKE.with_suffix(".cu").read_text(encoding="utf-8")
    for kernel, accepted in tomllib.loads(text).items():
        assert f"KERNEL({kernel})" in source
        assert {name for names in accepted for name in names} <= set(TERMS)


RECORDED = find("h200-alike")


@cache
def recorded():
    return load_tables(RECORDED)


def explained(kernel, *versions):
    chosen = []
    for version in versions:
        rows = recorded()[1].query("backend == @version and layer == @kernel")
        chosen.append(make_side(version, merge(rows), rows))
    answer = explain(*chosen, model=None)
    (detail,) = answer.details
    return answer, detail, detail.causes.towards(detail.time.log_ratio)[0].term.id


@pytest.mark.parametrize("version", ["cause", "alike"])
@pytest.mark.parametrize("kernel", tomllib.loads(ALIKE.read_text(encoding="utf-8")))
def test_recorded_look_alikes_have_the_cause_of_their_label_in_both_directions(kernel, version):
    accepted = tomllib.loads(ALIKE.read_text(encoding="utf-8"))[kernel][version == "alike"]
    _, _, first = explained(kernel, "base", version)
    assert explained(kernel, version, "base")[2] == first
    assert first in accepted


def test_why_a_cause_is_denied_is_in_the_json_and_in_all_that_more_shows():
    answer, detail, _ = explained("redundant_traffic", "base", "alike")
    (why,) = TERMS["redundant_traffic"].beside
    assert detail.to_dict()["causes"]["denied"]["redundant_traffic"] == why
    assert why in str(layer_section(detail, answer, evidence=True))
    assert (
        "redundant_traffic" not in explained("redundant_traffic", "base", "cause")[1].causes.denied
    )


def test_blocks_that_all_run_at_once_on_equally_busy_multiprocessors_are_not_uneven():
    assert denied("block_imbalance", achieved_occupancy=0.4, waves_per_sm=0.9)


def test_what_was_not_counted_denies_nothing():
    unknown = {name: float("nan") for name in ("gld_transactions", "dram_read_bytes")}
    assert not denied("narrow_access", global_load_requests=4e6, **unknown)
    assert not denied("redundant_traffic", global_load_requests=2e6, **unknown)


def test_the_part_of_a_denied_cause_is_given_on_and_nothing_is_lost():
    slow = {**FAST, "time_us": 100.0, "ncu_time_us": 100.0, "dram_utilization": 0.9}
    slow |= BUSY["redundant_traffic"][1]
    found = decompose_pair(launch(FAST), launch(slow), single=True)
    named = {one.term.id: one.log_ratio for one in found.contributions}
    assert "redundant_traffic" not in named
    assert max(named, key=lambda name: named[name]) == "dram_bytes"
    assert sum(named.values()) == pytest.approx(0.693, abs=1e-3)


@pytest.mark.parametrize(("capability", "rate"), [("7.5", 2), ("8.9", 2), ("8.0", 32), ("9.0", 64)])
def test_doubles_take_the_cycles_of_the_chip_at_hand(capability, rate):
    one = launch({"time_us": 1.0, "capability": capability})
    assert KINDS["fp64_pipe_time"].cycles(one) == pytest.approx(1 / rate)


def test_a_grid_that_leaves_multiprocessors_without_a_block_comes_before_the_busy_unit():
    row = {**FAST, "waves_per_sm": 0.001, "achieved_occupancy": 0.1, "sm_efficiency": 2 / 132}
    row |= {"double_precision_fu_utilization": 0.41, "flop_count_dp": 1e9, "time_us": 1000.0}
    row |= {"ncu_time_us": 1000.0, "sm_active_cycles_mean": 15.0}
    one = replace(launch(row), grid="(2, 1, 1)", chip=chip("NVIDIA H100 80GB HBM3"))
    assert LaunchState(one)["at_work"] == pytest.approx(2 / 132)
    layer = Layer({"layer": "l", "layer_us": 1000.0}, (one,), ("k",))
    first = in_order(launch_findings(layer))[0]
    assert first.rules[0] == "wave_quantization"
    numbers = {one.quantity: one.slow for one in first.numbers}
    assert (numbers["blocks"], numbers["multiprocessors"]) == (2.0, 132.0)
