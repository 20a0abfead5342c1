"""The vocabulary of causes: every term that an explanation by counters can name.

A term is identified by its id everywhere: in frames, JSON, planted truth and studies. Its label is
for people and may change. `TERMS` is the one registry.

Here to change: a new cause is an entry here (with the counters that are its evidence, its words and
what to do about it), its formula in `perfml.explain.counters.refine` or, where it is the work of a
unit, a row of `perfml.explain.counters.resources`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from perfml.metrics import STALLS, with_ncu_name


class Kind(StrEnum):
    """What a term is about; the coarse view of an explanation has one line a kind."""

    WORK = "work"
    MEMORY = "memory"
    OCCUPANCY = "occupancy"
    WAVES = "waves"
    STALL = "stall"
    LAUNCH = "launch"
    MEASUREMENT = "measurement"
    RESIDUAL = "residual"


@dataclass(frozen=True)
class Term:
    """A possible cause of a difference in time.

    Attributes
    ----------
    id
        Its identity.
    label
        What people read.
    kind
        What it is about.
    evidence
        Counters (names of the catalogue, or columns of a launch) that prove it.
    words
        What its two levels mean, with the fields ``baseline`` and ``target`` (and ``us`` and
        ``kernels`` for launches that one side lacks).
    action
        What to do about it.
    falls
        Whether a lower level makes a launch slower; by default a higher one does.
    or_evidence
        Other counters that prove it as well.
    """

    id: str
    label: str
    kind: Kind
    evidence: tuple[str, ...]
    action: str
    words: str = "{baseline:.3g} -> {target:.3g}"
    falls: bool = False
    or_evidence: tuple[str, ...] = ()

    @property
    def residual(self) -> bool:
        """Whether this is what no counter separates, not a cause."""
        return self.kind is Kind.RESIDUAL


@dataclass(frozen=True)
class Contribution:
    """What one term contributes to the logarithm of a time ratio.

    Attributes
    ----------
    term
        The cause.
    baseline, target
        Its level on either side.
    log_ratio
        Its part of the logarithm; above 0 it makes the target slower.
    waits
        Whether the levels are shares of the warps' time, of a cause that otherwise is counted.
    """

    term: Term
    baseline: float
    target: float
    log_ratio: float
    waits: bool = False

    def with_part(self, log_ratio: float) -> Contribution:
        """Return it with another part of the logarithm."""
        return Contribution(self.term, self.baseline, self.target, log_ratio, self.waits)

    @property
    def words(self) -> str:
        """What its two levels mean, as the term's own words."""
        return SHARE_OF_TIME if self.waits else self.term.words


_REQUESTS = ("global_load_requests", "global_store_requests")
_SECTORS = ("gld_transactions", "gst_transactions")
_SHARED_LOADS = ("inst_executed_shared_loads", "shared_load_transactions")
_L2 = ("l2_read_transactions", "l2_write_transactions")
_DRAM = ("dram_read_bytes", "dram_write_bytes")

_BUSY = "busy for {baseline:.3g} -> {target:.3g} µs"
"""Words of terms whose levels are always the time that a unit is busy."""

_FEWER_BYTES = "Reuse what was loaded (tiles in shared memory, fusion), or use a smaller type."
_LESS_MEMORY = "Move fewer bytes, or keep the working set in the level above."
_NO_CAUSE = "Collect the counters listed as missing: without them the rest has no name."

_WORK = (
    Term(
        "tensor_pipe_time",
        "work: tensor pipe time",
        Kind.WORK,
        ("tensor_utilization",),
        "Do fewer matrix operations, or do them in a smaller type.",
        _BUSY,
        or_evidence=("tensor_cycles_utilization",),
    ),
    Term(
        "fp32_operations",
        "work: FP32 operations",
        Kind.WORK,
        ("flop_count_sp",),
        "Choose an algorithm with fewer operations, or let tensor cores do them.",
    ),
    Term(
        "fp32_pipe_time",
        "work: FP32 pipe time",
        Kind.WORK,
        ("single_precision_fu_utilization",),
        "Choose an algorithm with fewer FP32 operations, or let tensor cores do them.",
        _BUSY,
    ),
    Term(
        "fp64_pipe_time",
        "work: FP64 pipe time",
        Kind.WORK,
        ("double_precision_fu_utilization",),
        "Look for constants and functions in double precision, and use single precision.",
    ),
    Term(
        "special_function_pipe_time",
        "work: special-function pipe time",
        Kind.WORK,
        ("special_fu_utilization",),
        "Call fewer exp, sin, divisions, roots and conversions, or use their fast forms (__expf, "
        "__fdividef), or multiply-adds.",
        or_evidence=("inst_bit_convert",),
    ),
    Term(
        "instructions",
        "work: instructions",
        Kind.WORK,
        ("inst_executed",),
        "Look for index arithmetic, unrolling and wider loads that save instructions.",
    ),
    Term(
        "dram_bytes",
        "work: DRAM bytes",
        Kind.MEMORY,
        _DRAM,
        _FEWER_BYTES,
        or_evidence=_DRAM[:1],
    ),
    Term(
        "dram_busy_time",
        "work: DRAM busy time",
        Kind.MEMORY,
        ("dram_utilization",),
        _FEWER_BYTES,
        _BUSY,
    ),
    Term("l2_sectors", "work: L2 sectors", Kind.MEMORY, _L2, _LESS_MEMORY),
    Term("l1_sectors", "work: L1 sectors", Kind.MEMORY, _SECTORS, _LESS_MEMORY),
    Term(
        "l2_busy_time", "work: L2 busy time", Kind.MEMORY, ("l2_utilization",), _LESS_MEMORY, _BUSY
    ),
    Term(
        "shared_memory_busy_time",
        "work: shared-memory busy time",
        Kind.MEMORY,
        ("shared_utilization",),
        "Keep values in registers, and read shared memory in wider pieces.",
        _BUSY,
    ),
    Term(
        "integer_arithmetic",
        "work: integer and address arithmetic",
        Kind.WORK,
        ("alu_utilization",),
        "Compute addresses once and add to them; divide by powers of two; use 32-bit indices.",
        or_evidence=("inst_integer",),
    ),
    Term(
        "constant_serialization",
        "constant cache serialisation",
        Kind.MEMORY,
        ("constant_cache_utilization",),
        "Let all threads of a warp read the same constant; put tables into shared memory.",
    ),
    Term(
        "global_atomics",
        "global atomics",
        Kind.MEMORY,
        ("global_atomic_requests", "global_reduction_requests"),
        "Add up in a warp or block first, and send one atomic; spread them over more addresses.",
    ),
)
"""Work of a unit: a row of `perfml.explain.counters.resources` each."""

_PARTS = (
    Term(
        "active_threads_per_warp",
        "active threads per warp (divergence)",
        Kind.WORK,
        ("warp_execution_efficiency",),
        "Let the threads of a warp take one path: sort the work, or move the branch to warps.",
        "{target:.1%} of the threads of a warp are active, {baseline:.1%} in the baseline",
        falls=True,
    ),
    Term(
        "global_requests",
        "work: global requests",
        Kind.MEMORY,
        _REQUESTS,
        "Load once and reuse, or load wider pieces (float4), so that fewer requests are needed.",
    ),
    Term(
        "sectors_per_request",
        "sectors per request",
        Kind.MEMORY,
        (*_REQUESTS, *_SECTORS),
        "Let neighbouring threads access neighbouring addresses.",
        "a request touches {target:.3g} sectors, {baseline:.3g} in the baseline",
    ),
    Term(
        "uncoalesced_loads",
        "uncoalesced loads (gld_efficiency)",
        Kind.MEMORY,
        ("gld_efficiency",),
        "Let neighbouring threads load neighbouring addresses.",
        "{target:.1%} of the bytes that loads move were asked for, {baseline:.1%} in the baseline",
        falls=True,
    ),
    Term(
        "uncoalesced_copies",
        "uncoalesced asynchronous copies (ldgsts_efficiency)",
        Kind.MEMORY,
        ("ldgsts_efficiency",),
        "Let neighbouring threads copy neighbouring addresses.",
        "{target:.1%} of the bytes that copies move were asked for, {baseline:.1%} in the baseline",
        falls=True,
    ),
    Term(
        "uncoalesced_stores",
        "uncoalesced stores (gst_efficiency)",
        Kind.MEMORY,
        ("gst_efficiency",),
        "Let neighbouring threads store to neighbouring addresses.",
        "{target:.1%} of the bytes that stores move were written, {baseline:.1%} in the baseline",
        falls=True,
    ),
    Term(
        "l2_sectors_per_l1_sector",
        "L2 sectors per L1 sector",
        Kind.MEMORY,
        (*_SECTORS, *_L2),
        "Keep what is read again in L1: smaller tiles, or another order of the loop.",
    ),
    Term(
        "dram_bytes_per_sector",
        "DRAM bytes per sector",
        Kind.MEMORY,
        (*_SECTORS, *_DRAM),
        "Keep what is read again in L2: a smaller working set, or another order of the blocks.",
    ),
    Term(
        "dram_time_per_sector",
        "DRAM busy time per sector",
        Kind.MEMORY,
        (*_SECTORS, "dram_utilization"),
        "Keep what is read again in L2: a smaller working set, or another order of the blocks.",
    ),
    Term(
        "l2_time_per_sector",
        "L2 busy time per sector",
        Kind.MEMORY,
        (*_SECTORS, "l2_utilization"),
        "Keep what is read again in L1: smaller tiles, or another order of the loop.",
    ),
    Term(
        "shared_loads",
        "work: shared loads",
        Kind.MEMORY,
        _SHARED_LOADS[:1],
        "Keep values in registers, and read shared memory in wider pieces.",
    ),
    Term(
        "wavefronts_per_shared_load",
        "wavefronts per shared load",
        Kind.MEMORY,
        _SHARED_LOADS,
        "Remove bank conflicts: pad the rows of the tile, or permute (swizzle) its columns.",
        "a load takes {target:.3g} wavefronts, {baseline:.3g} in the baseline",
    ),
    Term(
        "bank_conflicts",
        "bank conflicts (bytes a round of shared memory carries)",
        Kind.MEMORY,
        ("shared_efficiency", *_SHARED_LOADS),
        "Remove bank conflicts: pad the rows of the tile, or permute (swizzle) its columns.",
        "a round of shared memory carries {target:.0%} of what it could, {baseline:.0%} in the "
        "baseline",
        falls=True,
    ),
    Term(
        "shared_time_per_wavefront",
        "shared-memory busy time per wavefront",
        Kind.MEMORY,
        (*_SHARED_LOADS, "shared_utilization"),
        "Look for stores, atomics and matrix instructions on shared memory: they are not loads.",
        "what keeps it busy beside loads: stores, atomics, matrix instructions",
    ),
    Term(
        "shared_atomics",
        "shared-memory atomics",
        Kind.MEMORY,
        ("shared_atomic_transactions",),
        "Add up in registers or a warp first; give every warp a copy of the bins.",
        "{target:.3g} passes of shared memory, {baseline:.3g} in the baseline",
    ),
    Term(
        "lsu_pipe_time",
        "work: lane exchange (load/store pipe)",
        Kind.WORK,
        ("inst_inter_thread_communication", "shared_utilization"),
        "Exchange fewer values between lanes: shuffle once, or keep more in each thread.",
        or_evidence=("inst_inter_thread_communication",),
    ),
    Term(
        "local_memory",
        "local memory (spills, local arrays)",
        Kind.MEMORY,
        ("local_load_transactions", "local_store_transactions"),
        "Allow more registers a thread, and index local arrays with constants (unroll the loop).",
        "{target:.3g} sectors of it in L1, {baseline:.3g} in the baseline",
        or_evidence=("local_load_requests", "local_store_requests"),
    ),
    Term(
        "narrow_access",
        "narrow accesses (bytes per request)",
        Kind.MEMORY,
        (*_REQUESTS, *_SECTORS),
        "Load and store wider pieces (float4, or 16 bytes of a smaller type) a thread.",
        "a request moves {target:.3g} bytes, {baseline:.3g} in the baseline",
        falls=True,
    ),
    Term(
        "redundant_traffic",
        "redundant traffic (more loads for the same stores)",
        Kind.MEMORY,
        _REQUESTS,
        "Load once and reuse: keep values in registers or shared memory, join passes.",
        "{target:.3g} loads a store, {baseline:.3g} in the baseline",
    ),
    Term(
        "async_copy",
        "fewer asynchronous copies",
        Kind.MEMORY,
        ("inst_executed_async_copies", "stall_memory_dependency"),
        "Copy to shared memory asynchronously (cp.async, TMA), some steps ahead of their use.",
        "{target:.3g} copies, {baseline:.3g} in the baseline",
        falls=True,
    ),
    Term(
        "narrow_copies",
        "narrow bulk copies (bytes per copy)",
        Kind.MEMORY,
        ("inst_executed_bulk_copies", "bulk_copy_bytes"),
        "Let one bulk copy (cp.async.bulk, TMA) bring a whole tile: kilobytes, not single rows.",
        "a bulk copy brings {target:.4g} bytes, {baseline:.4g} in the baseline",
        falls=True,
    ),
    Term(
        "tensor_unused",
        "tensor cores unused",
        Kind.WORK,
        ("tensor_cycles_utilization", "flop_count_sp", "single_precision_fu_utilization"),
        "Let tensor cores do the matrix operations: a library's kernel, or TF32, FP16 or BF16.",
        "tensor cores are busy {target:.1%} of the time, {baseline:.1%} in the baseline",
        falls=True,
    ),
)
"""Factors of a work, and what it was counted with."""

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
        "unprofiled_time",
        "profiled vs. unprofiled time",
        Kind.MEASUREMENT,
        ("ncu_time_us",),
        "Compare cache and clock settings: the profiler's duration is not the time without it.",
    ),
)

SHARE_OF_TIME = "{target:.0%} of the warps' time, {baseline:.0%} in the baseline"
"""What the levels of a cause mean that warps wait for."""

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
    replace(term, id=f"{term.id}{PER_LAUNCH}", label=f"{term.label} a launch") for term in _WORK
)

TERMS: dict[str, Term] = {
    term.id: term
    for term in (
        *_WORK,
        *_PARTS,
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
