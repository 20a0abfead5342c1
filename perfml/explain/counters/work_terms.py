"""Causes that are work: of a unit, of a memory, and the factors of it."""

from __future__ import annotations

from perfml.explain.counters.term import Kind, Term

_REQUESTS = ("global_load_requests", "global_store_requests")
_SECTORS = ("gld_transactions", "gst_transactions")
_SHARED_LOADS = ("inst_executed_shared_loads", "shared_load_transactions")
_L2 = ("l2_read_transactions", "l2_write_transactions")
_DRAM = ("dram_read_bytes", "dram_write_bytes")

_BUSY = "busy for {baseline:.3g} -> {target:.3g} µs"
"""Words of terms whose levels are always the time that a unit is busy."""

_FEWER_BYTES = "Reuse what was loaded (tiles in shared memory, fusion), or use a smaller type."
_LESS_MEMORY = "Move fewer bytes, or keep the working set in the level above."

WORK = (
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

PARTS = (
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
