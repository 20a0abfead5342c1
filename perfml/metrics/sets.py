"""Sets of metrics: the published 19, what is collected by default, all that explanations read.

Here to change: a counter joins a set here once it is a row of ``catalogue.csv``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class StudyNote(str):
    """A warning about the published study's metrics: of use where models learn from them."""

    __slots__ = ()

    @classmethod
    def without(cls, warnings: Iterable[str]) -> list[str]:
        """Return the other ones of some warnings."""
        return [text for text in warnings if not isinstance(text, cls)]


PUBLISHED: tuple[str, ...] = (
    "warp_execution_efficiency",
    "gld_efficiency",
    "gst_efficiency",
    "stall_inst_fetch",
    "stall_exec_dependency",
    "stall_memory_dependency",
    "stall_sync",
    "stall_pipe_busy",
    "shared_efficiency",
    "achieved_occupancy",
    "l2_utilization",
    "shared_utilization",
    "ldst_fu_utilization",
    "cf_fu_utilization",
    "special_fu_utilization",
    "tex_fu_utilization",
    "single_precision_fu_utilization",
    "double_precision_fu_utilization",
    "dram_utilization",
)
"""The 19 metrics of the published dataset, in its column order."""

STALLS: tuple[str, ...] = (
    "stall_inst_fetch",
    "stall_exec_dependency",
    "stall_memory_dependency",
    "stall_texture",
    "stall_sync",
    "stall_constant_memory_dependency",
    "stall_pipe_busy",
    "stall_memory_throttle",
    "stall_not_selected",
    "stall_other",
    "stall_sleeping",
    "stall_selected",
    "stall_branch_resolving",
    "stall_gmma",
)
"""Why a warp waits or not: shares of its active cycles, one a reason."""

DURATION = "gpu__time_duration.sum"
"""Nsight Compute's name of a launch's duration (nanoseconds in base units)."""

ROOFLINE: tuple[str, ...] = (
    "flop_count_sp",
    "flop_count_dp",
    "flop_count_hp",
    "tensor_cycles_utilization",
    "sm_efficiency",
    "dram_read_bytes",
    "dram_write_bytes",
    "l2_read_transactions",
    "l2_write_transactions",
    "gld_transactions",
    "gst_transactions",
    "inst_executed",
)
"""What a roofline is drawn from: operations, and bytes at every level of memory."""

INSTRUCTIONS = "inst_executed"
REPEATABLE: tuple[str, ...] = (
    INSTRUCTIONS,
    "gld_transactions",
    "gst_transactions",
    "shared_load_transactions",
)
"""Counts that are the same in every run of one program."""

CACHED: tuple[str, ...] = ("l2_read_transactions", "dram_read_bytes")
"""Counts that are nearly the same: what its caches let through."""

DEFAULT: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *PUBLISHED,
            *ROOFLINE,
            "sm_efficiency",
            "ipc",
            "issue_slot_utilization",
            "theoretical_occupancy",
            "global_load_requests",
            "global_store_requests",
            "inst_executed_shared_loads",
            "shared_load_transactions",
            "stall_memory_throttle",
            "stall_constant_memory_dependency",
            "stall_gmma",
            "half_precision_fu_utilization",
            # what Hopper's libraries load is mostly asynchronous copies; counted in the pass of
            # instrumented code that gld_efficiency takes already
            "ldgsts_efficiency",
            # what tells causes apart that share a unit: atomics, local memory, constants,
            # exchanged lanes, integer arithmetic, idle multiprocessors, tensor cores
            "global_atomic_requests",
            "global_reduction_requests",
            "l2_atomic_utilization_max",
            "local_load_transactions",
            "local_store_transactions",
            "shared_atomic_transactions",
            "constant_cache_utilization",
            "inst_executed_async_copies",
            "inst_integer",
            "inst_bit_convert",
            "inst_inter_thread_communication",
            "alu_utilization",
            "sm_active_cycles_max",
            "sm_active_cycles_mean",
        )
    )
)
"""What explain, advise and roofline read: enough to name every planted cause that `CAUSES` names.

A multiprocessor of an sm_90 counts four things a pass beside its cycles and warps, and every such
pass costs the same, so a metric has to earn its place. Seven passes hold these, and the pass of
instrumented code that the efficiencies take anyway holds what is counted there instead
(`Metric.asked`). Left out is what would take a pass more and changed no answer:
``tensor_utilization`` takes three places for what ``tensor_cycles_utilization`` says in one,
``stall_branch_resolving`` was 1 % of the time of the atlas's 26,221 launches and nowhere above
14 %. `CAUSES` has both.

What a launch says of itself (registers, shared memory, waves) comes with every profile, and so do
the parts of a stall reason that is a sum (``stall_sync`` is ``stall_barrier`` and
``stall_membar``).
"""

CAUSES: tuple[str, ...] = (
    *DEFAULT,
    "constant_cache_requests",
    "inst_executed_shared_atomics",
    "inst_executed_shared_stores",
    "local_load_requests",
    "local_store_requests",
    "shared_store_transactions",
    "stall_branch_resolving",
    "stall_drain",
    "stall_lg_throttle",
    "stall_math_pipe_throttle",
    "stall_membar",
    "stall_mio_throttle",
    "stall_not_selected",
    "stall_short_scoreboard",
    "stall_sleeping",
    "stall_texture",
    "tensor_utilization",
)
"""Every counter that an explanation reads; it takes more passes than `DEFAULT`."""

HOPPER: tuple[str, ...] = ("bulk_copy_bytes", "inst_executed_bulk_copies")
"""Counters that explanations read, too, but that GPUs before Hopper lack: a profiler refuses them
there, so they are in no set and have to be asked for by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "default": DEFAULT,
    "causes": CAUSES,
    "published": PUBLISHED,
    "stalls": STALLS,
    "roofline": ROOFLINE,
}
"""Sets by the name that a user gives."""
EVERY = "all"
"""The set of every metric."""
SETS = (*GROUPS, EVERY)
"""What a user may name instead of metrics."""


_NAMED = 4
"""Metrics that the sentence names before it only counts."""


def substitutes_note(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sentence, or nothing where all published metrics were collected.

    `sources` are the provenance of each file.
    """
    held = {name for source in sources for name in source.get("substituted", ())}
    names = [name for name in PUBLISHED if name in held]
    if not names:
        return []
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED]) + rest
    was, it = ("was", "it is") if len(names) == 1 else ("were", "they are")
    note = (
        f"{len(names)} of the published study's {len(PUBLISHED)} metrics {was} not collected as "
        f"{it}; formulas over other counters stand in for them: {listed} (-v lists the formulas)."
    )
    return [StudyNote(note)]


def formulas(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each published metric's formulas, a line each."""
    found = dict.fromkeys(
        (name, formula)
        for source in sources
        for name, formula in source.get("substituted", {}).items()
        if name in PUBLISHED
    )
    return [f"{name} is taken as {formula}" for name, formula in sorted(found)]
