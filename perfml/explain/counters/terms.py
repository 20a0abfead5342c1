"""The vocabulary of causes: every term that an explanation by counters can name.

A term is identified by its id everywhere: in frames, JSON, planted truth and studies. Its label is
for people and may change. `TERMS` is the one registry.

Here to change: a new cause is an entry here, or in `work_terms` if it is work (with the counters
that are its evidence, its words and what to do about it), its formula in
`perfml.explain.counters.refine` or, where it is the work of a unit, a row of
`perfml.explain.counters.resources`.
"""

from __future__ import annotations

from dataclasses import replace

from perfml.explain.counters.term import SHARE_OF_TIME
from perfml.explain.counters.term import Contribution as Contribution
from perfml.explain.counters.term import Kind as Kind
from perfml.explain.counters.term import Term as Term
from perfml.explain.counters.work_terms import PARTS, WORK
from perfml.metrics import STALLS, with_ncu_name

_NO_CAUSE = "Collect the counters listed as missing: without them the rest has no name."

_RESIDENT = (
    Term(
        "theoretical_occupancy",
        "theoretical occupancy",
        Kind.OCCUPANCY,
        ("theoretical_occupancy",),
        "Let more blocks fit: fewer registers a thread, less shared memory or threads a block.",
        "{target:.0%} of the warps fit on a multiprocessor, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "achieved_of_theoretical",
        "achieved of theoretical occupancy",
        Kind.OCCUPANCY,
        ("achieved_occupancy",),
        "Even out the work of blocks and warps, or launch more blocks.",
        "{target:.0%} of those that fit are resident, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "wave_quantization",
        "wave quantization (tail effect)",
        Kind.WAVES,
        ("waves_per_sm",),
        "Launch more or smaller blocks (split the reduction), or as many as fill whole waves.",
        "blocks fill {target:.0%} of the waves they need, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "block_slots",
        "block slots (blocks too small)",
        Kind.OCCUPANCY,
        ("theoretical_occupancy", "resident_blocks_limit_slots"),
        "Use more threads a block: a multiprocessor has slots for so many blocks only.",
        "{target:.0%} of the warps fit on a multiprocessor, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "block_imbalance",
        "imbalance between blocks",
        Kind.OCCUPANCY,
        ("achieved_occupancy", "theoretical_occupancy", "waves_per_sm"),
        "Give blocks equal work, start the longest ones first, or let blocks fetch their work.",
        "{target:.0%} of the warps that fit are resident, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "sm_imbalance",
        "imbalance between multiprocessors",
        Kind.WAVES,
        ("sm_active_cycles_max", "sm_active_cycles_mean"),
        "Spread the long blocks over all multiprocessors, or launch more, smaller blocks.",
        "the busiest multiprocessor works {target:.3g} times the mean, {baseline:.3g} in the "
        "baseline",
    ),
    Term(
        "issue_rate",
        "instructions issued per resident warp",
        Kind.STALL,
        ("ipc",),
        "Collect the stall reasons: they say what the warps wait for.",
        falls=True,
    ),
)

ONE_SIDED = ("kernels_appeared", "kernels_vanished", "launch_count")
"""Ids of the causes that are launches which one side lacks."""

_LAUNCHES = (
    Term(
        "kernels_vanished",
        "kernels that vanished",
        Kind.LAUNCH,
        ("time_us",),
        "See what they did: a fusion or another algorithm left them out.",
        "{time}: {kernels}",
    ),
    Term(
        "launch_gaps",
        "gaps between kernels",
        Kind.LAUNCH,
        ("gap_us",),
        "Record the launches as one CUDA graph, fuse kernels, and let the host wait less often "
        "(synchronise, .item(), copies from pageable memory).",
        "the device is idle {target:.0%} of the time, {baseline:.0%} in the baseline",
    ),
    Term(
        "memory_moves",
        "copies and fills of memory",
        Kind.LAUNCH,
        ("to_device_us", "to_host_us", "copied_us", "filled_us"),
        "Leave data on the device; what has to cross, copy once, from pinned memory, beside "
        "kernels; let kernels write where a copy or a fill would.",
        "{target:.0%} of the time are copies and fills, {baseline:.0%} in the baseline",
    ),
    Term(
        "kernels_appeared",
        "kernels that appeared",
        Kind.LAUNCH,
        ("time_us",),
        "Fuse them into the kernel beside them, or avoid what makes them necessary.",
        "{time}: {kernels}",
    ),
    Term(
        "launch_count",
        "launch count",
        Kind.LAUNCH,
        ("kernels",),
        "Launch fewer, larger kernels: fuse them, or batch the work.",
        "{target:.0f} launches, {baseline:.0f} in the baseline: {kernels}",
    ),
    Term(
        "side_by_side",
        "launches side by side",
        Kind.LAUNCH,
        ("start_us",),
        "Let independent launches run side by side: several streams, or branches of a CUDA graph.",
        "{target:.0%} of the kernels' time is hidden behind others, {baseline:.0%} in the baseline",
        falls=True,
    ),
    Term(
        "unprofiled_time",
        "profiled vs. unprofiled time",
        Kind.MEASUREMENT,
        ("ncu_time_us",),
        "Compare cache and clock settings: the profiler's duration is not the time without it.",
    ),
)

_STALL_ACTIONS = {
    "stall_inst_fetch": "Make the code smaller: less unrolling, fewer variants in one kernel.",
    "stall_exec_dependency": "Give a thread more independent operations (several accumulators).",
    "stall_memory_dependency": "Load earlier and more at once (prefetch, more independent loads).",
    "stall_texture": "Issue fewer texture instructions at a time.",
    "stall_sync": "Synchronise less often, or only the warps that need it.",
    "stall_constant_memory_dependency": "Read constants that all threads of a warp share.",
    "stall_pipe_busy": "Balance the pipes: the busy one limits; let another unit do a part.",
    "stall_memory_throttle": "Issue fewer, wider memory instructions.",
    "stall_not_selected": "Nothing is wrong: more warps are ready than can issue.",
    "stall_sleeping": "Look for waiting loops with nanosleep.",
    "stall_branch_resolving": "Use fewer branches in the inner loop.",
    "stall_gmma": "Keep several warpgroup matrix instructions in flight.",
}
"""Reasons that a counter names; `stall_other` and `stall_selected` stay in the residual."""

_STALLS = tuple(
    Term(
        name,
        with_ncu_name(name),
        Kind.STALL,
        (name,),
        _STALL_ACTIONS[name],
        SHARE_OF_TIME,
    )
    for name in STALLS
    if name in _STALL_ACTIONS
)

_STALL_PARTS = (
    Term(
        "memory_fence",
        "memory fences (membar)",
        Kind.STALL,
        ("stall_membar",),
        "Use fewer fences, or narrower ones: of the block instead of the device.",
        SHARE_OF_TIME,
    ),
    Term(
        "math_throttle",
        "arithmetic pipes full (math_pipe_throttle)",
        Kind.STALL,
        ("stall_math_pipe_throttle",),
        "Balance the pipes: the busy one limits; let another unit do a part.",
        SHARE_OF_TIME,
    ),
    Term(
        "mio_throttle",
        "shared-memory and special-function queue full (mio_throttle)",
        Kind.STALL,
        ("stall_mio_throttle",),
        "Issue fewer, wider accesses to shared memory, and fewer lane exchanges.",
        SHARE_OF_TIME,
    ),
)
"""Parts of published reasons, where the profiler tells them apart."""

_RESIDUALS = tuple(
    Term(id, f"{label} (unexplained)", Kind.RESIDUAL, (), _NO_CAUSE, "what no counter separates")
    for id, label in (
        ("no_work_counters", "kernels without counters of work"),
        ("throughput", "throughput"),
        ("throughput_at_occupancy", "throughput at that theoretical occupancy"),
        ("throughput_at_waves", "throughput at that wave quantization"),
        ("throughput_per_warp", "throughput per resident warp"),
        ("clock_and_idle_sms", "clock and idle multiprocessors"),
    )
)

PER_LAUNCH = "_per_launch"
"""Ending of the ids of the work of one launch, where a merged row has several launches."""

_PER_LAUNCH = tuple(
    replace(term, id=f"{term.id}{PER_LAUNCH}", label=f"{term.label} a launch") for term in WORK
)

TERMS: dict[str, Term] = {
    term.id: term
    for term in (
        *WORK,
        *PARTS,
        *_RESIDENT,
        *_LAUNCHES,
        *_STALLS,
        *_STALL_PARTS,
        *_PER_LAUNCH,
        *_RESIDUALS,
    )
}
"""Every term by its id."""

STALL_TERMS = _STALLS
"""The reasons of a stall that a counter names."""
