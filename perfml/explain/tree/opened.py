"""Level two of the tree: which causes hold a limit's part of the additional time.

Most limits have one cause, or a product of factors (``limits.toml``). What needs more is here:
requests for memory, warps that are missing, kinds of instructions, idle multiprocessors. Every
function returns parts of 1 by the id of a cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from perfml.explain.tree.limits import Limit
from perfml.explain.tree.pair import Pair, Parts, add, spread
from perfml.explain.tree.thresholds import GREW, MAJORITY
from perfml.explain.tree.work import (
    access_factors,
    arithmetic_kinds,
    idle_causes,
    issued,
    latency_of_memory,
    missing_warps,
    of_pipe,
)


def open_limit(pair: Pair, limit: Limit) -> Parts:
    """Return the causes of a limit's part of the additional time, as parts of 1."""
    if limit.opens in _OPENS:
        return _OPENS[limit.opens](pair, limit)
    return {limit.cause: 1.0}


def _memory(pair: Pair, limit: Limit) -> Parts:
    """Return the factors of a memory's amount; where it takes longer than that, a latency's."""
    # Factors that make up for each other (a quarter of the requests, with four times the sectors
    # each) are no causes: where they exceed twice what was added, all of it is.
    longer = pair.longer(limit)
    counted = not math.isnan(pair.slow[limit.amount])
    grown = pair.grew(limit.amount)
    factors = access_factors(pair, limit)
    up = {cause: value for cause, value in factors.items() if value > 0}
    if not counted:
        # how much the unit has to do is not known, only what tells of it
        share = min(1.0, sum(up.values()) / longer) if 0 < longer < math.inf else 1.0
        found = spread(up, share)
        return add(found, {limit.cause: 1.0}, 1 - sum(found.values()))
    if not grown > 0:
        waits = limit.cause.startswith("stall_")
        return latency_of_memory(pair, longer) if waits else {limit.cause: 1.0}
    grown_apart = sum(up.values()) > grown / MAJORITY
    found = {} if grown_apart else spread(up, min(1.0, sum(up.values()) / grown))
    found = add(found, {limit.whole: 1.0}, 1 - sum(found.values()))
    share = min(1.0, grown / longer) if 0 < longer < math.inf else 1.0
    return add(spread(found, share), latency_of_memory(pair, longer), 1 - share)


def _latency(pair: Pair, limit: Limit) -> Parts:
    """Return the causes of longer waits for memory; at fences, what was asked has to arrive.

    Where the fast side has no fence, memory has as much of them as it has of the whole.
    """
    longer = pair.longer(limit)
    found = of_warps(pair, longer)
    longer = longer if limit.units else min(longer, pair.log_ratio)
    return add(found, latency_of_memory(pair, longer, limit.cause), 1 - sum(found.values()))


def _arithmetic(pair: Pair, limit: Limit) -> Parts:
    """Return the causes of a wait for results of arithmetic, or for the turn of a single warp."""
    # Warps wait for every instruction, so it is longer with fewer warps, with more instructions,
    # and with others that take longer.
    missing, more = missing_warps(pair), max(0.0, pair.grew("inst_executed"))
    lost = max(0.0, min(more, pair.grew("lost_lanes")))
    known = {**missing, "active_threads_per_warp": lost, "instructions": more - lost}
    longer = pair.longer(limit)
    parts = spread(known, min(1.0, sum(known.values()) / longer if longer > 0 else 1.0))
    kinds = arithmetic_kinds(pair)
    if kinds:
        # those are what is additional, or takes longer
        parts.pop("instructions", None)
    return add(parts, kinds or {limit.cause: 1.0}, 1 - sum(parts.values()))


def of_warps(pair: Pair, longer: float) -> Parts:
    """Return what fewer resident warps are of a wait that is longer (Little's law).

    Warps that wait at any time are events a second times the wait of one; half as many of them
    take twice as long for the same events. (J. D. C. Little, "A proof for the queuing formula
    L = lambda W", Operations Research 9, 1961.) `longer` is a logarithm.
    """
    missing = missing_warps(pair)
    longer = abs(longer)
    share = min(1.0, sum(missing.values()) / longer) if 0 < longer < math.inf else 0.0
    return spread(missing, share)


def _local(pair: Pair, limit: Limit) -> Parts:
    """Return whose accesses to local memory are additional: also those of lanes without work."""
    lost, grown = pair.grew("lost_lanes"), pair.grew(limit.amount)
    share = min(1.0, lost / grown) if lost >= GREW and grown > 0 else 0.0
    found = add(
        spread({"active_threads_per_warp": share}, share),
        of_warps(pair, pair.longer(limit)),
        1 - share,
    )
    return add(found, {limit.cause: 1.0}, 1 - sum(found.values()))


def _shared(pair: Pair, limit: Limit) -> Parts:
    up = {cause: pair.grew(name) for cause, name in limit.factors.items()}
    if not pair.slow["wavefronts_per_shared_load"] > 0 or up["wavefronts_per_shared_load"] >= GREW:
        # conflicts of loads are counted by themselves, and words that many lanes read look like one
        del up["bank_conflicts"]
    return spread({c: v for c, v in up.items() if v >= GREW}) or {limit.whole: 1.0}


_OPENS: Mapping[str, Callable[[Pair, Limit], Parts]] = {
    "memory": _memory,
    "latency": _latency,
    "local": _local,
    "arithmetic": _arithmetic,
    "shared": _shared,
    "issue": issued,
    "pipe": of_pipe,
    "idle": lambda pair, limit: idle_causes(pair) or {limit.cause: 1.0},
}
