"""Two launches a cause: counters as its hardware shows them, and nothing else that differs."""

from __future__ import annotations

import math
from typing import Any

from perfml.explain.launches import Launch
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

PLANTED = tuple(_CHANGES)
"""Ids of the terms that there is a pair for."""


def pair_with(term: str) -> tuple[Launch, Launch]:
    """Return a baseline, and a launch four times as slow for this cause alone."""
    before, after = _CHANGES[term]
    start = {**_BASE, **before}
    return launch(start), launch({**start, **_WAITS_LONGER, **after})
