"""Whose work a unit does: instructions that come along with others are no cause of their own.

A load needs an address, so integer arithmetic comes with it; a division of integers converts to
floating point and back, so the unit of special functions is busy; a multiplication of integers runs
on the FMA pipe. What was counted tells the parts apart.
"""

from __future__ import annotations

import math

import numpy as np

from perfml.chips import REFERENCE
from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.counters.traffic import SMALL
from perfml.explain.launches import Launch

MOST = 0.5
"""A kind of instruction that is most of the additional ones is named for them."""

_LANES = 32
_REQUESTS = ("global_load_requests", "global_store_requests")
_FLOATS = ("flop_count_sp_add", "flop_count_sp_mul", "flop_count_sp_fma")
_DOUBLES = ("flop_count_dp_add", "flop_count_dp_mul", "flop_count_dp_fma")
KINDS = {
    "integer_arithmetic": (("inst_integer",), _LANES),
    "special_function_pipe_time": (("inst_bit_convert",), _LANES),
    "fp64_pipe_time": (_DOUBLES, _LANES),
    "fp32_operations": (_FLOATS, _LANES),
    "lsu_pipe_time": (("inst_inter_thread_communication",), _LANES),
    "global_requests": (_REQUESTS, 1),
    "shared_loads": (("inst_executed_shared_loads",), 1),
}
"""Counters of instructions of threads (or of warps), and how many of them a warp has."""

_RATES = {
    "integer_arithmetic": "int32",
    "special_function_pipe_time": "sfu",
    "fp64_pipe_time": "fp64",
    "fp32_operations": "fp32",
}
"""Kinds by the number of a chip that says how many lanes it takes of them in a cycle. The others
enter L1, which takes a warp a cycle."""

_ACCESSES = ("global_requests", "shared_loads")
_CLEARLY = 1.2
"""Accesses that grew by less than this factor bring no addresses with them that matter."""

_ADDRESS = 4.0
"""Integer instructions an access at most that compute its address: a wide multiplication and an
addition make 64 bits, and a few more the index. More integers are computed for themselves."""

DIVISION = 4.0
"""Integer instructions a conversion. The compiler divides integers of 32 bits by a reciprocal: two
conversions and about sixteen integer instructions; a plain conversion needs one or none."""

_WIDENED = 0.25
"""Operations on doubles a conversion, from which on conversions are those of their operands."""

_MULTIPLICATIONS = 2.0
"""The same of multiplications of integers, which run on one half of it."""


def name_instructions(decomposition: Decomposition, pair: Pair) -> None:
    """Name the kinds of the additional instructions, by the time that their units take for them."""
    resource = pair.resource
    if resource is None or not resource.issued or resource.work.id not in decomposition:
        return
    work = decomposition.log_ratio(resource.work.id)
    before, after = pair.levels("inst_executed")
    more = after - before
    counts = {
        term: (_instructions(pair.before, term), _instructions(pair.after, term)) for term in KINDS
    }
    if _moves_the_same(pair):
        del counts["global_requests"]  # narrower ones: `name_narrow_access` says so
    growth = {term: then - now for term, (now, then) in counts.items()}
    known = {term: value for term, value in growth.items() if value / more > 0} if more else {}
    cost = {term: value / _rate(pair.after, term) for term, value in known.items()}
    share = min(1.0, sum(known.values()) / more) if known else 0.0
    if share < MOST:
        return
    for term in known:
        part = share * cost[term] / sum(cost.values())
        decomposition.name(term, *counts[term], part * work, of=resource.work.id)


def give_addresses_to_accesses(decomposition: Decomposition, pair: Pair) -> None:
    """Give integer arithmetic that comes with additional loads and stores to those.

    It is what as many accesses have on the faster side; what is more than that is its own cause.
    """
    term = "integer_arithmetic"
    if term not in decomposition or _moves_the_same(pair):
        return
    value = decomposition.log_ratio(term)
    fast, slow = _faster_first(pair, value)
    integer = [_instructions(side, term) for side in (fast, slow)]
    counts = {each: [_instructions(side, each) for side in (fast, slow)] for each in _ACCESSES}
    known = {each: count for each, count in counts.items() if min(count) >= 0}
    accesses = [sum(count[at] for count in known.values()) for at in (0, 1)]
    more = integer[1] - integer[0]
    if not (more > 0 and accesses[0] > 0 and accesses[1] >= _CLEARLY * accesses[0]):
        return
    addresses = min(integer[0] / accesses[0], _ADDRESS) * (accesses[1] - accesses[0])
    share = min(1.0, addresses / more)
    grown = {each: count[1] - count[0] for each, count in known.items() if count[1] > count[0]}
    for each, growth in grown.items():
        levels = [_instructions(launch, each) for launch in pair.both]
        part = share * growth / sum(grown.values())
        if part > SMALL:
            decomposition.name(each, levels[0], levels[1], part * value, of=term)


def give_conversions_to_division(decomposition: Decomposition, pair: Pair) -> None:
    """Give special functions that are parts of integer divisions to the integer arithmetic."""
    term = "integer_arithmetic"
    levels = [_instructions(launch, term) for launch in pair.both]
    floats = [_instructions(launch, "fp32_operations") for launch in pair.both]
    if abs(floats[1] - floats[0]) > abs(levels[1] - levels[0]):
        return  # those of accurate divisions, roots and exponentials of floats
    _give_conversions(decomposition, pair, to=term, least=DIVISION, levels=levels)


def give_conversions_to_doubles(decomposition: Decomposition, pair: Pair) -> None:
    """Give conversions from and to doubles to the arithmetic in double precision."""
    levels = [launch["double_precision_fu_utilization"] for launch in pair.both]
    _give_conversions(decomposition, pair, to="fp64_pipe_time", least=_WIDENED, levels=levels)


def give_the_mix_to_instructions(decomposition: Decomposition, pair: Pair) -> None:
    """Give back to the instructions what is a part of the mix that the faster side has, too.

    A kind that is neither most of what was added nor grew by clearly more than all instructions is
    no cause of its own: there is more of everything.
    """
    resource = pair.resource
    if resource is None or not resource.issued or resource.work.id not in decomposition:
        return
    everything = pair.levels("inst_executed")
    counts = {
        term: (_instructions(pair.before, term), _instructions(pair.after, term)) for term in KINDS
    }
    more = math.copysign(1.0, everything[1] - everything[0])
    added = sum(max(more * (then - now), 0.0) for now, then in counts.values() if now + then >= 0)
    for term, count in counts.items():
        most = more * (count[1] - count[0]) >= MOST * added
        if term in decomposition and not most and not _grew_beyond(count, everything):
            decomposition.move(decomposition.log_ratio(term), term, resource.work.id)


def _grew_beyond(kind: tuple[float, float], everything: tuple[float, float]) -> bool:
    """Return whether a kind of instruction grew by clearly more than all of them."""
    return max(kind) * min(everything) >= _CLEARLY * min(kind) * max(everything)


def _give_conversions(
    decomposition: Decomposition, pair: Pair, *, to: str, least: float, levels: list[float]
) -> None:
    """Give the unit of special functions to `to` where conversions are the most of what it does.

    Each additional conversion has at least `least` additional instructions of `to`.
    """
    term = "special_function_pipe_time"
    if term not in decomposition:
        return
    value = decomposition.log_ratio(term)
    fast, slow = _faster_first(pair, value)
    special = _instructions(slow, term) - _instructions(fast, term)
    converted = (slow["inst_bit_convert"] - fast["inst_bit_convert"]) / _LANES
    more = _instructions(slow, to) - _instructions(fast, to)
    if converted >= MOST * special > 0 and more >= least * converted:
        decomposition.name(to, levels[0], levels[1], value, of=term)


def give_multiplications_to_integers(decomposition: Decomposition, pair: Pair) -> None:
    """Give the time of the FMA pipe that no arithmetic in floating point takes to the integers."""
    term, integer = "fp32_pipe_time", "integer_arithmetic"
    if term not in decomposition:
        return
    value = decomposition.log_ratio(term)
    fast, slow = _faster_first(pair, value)
    pipe = _pipe_cycles(slow) - _pipe_cycles(fast)
    others = _of_others(slow) - _of_others(fast)
    more = _instructions(slow, integer) - _instructions(fast, integer)
    if pipe > 0 and others > MOST * pipe and more / _MULTIPLICATIONS >= others:
        levels = [_instructions(launch, integer) for launch in pair.both]
        part = min(1.0, others / pipe) * value
        decomposition.name(integer, levels[0], levels[1], part, of=term)


def _faster_first(pair: Pair, value: float) -> tuple[Launch, Launch]:
    """Return both launches, first the one that does less of what `value` is the log ratio of."""
    return (pair.before, pair.after) if value > 0 else (pair.after, pair.before)


def _instructions(launch: Launch, term: str) -> float:
    """Return how many instructions of warps a launch has of a kind of `KINDS`.

    Special functions are not counted, but their unit takes sixteen lanes a cycle, so how long it
    is busy tells them: conversions, which it does too, are a part of that.
    """
    counters, lanes = KINDS[term]
    counted = launch.total(counters) / lanes
    if term != "special_function_pipe_time" or not launch["ipc"] > 0:
        return counted
    return float(
        np.fmax(
            counted,
            launch["special_fu_utilization"] * _cycles(launch) * _rate(launch, term) / lanes,
        )
    )


def _rate(launch: Launch, term: str) -> float:
    """Return how many lanes a multiprocessor of a launch's device takes of a kind in a cycle."""
    rate = _RATES.get(term)
    return _LANES if rate is None else launch.chip.known(rate, getattr(REFERENCE, rate))


def _cycles(launch: Launch) -> float:
    """Return the cycles of all multiprocessors together; NaN where they are not known."""
    return launch["inst_executed"] / launch["ipc"] if launch["ipc"] > 0 else math.nan


def _pipe_cycles(launch: Launch) -> float:
    return launch["single_precision_fu_utilization"] * _cycles(launch)


def _of_others(launch: Launch) -> float:
    """Return the cycles of the FMA pipe without arithmetic in floating point; NaN if unknown."""
    threads = launch.total(_FLOATS)
    active = launch["warp_execution_efficiency"]
    half = launch["half_precision_fu_utilization"]
    warps = threads / _LANES / (active if active > 0 else 1.0)
    known = 0.0 if math.isnan(half) else half * _cycles(launch)
    taken = _rate(launch, "fp32_operations") / _LANES
    return max(_pipe_cycles(launch) - known - warps / taken, 0.0)


def _moves_the_same(pair: Pair) -> bool:
    """Return whether as many sectors are moved, however many requests ask for them."""
    sectors = [launch.total(("gld_transactions", "gst_transactions")) for launch in pair.both]
    requests = [launch.total(_REQUESTS) for launch in pair.both]
    if not all(value > 0 for value in (*sectors, *requests)):
        return False
    more = abs(math.log(requests[1] / requests[0]))
    return abs(math.log(sectors[1] / sectors[0])) <= SMALL * more
