"""The tree on one side: what a launch loses beside its ideal, and its time without a cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.engine import Decomposed, decompose_pair
from perfml.explain.tree.ideal import (
    bounded_needs,
    ideal_counters,
    ideal_launch,
    ideal_of,
    load_ideals,
    unknown_needs,
)
from perfml.explain.tree.limits import Limit, fullest, limit_of, load_limits, nearness, unit_ids
from perfml.explain.tree.thresholds import OVERLAP, START_US

SPLIT = "wave_quantization"  # the cause of a grid below one wave
_LEAST_ACTIVE = 0.01  # the least part of the time in which a multiprocessor has a block
_FEW = 0.5  # waves up to which a grid may be split further


@dataclass(frozen=True)
class Loss:
    """What a cause takes of a launch's time."""

    cause: str
    part: float  # of the launch's time, that it likely takes; those of all causes add up
    limit: str  # id of the limit that it stands under; empty for one of the whole launch
    level: float  # how near that limit stands to its ceiling
    # whether counters tell what is needed: not of work that may all be, of waits that no idle unit
    # explains, and of a grid that might be split
    known: bool


def losses(launch: Launch) -> tuple[Loss, ...]:
    """Return what a launch loses, the most first; what was found for one is known to all."""
    found: tuple[Loss, ...] = launch.__dict__.get("losses") or _losses(launch)
    launch.__dict__["losses"] = found
    return found


def _losses(launch: Launch) -> tuple[Loss, ...]:
    found = _beside(launch, ideal_launch(launch), single=launch.single)
    if launch.single and 0 < launch["waves_per_sm"] <= _FEW:
        whole = _beside(launch, ideal_launch(launch, more_blocks=True), single=True)
        # where multiprocessors have no block, units are judged within those that do
        work = LaunchState(launch)["at_work"]
        found = [replace(one, part=work * one.part) for one in found if one.cause != SPLIT]
        found += [one for one in whole if one.cause == SPLIT]
    return tuple(sorted(found, key=lambda one: -one.part))


def _beside(launch: Launch, ideal: Launch, *, single: bool) -> list[Loss]:
    decomposed = decompose_pair(ideal, launch, single=single, ideal=True)
    ratio = sum(each.log_ratio for each in decomposed.contributions)
    saved = 1 - ideal.time_us / launch.time_us
    found, state = [], LaunchState.of(launch)
    for each in decomposed.contributions:
        part = saved * each.log_ratio / ratio
        if each.term.id in unknown_needs():
            limits = (decomposed.by_limit or {}).get(each.term.id, {})
            stays = unknown_needs()[each.term.id]
            part = min(part, 1 - stays, _most(state, dict.fromkeys(limits, stays)))
        if part > 0 and not each.term.residual:
            found.append(_loss(launch, each.term.id, part, decomposed))
    return found


def _most(state: LaunchState, left: Mapping[str, float]) -> float:
    """Return what of a launch's time goes at most; `left` is what stays of the work of a limit."""
    # The launch takes the power sum of the times of its units (`engine.exposed`); what warps wait
    # for is a part of its time. Units of a multiprocessor work, and warps wait, while that has a
    # block.
    gone = 0.0
    for name, stays in left.items():
        limit = limit_of(name)
        span = 1.0 if limit.device else max(state["active"], _LEAST_ACTIVE)
        level = min(1.0, known(state.value(limit.time) / limit.ceiling) / span)
        if limit.id in unit_ids():
            gone += span * (1 - (1 - level**OVERLAP * (1 - stays**OVERLAP)) ** (1 / OVERLAP))
        else:
            gone += span * level * (1 - stays)
    return gone


def _loss(launch: Launch, cause: str, part: float, decomposed: Decomposed) -> Loss:
    held = {one.limit.id: one.nearness for one in decomposed.held}
    parts = (decomposed.by_limit or {}).get(cause, {})
    limit = max(parts, key=lambda name: parts[name], default="")
    whole = cause != SPLIT or launch["waves_per_sm"] > 1
    guessed = cause in unknown_needs() or cause in bounded_needs()
    needed = whole and not guessed and TERMS[cause].kind is not Kind.STALL
    return Loss(cause, part, limit, held.get(limit, 0.0), needed)


_FULL = 0.9  # of its ceiling: so near, a unit is what all else waits for
_WORK = ("issue", "integer", "fp32", "fp64", "special", "tensor")
_MEMORY = ("stall_memory_dependency", "stall_memory_throttle", "local_memory", "global_atomics")
_RESIDENT = ("theoretical_occupancy", "block_slots", "achieved_of_theoretical", "block_imbalance")
_IDLE = ("wave_quantization", "sm_imbalance")


def has_ideal(cause: str) -> bool:
    """Return whether the time without a cause can be told from one launch."""
    rows = {row.cause for row in load_ideals()}
    return ideal_of(cause) in rows or cause in (*_RESIDENT, *_IDLE)


def unknown_of(launch: Launch, cause: str) -> str:
    """Return what no counter tells of a launch without a cause; empty where they tell it all."""
    if cause == "wave_quantization":
        return "" if launch["waves_per_sm"] >= 1 else "how far the grid can be split"
    if cause == "theoretical_occupancy":
        return "how few registers and how little shared memory a thread needs"
    name = ideal_of(cause)
    if name == "sectors_per_request" and math.isnan(LaunchState.of(launch)["bytes_asked"]):
        return "what lanes ask for, as the efficiency of accesses was not collected"
    return next((row.unknown for row in load_ideals() if row.cause == name), "")


def time_after(
    launch: Launch, cause: str, left: float | None = None, *, state: LaunchState | None = None
) -> float:
    """Return how long a launch would take without a cause, as a fraction of its time.

    Warps take as long as what they wait for; a wait for a unit shrinks with the unit's work, as far
    as it is a queue. More warps hide more of it (Little's law), and no launch is faster than its
    fullest unit. `left` is what will stay of the cause; by default what the ideal has. NaN for a
    cause that has no ideal.
    """
    if not has_ideal(cause):
        return math.nan
    before = LaunchState.of(launch) if state is None else state
    if cause in (*_RESIDENT, *_IDLE):
        stays = _of_shape(before, cause) if left is None else left
        return _bounded(before, launch, min(stays, 1.0))
    name = ideal_of(cause)
    changed = replace(launch, counters=ideal_counters(before, (name,), left))
    after = LaunchState.of(changed)
    kept = _stays(before, after, name)
    inside = _waited(before, after, name, kept)
    if cause in unknown_needs() and min(kept[unit] for unit in unit_ids()) < 1:
        inside = max(inside, 1 - _most(before, kept))
    return _bounded(before, changed, inside)


def _stays(before: LaunchState, after: LaunchState, cause: str) -> dict[str, float]:
    """Return what a fix leaves of every limit."""
    units, waits, _ = load_limits()
    left = {unit.id: _left(unit, before, after) for unit in units}
    work = _work(left, cause)
    for wait in waits:
        own = [_left(wait, before, after), *(left[name] for name in wait.units)]
        left[wait.id] = min(*own, 1.0 if wait.cause in _MEMORY else work)
    return left


def _of_shape(before: LaunchState, cause: str) -> float:
    """Return what stays where more warps are resident, or no multiprocessor is idle."""
    if cause == "wave_quantization":
        return known(before["wave_fill"], 1.0)
    best = LaunchState.of(ideal_launch(before.launch))
    name = "achieved_occupancy" if cause in _RESIDENT else "active"
    stays = known(before[name] / best[name], 1.0) if best[name] > 0 else 1.0
    if cause == "sm_imbalance":  # even work ends when the mean SM does now; other idle time stays
        return max(stays, 1 / known(before["imbalance"], math.inf))
    return stays


def _bounded(before: LaunchState, changed: Launch, inside: float) -> float:
    """Return the time, no shorter than the fullest unit's and the start of the launch."""
    now = max(before.launch.duration_us, START_US)
    start = min(1 - before["active"], START_US / now) if before["active"] < 1 else 0.0
    return min(1.0, start + (1 - start) * max(inside, fullest(LaunchState.of(changed))))


def _waited(
    before: LaunchState, after: LaunchState, cause: str, stays: Mapping[str, float]
) -> float:
    """Return what stays of the time of a warp: of what it waits for, and of its instructions."""
    units, waits, _ = load_limits()
    left = {unit.id: stays[unit.id] for unit in units}
    near = {unit.id: nearness(before, unit.id) for unit in units}
    full = [left[name] for name in left if left[name] < 1 and near[name] >= _FULL]
    rows = [row for row in load_ideals() if row.cause == cause]
    stalls = any(name.startswith("stall_") for row in rows for name in row.scales)
    work = _work(left, cause)
    whole = kept = 0.0
    for wait in waits:
        was = known(before.value(wait.time))
        whole += was
        if wait.cause == cause and not stalls:
            was *= min(left.values())
        elif stalls:
            was = min(was, known(after.value(wait.time)))
        else:
            was *= _of_units(wait, before, after, left, near)
        kept += was if wait.cause in _MEMORY else was * work
    # what nobody collected a reason for is waited for still
    rest = before["uncounted_wait"] * before["active"] if whole > 0 else 0.0
    inside = min(1.0, (kept + rest) / (whole + rest)) if whole > 0 else min(1.0, *left.values())
    # all that is waited for beside a full unit passes meanwhile
    return min(inside, *full) if full else inside


def _work(left: Mapping[str, float], cause: str) -> float:
    """Return what a fix leaves of the instructions."""
    less = TERMS[cause].kind is Kind.WORK
    return min((left[name] for name in _WORK), default=1.0) if less else 1.0


def _left(unit: Limit, before: LaunchState, after: LaunchState) -> float:
    was, now = before.value(unit.time), after.value(unit.time)
    return min(1.0, now / was) if was > 0 and now >= 0 else 1.0


def _of_units(
    wait: Limit,
    before: LaunchState,
    after: LaunchState,
    left: dict[str, float],
    near: dict[str, float],
) -> float:
    """Return what stays of a wait: its queue is as long as the fullest unit's work."""
    fullest_now = max((near[name] for name in wait.units), default=0.0)
    if not fullest_now > 0:
        return 1.0
    stays = max(near[name] * left[name] for name in wait.units) / fullest_now
    if wait.queued is None:
        return stays
    queued = max(before.value(wait.queued), fullest_now)
    fewer = after["global_load_requests"] / max(before["global_load_requests"], 1.0)
    return queued * stays + (1 - queued) * min(1.0, known(fewer, 1.0))
