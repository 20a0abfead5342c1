"""What tells two causes apart: a table of Nsight Compute, or a run with one thing changed.

Here to change: a cause that is settled in a way of its own has a row of `_CHECKS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfml.explain.advice.persons import Person, person_of
from perfml.explain.counters.terms import Kind, Term


@dataclass(frozen=True)
class Check:
    """What settles whether something is the cause.

    Attributes
    ----------
    text
        What to look at or to run, and what the answer would be.
    section
        Of Nsight Compute, where one shows it; empty otherwise.
    for_users
        Whether who calls a kernel of a library can do it, too.
    """

    text: str
    section: str = ""
    for_users: bool = True


_OPCODES = Check(
    "section InstructionStats shows which instructions the slower side executes more often",
    "InstructionStats",
)
_ADDRESSES = Check(
    "section SourceCounters shows the sectors of single loads and stores", "SourceCounters"
)
_FITS_L2 = Check("run it with a problem that fits into L2: if the difference stays, it is not DRAM")
_WAITS = Check("section SourceCounters shows at which instructions warps wait", "SourceCounters")
_SMALL_BLOCKS = Check(
    "run it with blocks of half the size: faster if warps or blocks are uneven", for_users=False
)
_FEWER_RESIDENT = Check(
    "run it with more shared memory a block than it needs: as slow as before if resident warps do "
    "not matter",
    for_users=False,
)
_WHOLE_WAVES = Check("run it with a grid of a whole number of waves", for_users=False)
_CONFLICTS = Check(
    "section MemoryWorkloadAnalysis_Tables shows wavefronts and conflicts of shared memory",
    "MemoryWorkloadAnalysis_Tables",
)
_PIPES = Check(
    "section ComputeWorkloadAnalysis shows how busy each pipe is", "ComputeWorkloadAnalysis"
)
_BOTH_TIMES = Check("compare its time under the profiler with that without: collect records both")
_BATCH = Check("run it with twice the batch: less than twice the time if the GPU was not full")
_RANGES = Check("put a range (NVTX) around each step: then kernels of one step are compared")
PROGRAMS = Check(
    "section SourceCounters of both shows at which instructions warps wait; or change one thing at "
    "a time (layout, precision, a size) until the kernel changes: one kernel compares with itself",
    "SourceCounters",
)
"""Where two programs are compared."""

_CHECKS = {
    "instructions": _OPCODES,
    "integer_arithmetic": _OPCODES,
    "active_threads_per_warp": _OPCODES,
    "tensor_unused": _PIPES,
    "sectors_per_request": _ADDRESSES,
    "uncoalesced_loads": _ADDRESSES,
    "uncoalesced_copies": _ADDRESSES,
    "uncoalesced_stores": _ADDRESSES,
    "local_memory": _ADDRESSES,
    "global_requests": _ADDRESSES,
    "redundant_traffic": _ADDRESSES,
    "narrow_access": _ADDRESSES,
    "global_atomics": _ADDRESSES,
    "shared_loads": _CONFLICTS,
    "wavefronts_per_shared_load": _CONFLICTS,
    "bank_conflicts": _CONFLICTS,
    "shared_atomics": _CONFLICTS,
    "shared_memory_busy_time": _CONFLICTS,
    "lsu_pipe_time": _CONFLICTS,
    "block_imbalance": _SMALL_BLOCKS,
    "sm_imbalance": _SMALL_BLOCKS,
    "achieved_of_theoretical": _SMALL_BLOCKS,
    "stall_sync": _SMALL_BLOCKS,
}
_BY_KIND = {
    Kind.WORK: _PIPES,
    Kind.MEMORY: _FITS_L2,
    Kind.OCCUPANCY: _FEWER_RESIDENT,
    Kind.WAVES: _WHOLE_WAVES,
    Kind.STALL: _WAITS,
    Kind.LAUNCH: _RANGES,
    Kind.MEASUREMENT: _BOTH_TIMES,
    Kind.RESIDUAL: _WAITS,
}


def check_of(term: Term, kernel: str = "") -> Check:
    """Return what settles whether a term is the cause.

    Parameters
    ----------
    term
        The cause.
    kernel
        Its name: who calls a library's kernel cannot launch it in another way.
    """
    check = _CHECKS.get(term.id, _BY_KIND[term.kind])
    if check.for_users or person_of(kernel) is Person.AUTHOR:
        return check
    return _BATCH if term.kind in (Kind.OCCUPANCY, Kind.WAVES) else _WAITS
