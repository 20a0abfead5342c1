"""Made launches of every cause: two that differ in it alone, a look-alike, and one on one side."""

from __future__ import annotations

import math
from typing import Any

from perfml.explain.launches import Launch
from perfml.explain.tree.causes import TERMS, Kind
from perfml.metrics.sets import STALLS
from tests.support.launches import launch

_BASE = {
    "kernel": "k",
    "kernels": 1.0,
    "time_us": 10.0,
    "ncu_time_us": 10.0,
    "waves_per_sm": 4.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "sm_efficiency": 1.0,
    "issue_slot_utilization": 0.3,
    "inst_executed": 1e6,
    "l2_utilization": 0.2,
    "l2_read_transactions": 4e6,
    "l2_write_transactions": 1e3,
    "global_load_requests": 1e6,
    "global_store_requests": 1e3,
    "gld_transactions": 4e6,
    "gst_transactions": 4e3,
    "stall_memory_dependency": 0.5,
}
_WAITS_LONGER = {"time_us": 40.0, "ncu_time_us": 40.0}

_UNCOUNTED = dict.fromkeys(
    (
        "global_load_requests",
        "global_store_requests",
        "gld_transactions",
        "gst_transactions",
        "l2_read_transactions",
        "l2_write_transactions",
    ),
    math.nan,
)

_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "global_atomics": (
        {
            "global_atomic_requests": 0.0,
            "global_reduction_requests": 1e6,
            "l2_atomic_utilization_max": 0.3,
        },
        {"l2_atomic_utilization_max": 0.95},
    ),
    "shared_atomics": (
        {"shared_utilization": 0.3, "shared_atomic_transactions": 1e6},
        {"shared_utilization": 0.95, "shared_atomic_transactions": 1.3e7},
    ),
    "constant_serialization": (
        {"constant_cache_utilization": 0.2},
        {"constant_cache_utilization": 0.98},
    ),
    "lsu_pipe_time": (
        {"shared_utilization": 0.0, "inst_inter_thread_communication": 0.0},
        {"shared_utilization": 0.95, "inst_inter_thread_communication": 3.2e8},
    ),
    "local_memory": (
        {"local_load_transactions": 0.0, "local_store_transactions": 0.0},
        {
            "local_load_transactions": 4e8,
            "local_store_transactions": 4e8,
            "l2_utilization": 0.6,
            "stall_memory_dependency": 0.1,
        },
    ),
    "narrow_access": (
        {"gld_efficiency": 1.0, "gst_efficiency": 1.0},
        {
            "global_load_requests": 4e6,
            "global_store_requests": 4e3,
            "stall_memory_dependency": 0.9,
            "l2_utilization": 0.05,
        },
    ),
    "redundant_traffic": (
        {"l2_utilization": 0.9},
        {"global_load_requests": 4e6, "gld_transactions": 1.6e7, "l2_read_transactions": 1.6e7},
    ),
    "async_copy": (
        {"inst_executed_async_copies": 1e6},
        {"inst_executed_async_copies": 0.0, "stall_memory_dependency": 0.9},
    ),
    "narrow_copies": (
        {"inst_executed_bulk_copies": 1e4, "bulk_copy_bytes": 2e7, "stall_sync": 0.0},
        {"inst_executed_bulk_copies": 1e6, "stall_sync": 0.8, "stall_memory_dependency": 0.1},
    ),
    "tensor_unused": (
        {
            "tensor_cycles_utilization": 0.6,
            "flop_count_sp": 1e6,
            "single_precision_fu_utilization": 0.05,
        },
        {
            "tensor_cycles_utilization": 0.0,
            "flop_count_sp": 1e9,
            "single_precision_fu_utilization": 0.9,
        },
    ),
    "integer_arithmetic": (
        {"inst_integer": 1.6e7, "issue_slot_utilization": 0.8},
        {"inst_integer": 1.12e8, "inst_executed": 4e6},
    ),
    "uncoalesced_loads": (
        {**_UNCOUNTED, "l2_utilization": 0.9, "gld_efficiency": 1.0},
        {"gld_efficiency": 0.25},
    ),
    "uncoalesced_copies": (
        {**_UNCOUNTED, "l2_utilization": 0.9, "ldgsts_efficiency": 1.0},
        {"ldgsts_efficiency": 0.25},
    ),
    "uncoalesced_stores": (
        {**_UNCOUNTED, "l2_utilization": 0.9, "gst_efficiency": 1.0},
        {"gst_efficiency": 0.25},
    ),
    "bank_conflicts": (
        {
            "shared_utilization": 0.3,
            "shared_efficiency": 1.0,
            "inst_executed_shared_loads": 1e6,
            "shared_load_transactions": 1e6,
        },
        {"shared_utilization": 0.95, "shared_efficiency": 0.05},
    ),
    "block_slots": (
        {
            "resident_blocks_limit_slots": 32.0,
            "resident_blocks_limit_registers": 16.0,
            "resident_blocks_limit_shared_memory": 32.0,
            "resident_blocks_limit_warps": 8.0,
        },
        {
            "theoretical_occupancy": 0.25,
            "achieved_occupancy": 0.225,
            "resident_blocks_limit_registers": 128.0,
            "resident_blocks_limit_warps": 64.0,
        },
    ),
    "block_imbalance": ({}, {"achieved_occupancy": 0.225, "l2_utilization": 0.05}),
    "sm_imbalance": (
        {"sm_active_cycles_max": 1e5, "sm_active_cycles_mean": 1e5},
        {"sm_active_cycles_max": 4e5, "sm_efficiency": 0.25},
    ),
    "memory_fence": (
        {"stall_sync": 0.1, "stall_membar": 0.0},
        {"stall_memory_dependency": 0.1, "stall_sync": 0.8, "stall_membar": 0.75},
    ),
    "math_throttle": (
        {"stall_pipe_busy": 0.0, "stall_math_pipe_throttle": 0.0, "stall_mio_throttle": 0.0},
        {
            "stall_memory_dependency": 0.1,
            "stall_pipe_busy": 0.8,
            "stall_math_pipe_throttle": 0.8,
        },
    ),
    "mio_throttle": (
        {"stall_pipe_busy": 0.0, "stall_math_pipe_throttle": 0.0, "stall_mio_throttle": 0.0},
        {"stall_memory_dependency": 0.1, "stall_pipe_busy": 0.8, "stall_mio_throttle": 0.8},
    ),
}

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
"""A launch that has some of every work, for the look-alikes of causes."""

LOOK_ALIKES = {
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
"""What a cause is with, and without what must be seen beside it."""

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
    "dram_utilization": 0.25,
    "shared_utilization": 0.2,
    "single_precision_fu_utilization": 0.2,
    "double_precision_fu_utilization": 0.0,
    "special_fu_utilization": 0.1,
    "tensor_utilization": 0.1,
    "half_precision_fu_utilization": 0.0,
    "registers_per_thread": 32.0,
    "shared_memory_per_block": 1024.0,
    "waves_per_sm": 4.0,
    "gld_transactions": 4e6,
    "gst_transactions": 4e6,
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
    "constant_cache_utilization": 0.0,
    "alu_utilization": 0.2,
    "stall_membar": 0.0,
    "sm_active_cycles_mean": 98e3,
    "sm_active_cycles_max": 100e3,
    "sm_efficiency": 0.98,
    "inst_executed": 2e7,
    "ipc": 1.0,
    "issue_slot_utilization": 0.25,
    "l2_read_transactions": 8e6,
    "l2_write_transactions": 8e6,
    "dram_write_bytes": 2.5e8,
    "inst_executed_shared_loads": 1e6,
    "shared_load_transactions": 1e6,
    "shared_store_transactions": 0.0,
    "inst_integer": 1e8,
    "inst_bit_convert": 0.0,
}
"""A launch that lacks nothing."""

ONE_SIDE = {
    "sectors_per_request": {
        "gld_efficiency": 0.125,
        "gld_transactions": 32e6,
        "stall_memory_dependency": 0.7,
        "l2_utilization": 0.5,
    },
    "bank_conflicts": {
        "shared_efficiency": 0.03,
        "shared_load_transactions": 32e6,
        "shared_utilization": 0.9,
    },
    "shared_loads": {"shared_utilization": 0.9, "inst_executed_shared_loads": 3e7},
    "theoretical_occupancy": {
        "registers_per_thread": 200.0,
        "theoretical_occupancy": 0.125,
        "achieved_occupancy": 0.12,
        "stall_memory_dependency": 0.6,
        "dram_utilization": 0.1,
    },
    "wave_quantization": {
        "grid": "(8, 1, 1)",
        "waves_per_sm": 0.01,
        "achieved_occupancy": 0.12,
        "sm_efficiency": 0.06,
        "sm_active_cycles_mean": 6e3,
        "dram_utilization": 0.01,
        "l2_utilization": 0.01,
        "shared_utilization": 0.01,
    },
    "stall_sync": {"stall_sync": 0.6},
    "stall_memory_dependency": {
        "stall_memory_dependency": 0.8,
        "inst_executed": 1e6,
        "ipc": 0.05,
        "dram_utilization": 0.1,
    },
    "stall_exec_dependency": {"stall_exec_dependency": 0.7},
    "dram_bytes": {"dram_utilization": 0.8},
    "fp64_pipe_time": {"double_precision_fu_utilization": 0.9},
    "special_function_pipe_time": {"special_fu_utilization": 0.9},
    "active_threads_per_warp": {"warp_execution_efficiency": 0.4, "issue_slot_utilization": 0.6},
    "stall_inst_fetch": {"stall_inst_fetch": 0.7},
    "fp32_pipe_time": {"single_precision_fu_utilization": 0.8},
    "tensor_pipe_time": {"tensor_utilization": 0.8},
    "global_atomics": {"global_reduction_requests": 1e6, "l2_atomic_utilization_max": 0.9},
    "shared_atomics": {"shared_atomic_transactions": 1e8, "shared_utilization": 0.9},
    "local_memory": {
        "local_load_transactions": 4e7,
        "local_load_requests": 1e7,
        "l2_utilization": 0.55,
        "stall_memory_dependency": 0.6,
    },
    "constant_serialization": {"constant_cache_utilization": 0.95},
    "memory_fence": {"stall_sync": 0.6, "stall_membar": 0.6},
    "integer_arithmetic": {"alu_utilization": 0.9},
    "lsu_pipe_time": {"inst_inter_thread_communication": 1e9, "shared_utilization": 0.9},
    "sm_imbalance": {"sm_active_cycles_mean": 50e3, "sm_efficiency": 0.5},
}
"""What differs from it where one cause is planted, for advice."""

PLANTED = tuple(_CHANGES)
"""Ids of the terms that there is a pair for."""


def pair_with(term: str) -> tuple[Launch, Launch]:
    """Return a baseline, and a launch four times as slow for this cause alone."""
    before, after = _CHANGES[term]
    start = {**_BASE, **before}
    return launch(start), launch({**start, **_WAITS_LONGER, **after})
