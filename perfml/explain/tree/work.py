"""What grew between two launches: accesses, instructions, and warps that are missing.

A load needs an address, so integer arithmetic comes with it; a division of integers converts to
floating point and back, so the unit of special functions is busy; a multiplication of integers runs
on the FMA pipe. What was counted tells the parts apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfml.chips import REFERENCE
from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.limits.traffic import launches_blocks
from perfml.explain.tree.limits import Limit, fullest
from perfml.explain.tree.pair import Pair, Parts, add, spread
from perfml.explain.tree.thresholds import GREW, MAJORITY, NEGLIGIBLE

LOADS = "stall_memory_dependency"

_EFFICIENCIES = {
    "uncoalesced_loads": "gld_efficiency",
    "uncoalesced_copies": "ldgsts_efficiency",
    "uncoalesced_stores": "gst_efficiency",
}
"""What tells scattered accesses where their sectors were not counted."""


def access_factors(pair: Pair, limit: Limit | None) -> Parts:
    """Return the factors of what global memory has to do, as logarithms; some may be negative.

    `limit` is the unit of the memory; None for requests and their sectors alone.
    """
    if math.isnan(pair.slow["sectors_per_request"]) and math.isnan(
        pair.fast["sectors_per_request"]
    ):
        return {cause: -pair.grew(name) for cause, name in _EFFICIENCIES.items()}
    grown = pair.grew("requests")
    parts = of_requests(pair, grown) if grown > 0 else {"global_requests": grown}
    sectors = pair.grew("sectors_per_request")
    # doubles touch twice the sectors of floats, and no lane is further from the next
    wider = max(0.0, min(sectors, pair.grew("bytes_per_request")))
    if wider >= GREW:
        sectors -= wider
        if limit is not None:
            parts[limit.whole] = wider
    parts["sectors_per_request"] = sectors
    unseen = any(side["unseen_traffic"] > 0 for side in (pair.slow, pair.fast))
    if limit is not None and not unseen:
        # what passes L2 beside L1 (bulk copies, instructions) is in no ratio of their sectors
        for cause, name in limit.factors.items():
            if cause not in ("requests", "sectors_per_request"):
                parts[cause] = pair.grew(name)
    return parts


def of_requests(pair: Pair, grown: float) -> Parts:
    """Return what more requests are: of warps with fewer lanes, narrower ones, repeated loads.

    `grown` is the logarithm by which they are more; above 0.
    """
    parts: Parts = {}
    lost = max(0.0, min(grown, pair.grew("lost_lanes")))
    if lost >= GREW:
        parts["active_threads_per_warp"] = lost
        grown -= lost
    stores = pair.grew("global_store_requests")
    narrower = -pair.grew("bytes_per_request") >= GREW and abs(pair.grew("bytes_asked")) < GREW
    if narrower:
        parts["narrow_access"] = grown
    elif pair.slow["global_store_requests"] > 0 and abs(stores) <= NEGLIGIBLE * grown:
        parts["redundant_traffic"] = grown
    else:
        parts["global_requests"] = grown
    return parts


def latency_of_memory(pair: Pair, longer: float, wait: str = LOADS) -> Parts:
    """Return what makes warps wait longer for global memory that no unit of it is full with.

    More requests, sectors that queue, data from further away; what these leave is that fewer loads
    are in flight. `longer` is the logarithm by which the wait is longer (infinite where the fast
    side has none), `wait` the stall: for loads, or for room in the queue of L1.
    """
    factors = access_factors(pair, None)
    farther = pair.grew("load_latency")
    if farther > 0:
        from_dram = pair.grew("dram_bytes_per_sector") >= GREW
        factors["dram_bytes_per_sector" if from_dram else "l2_sectors_per_l1_sector"] = farther
    up = {cause: value for cause, value in factors.items() if value >= GREW}
    whole = sum(up.values())
    share = min(1.0, whole / longer if 0 < longer < math.inf else whole)
    parts = spread(up, share)
    if share < 1:
        parts[wait] = 1 - share
    return parts


@dataclass(frozen=True)
class _Class:
    """A class of instructions."""

    counters: tuple[str, ...]  # instructions of threads, or of warps
    lanes: int  # how many of them a warp has
    rate: str | float  # lanes that a multiprocessor takes of them in a cycle: a number of its chip

    def warps(self, launch: Launch) -> float:
        """Return the instructions of warps; NaN where they were not counted."""
        return launch.total(self.counters) / self.lanes

    def cycles(self, launch: Launch) -> float:
        """Return the cycles that an instruction of a lane takes on the launch's chip."""
        if isinstance(self.rate, str):
            return 1 / launch.chip.known(self.rate, float(getattr(REFERENCE, self.rate)))
        return 1 / self.rate


_REQUESTS, _SHARED, _INTEGERS = "global_requests", "shared_loads", "integer_arithmetic"
_DIVISIONS = "integer_division"
_CONVERSIONS, _DOUBLES, _FLOATS = (
    "special_function_pipe_time",
    "fp64_pipe_time",
    "fp32_operations",
)

KINDS = {
    _INTEGERS: _Class(("inst_integer",), 32, "int32"),
    _CONVERSIONS: _Class(("inst_bit_convert",), 32, "sfu"),
    _DOUBLES: _Class(("flop_count_dp_add", "flop_count_dp_mul", "flop_count_dp_fma"), 32, "fp64"),
    _FLOATS: _Class(("flop_count_sp_add", "flop_count_sp_mul", "flop_count_sp_fma"), 32, "fp32"),
    "lsu_pipe_time": _Class(("inst_inter_thread_communication",), 32, 32),
    _REQUESTS: _Class(("global_load_requests", "global_store_requests"), 1, 32),
    _SHARED: _Class(("inst_executed_shared_loads",), 1, 32),
}
"""Rates are of the launch's chip (``chips/multiprocessors.csv``); L1 takes a warp a cycle."""

_ADDRESS = 4.0
"""Integer instructions an access at most that compute its address: a wide multiplication and an
addition make 64 bits, and a few more the index. More integers are computed for themselves."""

DIVISION = 4.0
"""Integer instructions a conversion. The compiler divides integers of 32 bits by a reciprocal: two
conversions and about sixteen integer instructions; a plain conversion needs one or none."""

_DIVIDED = 40.0
"""Integers a conversion at most that are divisions': of 64 bits they are up to 80, with two
conversions. Of more a kernel computes most for themselves."""

_WIDENED = 0.25
"""Operations on doubles a conversion, from which on conversions are those of their operands."""


def added_kinds(pair: Pair) -> Parts:
    """Return the additional instructions of warps by kind; what comes along is with its cause."""
    more = {
        name: kind.warps(pair.slow.launch) - kind.warps(pair.fast.launch)
        for name, kind in KINDS.items()
    }
    found = {name: value for name, value in more.items() if value > 0}
    conversions = found.get(_CONVERSIONS, 0.0)
    if conversions > 0:
        if found.get(_DOUBLES, 0.0) >= _WIDENED * conversions:
            found[_DOUBLES] += found.pop(_CONVERSIONS)
        elif found.get(_INTEGERS, 0.0) >= max(DIVISION * conversions, found.get(_FLOATS, 0.0)):
            kind = _DIVISIONS if found[_INTEGERS] <= _DIVIDED * conversions else _INTEGERS
            found[kind] = found.pop(_INTEGERS) + found.pop(_CONVERSIONS)
    accesses = {name: found[name] for name in (_REQUESTS, _SHARED) if name in found}
    clearly = any(
        more >= math.expm1(GREW) * known(KINDS[name].warps(pair.fast.launch))
        for name, more in accesses.items()
    )
    if clearly and _INTEGERS in found:
        addresses = min(found[_INTEGERS], _ADDRESS * sum(accesses.values()))
        found[_INTEGERS] -= addresses
        found = add(found, spread(accesses), addresses)
    return found


def arithmetic_kinds(pair: Pair) -> Parts:
    """Return the kind that most of the instructions are of that the fast side has not."""
    # Empty where these are few, or of several kinds. One in the place of another may take longer.
    kinds = added_kinds(pair)
    whole = sum(kinds.values())
    if not whole >= math.expm1(GREW) * pair.fast["inst_executed"]:
        return {}
    return {name: 1.0 for name, value in kinds.items() if value > MAJORITY * whole}


def _lost(pair: Pair, limit: Limit) -> Parts:
    """Return the part of additional instructions that is lanes without work."""
    lost, longer = pair.grew("lost_lanes"), pair.longer(limit)
    if lost < GREW or not 0 < longer < math.inf:
        return {}
    return {"active_threads_per_warp": min(1.0, lost / longer)}


def issued(pair: Pair, limit: Limit) -> Parts:
    """Return whose the additional instructions are that fill the issue slots."""
    # A kind is named that is most of what was added, for as much time as its unit takes of it.
    parts = _lost(pair, limit)
    kinds = added_kinds(pair)
    whole = sum(kinds.values())
    added = pair.slow["inst_executed"] - pair.fast["inst_executed"]
    named: Parts = {}
    if 0 < added <= whole / MAJORITY:
        chip = pair.slow.launch
        costs = {
            name: value * KINDS.get(name, KINDS[_INTEGERS]).cycles(chip)
            for name, value in kinds.items()
        }
        named = {n: v for n, v in spread(costs).items() if kinds[n] >= MAJORITY * whole}
    if _REQUESTS in named:
        share = named.pop(_REQUESTS)
        named = add(named, spread(of_requests(pair, max(pair.grew("requests"), GREW))), share)
    left = 1 - sum(parts.values())
    parts = add(parts, named, left)
    return add(parts, {limit.cause: 1.0}, left * (1 - sum(named.values())))


def of_pipe(pair: Pair, limit: Limit) -> Parts:
    """Return whose the additional work of an arithmetic pipe is."""
    parts = _lost(pair, limit)
    divides = limit.cause == _INTEGERS and _DIVISIONS in added_kinds(pair)
    cause = _DIVISIONS if divides else limit.cause
    return add(parts, {cause: 1.0}, 1 - sum(parts.values()))


_ALIKE = 0.05  # waves and limits that differ by less are the same

_SHAPE = ("waves_per_sm", "theoretical_occupancy")
_LIMITS = ("registers", "shared_memory", "warps")


def missing_warps(pair: Pair) -> Parts:
    """Return by what fewer warps are resident on the slow side: logarithms by cause."""
    # First those that do not fit, then those that a grid below one wave does not have, then those
    # whose blocks ended before others. More warps can make no unit busier than it sustains, so all
    # together are no more than what the busiest one is short of that.
    fewer = -pair.grew("achieved_occupancy")
    if not fewer > 0:
        return {}
    fits = -pair.grew("theoretical_occupancy")
    # below one wave, as many blocks are there whether fewer of them fit or not
    grid = fits + (
        _short_of_blocks(pair.slow) - _short_of_blocks(pair.fast) if pair.single else 0.0
    )
    limited = max(0.0, min(grid, fewer))
    of_fit = max(0.0, min(fits, limited))
    parts: Parts = {}
    if of_fit > 0:
        parts["block_slots" if _slots_limit(pair.slow) else "theoretical_occupancy"] = of_fit
    if limited > of_fit:
        parts["wave_quantization"] = limited - of_fit
    if fewer > limited:
        cause = _ended_early(pair, fits)
        parts[cause] = parts.get(cause, 0.0) + fewer - limited
    room = -math.log(max(min(1.0, fullest(pair.slow)), 0.01))
    return spread(parts, min(sum(parts.values()), room))


def _short_of_blocks(state: LaunchState) -> float:
    """Return the logarithm by which a grid is smaller than one wave; 0 from one wave on."""
    waves = state["waves_per_sm"]
    return -math.log(waves) if 0 < waves < 1 else 0.0


def _slots_limit(state: LaunchState) -> bool:
    """Return whether places for blocks, and nothing else, limit how many warps are resident."""
    return state["resident_blocks_limit_slots"] <= min(
        state[f"resident_blocks_limit_{name}"] for name in _LIMITS
    )


def _ended_early(pair: Pair, fits: float) -> str:
    """Return why warps that fit, and have a block, are not resident."""
    if launches_blocks(pair.slow.launch):
        return "block_slots"
    known = all(state[name] > 0 for state in (pair.slow, pair.fast) for name in _SHAPE)
    alike = known and abs(pair.grew("waves_per_sm")) < _ALIKE and abs(fits) < _ALIKE
    return "block_imbalance" if alike else "achieved_of_theoretical"


def idle_causes(pair: Pair) -> Parts:
    """Return why multiprocessors have no block: a last wave that is not full, uneven work.

    What both do not account for stays unexplained: starts of blocks, launches, the clock.
    """
    tail = -pair.grew("wave_fill") if pair.single else 0.0
    parts = {"wave_quantization": tail, "sm_imbalance": pair.grew("imbalance") - max(tail, 0.0)}
    accounted = sum(max(part, 0.0) for part in parts.values())
    if accounted > 0:
        parts["clock_and_idle_sms"] = -pair.grew("active") - accounted
    return spread(parts)
