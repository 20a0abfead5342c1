"""How much of a launch's time a cause can have taken: as long as its unit is busy, or waited for.

A cause that would have to take more is contradicted by counters that its formula does not read.
"""

from __future__ import annotations

import math
import re
from functools import cache

from perfml.explain.counters.resources import RESOURCES
from perfml.explain.counters.terms import PER_LAUNCH, STALL_TERMS, Kind, Term
from perfml.explain.launches import Launch, known

_STALLS = {term.id: term.id for term in STALL_TERMS} | {
    "memory_fence": "stall_membar",
    "math_throttle": "stall_math_pipe_throttle",
    "mio_throttle": "stall_mio_throttle",
}
_FOR_GLOBAL = ("stall_memory_dependency", "stall_memory_throttle", "stall_texture")
_QUEUE = "stall_mio_throttle"
"""Scattered accesses of global memory wait here, too, as those of shared memory do."""

_OF_GLOBAL = (
    "uncoalesced_loads",
    "uncoalesced_copies",
    "uncoalesced_stores",
    "local_memory",
    "narrow_access",
    "redundant_traffic",
    "async_copy",
    "global_atomics",
)
_OF_SHARED = ("bank_conflicts", "shared_atomics", "lsu_pipe_time")
"""Terms that refinements name; those of works and products stand in `RESOURCES`."""

_ISSUED = ("instructions", "integer_arithmetic", "fp32_operations")
_ISSUING = ("instructions", "integer pipe", "FP32 pipe")
"""Instructions fill the issue slots, or the pipe that most of them go to."""

_OF_EVERY_UNIT = ("active_threads_per_warp", "tensor_unused")
"""Warps with few lanes send as many more requests as instructions."""

_OF_DOUBLES = re.compile(r"\bdouble\b")

_UNSEEN = ("narrow_copies",)
"""Bulk copies pass no unit that is counted, and who waits for them stands at a barrier."""


def room_of(term: Term, launch: Launch) -> float:
    """Return the part of a launch's time that a cause can have taken; 1 if nothing tells.

    Parameters
    ----------
    term
        The cause.
    launch
        Of the slower side.
    """
    cause = term.id.removesuffix(PER_LAUNCH)
    levels = {unit.label: known(unit.level_of(launch)) for unit in RESOURCES}
    if cause in _UNSEEN or term.kind in (Kind.LAUNCH, Kind.MEASUREMENT, Kind.RESIDUAL):
        return 1.0
    if cause in _STALLS:
        share = launch[_STALLS[cause]]
        return 1.0 if math.isnan(share) else share
    if term.kind is Kind.OCCUPANCY:
        # more warps shorten no time in which a unit is busy
        return 1.0 - max(levels.values())
    if term.kind is Kind.WAVES:
        active = launch["sm_efficiency"]
        return 1.0 - min(1.0, max(levels.values()) * (1.0 if math.isnan(active) else active))
    units = _units_of(cause)
    if cause == "fp64_pipe_time" and _OF_DOUBLES.search(launch.kernel):
        # its arrays are of doubles, and take twice the bytes
        units = (*units, *_units_of("dram_bytes"))
    if all(math.isnan(unit.level_of(launch)) for unit in RESOURCES if unit.label in units):
        return 1.0
    memory = any(unit.is_waited_for_as_memory for unit in RESOURCES if unit.label in units)
    queues = (*_FOR_GLOBAL, _QUEUE) if memory else ("stall_pipe_busy",)
    queued = sum(known(launch[name]) for name in queues)
    return max(max(levels[unit] for unit in units), queued)


def busiest_of(term: Term, launch: Launch) -> float:
    """Return how busy the busiest unit is that does the work of a cause; 0 where none does."""
    units = _units_of(term.id.removesuffix(PER_LAUNCH))
    return max(
        (known(each.level_of(launch)) for each in RESOURCES if each.label in units), default=0.0
    )


def same_limit(one: Term, other: Term) -> bool:
    """Return whether two causes are of one limit: its work in parts, or the waiting for it.

    Launches that one side lacks are, whether the other side knows their kernel or not.
    """
    if one.kind is Kind.LAUNCH and other.kind is Kind.LAUNCH:
        return True
    names = [term.id.removesuffix(PER_LAUNCH) for term in (one, other)]
    if any(name in _OF_EVERY_UNIT for name in names):
        return all(name in (*_OF_EVERY_UNIT, *_ISSUED) for name in names)
    units = [_units_of(name) for name in names]
    if all(units):
        return bool(set(units[0]) & set(units[1]))
    return any(
        name in _waiting_for(unit) for name, unit in zip(names, reversed(units), strict=True)
    )


def _waiting_for(units: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stalls that are the waiting for some units; none for no unit."""
    memories = [unit for unit in RESOURCES if unit.label in units and unit.memory is not None]
    if any(unit.is_global for unit in memories):
        return _FOR_GLOBAL
    if memories:
        return ("stall_pipe_busy", "mio_throttle", "stall_exec_dependency")
    return ("stall_pipe_busy", "math_throttle") if units else ()


@cache
def _units_of(cause: str) -> tuple[str, ...]:
    """Return the units of which one is busy while a launch pays for a cause."""
    shared = tuple(unit.label for unit in RESOURCES if unit.memory and not unit.is_global)
    reaches = tuple(unit.label for unit in RESOURCES if unit.is_waited_for_as_memory)
    if cause in _OF_EVERY_UNIT:
        return tuple(unit.label for unit in RESOURCES)
    if cause in _OF_GLOBAL:
        return reaches
    if cause in _OF_SHARED:
        return shared
    if cause in _ISSUED:
        return _ISSUING
    for unit in RESOURCES:
        parts = unit.product
        terms = (unit.work, *((parts.requests, parts.parts, parts.cost) if parts else ()))
        if any(each is not None and each.id == cause for each in terms):
            return reaches if unit.is_global else _same_work(cause, unit.label)
    return ()


def _same_work(cause: str, label: str) -> tuple[str, ...]:
    """Return the units that do one work: a pipe may be counted in two ways."""
    return tuple({label, *(unit.label for unit in RESOURCES if unit.work.id == cause)})
