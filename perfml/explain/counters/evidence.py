"""What counters prove, and what they cannot tell apart: the causes that may hide in a named one.

A cause whose counters were not collected is never named; what it does to the time then stands in
another term: in the busy time of the unit, in the stall, or in the rest. `HIDES_IN` says where.

Here to change: a new cause has a row of `HIDES_IN`, with the terms that its formula takes it from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from perfml.explain.counters.terms import STALL_TERMS, TERMS, Contribution, Kind, Term
from perfml.explain.counters.traffic import unseen_traffic
from perfml.explain.launches import Launch
from perfml.metrics import HOPPER, load_catalogue
from perfml.util.json_values import json_object

MOST = 0.5
"""A cause that could explain more than this much of what is left may be the answer."""

SURELY = 0.99
"""A cause that could be all of the largest open term, but for rounding."""

NO_TENSOR = 0.01
"""A tensor pipe below this level does nothing that matters."""

_SHOWN = 3

REST = tuple(term.id for term in TERMS.values() if term.residual)
_WORK = ("dram_bytes", "dram_busy_time", "l2_sectors", "l2_busy_time", "l1_sectors")
_COSTS = (
    "dram_bytes_per_sector",
    "dram_time_per_sector",
    "l2_sectors_per_l1_sector",
    "l2_time_per_sector",
)
_MEMORY_WAITS = ("stall_memory_dependency", "stall_memory_throttle")
_SHARED = ("shared_memory_busy_time", "shared_time_per_wavefront")
_QUEUES = ("stall_pipe_busy", "mio_throttle", "stall_exec_dependency")
_PIPES = (
    "fp32_operations",
    "fp32_pipe_time",
    "fp64_pipe_time",
    "special_function_pipe_time",
    "tensor_pipe_time",
)

_KINDS = {
    "uncoalesced_loads": ("global_load_requests", "gld_transactions"),
    "uncoalesced_stores": ("global_store_requests", "gst_transactions"),
}
_CLEARLY = 1.2
"""Sectors a request that grew by less say nothing."""

_SECTORS_OF_L1 = ("gld_transactions", "gst_transactions")

HIDES_IN: dict[str, tuple[str, ...]] = {
    "sectors_per_request": (*_WORK, *_MEMORY_WAITS, *REST),
    "redundant_traffic": (*_WORK, "global_requests"),
    "l2_sectors_per_l1_sector": ("l2_time_per_sector",),
    "uncoalesced_loads": ("global_requests",),
    "uncoalesced_stores": ("global_requests",),
    "narrow_access": (*_MEMORY_WAITS, "unprofiled_time"),
    "global_atomics": (*_WORK, *_COSTS, *_MEMORY_WAITS, *REST),
    "local_memory": (*_WORK, *_COSTS, *_MEMORY_WAITS),
    "async_copy": ("stall_memory_dependency",),
    "narrow_copies": ("stall_sync", "active_threads_per_warp", "instructions"),
    "wavefronts_per_shared_load": (*_SHARED, *_QUEUES),
    "shared_loads": _SHARED,
    "shared_atomics": (*_SHARED, *_QUEUES),
    "lsu_pipe_time": (*_SHARED, *_QUEUES, "instructions"),
    "constant_serialization": (*_QUEUES, "stall_constant_memory_dependency"),
    "integer_arithmetic": ("instructions", "fp32_pipe_time", "stall_pipe_busy", "math_throttle"),
    "tensor_unused": (*_PIPES[:2], *_SHARED, "shared_loads", "instructions"),
    "memory_fence": ("stall_sync",),
    "active_threads_per_warp": ("instructions", *_PIPES[1:4], *REST),
    "theoretical_occupancy": ("achieved_of_theoretical", *REST),
    "block_imbalance": ("achieved_of_theoretical",),
    "sm_imbalance": REST,
    "wave_quantization": ("achieved_of_theoretical", *REST),
    "instructions": REST,
}
"""Cause -> terms that it is a part of where it was not counted."""

_OF_ACTIVE = ("wave_quantization", "sm_imbalance")
"""Causes that hide in the busy time of a pipe, too, where nobody counted idle multiprocessors."""

_RESIDENT = tuple(term.id for term in TERMS.values() if term.kind is Kind.OCCUPANCY)
_IDLE = 0.25
"""Units that are less busy than this all together wait for something else."""

_STALLS = tuple(
    term.id
    for term in STALL_TERMS
    if term.id != "stall_not_selected"  # there nothing is wrong
)

_SECTIONS = (
    ("smsp__warp_issue_stalled", "WarpStateStats"),
    ("smsp__average_warp", "WarpStateStats"),
    ("smsp__thread_inst_executed_per", "WarpStateStats"),
    ("smsp__inst_executed_op_", "MemoryWorkloadAnalysis_Tables"),
    ("smsp__sass_average_data_bytes", "MemoryWorkloadAnalysis_Tables"),
    ("l1tex__", "MemoryWorkloadAnalysis_Tables"),
    ("lts__", "MemoryWorkloadAnalysis_Tables"),
    ("dram__", "MemoryWorkloadAnalysis_Tables"),
    ("launch__occupancy", "Occupancy"),
    ("launch__", "LaunchStats"),
    ("sm__warps_active", "Occupancy"),
    ("sm__maximum_warps", "Occupancy"),
    ("sm__cycles_active", "WorkloadDistribution"),
    ("sm__pipe", "ComputeWorkloadAnalysis"),
    ("sm__inst_", "ComputeWorkloadAnalysis"),
    ("smsp__inst_executed.", "InstructionStats"),
)
"""Beginning of the name of a counter, and the section of Nsight Compute that collects it, by the
section files of 2025."""


class Reason(StrEnum):
    """Why the first cause is not firm."""

    COUNTERS = "counters"
    """Those of another cause were not collected."""
    READING = "reading"
    """Counted in another unit, another cause is first."""
    SMALL = "small"
    """The difference is small."""
    PLACE = "place"
    """It says where the time goes, not why."""
    ROOM = "room"
    """The unit is neither busy nor waited for as long."""
    PAIRING = "pairing"
    """Which kernels answer to each other is a guess."""
    RIVAL = "rival"
    """A second cause is nearly as large."""
    TOGETHER = "together"
    """Memory traffic and instructions grew together."""
    KIND = "kind"
    """Another kind of accesses to the same memory grew as much."""
    PROGRAM = "program"
    """It is how a library's kernel is built, which runs in place of another."""


@dataclass(frozen=True)
class Untold:
    """What the answer may be instead, and what would tell.

    Attributes
    ----------
    causes
        Those that could explain more than half of what is left, the likeliest first.
    instead_of
        The term that holds most of what is left.
    metrics
        Their counters that were not collected.
    sections
        Sections of Nsight Compute that collect these.
    collect
        The set of perfml's ``collect --metrics`` that holds them.
    share
        How much of the difference is left, as a share of all that speaks for it.
    why
        Why none decides where every counter was collected; empty otherwise.
    reason
        The same for programs.
    check
        What to look at, or to run, that tells them apart; empty where it is what to collect.
    """

    causes: tuple[Term, ...]
    instead_of: Term
    metrics: tuple[str, ...]
    sections: tuple[str, ...]
    collect: str
    share: float
    why: str = ""
    reason: Reason = Reason.COUNTERS
    check: str = ""

    JSON: ClassVar = (
        *("causes", "instead_of", "metrics", "sections", "collect", "share", "reason", "check"),
        "sentence",
    )

    def sentence(self) -> str:
        """Say it in words."""
        names = [_short(term) for term in self.causes[:_SHOWN]]
        more = len(self.causes) - len(names)
        told = " or ".join(names) + (f" ({more} more)" if more else "")
        other = "the rest" if self.instead_of.residual else _short(self.instead_of)
        said = filter(None, (self.why, self.what_tells()))
        return f"cannot tell {told} from {other}: {'; '.join(said)}"

    def what_tells(self) -> str:
        """Say what to collect, look at or run, that would settle it; empty where nothing would."""
        if self.why:
            return self.check
        where = f"section {' and '.join(self.sections)}; " if self.sections else ""
        wanted = f"collect {', '.join(self.metrics)}"
        return f"{wanted} ({where}perfml collect --metrics {self.collect})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return json_object(self)


@dataclass(frozen=True)
class Told:
    """The terms of a pair of launches.

    Attributes
    ----------
    before, after
        The launches.
    contributions
        Parts of the layer's log ratio.
    by_work
        Whether they are other kernels of a library, compared by what all launches in their place
        did (`perfml.explain.counters.library_kernels`): which of them answers to which decides
        nothing then.
    """

    before: Launch
    after: Launch
    contributions: tuple[Contribution, ...]
    by_work: bool = False


def is_proven(term: Term, *launches: Launch) -> bool:
    """Return whether the counters of a term were collected."""
    for names in (term.evidence, term.or_evidence):
        if names or term.residual:
            for name in names:
                if not all(is_collected(name, launch) for launch in launches):
                    break
            else:
                return True
    return False


def is_collected(name: str, launch: Launch) -> bool:
    """Return whether a counter was collected; one that means nothing for a launch was."""
    if name == "time_us":
        return True
    value = launch.counters.get(name)
    if value is None:
        return False
    if not math.isnan(value):
        return True
    catalogue = load_catalogue()
    if name not in catalogue:
        return False
    return catalogue[name].zero_undefined or catalogue[name].guard is not None


def find_untold(
    pairs: Sequence[Told], others: Sequence[Contribution], log_ratio: float
) -> Untold | None:
    """Return the causes that could explain most of what the named and proven ones leave.

    Nothing is left where the largest term is proven and the proven ones are more than half.

    Parameters
    ----------
    pairs
        The launches of a layer that answer to each other, with their terms.
    others
        Terms of launches that one side lacks: their times prove them.
    log_ratio
        Of the layer.
    """
    sign = math.copysign(1.0, log_ratio)
    could: dict[str, float] = {}
    held: dict[str, float] = {}
    proven = {"kernels": sum(max(sign * one.log_ratio, 0.0) for one in others)}
    for pair in pairs:
        hosts = {cause: _hosts(cause, pair) for cause in _untold_causes(pair)}
        unsure = {host for each in hosts.values() for host in each}
        for one in pair.contributions:
            value = sign * one.log_ratio
            if value <= 0:
                continue
            into = held if one.term.id in unsure else proven
            into[one.term.id] = into.get(one.term.id, 0.0) + value
            for cause, places in hosts.items():
                if one.term.id in places:
                    could[cause] = could.get(cause, 0.0) + value
    left, sure = sum(held.values()), sum(proven.values())
    if left <= max(sure, 0.0) and max(held.values(), default=0.0) <= max(
        proven.values(), default=0
    ):
        return None
    if left == 0:
        return None
    # where several terms are open, each for a cause of its own, the largest of them is what counts
    least = min(MOST * left, SURELY * max(held.values()))
    causes = [name for name, value in could.items() if value > least]
    if not causes:
        return None
    causes.sort(key=lambda name: -could[name])
    return _untold([TERMS[name] for name in causes], held, left / (left + sure), pairs)


def _untold(
    causes: list[Term], held: dict[str, float], share: float, pairs: Sequence[Told]
) -> Untold:
    launches = [side for pair in pairs for side in (pair.before, pair.after)]
    names = dict.fromkeys(
        name
        for term in causes[:_SHOWN]
        for name in term.evidence
        if not all(is_collected(name, launch) for launch in launches)
    )
    most = max(held, key=lambda name: held[name])
    return Untold(
        tuple(causes),
        TERMS[most],
        tuple(names),
        tuple(dict.fromkeys(sections_of(names))),
        _set_of(names),
        share,
    )


def _untold_causes(pair: Told) -> Iterable[str]:
    """Return the causes that were not counted and could be there."""
    sides = (pair.before, pair.after)
    for cause in (*HIDES_IN, *_STALLS):
        if not is_proven(TERMS[cause], *sides) and not _ruled_out(cause, *sides):
            yield cause


def _hosts(cause: str, pair: Told) -> tuple[str, ...]:
    """Return the terms that a cause that was not counted is a part of."""
    hosts = HIDES_IN.get(cause, REST)
    if cause in _OF_ACTIVE and not is_collected("sm_efficiency", pair.after):
        hosts = (*hosts, *_PIPES)
    if REST[0] in hosts and _waits_unseen(pair, cause):
        hosts = (*hosts, *_RESIDENT)
    return hosts


def _waits_unseen(pair: Told, cause: str) -> bool:
    """Return whether warps may wait for a cause however many of them are resident.

    Nobody counted what they wait for, nor how busy any unit is; or none is, and blocks that add to
    one address wait for each other.
    """
    slower = max((pair.before, pair.after), key=lambda launch: launch.time_us)
    if any(is_collected(name, slower) for name in _STALLS):
        return False
    catalogue = load_catalogue()
    levels = [
        slower[name]
        for name in slower.counters
        if name in catalogue and catalogue[name].kind == "level" and not math.isnan(slower[name])
    ]
    return not levels or (cause == "global_atomics" and max(levels) < _IDLE)


def _ruled_out(cause: str, before: Launch, after: Launch) -> bool:
    """Return whether what was counted says that a cause cannot be there."""
    slower = after if after.time_us > before.time_us else before
    faster = before if slower is after else after
    sides = (before, after)
    if cause in _STALLS:
        # what is waited for otherwise is at most what the known reasons leave
        known = [slower[name] for name in (*_STALLS, "stall_not_selected")]
        return sum(share for share in known if not math.isnan(share)) >= 1 - MOST
    if cause == "sectors_per_request":
        # the efficiencies tell whether lanes are scattered
        names = ("gld_efficiency", "gst_efficiency")
        return all(is_collected(name, side) for name in names for side in sides)
    if cause in _KINDS:
        # each request touches more, too: as many bytes may be asked for by lanes further apart
        requests, sectors = _KINDS[cause]
        ours, theirs = slower[sectors] * faster[requests], faster[sectors] * slower[requests]
        return not ours >= _CLEARLY * theirs > 0
    if cause in ("wavefronts_per_shared_load", "shared_loads", "shared_atomics"):
        if cause == "wavefronts_per_shared_load" and is_collected("shared_efficiency", slower):
            return True
        return slower["shared_utilization"] == 0
    if cause == "global_atomics":
        return slower["l2_atomic_transactions"] == 0
    if cause == "narrow_copies":
        # bulk copies pass L2, and no other counter of L1 sees them
        if all(is_collected(name, side) for name in _SECTORS_OF_L1 for side in sides):
            return not all(map(unseen_traffic, sides))
        # no plain load was seen, and something was loaded all the same
        counted = all(is_collected("gld_efficiency", side) for side in sides)
        return not counted or all(side["gld_efficiency"] > 0 for side in sides)
    if cause == "tensor_unused":
        return all(side["tensor_utilization"] < NO_TENSOR for side in sides)
    if cause == "instructions":
        return any(is_collected(name, slower) for name in ("ipc", "issue_slot_utilization"))
    return False


def sections_of(names: Iterable[str]) -> Iterable[str]:
    """Yield the sections of Nsight Compute that collect the counters of some metrics."""
    catalogue = load_catalogue()
    for name in names:
        formula = catalogue[name].ncu if name in catalogue else None
        for counter in () if formula is None else formula.names:
            found = [section for start, section in _SECTIONS if counter.startswith(start)]
            yield from found[:1]


def _set_of(names: Iterable[str]) -> str:
    only_hopper = [name for name in names if name in HOPPER]
    if only_hopper:
        return " --metrics ".join(only_hopper)
    held = set(load_catalogue().computable(["default"]))
    return "default" if set(names) <= held else "causes"


def _short(term: Term) -> str:
    label = term.label.removeprefix("work: ")
    return label if term.id.startswith("stall_") else label.partition(" (")[0]
