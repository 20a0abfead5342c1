"""What passes a unit that several kinds of instructions share, and what warps wait for there.

Nsight Compute counts a stall or a busy cycle by unit. Several kinds of instructions pass one unit
(loads, local memory and atomics the L1 cache; loads, atomics and lane exchange the data stage of
shared memory), and their counts tell whose it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfml.chips import REFERENCE
from perfml.explain.launches import Launch, known
from perfml.metrics.sets import STALLS

_MOST_L2_SECTORS = 3
_MOST_DRAM_BYTES = 64
"""What a sector in L1 can cost below at most: it is read once (twice where L2 has two partitions),
and DRAM moves two sectors at a time."""

_DIGITS = 0.02  # Nsight Compute says waves to two digits
_LIMITS = ("registers", "shared_memory", "warps", "slots")
_LAUNCHED = 0.004
"""Blocks a multiprocessor and cycle. A GPU launches about one a cycle (0.0076 for each of 132
multiprocessors; blocks of one warp that do next to nothing reached 0.0064). Beyond half of that,
launching them is what takes the time."""

L1_SECTORS = 4.0
"""Sectors of a wavefront of L1: 128 bytes, as many as a multiprocessor gets in a cycle."""
L1_ACCESSES = {
    "gld_transactions": "global_load_requests",
    "gst_transactions": "global_store_requests",
    "local_load_transactions": "local_load_requests",
    "local_store_transactions": "local_store_requests",
}
"""Sectors of a kind of access in L1, and its requests."""

_LANES, SECTOR = 32, 32  # lanes of a warp, bytes of a sector
_SECTORS_OF_WORDS = 4
"""A warp of neighbouring 4-byte words; the profiler does not count sectors of atomics in L1."""


def global_traffic(launch: Launch) -> dict[str, float]:
    """Return sectors in L1 by kind: ``global``, ``local_memory`` and ``global_atomics``."""
    return {
        "global": _sum(launch, "gld_transactions", "gst_transactions"),
        "local_memory": _sum(launch, "local_load_transactions", "local_store_transactions"),
        "global_atomics": _SECTORS_OF_WORDS
        * _sum(launch, "global_atomic_requests", "global_reduction_requests"),
    }


def l1_level(launch: Launch) -> float:
    """Return how busy L1's data stage is, of a multiprocessor's cycles; NaN if not known."""
    # It gives a wavefront a cycle: a request takes one at least (two where 16 load/store units are
    # and not 32: of 456 launches in public reports of such chips the busiest asked 0.49 times a
    # cycle, L1 98 % busy with it; on 9.0 0.99 times, 2026-11-23), and one for each four sectors of
    # wide loads, and of strides of up to a sector. Lanes at random places take 1.3 to 2 times as
    # many (four lines are looked up a cycle), odd strides fewer (32 sectors in 3 cycles), and 32
    # lanes of one bank 32: what takes longer than a cycle fills the queue that `stall_lg_throttle`
    # waits for (``studies/truth/wavefronts.cu``, ``benchmarks/results/wavefronts-h200.csv``).
    if not launch["inst_executed"] > 0:
        return math.nan
    enters = 1 / launch.chip.known("l1_requests", 1.0)
    wavefronts = sum(
        _wavefronts(launch, sectors, requests, enters) for sectors, requests in L1_ACCESSES.items()
    )
    counted = any(launch[name] >= 0 for names in L1_ACCESSES.items() for name in names)
    level = wavefronts * launch["ipc"] / launch["inst_executed"]
    return min(level, 1.0) if counted and level >= 0 else math.nan


def _wavefronts(launch: Launch, sectors: str, requests: str, enters: float) -> float:
    """Return the cycles of a kind of access, by what was counted of it; 0 if nothing was."""
    # A request takes `enters` cycles at least.
    return max(enters * known(launch[requests], 0.0), known(launch[sectors], 0.0) / L1_SECTORS)


def bytes_asked(launch: Launch) -> float:
    """Return how many bytes the lanes of global loads and stores ask for; NaN if not known."""
    # Asynchronous copies share the sectors of loads, and have an efficiency of their own.
    if launch["inst_executed_async_copies"] > 0:
        return math.nan
    asked = 0.0
    for kind in ("gld", "gst"):
        moved = launch[f"{kind}_transactions"]
        if moved != 0:
            asked += SECTOR * moved * launch[f"{kind}_efficiency"]
    return asked


def operations(launch: Launch) -> float:
    """Return operations of single lanes on floats, and on halves where those were counted."""
    return launch["flop_count_sp"] + known(launch["flop_count_hp"], 0.0)


def unseen_traffic(launch: Launch) -> bool:
    """Return whether L2 or DRAM moved more than the loads and stores that were counted in L1 can.

    Instructions, constants, asynchronous copies and bulk copies (TMA) come through L2 too; a cost a
    sector of L1 would be a fraction whose denominator leaves them out.
    """
    sectors = launch["gld_transactions"] + launch["gst_transactions"]
    below = launch["l2_read_transactions"] + launch["l2_write_transactions"]
    moved = launch["dram_read_bytes"] + launch["dram_write_bytes"]
    return below > _MOST_L2_SECTORS * sectors or moved > _MOST_DRAM_BYTES * sectors


def load_latency(launch: Launch) -> float:
    """Return the cycles until a load has its value, by where its sectors come from; NaN if unknown.

    Nothing else is in its way: the mean of the levels' own latencies.
    """
    sectors = launch["gld_transactions"]
    if not sectors > 0:
        return math.nan
    from_l2 = min(1.0, known(launch["l2_read_transactions"] / sectors, 1.0))
    from_dram = min(1.0, known(launch["dram_read_bytes"] / 32 / sectors, 0.0))
    return launch.chip.filled_from(REFERENCE).load_latency(from_l2, from_dram)


def placed_blocks(launch: Launch) -> float:
    """Return how many blocks there are for each multiprocessor; NaN where that is not known."""
    exact = launch.blocks / launch.chip.multiprocessors
    if not math.isnan(exact):
        return exact
    fit = [launch[f"resident_blocks_limit_{name}"] for name in _LIMITS]
    return launch["waves_per_sm"] * min(fit)


def evenness(launch: Launch) -> float:
    """Return how busy equal blocks keep multiprocessors, over the busiest one; NaN if unknown."""
    # 132 blocks are one for each of 132 multiprocessors, however many would fit; 140 are two for
    # some of them, and two waves of time.
    blocks = placed_blocks(launch)
    if not blocks > 0:
        return math.nan
    nearest = max(round(blocks), 1)
    return 1.0 if abs(blocks - nearest) <= _DIGITS * blocks else blocks / math.ceil(blocks)


def blocks_a_cycle(launch: Launch) -> float:
    """Return how many blocks a multiprocessor starts in a cycle; 0 where that is not known."""
    cycles = launch["sm_active_cycles_mean"]
    return known(placed_blocks(launch) / cycles, 0.0) if cycles > 0 else 0.0


def launches_blocks(launch: Launch) -> bool:
    """Tell whether a launch takes as long as its blocks take to be launched."""
    return blocks_a_cycle(launch) >= _LAUNCHED


def shared_traffic(launch: Launch) -> dict[str, float]:
    """Return wavefronts of shared memory's data stage by kind: loads and stores, and others."""
    return {
        "shared": _sum(launch, "shared_load_transactions", "shared_store_transactions"),
        "shared_atomics": _sum(launch, "shared_atomic_transactions"),
        # every lane takes part in an exchange: one wavefront a warp
        "lsu_pipe_time": _sum(launch, "inst_inter_thread_communication") / _LANES,
    }


def waits(launch: Launch) -> dict[str, float]:
    """Return what warps wait for: shares of their cycles by the id of a term."""
    # Published reasons are split where the profiler tells their parts apart, and by kind of traffic
    # where a queue is shared. Reasons that were not collected are left out.
    shares: dict[str, float] = {}
    for name, share in launch.counters.items():
        if name in _WHOLE:
            _add(shares, name, share)
    _split_memory(shares, launch)
    _split(shares, "stall_sync", {"memory_fence": launch["stall_membar"]})
    _split(
        shares,
        "stall_pipe_busy",
        {
            "math_throttle": launch["stall_math_pipe_throttle"],
            "mio_throttle": launch["stall_mio_throttle"],
        },
    )
    return shares


_WHOLE = frozenset(STALLS) - {"stall_other", "stall_selected"}
"""Reasons that a counter names; others stay in the residual."""


def _local(launch: Launch, kind: str) -> float:
    """Return requests of local memory; of sectors, where only those were counted."""
    # Words of the threads of a warp lie side by side there, so a request takes four sectors.
    counted = launch[f"local_{kind}_requests"]
    sectors = _sum(launch, f"local_{kind}_transactions")
    return sectors / _SECTORS_OF_WORDS if math.isnan(counted) else counted


def _split_memory(shares: dict[str, float], launch: Launch) -> None:
    """Give waits for memory to those who wait: loads for data, writers at the end, all for room."""
    loads = {
        "global": _sum(launch, "global_load_requests"),
        "local_memory": _local(launch, "load"),
        "global_atomics": _sum(launch, "global_atomic_requests"),
    }
    writes = {
        "global": _sum(launch, "global_store_requests"),
        "local_memory": _local(launch, "store"),
        "global_atomics": _sum(launch, "global_reduction_requests"),
    }
    both = {kind: loads[kind] + writes[kind] for kind in loads}
    drain, throttle = launch["stall_drain"], launch["stall_lg_throttle"]
    if math.isnan(drain) or math.isnan(throttle):
        drain, throttle = 0.0, launch["stall_memory_throttle"]
    if unseen_traffic(launch):
        # copies that are no requests (TMA) are waited for too
        return
    for kind in ("local_memory", "global_atomics"):
        waiting = launch["stall_memory_dependency"] * _share(loads, kind)
        _split(shares, "stall_memory_dependency", {kind: waiting})
        waiting = drain * _share(writes, kind) + throttle * _share(both, kind)
        _split(shares, "stall_memory_throttle", {kind: waiting})


def _split(shares: dict[str, float], whole: str, parts: Mapping[str, float]) -> None:
    """Take known parts out of a whole that is known."""
    if whole not in shares:
        return
    for name, part in parts.items():
        if part >= 0:
            taken = min(part, shares[whole])
            shares[whole] -= taken
            _add(shares, name, taken)


def _add(shares: dict[str, float], name: str, value: float) -> None:
    if not math.isnan(value):
        shares[name] = shares.get(name, 0.0) + value


def _sum(launch: Launch, *names: str) -> float:
    """Return the sum of the counters that were collected: an absent kind claims nothing."""
    return sum(launch[name] for name in names if not math.isnan(launch[name]))


def _share(traffic: Mapping[str, float], kind: str) -> float:
    known = {name: value for name, value in traffic.items() if not math.isnan(value)}
    whole = sum(known.values())
    return known.get(kind, 0.0) / whole if whole > 0 else float(kind == "global")
