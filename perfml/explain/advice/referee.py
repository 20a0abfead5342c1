"""What a fix can save of a launch at most: the laws that every gain obeys, in one function.

1. After a fix a launch takes at least the time of its fullest unit, unless the fix lessens that
   unit's work. Units of which no single counter tells are judged by Nsight Compute's own totals of
   compute and memory.
2. A fix saves at most the time of all units, and waits for them, that it lessens.
3. No launch takes less than its start, or than DRAM takes for the bytes that it still moves. What
   it writes is its result, and stays.
4. Where the counters of a cause were not collected, its grid says what is claimed at most.

The same laws bound what Nsight Compute estimates for a cause that its rule names.

Here to change: a law is a function of `_LAWS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from perfml.explain.advice.symptoms import COMPUTE_LEVEL, MEMORY_LEVEL
from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.limits.traffic import SECTOR
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.ideal import NEAR, best_counters, ideal_counters, ideal_of
from perfml.explain.tree.limits import fullest, limit_of, load_limits, nearness, unit_ids
from perfml.explain.tree.one_side import losses, time_after
from perfml.explain.tree.thresholds import START_US

LEAST = 0.4
"""Of the logarithm of the likely ratio, what 19 of 20 measured pairs reach (302 of ten exams): with
it four of five lie between least and most; the ends are asked of authors who did not choose it
(``python -m studies.truth.advised``)."""
_COMPUTE = frozenset({"issue", "integer", "fp32", "fp64", "special", "tensor"})
_QUEUES = frozenset({"stall_memory_throttle", "mio_throttle", "math_throttle", "stall_pipe_busy"})
"""Waits for room in front of a unit, which less work of the unit shortens."""
_TAILS = frozenset({"block_imbalance", "wave_quantization"})


def most_saved(state: LaunchState, cause: str) -> float:
    """Return which part of a launch's time goes without a cause, at most.

    Examples
    --------
    >>> from perfml.explain.launches import Launch
    >>> full = Launch("k", 100.0, {"theoretical_occupancy": 0.5, "memory_level": 0.975})
    >>> round(most_saved(LaunchState(full), "theoretical_occupancy"), 3)
    0.025
    """
    # at best: no law forbids what a fix that leaves the least may save
    fixed = LaunchState(replace(state.launch, counters=best_counters(state, cause)))
    return max(0.0, min(law(cause, state, fixed) for law in _LAWS))


def saved_alone(launch: Launch, cause: str) -> float:
    """Return which part of a launch's time goes where only a cause is mended; NaN if unknown.

    It is no less than what the cause takes beside all others, and no more than the laws allow.
    """
    state = LaunchState.of(launch)
    beside = max((one.part for one in losses(launch) if one.cause == cause), default=0.0)
    alone = max(1 - time_after(launch, cause, state=state), beside)
    return min(alone, most_saved(state, cause))


def least_saved(alone: float) -> float:
    """Return what a fix saves at least, of a launch's time, by what it is estimated to.

    Examples
    --------
    >>> round(least_saved(0.5), 2)
    0.24
    """
    return float(1 - (1 - alone) ** LEAST)


def judged(state: LaunchState, cause: str, limit: str) -> tuple[str, float]:
    """Return the cause that holds the time of a limit, and what goes without it at most.

    A mean such as the sectors of a request is no cause where all that is moved was asked for: then
    it is the work of the unit as a whole.
    """
    if limit and cause in limit_of(limit).factors and not _less(state, without(state, cause)):
        cause = limit_of(limit).whole
    return cause, most_saved(state, cause)


def _by_units(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    return 1 - min(fullest(fixed), 1.0)


def _by_totals(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    touched = _touched(cause, state, fixed)
    compute, memory = (state.launch[name] for name in (COMPUTE_LEVEL, MEMORY_LEVEL))
    kinds = {unit not in _COMPUTE for unit in touched}
    level = max(
        0.0 if False in kinds else known(compute),
        0.0 if True in kinds else max(known(memory), known(state.launch["l1_utilization"])),
    )
    return 1 - min(level, 1.0)


def _by_union(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    if TERMS[cause].kind not in (Kind.WORK, Kind.MEMORY):
        return 1.0
    less = _less(state, fixed)
    if not less and not is_counted(state, cause):
        return min(1.0, sum(_at_most(state, unit) for unit in _named(cause) or {""}))
    if not less:
        known_units = (state.value(limit_of(unit).time) for unit in _named(cause))
        return 0.0 if any(not math.isnan(time) for time in known_units) else 1.0
    _, waits, _ = load_limits()
    behind = [state.value(wait.time) for wait in waits if less & set(wait.units)]
    if any(map(math.isnan, behind)):
        # what is waited for is not known; in front of a unit that is hardly used there is no queue
        if any(unit not in _COMPUTE and nearness(state, unit) >= NEAR for unit in less):
            return 1.0
        behind = [known(us) for us in behind]
    return sum(min(nearness(state, unit), 1.0) for unit in less) + sum(behind)


def is_counted(state: LaunchState, cause: str) -> bool:
    """Return whether the counters that prove a cause were collected of a launch."""
    term = TERMS[cause]
    own = term.evidence or ((cause,) if term.kind is Kind.STALL else ())
    if term.kind is Kind.OCCUPANCY:
        own = (*own, "achieved_occupancy")
    return any(
        names and not any(math.isnan(state[name]) for name in names)
        for names in (own, term.or_evidence)
    )


def _at_most(state: LaunchState, unit: str) -> float:
    """Return which part of the time a unit is busy at most, by the totals that hold it too."""
    if not unit:
        return 1.0
    own = nearness(state, unit)
    if own or not math.isnan(state.value(limit_of(unit).time)):
        return own
    names = (COMPUTE_LEVEL,) if unit in _COMPUTE else (MEMORY_LEVEL,)
    return min((state[name] for name in names if state[name] >= 0), default=1.0)


def _by_start(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    launch, moved = state.launch, 0.0
    if math.isnan(launch["dram_utilization"]):  # which tells the same, and of the same run
        moved = known(fixed["dram_bytes"] / launch.chip.peak_dram_bytes_per_us())
    return 1 - min(max(START_US, moved) / launch.duration_us, 1.0)


def _by_result(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    """Return what goes beside the time in which DRAM writes what lanes asked for: the result."""
    launch = state.launch
    asked = launch["gst_transactions"] * launch["gst_efficiency"] * SECTOR
    written = min(launch["dram_write_bytes"], asked)
    part = launch["dram_utilization"] * written / max(state["dram_bytes"], 1.0)
    if math.isnan(launch["dram_utilization"]):
        part = written / launch.chip.peak_dram_bytes_per_us() / launch.duration_us
    return 1 - min(known(part), 1.0)


def _by_tail(cause: str, state: LaunchState, fixed: LaunchState) -> float:
    waves = state.launch["waves_per_sm"]
    counted = not math.isnan(state["imbalance"]) or not math.isnan(state.launch["sm_efficiency"])
    return 1 / math.ceil(waves) if cause in _TAILS and not counted and waves > 1 else 1.0


_LAWS: tuple[Callable[[str, LaunchState, LaunchState], float], ...] = (
    _by_units,
    _by_totals,
    _by_union,
    _by_start,
    _by_result,
    _by_tail,
)


def without(state: LaunchState, cause: str) -> LaunchState:
    """Return a launch without a cause, as far as counters tell what is left."""
    counters = ideal_counters(state, (ideal_of(cause),))
    return LaunchState(replace(state.launch, counters=counters))


def _less(state: LaunchState, fixed: LaunchState) -> set[str]:
    """Return the units that have less to do in a fixed launch."""
    units = (limit_of(unit) for unit in unit_ids() - {"idle"})
    return {unit.id for unit in units if fixed.value(unit.time) < state.value(unit.time)}


def _named(cause: str) -> set[str]:
    """Return the units whose time a cause can be, by ``limits.toml``."""
    units, waits, _ = load_limits()
    named = {unit.id for unit in units if cause in (unit.cause, unit.whole, *unit.factors)}
    behind = (wait.units for wait in waits if cause in _QUEUES and wait.cause == cause)
    return (named - {"idle"}).union(*behind) if cause != "stall_memory_dependency" else set()


def _touched(cause: str, state: LaunchState, fixed: LaunchState) -> set[str]:
    """Return the units whose work a fix lessens, or may, where nothing was counted of it."""
    less = _less(state, fixed) | _named(cause)
    return less or ({"dram"} if TERMS[cause].kind is Kind.MEMORY else set())
