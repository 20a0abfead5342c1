"""What makes warps wait for memory as long as they do: how much they ask for, and how busy it is.

Little's law: the warps that wait for loads at any time are the loads a cycle times the cycles until
one has its value. So the cycles that all warps wait are loads x mean wait, and where the waiting
changed, the loads may have, or the wait of one. That grows with the sectors that a load touches
where they queue: at a unit that is busy. A stall is then no cause of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.counters.requests import DIVERGENCE, name_redundant_traffic
from perfml.explain.counters.resources import LONGER, MOST, RESOURCES
from perfml.explain.counters.terms import TERMS, Term
from perfml.explain.counters.traffic import L1_SECTORS, SMALL, l1_level, loads_shared_alone
from perfml.explain.launches import Launch, known

_CLEARLY = math.log(1.2)
"""Fewer additional loads are no cause of their own."""

_OF_REQUESTS = ("global_requests", "narrow_access", "redundant_traffic")
"""Terms that hold what the number of requests does."""


def name_waited_loads(decomposition: Decomposition, pair: Pair) -> None:
    """Give waiting for global loads to their number, and to the sectors that they touch."""
    source = "stall_memory_dependency"
    loads = pair.levels("global_load_requests")
    waited = [_warp_cycles(launch, source) for launch in pair.both]
    if source not in decomposition or not all(value > 0 for value in (*loads, *waited)):
        return
    whole = decomposition.log_ratio(source)
    more, grown = math.log(loads[1] / loads[0]), math.log(waited[1] / waited[0])
    if whole * grown <= 0 or not _matters(whole, pair):
        return
    if more * whole > 0 and not any(_says(decomposition, term, pair) for term in _OF_REQUESTS):
        _name_number(decomposition, pair, source, whole * min(1.0, more / grown))
    longer = grown - more
    if longer * whole > 0:
        _name_sectors(decomposition, pair, source)


def _name_number(decomposition: Decomposition, pair: Pair, source: str, value: float) -> None:
    """Name the number of loads, and warps of which fewer lanes ask: they ask more often."""
    loads, active = (
        pair.levels(name) for name in ("global_load_requests", "warp_execution_efficiency")
    )
    more = math.log(loads[1] / loads[0])
    if abs(more) < _CLEARLY:
        return
    value = math.copysign(min(abs(value), abs(more)), value)
    fewer = math.log(active[0] / active[1]) if min(active) > 0 else 0.0
    diverged = min(max(fewer / more, 0.0), 1.0) if abs(fewer) >= _CLEARLY else 0.0
    if diverged > 0:
        decomposition.name(DIVERGENCE, active[0], active[1], diverged * value, of=source)
    value *= 1 - diverged
    decomposition.name("global_requests", loads[0], loads[1], value, of=source)
    name_redundant_traffic(decomposition, pair)


def _name_sectors(decomposition: Decomposition, pair: Pair, source: str) -> None:
    """Name the sectors of a load where they had to queue on the side that has more of them."""
    sectors, loads = pair.levels("gld_transactions"), pair.levels("global_load_requests")
    if not all(value > 0 for value in sectors):
        return
    sizes = [sector / load for sector, load in zip(sectors, loads, strict=True)]
    wider, left = math.log(sizes[1] / sizes[0]), decomposition.log_ratio(source)
    named = _says(decomposition, "sectors_per_request", pair)
    if abs(wider) >= _CLEARLY and wider * left > 0 and not named and _queued(pair):
        value = math.copysign(min(abs(left), abs(wider)), left)
        decomposition.name("sectors_per_request", sizes[0], sizes[1], value, of=source)


def _says(decomposition: Decomposition, term: str, pair: Pair) -> bool:
    """Return whether a term is said already."""
    return term in decomposition and _matters(decomposition.log_ratio(term), pair)


def _matters(waiting: float, pair: Pair) -> bool:
    """Return whether waiting speaks for the difference, and is no small part of it."""
    step = math.log(pair.after.time_us / pair.before.time_us)
    return step != 0 and waiting / step > SMALL


def _warp_cycles(launch: Launch, stall: str) -> float:
    """Return how long all warps wait, in warps of a full multiprocessor times us."""
    return launch[stall] * launch["achieved_occupancy"] * launch.duration_us


def _queued(pair: Pair, least: float = MOST) -> bool:
    """Return whether a unit that serves global loads was busy on the slower side."""
    slower = max(pair.both, key=lambda launch: launch.duration_us)
    levels = [unit.level_of(slower) for unit in RESOURCES if unit.is_global]
    return any(level >= least for level in (*levels, _data_stage(slower)))


def _may_have_queued(pair: Pair) -> bool:
    """Return whether a unit that serves global loads was busy at times, or may have been.

    Lanes of one bank of L1, a power of two apart, take a wavefront each instead of one for four
    sectors (`l1_level`), and no metric tells them.
    """
    slower = max(pair.both, key=lambda launch: launch.duration_us)
    return _queued(pair, LONGER) or L1_SECTORS * l1_level(slower) >= MOST


def _shared_may_have_queued(pair: Pair) -> bool:
    """Return whether the stage that shared memory answers from was busy at times."""
    return _shared_queued(pair, LONGER)


def _shared_queued(pair: Pair, least: float = MOST) -> bool:
    """Return whether the stage that shared memory answers from was busy on either side."""
    return any(_data_stage(side) >= least for side in pair.both)


def _data_stage(launch: Launch) -> float:
    """Return how busy the stage is that all loads bring their values through, together.

    Wavefronts of shared memory and of L1 queue there.
    """
    return l1_level(launch) + known(launch["shared_utilization"])


_BEHIND = {
    "stall_memory_dependency": (
        "sectors_per_request",
        ("gld_transactions", "global_load_requests"),
        _may_have_queued,
    ),
    "stall_exec_dependency": (
        "wavefronts_per_shared_load",
        ("shared_load_transactions", "inst_executed_shared_loads"),
        _shared_may_have_queued,
    ),
}
"""What a wait may be for, the counters whose ratio it is, and whether it may have queued."""


def may_be_behind(stall: Term, pair: Pair) -> Term | None:
    """Return what a wait may be the consequence of, though its unit was not surely full.

    A unit that is busy a quarter of the time makes nobody wait for long where what it is asked
    comes evenly, and does where all warps ask at once: no counter tells that.
    """
    if stall.id not in _BEHIND:
        return None
    term, (parts, whole), queued = _BEHIND[stall.id]
    sizes = [launch[parts] / launch[whole] for launch in pair.both if launch[whole] > 0]
    times = [launch.duration_us for launch in pair.both]
    if len(sizes) < len(times) or not min(sizes) > 0:
        return None
    more, step = math.log(sizes[1] / sizes[0]), math.log(times[1] / times[0])
    behind = more * step > 0 and abs(more) >= abs(step) and queued(pair)
    return TERMS[term] if behind else None


def name_waited_shared(decomposition: Decomposition, pair: Pair) -> None:
    """Give waiting for a busy shared memory to its loads, and to the rounds that each takes.

    Its queue is full, or a value comes late, because they are many: no more of the waiting than
    their number grew by.
    """
    loads = pair.levels("inst_executed_shared_loads")
    rounds = pair.levels("shared_load_transactions")
    if not min(loads) > 0 or not _shared_queued(pair):
        return
    for source, part in (("mio_throttle", 1.0), ("stall_exec_dependency", _of_shared(pair))):
        if source not in decomposition or part == 0:
            continue
        waiting = part * decomposition.log_ratio(source)
        if not _matters(waiting, pair):
            continue
        waiting -= _give(decomposition, source, "shared_loads", loads, waiting)
        if min(rounds) > 0:
            sizes = [each / count for each, count in zip(rounds, loads, strict=True)]
            _give(decomposition, source, "wavefronts_per_shared_load", sizes, waiting)


def name_waited_generic_loads(decomposition: Decomposition, pair: Pair) -> None:
    """Give waiting in the long scoreboard to shared memory where nothing else is loaded.

    A load takes as many cycles longer as it has wavefronts, whether others queue or not.
    """
    source = "stall_memory_dependency"
    if source not in decomposition or not all(map(loads_shared_alone, pair.both)):
        return
    waiting = decomposition.log_ratio(source)
    loads = pair.levels("inst_executed_shared_loads")
    rounds = pair.levels("shared_load_transactions")
    if not min(loads) > 0 or not _matters(waiting, pair):
        return
    waiting -= _give(decomposition, source, "shared_loads", loads, waiting)
    sizes = [each / count for each, count in zip(rounds, loads, strict=True)]
    _give(decomposition, source, "wavefronts_per_shared_load", sizes, waiting)


def _give(
    decomposition: Decomposition, source: str, term: str, levels: Sequence[float], waiting: float
) -> float:
    """Name a term for waiting that it explains; return how much of it that is."""
    more = math.log(levels[1] / levels[0])
    if abs(more) < _CLEARLY or more * waiting <= 0:
        return 0.0
    sign = math.copysign(1.0, more)
    named = sign * decomposition.log_ratio(term) if term in decomposition else 0.0
    value = sign * min(abs(waiting), max(abs(more) - max(named, 0.0), 0.0))
    decomposition.name(term, levels[0], levels[1], value, of=source)
    return value


def _of_shared(pair: Pair) -> float:
    """Return the part of longer waiting for values that is for the queue of shared memory."""
    whole, short = (
        [_warp_cycles(launch, stall) for launch in pair.both]
        for stall in ("stall_exec_dependency", "stall_short_scoreboard")
    )
    grown = [after - before for before, after in (whole, short)]
    return min(max(grown[1] / grown[0], 0.0), 1.0) if grown[0] != 0 else 0.0
