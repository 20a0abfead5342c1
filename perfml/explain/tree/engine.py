"""The engine: one pair of launches, where the additional time is, and what grew there.

Level one (`account`) says which limits of the slow side hold the additional time; level two
(`open_limit`) which causes grew there. A cause counts only under a limit that holds time. The parts
of all causes add up to the logarithm of the ratio of times; what no limit holds is the rest.

A limit holds its time on the slow side less that on the fast side, over the additional time. What
warps wait for longer belongs to the units whose own time grew, in proportion; where none did, it is
a wait of its own (for a latency). Units work at the same time, so the time that one of them adds
holds the launch only in part: `exposed` says which. A wait counts by its part of the time.
Multiprocessors without a block are no amount of time but a part of it (`Pair.idle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfml.explain.launches import Launch, adds_up
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Contribution, is_proven
from perfml.explain.tree.limits import Instead, Limit, limit_of, load_limits
from perfml.explain.tree.pair import Pair, Parts, add, spread, why_denied
from perfml.explain.tree.thresholds import (
    GREW,
    MAJORITY,
    NEGLIGIBLE,
    OVERLAP,
    QUEUED,
    SMALL,
)
from perfml.explain.tree.work import (
    access_factors,
    arithmetic_kinds,
    idle_causes,
    issued,
    latency_of_memory,
    missing_warps,
    of_pipe,
)

IDLE = "idle"


@dataclass(frozen=True)
class Held:
    """What a limit holds of the additional time."""

    limit: Limit
    share: float  # its part of the additional time; those of all limits add up to 1 at most
    # how near to its ceiling it stands on the slow side; of a wait, its part of the time
    nearness: float


def is_used(limit: Limit, state: LaunchState) -> bool:
    """Return whether a launch uses a unit at all, as far as that was counted."""
    return not limit.used or any(state[name] > 0 for name in limit.used)


def _within_amount(pair: Pair, unit: Limit, level: float, more: float) -> float:
    """Return the additional time of a unit; where it is proportional, no more than its work's."""
    if not (unit.proportional and pair.slow[unit.amount] > 0 and pair.fast[unit.amount] > 0):
        return more
    span, before = pair.spans(unit)
    work = -level * math.expm1(-pair.grew(unit.amount)) * span
    return min(more, work / (span - before) if span > before else 0.0)


def _most_queued(pair: Pair, wait: Limit, nearness: Mapping[str, float]) -> float:
    """Return the part of a wait that its units can make: what is a queue, or as full as one is."""
    if wait.queued is None:
        return 1.0
    return max(pair.slow.value(wait.queued), *(nearness.get(name, 0.0) for name in wait.units))


def exposed(faster: float, level: float, more: float) -> float:
    """Return the part of the additional time for which a unit's own holds the launch."""
    # Units overlap in part: a launch takes ``sum(t ** p) ** (1 / p)`` of the times `t` that they
    # take alone. With p = 1 they wait for each other, and with an infinite one the fullest alone
    # counts (a roofline). What a unit adds to the sum, over what all add, is its part. All are over
    # the slow side's time: `faster` the fast side's, `level` the unit's, and `more` what is
    # additional of it.
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
    whole = sum(weights.values())
    together = (1 - idle) * min(1.0, sum(parts.values()))
    held = gone + [
        Held(limit_of(name), together * weight / whole, nearness[name])
        for name, weight in weights.items()
        if whole > 0
    ]
    return sorted(held or _unmeasured(pair), key=lambda each: -each.share)


def _unmeasured(pair: Pair) -> list[Held]:
    """Return what units hold of the additional time whose work grew, and whose time nobody counted.

    How near its ceiling such a unit stands is not known, so that no such answer is certain.
    """
    if pair.ideal or not pair.log_ratio > 0:
        return []
    grown = {
        unit.id: pair.grew(unit.amount)
        for unit in load_limits()[0]
        if unit.amount
        and math.isnan(pair.slow.value(unit.time) + pair.fast.value(unit.time))
        and pair.grew(unit.amount) >= GREW
    }
    parts = spread(grown, min(1.0, sum(grown.values()) / pair.log_ratio))
    return [Held(limit_of(unit), part, 0.0) for unit, part in parts.items()]


REST = "throughput"  # id of what no limit holds


@dataclass(frozen=True)
class Decomposed:
    """What a pair of launches was taken apart into."""

    # causes, whose parts add up to the logarithm of the ratio of times; the rest last
    contributions: tuple[Contribution, ...]
    held: tuple[Held, ...] = ()  # what each limit holds of the additional time, the most first
    # the parts of a cause by the limit that they stand under
    by_limit: dict[str, Parts] | None = None
    # why causes that grew are none, by their ids
    denied: Mapping[str, str] = field(default_factory=dict)

    @property
    def limiter(self) -> str | None:
        """What people read of the limit that holds the most; None where none does."""
        return self.held[0].limit.label if self.held else None


def decompose_pair(
    before: Launch, after: Launch, *, single: bool, ideal: bool = False
) -> Decomposed:
    """Return the causes of the difference between two launches, or merged layers (not `single`).

    `ideal` says that one is the other's ideal side.
    """
    first: list[Contribution] = []
    counts = before["kernels"], after["kernels"]
    if not single and min(counts) > 0 and counts[0] != counts[1]:
        more = math.log(counts[1] / counts[0])
        first.append(Contribution(TERMS["launch_count"], counts[0], counts[1], more))
        before, after = _one_of(before), _one_of(after)
    ratio = math.log(after.time_us / before.time_us)
    if _measured_otherwise(before, after):
        outside = [one.time_us / one.duration_us for one in (before, after)]
        cause = Contribution(TERMS["unprofiled_time"], outside[0], outside[1], ratio)
        return Decomposed((*first, cause))
    pair = Pair(before, after, single=single, ideal=ideal)
    held = account(pair) if ratio != 0 else []
    by_limit, denied = _causes_of(pair, held)
    shares = {cause: sum(limits.values()) for cause, limits in by_limit.items()}
    # whatever else warps did took longer as far as fewer of them did it (Little's law)
    fewer = of_warps(pair, ratio)
    warps = {cause: part for cause, part in fewer.items() if _heir(pair, cause) == cause}
    shares = add(shares, warps, 1 - sum(shares.values()))
    order = sorted(shares, key=lambda cause: -shares[cause])
    way = 1 if pair.slow is pair.before else -1
    named = [
        Contribution(TERMS[c], baseline, target, shares[c] * ratio)
        for c in order
        for baseline, target in [pair.levels(c)[::way]]
    ]
    left = ratio * (1 - sum(shares.values()))
    rest = Contribution(TERMS[REST], math.nan, math.nan, left)
    return Decomposed((*first, *named, rest), tuple(held), by_limit, denied)


def _causes_of(pair: Pair, held: Sequence[Held]) -> tuple[dict[str, Parts], dict[str, str]]:
    """Return the parts of each cause by limit, and why others are denied that gave theirs on."""
    by_limit: dict[str, Parts] = {}
    denied: dict[str, str] = {}
    units, waits = ({limit.id: limit.whole for limit in rows} for rows in load_limits()[:2])
    for each in held:
        for cause, part in _replaced(pair, open_limit(pair, each.limit)).items():
            heir = _heir(pair, cause)
            if heir != cause and (why := why_denied(pair, cause)):
                denied |= {cause: why} if part * each.share >= NEGLIGIBLE else {}
                # a unit's amount holds no more than its busy time: nothing of what is a wait's own
                heir = (
                    each.limit.cause if heir in units.values() and each.limit.id in waits else heir
                )
            if heir:
                parts = by_limit.setdefault(heir, {})
                parts[each.limit.id] = parts.get(each.limit.id, 0.0) + part * each.share
    return by_limit, denied


def _heir(pair: Pair, cause: str) -> str:
    """Return the cause itself, or the one that has its part; empty where counters prove none."""
    while cause and why_denied(pair, cause):
        cause = TERMS[cause].gives
    proven = cause and is_proven(TERMS[cause], pair.slow.launch, pair.fast.launch)
    return cause if proven else ""


def _measured_otherwise(before: Launch, after: Launch) -> bool:
    """Return whether the profiler, whose counters tell, saw the other side take longer."""
    if not (before.profiled and after.profiled):
        return False
    profiled = math.log(after.duration_us / before.duration_us)
    return abs(profiled) > SMALL and profiled * (after.time_us - before.time_us) < 0


def _replaced(pair: Pair, parts: Parts) -> Parts:
    """Return parts, with those that only come along with another cause given to it."""
    for row in load_limits()[2]:
        taken = {cause: parts[cause] for cause in row.of if cause in parts}
        if taken and _stands(pair, row):
            rest = {cause: part for cause, part in parts.items() if cause not in taken}
            parts = add(rest, {row.cause: sum(taken.values())}, 1.0)
    return parts


def _stands(pair: Pair, row: Instead) -> bool:
    """Return whether what tells a cause that stands in the place of others is there."""
    slow, fast = pair.slow, pair.fast
    return (
        all(slow[name] > 0 and slow[name] >= most * fast[name] for name, most in row.grew.items())
        and all(
            fast[name] > 0 and most * slow[name] <= fast[name] for name, most in row.fell.items()
        )
        and all(fast[name] >= least for name, least in row.fast.items())
    )


def _one_of(launch: Launch) -> Launch:
    """Return one launch of a merged row: counts are divided by how many launches it has."""
    count = launch["kernels"]
    counters = {
        name: value / count if adds_up(name) else value for name, value in launch.counters.items()
    }
    return replace(launch, time_us=launch.time_us / count, counters=counters)


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
