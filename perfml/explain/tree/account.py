"""Level one of the tree: how much of the additional time each limit of the slow side holds.

For each limit, the time on the slow side less the time on the fast side, over the additional time.
What warps wait for longer belongs to the units whose own time grew, in proportion; where none did,
it is a wait of its own (for a latency). Units work at the same time, so the time that one of them
adds holds the launch only in part: `exposed` says which. A wait counts by its part of the time.
Multiprocessors without a block are no amount of time but a part of it (`Pair.idle`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.limits import Limit, limit_of, load_limits
from perfml.explain.tree.pair import Pair
from perfml.explain.tree.parts import spread
from perfml.explain.tree.thresholds import OVERLAP, QUEUED

IDLE = "idle"


@dataclass(frozen=True)
class Held:
    """What a limit holds of the additional time.

    Attributes
    ----------
    limit
        The limit.
    share
        Its part of the additional time; those of all limits add up to 1 at most.
    nearness
        How near to its ceiling it stands on the slow side; of a wait, its part of the time.
    """

    limit: Limit
    share: float
    nearness: float


def is_used(limit: Limit, state: LaunchState) -> bool:
    """Return whether a launch uses a unit at all, as far as that was counted."""
    return not limit.used or any(state[name] > 0 for name in limit.used)


def _within_amount(pair: Pair, unit: Limit, level: float, more: float) -> float:
    """Return the additional time of a unit; where it is proportional, no more than its work's."""
    counted = pair.slow[unit.amount] > 0 and pair.fast[unit.amount] > 0
    if not (unit.proportional and counted):
        return more
    span, before = pair.spans(unit)
    work = -level * math.expm1(-pair.grew(unit.amount)) * span
    return min(more, work / (span - before) if span > before else 0.0)


def _by_amount(pair: Pair, units: Sequence[Limit]) -> dict[str, float]:
    """Return which part of the additional time more work can take, where times are not known."""
    longer = math.log(pair.slow.launch.time_us / pair.fast.launch.time_us)
    grown = {
        unit.id: pair.grew(unit.amount) / longer
        for unit in units
        if math.isnan(pair.slow.value(unit.time))
    }
    return {name: min(part, 1.0) for name, part in grown.items() if part > 0}


def _most_queued(pair: Pair, wait: Limit, nearness: Mapping[str, float]) -> float:
    """Return the part of a wait that its units can make: what is a queue, or as full as one is."""
    if wait.queued is None:
        return 1.0
    full = (nearness[name] for name in wait.units if name in nearness)
    return max(pair.slow.value(wait.queued), *full, 0.0)


def exposed(faster: float, level: float, more: float) -> float:
    """Return the part of the additional time for which a unit's own holds the launch.

    Units overlap in part: a launch takes ``sum(t ** p) ** (1 / p)`` of the times `t` that they
    take alone. With p = 1 they wait for each other, and with an infinite one the fullest alone
    counts (a roofline). What a unit adds to the sum, over what all add, is its part.

    Parameters
    ----------
    faster
        The time of the fast side, over that of the slow side.
    level
        The unit's time on the slow side, over that of the launch.
    more
        Its additional time, over that of the launch.
    """
    slow = min(level, 1.0)
    fast = max(0.0, slow - more * (1 - faster))
    return float((slow**OVERLAP - fast**OVERLAP) / (1 - faster**OVERLAP))


def account(pair: Pair) -> list[Held]:
    """Return what each limit holds of the additional time, the most first."""
    units, waits, _ = load_limits()
    nearness: dict[str, float] = {}
    grown: dict[str, float] = {}
    shown: dict[str, float] = {}
    for unit in units:
        level, more = pair.taken(unit)
        if unit.id == IDLE:
            continue
        more = _within_amount(pair, unit, level, more)
        if is_used(unit, pair.slow) and more > 0:
            span, before = pair.spans(unit)
            nearness[unit.id] = min(1.0, level / unit.ceiling)
            grown[unit.id] = min(more, 1.0)
            shown[unit.id] = exposed(before / span, level / unit.ceiling, more / unit.ceiling)
    waited: dict[str, float] = dict.fromkeys(grown, 0.0)
    weighed: dict[str, float] = dict.fromkeys(grown, 0.0)
    parts: dict[str, float] = {}
    weights: dict[str, float] = {}
    for wait in waits:
        level, more = pair.taken(wait)
        if not more > 0:
            continue
        more = min(more, 1.0)
        room = {name: QUEUED * grown[name] for name in wait.units if name in grown}
        given = min(more * _most_queued(pair, wait, nearness), sum(room.values()))
        for name, part in spread(room, given).items():
            waited[name] += part
            weighed[name] += part * level
        if more > given:
            nearness[wait.id] = level
            weights[wait.id], parts[wait.id] = (more - given) * level, more - given
    for name, own in grown.items():
        parts[name] = max(own, waited[name])
        weights[name] = max(shown[name], weighed[name])
    of_device = (unit for unit in units if unit.device and unit.id != IDLE)
    levels = (pair.slow.value(unit.time) / unit.ceiling for unit in of_device)
    idle = pair.idle(max((min(level, 1.0) for level in levels if level >= 0), default=0.0))
    gone = [Held(limit_of(IDLE), idle, 1 - pair.slow["active"])] if idle > 0 else []
    if not weights:
        # nobody counted what any limit takes: what has more to do may be one
        parts = _by_amount(pair, units)
        weights, nearness = dict(parts), dict.fromkeys(parts, 0.0)
    whole = sum(weights.values())
    together = (1 - idle) * min(1.0, sum(parts.values()))
    held = gone + [
        Held(limit_of(name), together * weight / whole, nearness[name])
        for name, weight in weights.items()
        if whole > 0
    ]
    return sorted(held, key=lambda each: -each.share)
