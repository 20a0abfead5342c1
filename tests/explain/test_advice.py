"""Advice: every rule finds what was planted, says what it could not check, and stays in bounds."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.datasets.loading import DEVICE_FACTS
from perfml.errors import InputError
from perfml.explain import advise
from perfml.explain.advice.inputs import INPUTS
from perfml.explain.advice.layer_inputs import LAYER_INPUTS
from perfml.explain.advice.pressures import LEVELS
from perfml.explain.advice.rules import load_rules, read_rules, shipped_rules
from perfml.explain.load import load_tables
from perfml.metrics import load_catalogue
from perfml.report.render.text import to_text
from perfml.report.verbs import advice_document
from tests.support.examples import examples
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long

HEALTHY = {
    "device": "NVIDIA H200",
    "time_us": 100.0,
    "grid": "(4224, 1, 1)",
    "block": "(256, 1, 1)",
    "warp_execution_efficiency": 1.0,
    "gld_efficiency": 1.0,
    "ldgsts_efficiency": 1.0,
    "gst_efficiency": 1.0,
    "stall_inst_fetch": 0.02,
    "stall_exec_dependency": 0.1,
    "stall_memory_dependency": 0.1,
    "stall_sync": 0.0,
    "shared_efficiency": 0.9,
    "achieved_occupancy": 0.9,
    "theoretical_occupancy": 1.0,
    "l2_utilization": 0.2,
    "dram_utilization": 0.2,
    "shared_utilization": 0.2,
    "single_precision_fu_utilization": 0.3,
    "double_precision_fu_utilization": 0.0,
    "special_fu_utilization": 0.1,
    "tensor_utilization": 0.3,
    "half_precision_fu_utilization": 0.0,
    "registers_per_thread": 32.0,
    "shared_memory_per_block": 1024.0,
    "waves_per_sm": 4.0,
    "gld_transactions": 8e6,
    "gst_transactions": 8e6,
    "global_load_requests": 1e6,
    "global_store_requests": 1e6,
    "dram_read_bytes": 2.5e8,
    "global_atomic_requests": 0.0,
    "global_reduction_requests": 0.0,
    "l2_atomic_utilization": 0.0,
    "l2_atomic_utilization_max": 0.0,
    "shared_atomic_transactions": 0.0,
    "inst_inter_thread_communication": 0.0,
    "local_load_transactions": 0.0,
    "local_store_transactions": 0.0,
    "constant_cache_utilization": 0.1,
    "alu_utilization": 0.2,
    "stall_membar": 0.0,
    "sm_active_cycles_mean": 95.0,
    "sm_active_cycles_max": 100.0,
}

PLANTED = {
    "uncoalesced_load": {"gld_efficiency": 0.125, "stall_memory_dependency": 0.25},
    "uncoalesced_copy": {"ldgsts_efficiency": 0.125, "stall_memory_dependency": 0.25},
    "uncoalesced_store": {"gst_efficiency": 0.125, "l2_utilization": 0.5},
    "bank_conflicts": {"shared_efficiency": 0.03, "shared_utilization": 0.9},
    "shared_bound": {"shared_efficiency": 0.9, "shared_utilization": 0.9},
    "half_on_cuda_cores": {"half_precision_fu_utilization": 0.4, "tensor_utilization": 0.0},
    "uneven_blocks": {
        "waves_per_sm": 0.9,
        "achieved_occupancy": 0.5,
        "stall_memory_dependency": 0.25,
    },
    "occupancy_registers": {
        "registers_per_thread": 200.0,
        "theoretical_occupancy": 0.125,
        "achieved_occupancy": 0.12,
        "stall_memory_dependency": 0.25,
    },
    "occupancy_shared": {
        "shared_memory_per_block": 110_000.0,
        "theoretical_occupancy": 0.25,
        "achieved_occupancy": 0.2,
        "stall_memory_dependency": 0.25,
    },
    "occupancy_reached": {"achieved_occupancy": 0.3, "stall_memory_dependency": 0.25},
    "small_grid": {"grid": "(8, 1, 1)", "waves_per_sm": 0.01},
    "tail_wave": {"grid": "(1100, 1, 1)", "waves_per_sm": 1.04},
    "barrier_stalls": {"stall_sync": 0.6},
    "memory_latency": {"stall_memory_dependency": 0.8},
    "exec_dependency": {"stall_exec_dependency": 0.7},
    "dram_bound": {"dram_utilization": 0.9},
    "l2_bound": {"l2_utilization": 0.8},
    "double_precision": {"double_precision_fu_utilization": 0.9},
    "special_functions": {"special_fu_utilization": 0.9},
    "divergence": {"warp_execution_efficiency": 0.4},
    "instruction_fetch": {"stall_inst_fetch": 0.7},
    "tensor_cores_unused": {"precision": "fp16", "tensor_utilization": 0.0},
    "fp32_pipe_bound": {"single_precision_fu_utilization": 0.9},
    "tensor_pipe_bound": {"tensor_utilization": 0.9},
    "global_atomics": {"global_reduction_requests": 1e6, "l2_atomic_utilization_max": 0.9},
    "shared_atomics": {"shared_atomic_transactions": 1e7, "shared_utilization": 0.9},
    "local_memory": {"local_load_transactions": 2e7, "l2_utilization": 0.5},
    "constant_serialization": {"constant_cache_utilization": 0.95},
    "narrow_access": {"global_load_requests": 8e6, "l2_utilization": 0.5},
    "repeated_loads": {"dram_read_bytes": 1e7, "l2_utilization": 0.55},
    "shallow_copies": {"inst_executed_async_copies": 1e6, "stall_memory_dependency": 0.8},
    "memory_fences": {"stall_sync": 0.6, "stall_membar": 0.6},
    "integer_bound": {"alu_utilization": 0.9},
    "integer_division": {
        "special_fu_utilization": 0.45,
        "inst_bit_convert": 4e6 * 32,
        "inst_integer": 3.2e7 * 32,
        "inst_executed": 6e7,
        "ipc": 2.0,
    },
    "lane_exchange": {"inst_inter_thread_communication": 1e9, "shared_utilization": 0.9},
    "block_slots": {
        "block": "(32, 1, 1)",
        "theoretical_occupancy": 0.5,
        "achieved_occupancy": 0.45,
        "stall_memory_dependency": 0.25,
    },
    "uneven_multiprocessors": {"sm_active_cycles_mean": 50.0},
}
"""What to change of a healthy launch so that exactly this rule holds."""


def launch(**cells):
    return make_kernels([{**HEALTHY, **cells}])


def found(table, **options):
    return set(advise(table, **options).table["rules"].explode())


def by_rule(table):
    """Return findings by rule; one of several rules once for each."""
    return table.explode("rules").set_index("rules")


def test_a_healthy_launch_gets_no_advice_and_everything_was_checked():
    advice = advise(launch())
    assert advice.table.empty
    assert advice.not_checked.empty
    assert advice.layers == 1


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_hazard_is_found_and_nothing_else(rule):
    advice = advise(launch(**PLANTED[rule]))
    assert advice.table["rules"].tolist() == [(rule,)]
    row = advice.table.iloc[0]
    assert 0 <= row["gain_low"] <= row["gain_high"] <= 1
    assert row["saved_us"] == pytest.approx(row["gain_high"] * 100.0)
    assert row["mitigation"].endswith(".")
    assert "{" not in row["evidence"]
    assert "-%" not in row["evidence"]


def test_a_rule_about_peaks_knows_those_that_the_profile_of_an_untabulated_device_tells(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(
        "[[rule]]\nid = 'slow'\nhazard = 'h'\nwhen = ['flop_count_sp >= 0']\nevidence = 'e'\n"
        "mitigation = 'm.'\ngain_low = '0'\ngain_high = '2e12 / peak_fp32'\nsource = 's'\n"
    )
    table = launch(flop_count_sp=1e9, device="GPU of tomorrow")
    unknown = advise(table, rules=path)
    assert unknown.table.empty
    assert unknown.not_checked["missing"].tolist() == ["peak fp32 of the device"]
    facts = {
        "multiprocessors": 24.0,
        "clock_khz": 2.4e6,
        "compute_capability": "8.9",
    }
    table.attrs[DEVICE_FACTS] = {"GPU of tomorrow": facts}
    known = advise(table, rules=path)
    # 24 multiprocessors of 128 lanes, two operations each
    peak = 24 * 128 * 2 * 2.4e9
    assert known.table["gain_high"].tolist() == pytest.approx([2e12 / peak])
    assert known.not_checked.empty


def test_every_rule_of_a_launch_has_a_planted_case():
    assert set(PLANTED) == {rule.id for rule in shipped_rules() if rule.scope == "kernel"}


def test_a_symptom_stands_behind_its_cause_in_the_same_kernel():
    scattered = {"gld_efficiency": 0.125, "stall_memory_dependency": 0.6}
    slow = {**HEALTHY, **scattered, "kernel": "slow", "time_us": 50.0}
    other = {**HEALTHY, "stall_memory_dependency": 0.6, "kernel": "other", "time_us": 50.0}
    rules = advise(make_kernels([slow, other])).table[["kernel", "rules"]].to_numpy().tolist()
    assert rules.index(["slow", ("uncoalesced_load",)]) < rules.index(["slow", ("memory_latency",)])
    assert ["other", ("memory_latency",)] in rules


def test_a_last_wave_gains_no_more_than_idle_multiprocessors_say_it_takes():
    # 8 blocks fit; 0.04 of a wave leaves 68 of 100 multiprocessors without one, for 17 of 100 us
    tail = {**PLANTED["tail_wave"], "sm_active_cycles_max": 100.0}
    idle = by_rule(advise(launch(**tail, sm_active_cycles_mean=88.44)).table)
    assert idle.loc["tail_wave", "gain_high"] == pytest.approx((1 - 0.8844) / (1 - 0.04 * 8))
    unknown = advise(launch(**tail, sm_active_cycles_mean=float("nan"))).table
    assert by_rule(unknown).loc["tail_wave", "gain_high"] == pytest.approx(1 - 1.04 / 2)


def test_more_blocks_gain_what_idle_multiprocessors_and_waiting_leave_to_gain():
    few = {"grid": "(132, 1, 1)", "waves_per_sm": 0.1, "sm_active_cycles_max": 100.0}
    alone = by_rule(advise(launch(**few, sm_active_cycles_mean=100.0)).table)
    assert alone.loc["small_grid", "gain_high"] == pytest.approx(0.9 * 0.2)
    idle = by_rule(advise(launch(**few, sm_active_cycles_mean=30.0)).table)
    # the same work on all multiprocessors takes what they are busy for in the mean
    assert idle.loc["small_grid", "gain_high"] == pytest.approx(0.7)


def test_rules_of_a_layer_look_at_all_its_launches():
    rows = [
        {**HEALTHY, "kernel": "im2col_kernel", "time_us": 30.0},
        {**HEALTHY, "kernel": "sgemm", "time_us": 60.0},
        {**HEALTHY, "kernel": "add", "time_us": 2.0},
        {**HEALTHY, "kernel": "relu", "time_us": 2.0},
    ]
    advice = by_rule(advise(make_kernels(rows)).table)
    assert advice.index.tolist() == ["transform_kernels"]
    row = advice.loc["transform_kernels"]
    assert row["gain_high"] == pytest.approx(30 / 94)
    assert (
        "launches that rearrange data (im2col, copies, layout changes, split-K sums): 1"
        in row["evidence"]
    )
    short = [{**each, "time_us": each["time_us"] / 15} for each in rows]
    assert {"launch_bound", "transform_kernels"} <= found(make_kernels(short))


def test_a_product_that_a_library_repeats_gains_what_no_unit_is_busy_for():
    gemm = {**HEALTHY, "kernel": "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "time_us": 10.0}
    four = [gemm | {"grid": "(132, 1, 1)", "waves_per_sm": 1.0}] * 4
    row = by_rule(advise(make_kernels(four)).table).loc["repeated_products"]
    assert row["gain_high"] == pytest.approx(1 - 0.3)
    assert "4 of 4 launches" in row["evidence"]
    # another size each time, one call that the largest grid cuts, three, short ones, one's own
    sizes = [one | {"grid": f"({132 * n}, 1, 1)"} for n, one in enumerate(four, 1)]
    cut = [one | {"grid": "(1, 65535, 1)"} for one in four]
    short = [one | {"time_us": 2.0} for one in four]
    own = [one | {"kernel": "my_gemm"} for one in four]
    for others in (sizes, cut, four[:3], short, own):
        assert "repeated_products" not in found(make_kernels(others))


def product(n, k, element=2, **cells):
    sizes = {"product_m": 512.0, "product_n": n, "product_k": k, "product_bytes": element}
    sizes["product_flops"] = 22.23e9
    kernel = "cutlass_80_tensorop_f16_s16816gemm_f16_256x64_32x4_tn_align1"
    return make_kernels([{**HEALTHY, "kernel": kernel, "precision": "fp16", **sizes, **cells}])


@pytest.mark.parametrize(
    ("n", "k", "element", "row"),
    [(4093, 4096, 2, 2), (4096, 4092, 2, 8), (4096, 4094, 4, 8), (4088, 4100, 1, 4)],
)
def test_a_product_whose_rows_are_no_multiple_of_16_bytes_is_to_be_padded(n, k, element, row):
    advice = by_rule(advise(product(n, k, element)).table).loc["padding_to_tiles"]
    assert f"n {n}, k {k}: rows are a multiple of {row} bytes" in advice["evidence"]
    # an H200 does 741e12 operations a second in fp16: 30 of 100 us
    assert advice["gain_high"] == pytest.approx(0.7)
    assert advice["mitigation"].startswith("The kernel is a library's. Pad the sizes")


@pytest.mark.parametrize(
    "cells",
    [
        {"n": 4096, "k": 4088},
        {"n": 4094, "k": 4092, "element": 8},
        # smaller than a tile, on CUDA cores, a kernel that is no product, sizes that nobody knows,
        # where the name tells aligned rows
        {"n": 7, "k": 4096},
        {"n": 4093, "k": 4093, "precision": "fp32"},
        {"n": 4093, "k": 4093, "kernel": "my_kernel"},
        {"n": math.nan, "k": math.nan, "kernel": "cutlass_80_tensorop_f16_s16816gemm_nn_align8"},
        # what DRAM is busy for no other kernel saves, and a device of which no peak is known
        {"n": 4093, "k": 4093, "dram_utilization": 0.99},
        {"n": 4093, "k": 4093, "device": "GPU of tomorrow"},
    ],
)
def test_sizes_that_fit_or_are_nobodys_fault_are_no_hazard(cells):
    assert "padding_to_tiles" not in found(product(**cells))


def test_who_calls_a_library_is_told_first_what_a_caller_can_change():
    cells = PLANTED["occupancy_registers"] | PLANTED["uncoalesced_load"]
    cells |= {"stall_memory_dependency": 0.6, "gst_transactions": 0.0, "l2_utilization": 0.3}
    own = advise(launch(**cells)).table
    assert own["rules"].iloc[0] != ("uncoalesced_load",)
    called = advise(launch(**cells, kernel="cutlass_80_tensorop_s1688gemm_align4")).table
    assert called["rules"].iloc[0] == ("uncoalesced_load",)
    assert called["gain"].iloc[0] < called["gain"].iloc[1]


def test_the_longest_launch_is_never_an_extra_one():
    rows = [{**HEALTHY, "kernel": "copy_transpose", "time_us": 50.0}]
    assert found(make_kernels(rows)) == set()


def test_a_kernel_s_gain_is_weighted_by_its_share_of_the_layer():
    slow = {**HEALTHY, **PLANTED["divergence"], "kernel": "slow", "time_us": 25.0}
    advice = advise(make_kernels([slow, {**HEALTHY, "kernel": "rest", "time_us": 75.0}])).table
    assert advice["gain_high"].tolist() == [pytest.approx(0.6 * 0.25)]
    assert advice["kernel"].tolist() == ["slow"]


def test_launches_of_one_kernel_are_one_finding_whose_gains_add_up():
    slow = {**HEALTHY, **PLANTED["divergence"], "kernel": "slow", "time_us": 50.0}
    advice = advise(make_kernels([slow, slow])).table
    assert advice["gain_high"].tolist() == [pytest.approx(0.6)]
    assert advice["evidence"].iloc[0].startswith("2 launches, 100 µs of the layer's 100 µs")


def test_a_gain_stops_where_another_unit_is_busy():
    cells = {"shared_efficiency": 0.03, "shared_utilization": 0.9}
    free = advise(launch(**cells)).table["gain_high"].iloc[0]
    busy = advise(launch(**cells, single_precision_fu_utilization=0.55)).table
    assert free == pytest.approx(0.7)
    assert busy["gain_high"].iloc[0] == pytest.approx(0.45)


def test_findings_are_sorted_by_the_time_they_may_save():
    rows = [
        {**HEALTHY, **PLANTED["divergence"], "layer": "short", "time_us": 10.0},
        {**HEALTHY, **PLANTED["barrier_stalls"], "layer": "long", "time_us": 500.0},
    ]
    advice = advise(make_kernels(rows)).table
    assert advice["layer"].tolist() == ["long", "short"]
    assert advice["saved_us"].is_monotonic_decreasing


def test_the_likely_gain_lies_between_the_ends_and_orders_the_findings():
    # more warps would hide what the warps wait for, but the FP32 pipe has little room for them
    busy = {"theoretical_occupancy": 0.25, "single_precision_fu_utilization": 0.8}
    table = advise(launch(**(PLANTED["occupancy_registers"] | busy))).table
    assert (table["gain_low"] <= table["gain"]).all()
    assert (table["gain"] <= table["gain_high"]).all()
    assert (table["gain"] * table["time_us"]).is_monotonic_decreasing


def test_two_hazards_with_one_cure_are_one_finding():
    both = {**PLANTED["uncoalesced_load"], **PLANTED["uncoalesced_store"]}
    table = advise(launch(**both)).table
    (row,) = table[table["rules"].map(len) > 1].to_dict(orient="records")
    assert set(row["rules"]) == {"uncoalesced_load", "uncoalesced_store"}
    assert "are asked for" in row["evidence"]
    assert "are written" in row["evidence"]
    ends = [
        advise(launch(**PLANTED[name])).table["gain_high"].max()
        for name in ("uncoalesced_load", "uncoalesced_store")
    ]
    assert row["gain_high"] == pytest.approx(max(ends), abs=0.2)


def test_repeats_are_pooled_and_a_stray_launch_is_not_the_layer_s():
    rows = [
        {**HEALTHY, **PLANTED["divergence"], "iteration": i, "kernel_index": 0} for i in range(3)
    ]
    rows.append({**HEALTHY, **PLANTED["barrier_stalls"], "kernel": "once", "kernel_index": 1})
    assert found(make_kernels(rows)) == {"divergence"}


def test_what_was_not_collected_is_listed_with_the_metric_and_never_found():
    table = launch(**PLANTED["divergence"]).drop(columns=["stall_sync", "registers_per_thread"])
    advice = advise(table)
    missing = advice.not_checked.set_index("rule")["missing"]
    assert missing["barrier_stalls"] == "stall_sync"
    assert missing["occupancy_registers"] == "registers_per_thread"
    assert "barrier_stalls" not in set(advice.table["rules"].explode())
    assert "divergence" not in missing


@pytest.mark.parametrize(
    ("rule", "cells"),
    [
        ("uncoalesced_load", {"gld_efficiency": 0.5, "dram_utilization": 0.5}),
        ("uncoalesced_copy", {"ldgsts_efficiency": 0.5, "dram_utilization": 0.5}),
        ("uncoalesced_store", {"gst_efficiency": 0.5, "dram_utilization": 0.5}),
        ("dram_bound", {"dram_utilization": 0.6}),
        ("divergence", {"warp_execution_efficiency": 0.75}),
    ],
)
def test_a_threshold_that_is_met_exactly_is_met(rule, cells):
    assert rule in found(launch(**cells), min_gain=0.0)


def test_a_store_promises_no_more_than_its_share_of_the_traffic():
    cells = {"gst_efficiency": 0.125, "dram_utilization": 0.9, "gld_transactions": 99e6}
    table = by_rule(
        advise(launch(**cells, gst_transactions=1e6, global_store_requests=5e4), min_gain=0.0).table
    )
    store = table.loc["uncoalesced_store"]
    # DRAM is at 0.9 of the 0.93 that it sustains
    assert store["gain_high"] == pytest.approx((1 - 0.125) * 0.9 / 0.93 * 0.01)
    assert "at most 1 % of the sectors" in store["evidence"]
    assert "uncoalesced_store" not in found(
        launch(**cells, gst_transactions=1e6, global_store_requests=5e4)
    )


def test_bytes_three_apart_touch_no_more_sectors_than_words_side_by_side():
    # a channel of an RGB image: 32 bytes of three sectors, one wavefront; floats take twelve
    pixels = {"gld_efficiency": 1 / 3, "gld_transactions": 3.1e6, "global_load_requests": 1e6}
    waiting = {"stall_memory_dependency": 0.7}
    assert "uncoalesced_load" not in found(launch(**pixels, **waiting))
    assert "uncoalesced_load" in found(launch(**{**pixels, "gld_transactions": 12e6}, **waiting))


def test_words_beside_a_broadcast_are_no_narrow_accesses():
    # an index that all lanes read (4 bytes of a sector) beside a word a lane: 66 bytes a request
    both = {"gld_transactions": 5e6, "global_load_requests": 2e6, "stall_memory_dependency": 0.7}
    both |= {"gst_transactions": 0.0, "global_store_requests": 0.0}
    assert "narrow_access" not in found(launch(**both, gld_efficiency=(4 + 128) / 160))
    bytes_each = {"gld_transactions": 2e6, "gld_efficiency": 1.0}
    assert "narrow_access" in found(launch(**{**both, **bytes_each}))


def test_an_undefined_metric_is_not_called_uncollected():
    missing = advise(launch(gld_efficiency=np.nan)).not_checked.set_index("rule")
    assert missing.loc["uncoalesced_load", "why"].startswith("undefined")
    missing = advise(launch(stall_sync=np.nan)).not_checked.set_index("rule")
    assert missing.loc["barrier_stalls", "why"] == "not collected"


def test_how_busy_tensor_cores_are_is_counted_in_cycles_or_else_in_instructions():
    idle = {"precision": "fp16", "tensor_utilization": np.nan, "tensor_cycles_utilization": 0.0}
    assert "tensor_cores_unused" in found(launch(**idle))
    assert "tensor_cores_unused" not in found(launch(**{**idle, "tensor_cycles_utilization": 0.3}))
    unknown = advise(launch(**{**idle, "tensor_cycles_utilization": np.nan})).not_checked
    assert unknown.set_index("rule").loc["tensor_cores_unused", "missing"] == (
        "tensor_cycles_utilization"
    )


def test_rules_of_a_precision_are_listed_where_the_precision_is_not_known():
    missing = advise(launch(precision="unknown")).not_checked.set_index("rule")
    assert missing.loc["tensor_cores_unused", ["missing", "why"]].tolist() == [
        "precision (tf32, fp16, bf16)",
        "not known",
    ]
    assert advise(launch(precision="fp64")).not_checked.empty


def test_a_full_fp32_pipe_is_a_limit_whatever_the_program_says_of_its_precision():
    full = PLANTED["fp32_pipe_bound"]
    for precision in ("unknown", "fp32", "tf32"):
        assert found(launch(**full, precision=precision)) == {"fp32_pipe_bound"}


def test_blocks_of_unequal_work_are_told_from_blocks_that_cannot_be_dealt_out_evenly():
    # 8 blocks fit: 1 for each multiprocessor, or 1.06, so that some have two
    uneven = {"sm_active_cycles_mean": 45.0, "sm_active_cycles_max": 100.0}
    even = found(launch(grid="(132, 1, 1)", waves_per_sm=0.125, **uneven))
    assert "uneven_multiprocessors" in even
    more = found(launch(grid="(140, 1, 1)", waves_per_sm=0.1325, **uneven))
    assert "uneven_multiprocessors" not in more


def test_a_metric_that_is_undefined_for_a_kernel_was_collected_all_the_same():
    rows = [{**HEALTHY, "gld_efficiency": np.nan}, {**HEALTHY, "kernel": "other"}]
    assert advise(make_kernels(rows)).not_checked.empty


def test_a_layer_without_any_counters_is_named():
    bare = {name: np.nan for name in HEALTHY if name in load_catalogue()}
    rows = [HEALTHY, {**HEALTHY, **bare, "layer": "pool_01"}]
    missing = advise(make_kernels(rows)).not_checked
    assert missing["missing"].tolist() == ["counters of pool_01"]


def test_conditions_are_checked_apart():
    rows = [HEALTHY, {**HEALTHY, "backend": "cudnn", "stall_sync": np.nan}]
    missing = advise(make_kernels(rows)).not_checked
    assert missing[["backend", "rule", "missing"]].to_numpy().tolist() == [
        ["cudnn", "barrier_stalls", "stall_sync"]
    ]


def test_a_device_without_known_peaks_leaves_their_rules_unchecked():
    table = launch(**PLANTED["fp32_pipe_bound"]).assign(device="GPU of tomorrow")
    missing = advise(table).not_checked.set_index("rule")["missing"]
    assert "peak fp32 of the device" in missing["fp32_pipe_bound"]
    given = advise(table, peaks={"fp32": 1e12, "tf32": 4e12})
    assert given.table["gain_high"].tolist() == [pytest.approx(0.9 * 0.75)]


def test_merged_layers_alone_are_checked_as_far_as_they_go(root):
    layers, kernels = load_tables(root / "datasets" / "h200-yolov4-tiny", ["batch=1"])
    advice = advise(layers)
    rules = set(advice.table["rules"].explode())
    assert "bank_conflicts" in rules
    assert "tail_wave" not in rules
    assert "launches (a Kernels table)" in set(advice.not_checked["missing"])
    assert advice.warnings
    whole = advise(layers, kernels=kernels)
    assert not whole.warnings
    assert {"transform_kernels", "small_grid"} <= set(whole.table["rules"].explode())


def test_an_expert_s_findings_for_conv_20(root):
    """cuDNN's implicit GEMM has too few blocks at batch 1; cuBLAS pays for im2col."""
    where = ["batch=1", "precision=fp32"]
    layers, kernels = load_tables(root / "datasets" / "h200-yolov4-tiny", where)
    table = advise(layers, kernels=kernels, layers=["conv_20"]).table
    first = table.groupby("backend").first()
    assert first.loc["cudnn", "rules"] == ("small_grid",)
    assert "176 blocks of 64 threads are 0.13 of one wave" in first.loc["cudnn", "evidence"]
    cublas = by_rule(table[table["backend"] == "cublas"])
    assert cublas.loc["transform_kernels", "gain_high"] == pytest.approx(0.296, abs=0.005)
    assert set(table["layer"]) == {"conv_20"}


LEVEL = st.one_of(st.just(float("nan")), st.floats(0.0, 1.0))


@examples(30)
@given(data=st.data())
def test_gains_stay_between_nothing_and_what_the_busiest_other_unit_leaves(data):
    names = [name for name in HEALTHY if name in load_catalogue()]
    cells = {name: data.draw(LEVEL, label=name) for name in names}
    cells["registers_per_thread"] = data.draw(st.floats(1, 255))
    cells["waves_per_sm"] = data.draw(st.floats(0.001, 40))
    advice = advise(launch(**cells), min_gain=0.0)
    table = advice.table
    assert (table["gain_low"] <= table["gain_high"]).all()
    assert table["gain_high"].between(0, 1).all()
    relieved = {rule.id: rule.relieves for rule in shipped_rules()}
    for row in table.to_dict(orient="records"):
        levels = [cells[name] for name in LEVELS if name in cells]
        # findings with one cure are one, which relieves what each of them does
        spared = {name for rule in row["rules"] for name in relieved[rule]}
        others = [
            cells[name]
            for name in LEVELS
            if name in cells and name not in spared and not math.isnan(cells[name])
        ]
        assert row["gain_high"] <= 1 - max(others, default=0.0) + 1e-12
        assert len(levels) > 5


def test_every_name_in_a_rule_is_a_metric_or_an_input():
    catalogue = load_catalogue()
    for rule in shipped_rules():
        known = LAYER_INPUTS if rule.scope == "layer" else INPUTS
        for name in (*rule.needed, *rule.said, *rule.relieves):
            assert name in known or name in catalogue or name.startswith("peak_"), (rule.id, name)
        assert rule.source
        assert set(rule.relieves) <= set(LEVELS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule = 3", r"no \[\[rule\]\]"),
        ("[[rule]]\nid = 'a'", "lacks hazard"),
        ("not toml [", "not a file of advice rules"),
        ("[[rule]]\n{}\nwhen = ['l2_utilization']", "no comparison"),
        ("[[rule]]\n{}\nwhen = ['__import__(1) < 2']", "not a metric formula"),
        ("[[rule]]\n{}\nwhen = []\nscope = 'world'", "scope 'world'"),
        ("[[rule]]\n{}\nwhen = []\nncu = [{rule = 'x', message = '('}]", "not a file of advice"),
        ("[[rule]]\n{}\nwhen = []\n[[rule]]\n{}\nwhen = []", "two rules called a"),
        ("[inputs]\ntransforms = '('\n[[rule]]\n{}\nwhen = []", "inputs"),
    ],
)
def test_a_broken_rule_file_names_what_is_wrong(tmp_path, text, said):
    plain = (
        "id = 'a'\nhazard = 'h'\nevidence = 'e'\nmitigation = 'm.'\n"
        "gain_low = '0'\ngain_high = '1'\nsource = 's'"
    )
    path = tmp_path / "rules.toml"
    path.write_text(text.replace("{}", plain))
    with pytest.raises(InputError, match=said):
        load_rules(path)


def test_a_rule_of_one_s_own_is_used_and_its_sentences_execute_nothing(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(
        "[[rule]]\nid = 'hot'\nhazard = 'busy {time_us.__class__}'\n"
        "when = ['dram_utilization >= 0.1']\nevidence = '{dram_utilization:.1%} {nothing}'\n"
        "mitigation = 'Cool.'\ngain_low = '0'\ngain_high = 'dram_utilization'\nsource = 'me'\n"
    )
    row = advise(launch(), rules=path).table.iloc[0]
    assert row["rules"] == ("hot",)
    assert row["hazard"] == "busy {time_us.__class__}"
    assert row["evidence"] == "100 µs of the layer's 100 µs: 20.0 % -"


def test_a_condition_with_an_undefined_input_cannot_be_told_unless_another_fails():
    book = read_rules(
        "[[rule]]\nid='a'\nhazard='h'\nevidence='e'\nmitigation='m'\ngain_low='0'\ngain_high='1'\n"
        "source='s'\nwhen=['x > 1', 'y > 1']",
        "test",
    )
    columns = {"x": np.array([2.0, 2.0, 0.0, np.nan]), "y": np.array([2.0, np.nan, np.nan, 2.0])}
    met, told = next(iter(book)).holds(lambda name: columns[name], 4)
    assert met.tolist() == [True, False, False, False]
    assert told.tolist() == [True, False, True, False]


def test_a_profile_without_counters_is_not_said_to_be_checked():
    advice = advise(make_kernels([{"time_us": 5.0}]))
    said = to_text(advice_document(advice, 5))
    assert re.search(r"No rule found anything; \d\d rules could not be checked", said)


def test_a_load_of_one_word_for_all_lanes_is_not_uncoalesced():
    scattered = {"gld_efficiency": 0.125, "stall_memory_dependency": 0.8}
    words = {"gld_transactions": 1e6, "global_load_requests": 1e6}
    assert "uncoalesced_load" not in found(launch(**scattered, **words))
    assert "uncoalesced_load" in found(launch(**scattered, **{**words, "gld_transactions": 8e6}))


def test_lanes_that_read_one_word_of_shared_memory_have_no_conflict():
    cycles = {"inst_executed": 2e8, "ipc": 2.0, "shared_utilization": 0.9}
    loads = {"shared_efficiency": 0.3, "inst_executed_shared_loads": 8e7}
    broadcast = launch(**cycles, **loads, shared_load_transactions=8.5e7)
    assert "bank_conflicts" not in found(broadcast)
    assert "shared_bound" in found(broadcast)
    # rounds that are no loads: stores, whose conflicts are not counted
    assert "bank_conflicts" in found(launch(**cycles, **loads, shared_load_transactions=2e7))
    ways = {**loads, "inst_executed_shared_loads": 1e7, "shared_load_transactions": 8.5e7}
    assert "bank_conflicts" in found(launch(**cycles, **ways))


def test_integers_that_fill_issue_slots_are_a_limit_though_their_pipe_is_not_full():
    full = {"inst_executed": 1e8, "issue_slot_utilization": 0.94, "alu_utilization": 0.5}
    assert "integer_bound" in found(launch(**full, inst_integer=0.5e8 * 32))
    assert "integer_bound" not in found(launch(**full, inst_integer=0.2e8 * 32))


def test_loads_that_l1_answers_again_and_again_are_found():
    again = {"dram_read_bytes": 2e7, "gld_transactions": 6e7, "global_load_requests": 1.5e7}
    busy = {"inst_executed": 6e7, "ipc": 2.6}
    assert "repeated_loads" in found(launch(**again, **busy))
    assert "repeated_loads" not in found(launch(**again, **{**busy, "ipc": 1.0}))


def test_a_word_that_all_lanes_load_is_not_scattered_though_it_fills_a_part_of_its_sector():
    half = {"gld_efficiency": 0.45, "inst_executed": 6e7, "ipc": 2.6, "dram_read_bytes": 2e7}
    assert "repeated_loads" in found(
        launch(**half, gld_transactions=6e7, global_load_requests=2.7e7)
    )
    assert "repeated_loads" not in found(
        launch(**half, gld_transactions=6e7, global_load_requests=0.3e7)
    )


def test_conflicts_and_a_busy_entrance_are_named_without_the_efficiency():
    nobody = {"shared_efficiency": float("nan"), "tensor_utilization": 0.0}
    loads = {"inst_executed_shared_loads": 1e6, "shared_load_transactions": 32e6}
    assert found(launch(**nobody, **loads, shared_utilization=0.9)) == {"bank_conflicts"}
    loads = {"inst_executed_shared_loads": 1e8, "shared_load_transactions": 1e8}
    entering = {"shared_utilization": 0.5, "ldst_fu_utilization": 0.22}
    assert found(launch(**nobody, **loads, **entering)) == {"shared_bound"}
    first = by_rule(advise(launch(**nobody, **loads, **entering)).table).loc["shared_bound"]
    assert "busy 86 % of the time" in first["evidence"]


def test_bytes_that_are_converted_for_floats_are_no_division_of_integers():
    divided = PLANTED["integer_division"]
    assert "integer_division" in found(launch(**divided))
    floats = 4 * divided["inst_integer"]
    assert "integer_division" not in found(launch(**divided, flop_count_sp=floats))


def test_what_saves_a_thousandth_of_all_layers_is_counted_and_not_listed():
    hazard = {**HEALTHY, "double_precision_fu_utilization": 0.9}
    long = {**hazard, "layer": "long", "time_us": 1e5}
    rows = make_kernels([long, {**hazard, "layer": "short", "time_us": 10.0}])
    whole = advise(rows)
    assert set(whole.table["layer"]) == {"long"}
    assert whole.below == 1
    assert whole.left_out == "1 more promise less than 2 % of their layer, or 0.1 % of all layers"
    # who names a layer, or says that the table is no whole, is told of it
    assert set(advise(rows, layers=["short"]).table["layer"]) == {"short"}
    assert set(advise(rows, min_whole=0.0).table["layer"]) == {"long", "short"}
    # another batch is another whole
    other = rows.assign(batch=[1, 2])
    assert set(advise(other).table["layer"]) == {"long", "short"}
    assert advise(other).left_out == ""


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", 2),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align2", 4),
        ("cutlass_80_tensorop_s1688gemm_128x128_nn_align2", 8),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align8", None),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", None),
    ],
)
def test_a_product_s_name_tells_rows_that_are_not_aligned(name, row):
    kernel = {"kernel": f"void cutlass::Kernel2<{name}>(T1::Params)", "time_us": 80.0}
    slow = {**HEALTHY, **kernel, "tensor_utilization": 0.25, "dram_utilization": 0.1}
    other = {**HEALTHY, "kernel": "mine", "time_us": 20.0}
    table = by_rule(advise(make_kernels([slow, other])).table)
    if row is None:
        assert "padding_to_tiles" not in table.index
        return
    padded = table.loc["padding_to_tiles"]
    assert f"the kernel's name says that rows are a multiple of {row} bytes" in padded["evidence"]
    # what tensor cores are busy for is needed
    assert padded["gain"] == pytest.approx(0.8 * (1 - 0.25))
    assert padded["certainty"] == "firm"
    # few blocks are a limit of their own, and what nobody counted is not known to be free
    for limit in ({"waves_per_sm": 0.3}, {"tensor_utilization": float("nan")}):
        assert "padding_to_tiles" not in found(make_kernels([{**slow, **limit}, other]))


SMALL = {
    "waves_per_sm": 0.01,
    "achieved_occupancy": 0.1,
    "sm_efficiency": 0.01,
    "sm_active_cycles_mean": 1.0,
    "shared_utilization": 0.002,
    "constant_cache_utilization": 0.0,
    "dram_utilization": 0.01,
    "l2_utilization": 0.01,
}


def test_what_idle_machinery_could_do_stands_behind_what_was_counted():
    conflicts = {"shared_efficiency": 0.05, "shared_utilization": 0.004}
    table = advise(launch(**{**SMALL, **conflicts})).table
    assert table["rules"].tolist() == [("bank_conflicts",), ("small_grid",)]
    assert table["gain"][0] < table["gain"][1]
    # more work a launch is what the user of a library can give
    library = advise(launch(**{**SMALL, **conflicts, "kernel": "cutlass_80_simt_sgemm"})).table
    assert library["rules"].tolist() == [("small_grid",), ("bank_conflicts",)]


def test_a_small_grid_is_never_firm_for_no_counter_tells_how_far_it_can_be_split():
    assert advise(launch(**SMALL)).table["certainty"].tolist() == ["likely"]


def test_no_finding_promises_the_start_of_a_launch():
    half = {"sm_active_cycles_mean": 1.0, "sm_active_cycles_max": 50.0}
    short = by_rule(advise(launch(**{**SMALL, **half, "time_us": 3.8})).table).loc["small_grid"]
    assert short["gain"] <= short["gain_high"] == pytest.approx(0.5)


def test_few_warps_are_told_without_stalls_where_no_unit_is_busy():
    few = {**PLANTED["occupancy_registers"], "theoretical_occupancy": 0.25}
    few["achieved_occupancy"] = 0.24
    nobody = dict.fromkeys(("stall_memory_dependency", "stall_exec_dependency"), float("nan"))
    levels = {"issue_slot_utilization": 0.4, "l1_utilization": 0.3}
    assert "occupancy_registers" in found(launch(**{**few, **nobody}, **levels))
    busy = {**levels, "l1_utilization": 0.6}
    assert "occupancy_registers" not in found(launch(**{**few, **nobody}, **busy))


def test_a_device_that_takes_a_request_in_two_cycles_has_a_busy_l1():
    again = {"dram_read_bytes": 2e7, "gld_transactions": 6e7, "global_load_requests": 1.5e7}
    half = {"inst_executed": 6e7, "ipc": 1.3}
    assert "repeated_loads" not in found(launch(**again, **half))
    assert "repeated_loads" in found(launch(**again, **half, l1_utilization=0.98))
