"""What the fix of a cause takes away from a slow launch, and what it leaves.

Here to change: a cause's cure is a row of `CURES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from perfml.explain.advice.cure import Cure
from perfml.explain.advice.slow_launch import ACTIVE, BELOW, LANES, SlowLaunch
from perfml.explain.advice.warp_cures import (
    even_multiprocessors,
    full_waves,
    larger_blocks,
    more_resident,
    of_theoretical,
)
from perfml.explain.launches import Launch, known
from perfml.explain.limits.traffic import (
    bytes_asked,
    global_traffic,
    loads_shared_alone,
    shared_filled,
)
from perfml.explain.tree.mix import DIVISION

_ISSUED = ("issue_slot_utilization", "alu_utilization")
_OF_DOUBLES = re.compile(r"\bdouble\b")
"""In the name of a kernel with its parameters or template arguments."""
_LOADS, _SHARED_LOADS = "global_load_requests", "inst_executed_shared_loads"
_MISS = 0.45
"""A load that misses L2 waits about twice as long: this much of its time is DRAM's."""
_IN_FLIGHT = 6.0
"""What eight independent loads of a warp divide its waiting by (``load_chain``)."""
_FIXED = 0.07
"""Cycles an instruction waits for a fixed latency where a thread has eight independent chains (the
family ``dependency``)."""
_HALF = 0.5
"""What stays of a work whose least amount a launch does not tell, as in rules of advice."""
_SECTORS = 4
"""Of a request in which neighbouring lanes ask for neighbouring words."""
_DISTINCT = 0.9
"""Words a lane from which on every lane has one of its own."""
_DIVIDING = 20
"""Instructions that go with a division of integers by a number that the compiler does not know."""
_WIDEST = 512
"""Bytes of a request in which each lane moves sixteen."""

_IN_FLIGHT_UNKNOWN = "how many loads of a warp can be in flight"
_ASKED_UNKNOWN = "what lanes ask for, as the efficiency of accesses was not collected"
_ATOMICS_UNKNOWN = "how many atomics stay, and to how many places they go"
_NEEDED = "how much of that work is needed"


def _scattered(state: SlowLaunch) -> Cure:
    launch = state.launch
    loads, stores = known(launch["gld_transactions"]), known(launch["gst_transactions"])
    if loads + stores == 0:
        loads = stores = 1.0
    loaded, stored = (known(launch[f"{kind}_efficiency"], 1.0) for kind in ("gld", "gst"))
    # L2 reads a sector that is written in part, too, and more sectors of a line than L1 asked for
    moved = max(loads, known(launch["l2_read_transactions"]))
    left = min(1.0, (loads * loaded + stores * stored) / (moved + stores * (2 - stored)))
    requests = known(launch["global_load_requests"]) + known(launch["global_store_requests"])
    sectors = (loads + stores) / requests if requests > 0 else math.nan
    kinds = (("gld", loads), ("gst", stores))
    counted = not any(
        number > 0 and math.isnan(launch[f"{kind}_efficiency"]) for kind, number in kinds
    )
    if math.isnan(launch["gld_efficiency"]) and math.isnan(launch["gst_efficiency"]):
        # what lanes ask for was not collected: a word each, as far as is known
        left = min(1.0, known(_SECTORS / sectors, 1.0))
    # every request moves a sector
    left = max(left, min(1.0, known(1 / sectors)))
    waiting = state.waiting("stall_memory_dependency")
    cycles = state.waited("stall_memory_dependency", by=_LOADS)
    alone = max(left, _latency_left(state.latency, sectors, left, cycles))
    # who waits for room in the queue of requests does not wait for a latency
    queue = state.waiting("stall_memory_throttle") + state.queued
    share = waiting / max(waiting + queue, 0.01)
    stays = left if share < _HALF else share * alone + (1 - share) * left
    relieved = {"l2_utilization": left, "dram_utilization": _from_dram(launch, left)}
    unknown = _IN_FLIGHT_UNKNOWN if stays > left else ""
    if _words_shared(launch):
        unknown = "which lanes will ask for the same words"
    return Cure(state.memory, stays, relieved, unknown=unknown if counted else _ASKED_UNKNOWN)


def _words_shared(launch: Launch) -> bool:
    """Return whether lanes ask for the same words: of a request fewer bytes than a word each."""
    requests = launch[_LOADS] * LANES * known(launch["warp_execution_efficiency"], 1.0)
    words = 8 * launch["gld_transactions"] * launch["gld_efficiency"]
    return requests > 0 and words < _DISTINCT * requests


def _from_dram(launch: Launch, left: float) -> float:
    """Return what stays of DRAM's bytes: no fewer than global loads and stores ask for."""
    asked, moved = bytes_asked(launch), launch.total(("dram_read_bytes", "dram_write_bytes"))
    return min(1.0, max(left, known(asked / moved))) if moved > 0 else left


def _latency_left(latency: float, parts: float, left: float, cycles: float) -> float:
    """Return what stays of waiting for requests that touch fewer parts; 0 where it is not known.

    A request takes its latency and a cycle for each part that it touches. Warps that wait for less
    have several in flight; where they wait for longer, in a queue, how many is not known.
    """
    alone = latency + parts
    if not alone > 0 or not cycles > 0:
        return 0.0
    in_flight = min(max(alone / cycles, math.sqrt(_IN_FLIGHT)), _IN_FLIGHT)
    return min(1.0, (latency + parts * left) / in_flight / cycles)


def _conflicts(state: SlowLaunch) -> Cure:
    launch = state.launch
    left = known(shared_filled(launch), 1.0) or 1.0
    waits_for_it = state.waiting("mio_throttle") + known(launch["stall_short_scoreboard"])
    if loads_shared_alone(launch):
        waits_for_it += state.waiting("stall_memory_dependency")
    part = max(state.level("shared_utilization"), min(1.0, waits_for_it))
    wavefronts = state.ratio(("shared_load_transactions",), (_SHARED_LOADS,))
    cycles = state.waited("mio_throttle", by=_SHARED_LOADS)
    cycles += known(launch["stall_short_scoreboard"]) * state.per_request(_SHARED_LOADS)
    stays = max(left, _latency_left(state.shared_latency, wavefronts, left, cycles))
    unknown = _IN_FLIGHT_UNKNOWN if stays > left else ""
    return Cure(part, stays, {"shared_utilization": left}, unknown=unknown)


def _shared_loads(state: SlowLaunch) -> Cure:
    # wider loads move as many wavefronts, so they save the queue, not the latency
    waits_for_it = state.waiting("mio_throttle", "stall_pipe_busy")
    part = max(state.shared_level, waits_for_it)
    relieved = dict.fromkeys(("shared_utilization", "ldst_fu_utilization"), _HALF)
    return Cure(part, _HALF, relieved, unknown="how many of the loads registers can replace")


def _divergence(state: SlowLaunch) -> Cure:
    left = state.launch["warp_execution_efficiency"]
    return Cure(1.0, left, dict.fromkeys((*ACTIVE, "shared_utilization"), left))


def _wait(
    *terms: str, left: float = 0.0, relieves: str | None = None, unknown: str = ""
) -> Callable[[SlowLaunch], Cure]:
    relieved = {} if relieves is None else {relieves: 0.0}
    return lambda state: Cure(state.waiting(*terms), left, relieved, unknown=unknown)


def _latency(state: SlowLaunch) -> Cure:
    """Loads in flight, by Little's law: what a warp waits for a load, over a load's latency.

    Warps that wait with so many in flight can have twice as many.
    """
    cycles = state.waited("stall_memory_dependency", by=_LOADS)
    left = state.latency / _IN_FLIGHT / cycles if cycles > 0 else math.nan
    part = state.waiting("stall_memory_dependency")
    return Cure(part, min(_HALF, known(left, _HALF)), unknown=_IN_FLIGHT_UNKNOWN)


def _operands(state: SlowLaunch) -> Cure:
    """Operands of arithmetic and shared memory: some of both is waited for in any kernel."""
    launch = state.launch
    part = state.waiting("stall_exec_dependency")
    cycles = state.waited("stall_exec_dependency", by="inst_executed")
    shared = known(launch["stall_short_scoreboard"]) * state.per_request("inst_executed")
    loads = known(state.ratio((_SHARED_LOADS,), ("inst_executed",)))
    stays = min(known(shared), state.shared_latency / _IN_FLIGHT * loads)
    stays += min(max(cycles - known(shared), 0.0), _FIXED)
    left = min(1.0, known(stays / cycles)) if cycles > 0 else 0.0
    return Cure(part, left, unknown="how many instructions do not depend on each other")


def _misses(state: SlowLaunch) -> Cure:
    launch = state.launch
    moved = launch.total(("dram_read_bytes", "dram_write_bytes")) / 32
    sectors = launch.total(("l2_read_transactions", "l2_write_transactions"))
    share = min(1.0, moved / sectors) if sectors > 0 else math.nan
    part = max(state.waiting("stall_memory_dependency"), state.busy["dram_utilization"])
    cycles = state.waited("stall_memory_dependency", by=_LOADS)
    # a load that waits for longer than its latency stands in DRAM's queue
    queue = min(1.0, known(state.latency / cycles, 1.0)) if cycles > 0 else 1.0
    # what is read from DRAM passes L2 once more
    relieved = {"dram_utilization": 1 - share, "l2_utilization": 1 - _HALF * known(share)}
    unknown = "which misses another order of accesses avoids"
    return Cure(part, (1 - _MISS * share) * queue, relieved, unknown=unknown)


def _repeated(state: SlowLaunch) -> Cure:
    least = min(1.0, 2 * state.ratio(("global_store_requests",), (_LOADS,)))
    # what comes from DRAM may all be needed; between the two nothing is known
    needed = min(
        1.0, known(state.launch["dram_read_bytes"] / 32 / state.launch["gld_transactions"])
    )
    left = math.sqrt(least * max(least, needed))
    # what other threads load, too, can come from shared memory, but each of them asks for it
    asked = max(left, _HALF)
    # each load computes an address, too
    loads = known(state.ratio((_LOADS,), ("inst_executed",)))
    work = max(0.0, 1 - 2 * loads * (1 - asked))
    relieved = dict.fromkeys(BELOW, left) | dict.fromkeys(_ISSUED, work)
    relieved["ldst_fu_utilization"] = asked
    queue = state.waiting("stall_memory_throttle", "mio_throttle")
    for_values = state.waiting("stall_memory_dependency")
    of_queue = queue / (queue + for_values) if queue > 0 else 0.0
    stays = left + (asked - left) * of_queue
    return Cure(state.memory, stays, relieved, work, unknown="how few of the loads would do")


def _narrow(state: SlowLaunch) -> Cure:
    sectors = state.ratio(
        ("gld_transactions", "gst_transactions"), ("global_load_requests", "global_store_requests")
    )
    left = min(1.0, 32 * sectors / _WIDEST)
    relieved = dict.fromkeys(("ldst_fu_utilization", "issue_slot_utilization"), left)
    waits_for_memory = state.waiting("stall_memory_dependency", "stall_memory_throttle")
    return Cure(waits_for_memory, left, relieved, unknown="how wide its accesses can be")


def _atomics(state: SlowLaunch) -> Cure:
    cycles = state.waited("stall_memory_dependency", by=_LOADS)
    # loads that wait for longer than their latency stand behind atomics in a queue
    behind = max(0.0, 1 - known(state.latency / cycles, 1.0)) if cycles > 0 else 0.0
    part = state.waiting("global_atomics", "stall_memory_throttle") + state.queued
    part += behind * state.waiting("stall_memory_dependency")
    # spread over all slices of L2, the busiest has as much to do as the mean, and no queue
    left = known(state.ratio(("l2_atomic_utilization",), ("l2_atomic_utilization_max",)))
    busy = state.busy["l2_atomic_utilization_max"]
    relieved = {"l2_atomic_utilization_max": left}
    return Cure(min(1.0, max(part, busy)), 0.0, relieved, unknown=_ATOMICS_UNKNOWN)


def _unit_wait(term: str, unit: str, *kinds: str) -> Callable[[SlowLaunch], Cure]:
    def cure(state: SlowLaunch) -> Cure:
        relieved = {unit: 0.0}
        if kinds:
            relieved["ldst_fu_utilization"] = 0.0
            relieved["issue_slot_utilization"] = 1 - state.instructions(*kinds)
        part = max(state.waiting(term), state.full(unit))
        if unit == "constant_cache_utilization":
            # once is the least
            unknown = "how many constants a warp asks for at a time"
            return Cure(part, 1 / LANES, {unit: 1 / LANES}, unknown=unknown)
        gone = "which instructions go with the exchanges between lanes"
        unknown = _ATOMICS_UNKNOWN if term == "shared_atomics" else gone
        return Cure(part, 0.0, relieved, unknown=unknown)

    return cure


def _local(state: SlowLaunch) -> Cure:
    traffic = global_traffic(state.launch)
    share = traffic["local_memory"] / max(sum(traffic.values()), 1.0)
    part = max(state.waiting("local_memory"), share * max(state.busy[name] for name in BELOW))
    relieved = dict.fromkeys((*BELOW, "ldst_fu_utilization"), 1 - share)
    relieved["dram_utilization"] = _from_dram(state.launch, 1 - share)
    # its instructions go, and the addresses of arrays; spilled values have none
    asked = known(_local_requests(state) / state.launch["inst_executed"])
    work = max(0.0, 1 - asked - min(asked, state.instructions("inst_integer")))
    relieved |= dict.fromkeys(_ISSUED, work)
    return Cure(part, 0.0, relieved, work, unknown="which instructions go with the accesses")


def _local_requests(state: SlowLaunch) -> float:
    """Return the requests of local memory; of sectors, where only those were counted."""
    launch, found = state.launch, 0.0
    for kind in ("load", "store"):
        counted = launch[f"local_{kind}_requests"]
        sectors = known(launch[f"local_{kind}_transactions"])
        found += known(counted, sectors / _SECTORS)
    return found


def _special(state: SlowLaunch) -> Cure:
    slots = max(state.special_slots, state.instructions("inst_bit_convert"))
    relieved = {"special_fu_utilization": 0.0, "issue_slot_utilization": 1 - slots}
    return Cure(1.0, 0.0, relieved, unknown="what takes the place of the functions")


def _integers(state: SlowLaunch) -> Cure:
    # where no pipe is full, a warp still issues them one after another
    share = state.instructions("inst_integer")
    # each division of integers converts one of them there and back
    converted = state.instructions("inst_bit_convert")
    divisions = converted / 2 * _DIVIDING if share >= DIVISION * converted else 0.0
    gone = min(max(share * (1 - _HALF), divisions), 1.0)
    names = ("alu_utilization", "issue_slot_utilization", "single_precision_fu_utilization")
    relieved = dict.fromkeys(names, 1 - gone)
    if divisions > 0:
        relieved["special_fu_utilization"] = 1 - min(1.0, divisions)
    left = 1 - gone / max(share, gone, 0.01)
    return Cure(max(share, gone), left, relieved, unknown=_NEEDED)


def _half_of(unit: str) -> Callable[[SlowLaunch], Cure]:
    return lambda _: Cure(1.0, _HALF, {unit: _HALF}, unknown=_NEEDED)


def _doubles(state: SlowLaunch) -> Cure:
    """Floats in their place, at twice the rate; conversions from and to doubles go."""
    converted = state.instructions("inst_bit_convert")
    slots = min(1.0, state.special_slots)
    relieved = {
        "double_precision_fu_utilization": _HALF,
        "special_fu_utilization": 1 - min(1.0, known(converted / slots)) if slots else 1.0,
        "issue_slot_utilization": 1 - converted,
    }
    if _OF_DOUBLES.search(state.launch.kernel):
        # its arrays are of doubles, too
        relieved |= dict.fromkeys(BELOW, _HALF)
    unknown = "how many instructions go with the doubles"
    return Cure(1.0, _HALF * (1 - converted), relieved, unknown=unknown)


def _fewer(state: SlowLaunch) -> Cure:
    """Half of the instructions, but no fewer than its floating-point operations need."""
    needed = state.ratio(("flop_count_sp",), ("inst_executed",)) / 2 / LANES
    left = min(1.0, max(_HALF, known(needed)))
    return Cure(_but_memory(state), left, dict.fromkeys(_ISSUED, left), unknown=_NEEDED)


def _tensor(state: SlowLaunch) -> Cure:
    relieved = dict.fromkeys(ACTIVE, 1 / 8) | {"shared_utilization": 1 / 4}
    # where neither issue slots nor shared memory are busy, something else is waited for
    busy = max(state.level(name) for name in ("issue_slot_utilization", "shared_utilization"))
    part = min(_but_memory(state), known(busy, 1.0) or 1.0)
    return Cure(part, 0.0, relieved, unknown="how fast loads can feed the tensor cores")


def _but_memory(state: SlowLaunch) -> float:
    """Return the part of the time in which no warp waits for global memory."""
    return 1 - state.waiting("stall_memory_dependency", "stall_memory_throttle", "stall_texture")


CURES: dict[str, Callable[[SlowLaunch], Cure]] = {
    "sectors_per_request": _scattered,
    "uncoalesced_loads": _scattered,
    "uncoalesced_stores": _scattered,
    "wavefronts_per_shared_load": _conflicts,
    "bank_conflicts": _conflicts,
    "shared_memory_busy_time": _conflicts,
    "shared_loads": _shared_loads,
    "active_threads_per_warp": _divergence,
    "theoretical_occupancy": more_resident,
    "block_slots": larger_blocks,
    "achieved_of_theoretical": of_theoretical,
    "block_imbalance": of_theoretical,
    "sm_imbalance": even_multiprocessors,
    "wave_quantization": full_waves,
    "memory_fence": _wait("memory_fence", left=_HALF, unknown="how many of the fences are needed"),
    "async_copy": _latency,
    "stall_memory_dependency": _latency,
    "stall_inst_fetch": _wait("stall_inst_fetch", relieves="l2_utilization"),
    "stall_sync": _wait("stall_sync"),
    "stall_exec_dependency": _operands,
    "stall_memory_throttle": _wait("stall_memory_throttle"),
    "stall_constant_memory_dependency": _wait("stall_constant_memory_dependency"),
    "stall_branch_resolving": _wait("stall_branch_resolving"),
    "stall_pipe_busy": _wait("stall_pipe_busy"),
    "math_throttle": _wait("math_throttle"),
    "mio_throttle": _wait("mio_throttle"),
    "dram_bytes_per_sector": _misses,
    "dram_bytes": _half_of("dram_utilization"),
    "dram_busy_time": _half_of("dram_utilization"),
    "l2_sectors": _half_of("l2_utilization"),
    "l2_busy_time": _half_of("l2_utilization"),
    "redundant_traffic": _repeated,
    "narrow_access": _narrow,
    "global_atomics": _atomics,
    "shared_atomics": _unit_wait("shared_atomics", "shared_utilization"),
    "lsu_pipe_time": _unit_wait(
        "lsu_pipe_time", "shared_utilization", "inst_inter_thread_communication"
    ),
    "constant_serialization": _unit_wait("constant_serialization", "constant_cache_utilization"),
    "local_memory": _local,
    "special_function_pipe_time": _special,
    "integer_arithmetic": _integers,
    "fp64_pipe_time": _doubles,
    "fp32_pipe_time": _half_of("single_precision_fu_utilization"),
    "fp32_operations": _half_of("single_precision_fu_utilization"),
    "instructions": _fewer,
    "tensor_unused": _tensor,
}
"""Cause -> what its fix takes away; a cause that is not here has no estimate."""
