"""Whose instructions are additional: kinds that were counted, and what comes along with them.

A load needs an address, so integer arithmetic comes with it; a division of integers converts to
floating point and back, so the unit of special functions is busy; a multiplication of integers runs
on the FMA pipe. What was counted tells the parts apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfml.explain.launches import Launch
from perfml.explain.tree.limits import Limit
from perfml.explain.tree.memory import of_requests
from perfml.explain.tree.pair import Pair
from perfml.explain.tree.parts import Parts, add, spread
from perfml.explain.tree.thresholds import GREW, MAJORITY


@dataclass(frozen=True)
class _Kind:
    """A kind of instruction.

    Attributes
    ----------
    counters
        Instructions of threads, or of warps.
    lanes
        How many of them a warp has.
    rate
        Lanes that a multiprocessor takes of them in a cycle.
    """

    counters: tuple[str, ...]
    lanes: int
    rate: int

    def warps(self, launch: Launch) -> float:
        """Return the instructions of warps; NaN where they were not counted."""
        return launch.total(self.counters) / self.lanes


_REQUESTS, _SHARED, _INTEGERS = "global_requests", "shared_loads", "integer_arithmetic"
_CONVERSIONS, _DOUBLES, _FLOATS = (
    "special_function_pipe_time",
    "fp64_pipe_time",
    "fp32_operations",
)

KINDS = {
    _INTEGERS: _Kind(("inst_integer",), 32, 64),
    _CONVERSIONS: _Kind(("inst_bit_convert",), 32, 16),
    _DOUBLES: _Kind(("flop_count_dp_add", "flop_count_dp_mul", "flop_count_dp_fma"), 32, 64),
    _FLOATS: _Kind(("flop_count_sp_add", "flop_count_sp_mul", "flop_count_sp_fma"), 32, 128),
    "lsu_pipe_time": _Kind(("inst_inter_thread_communication",), 32, 32),
    _REQUESTS: _Kind(("global_load_requests", "global_store_requests"), 1, 32),
    _SHARED: _Kind(("inst_executed_shared_loads",), 1, 32),
}
"""Rates of compute capability 9.0: CUDA C++ Programming Guide, "Throughput of native arithmetic
instructions"; the L1 cache takes a warp a cycle."""

_ADDRESS = 4.0
"""Integer instructions an access at most that compute its address: a wide multiplication and an
addition make 64 bits, and a few more the index. More integers are computed for themselves."""

DIVISION = 4.0
"""Integer instructions a conversion. The compiler divides integers of 32 bits by a reciprocal: two
conversions and about sixteen integer instructions; a plain conversion needs one or none."""

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
            found[_INTEGERS] += found.pop(_CONVERSIONS)
    accesses = {name: found[name] for name in (_REQUESTS, _SHARED) if name in found}
    clearly = max(pair.grew("requests"), pair.grew("inst_executed_shared_loads")) >= GREW
    if accesses and clearly and _INTEGERS in found:
        addresses = min(found[_INTEGERS], _ADDRESS * sum(accesses.values()))
        found[_INTEGERS] -= addresses
        found = add(found, spread(accesses), addresses)
    return found


def arithmetic_kinds(pair: Pair) -> Parts:
    """Return the kind that most of the instructions are of that the fast side has not.

    Empty where these are few, or of several kinds. One in the place of another may take longer.
    """
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
    """Return whose the additional instructions are that fill the issue slots.

    A kind is named that is most of what was added, for as much time as its unit takes of it.
    """
    parts = _lost(pair, limit)
    kinds = added_kinds(pair)
    whole = sum(kinds.values())
    added = pair.slow["inst_executed"] - pair.fast["inst_executed"]
    named: Parts = {}
    if 0 < added <= whole / MAJORITY:
        costs = {
            name: value * KINDS[name].lanes / KINDS[name].rate for name, value in kinds.items()
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
    return add(parts, {_whose(pair, limit): 1.0}, 1 - sum(parts.values()))


def _whose(pair: Pair, limit: Limit) -> str:
    """Return the cause of a pipe's work: conversions and multiplications may be of another kind."""
    kinds = added_kinds(pair)
    if limit.cause == _CONVERSIONS and pair.slow["inst_bit_convert"] > 0:
        if kinds.get(_DOUBLES, 0.0) > 0:
            return _DOUBLES
        if _CONVERSIONS not in kinds and kinds.get(_INTEGERS, 0.0) >= MAJORITY * sum(
            kinds.values()
        ):
            return _INTEGERS
    if limit.id == "fp32":
        # integers are multiplied on the FMA pipe, 64 lanes a cycle
        integers = kinds.get(_INTEGERS, 0.0) / (KINDS[_INTEGERS].rate / 32)
        floats = kinds.get(_FLOATS, 0.0) / (KINDS[_FLOATS].rate / 32)
        busy = [
            side["cycles"] * side["single_precision_fu_utilization"]
            for side in (pair.fast, pair.slow)
        ]
        if integers > floats and integers >= MAJORITY * (busy[1] - busy[0]) > 0:
            return _INTEGERS
    return limit.cause
