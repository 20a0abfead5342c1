"""Which terms name the cause of a family: the ids of perfml's registry that count as an answer.

The ids stand here and nowhere else, so that a term that is renamed is renamed once.
"""

from __future__ import annotations

from .definition import Cause

ANSWERS: dict[str, tuple[str, ...]] = {
    "atomic_contention": ("global_atomics",),
    "atomic_count": ("global_atomics",),
    "shared_atomics": ("shared_atomics",),
    "local_array": ("local_memory",),
    "spills": ("local_memory",),
    "narrow_access": ("narrow_access",),
    "redundant_traffic": ("redundant_traffic", "dram_bytes", "dram_busy_time"),
    "reloaded_values": ("redundant_traffic", "global_requests", "l1_sectors", "l2_sectors"),
    "async_copy": ("async_copy", "stall_memory_dependency"),
    "memory_fence": ("memory_fence",),
    "constant_divergence": ("constant_serialization",),
    "confound_traffic_arithmetic": ("redundant_traffic", "dram_bytes", "dram_busy_time"),
    "confound_atomics_occupancy": ("global_atomics",),
    "conversions": ("special_function_pipe_time",),
    "reciprocal_roots": ("special_function_pipe_time",),
    "doubles_from_none": ("fp64_pipe_time",),
    "bit_rotations": ("math_throttle", "integer_arithmetic"),
    "address_arithmetic": ("integer_arithmetic",),
    "lane_exchange": ("mio_throttle", "lsu_pipe_time"),
    "tensor_cores": ("tensor_unused",),
    "uneven_blocks": ("block_imbalance",),
    "uneven_multiprocessors": ("sm_imbalance", "block_imbalance"),
    "tiny_blocks": ("block_slots",),
    "launch_gaps": ("launch_gaps",),
    "bulk_depth": ("async_copy", "stall_memory_dependency"),
    "bulk_width": ("narrow_copies",),
}

AWAITED: frozenset[str] = frozenset()
"""Terms that perfml's registry does not have yet; the test fails for one that it has by now."""


def cause(name: str, metrics: tuple[str, ...], **direction: int) -> Cause:
    """Return a family's cause: what its knob moves (1 up, -1 down), and what else says it."""
    return Cause((*direction, *metrics), ANSWERS[name], (), direction)
