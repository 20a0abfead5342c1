"""The ideal side of a launch: what it would count at least, for the tree to compare it with.

Advice asks the engine of two sides what separates a launch from this one. Where the counters tell
what is needed (the sectors of the bytes asked for, no conflict, full warps, even multiprocessors),
the ideal has that; where they do not, it has a part of the work of a limit that stands near its
ceiling (`ideal` in `causes.toml`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import ROWS
from perfml.explain.tree.library_kernels import is_product
from perfml.explain.tree.limits import fullest, limit_of, nearness
from perfml.explain.tree.thresholds import START_US
from perfml.explain.tree.work import DIVISION
from perfml.metrics.expressions import parse
from perfml.util.files import record

NEAR = 0.3
"""A limit that is less near its ceiling loses no time with work that may be needed.

Chosen on half of the exams' pairs (`studies.truth.confidence.half_of`): 0.25 and 0.35 change one
first finding of 148 at most.
"""

_ROOF = 0.85
"""Of what a unit reached in any recorded launch: from there on it is at its roof. Of 48 pairs of
equal kernels by outside authors 16 have nothing else then; one of 302 first findings that were
right goes (``python -m studies.truth.advised``)."""

_SECTOR, _WORDS = 32, 4  # bytes of a sector, and sectors of a warp's neighbouring words of 4 bytes
_NARROW, _WIDEST = 80.0, 512.0
"""Bytes of a request: of half a warp's words and a little more, and of 16 bytes a lane."""
_USED = 0.9
"""Of the bytes that loads move: from there on narrow requests have neighbouring addresses."""
_UNIFORM = 0.25
"""Requests of constants an instruction, up to which a warp may ask for one at a time: a load, a
multiply-add, and the loop. Planted: 0.19 where all lanes read the same one, 0.73 of four."""
_AGAIN = 8.0  # times that a byte from DRAM is loaded, from which on it is loaded again and again
_WIDE_LOAD = 1.5  # wavefronts of a load of shared memory, below which most loads have no conflict
_RESIDENT = 0.9
"""Of the warps that fit, what is resident at best: a block that ends is replaced with a delay."""
_TENSOR_RATE = 1 / 8
"""Of the time of CUDA cores, what tensor cores take (TF32 beside FP32, compute capability 8.0)."""
_INSTRUCTIONS = (
    *("inst_executed", "ipc", "issue_slot_utilization", "alu_utilization", "inst_integer"),
    *("single_precision_fu_utilization", "double_precision_fu_utilization"),
    *("half_precision_fu_utilization", "special_fu_utilization", "ldst_fu_utilization"),
    *("gld_transactions", "gst_transactions", "global_load_requests", "global_store_requests"),
    *("local_load_transactions", "local_store_transactions", "shared_utilization"),
)
"""What instructions of all kinds ask of a multiprocessor: those of a loop go together."""
_BELOW = ("l2_utilization", "l2_read_transactions", "l2_write_transactions", "dram_utilization")
"""What local memory asks of the levels below goes with its accesses."""
_LEAST, _MOST = 0.05, 0.95  # the ideal's time, as a part of the launch's


@dataclass(frozen=True)
class Ideal:
    """What one cause leaves of some counters; `causes.toml` says what the fields mean."""

    cause: str
    left: float | str
    scales: tuple[str, ...]
    sets: Mapping[str, float] = field(default_factory=dict)
    limits: tuple[str, ...] | None = None
    unless: tuple[str, ...] = ()
    alone: float | str | None = None
    best: float | str | None = None
    along: str = ""
    unknown: str = ""
    bounded: bool = False
    roof: tuple[str, ...] = ()
    needed: str = ""
    more: tuple[Mapping[str, Any], ...] = ()


@cache
def load_ideals() -> tuple[Ideal, ...]:
    """Return the ideals of ``causes.toml``; one that stands in the place of others comes last."""
    rows = [
        (cause, row["ideal"]) for cause, row in ROWS.items() if "scales" in row.get("ideal", ())
    ]
    parts = [(cause, part) for cause, row in rows for part in (row, *row.get("more", ()))]
    ideals = (record(Ideal, part, cause=cause) for cause, part in parts)
    return tuple(sorted(ideals, key=lambda row: bool(row.unless)))


def ideal_of(cause: str) -> str:
    """Return the cause whose ideal is that of a cause too: by default its own."""
    ideal = ROWS.get(cause, {}).get("ideal")
    return ideal if isinstance(ideal, str) else cause


@cache
def unknown_needs() -> Mapping[str, float]:
    """Return the causes of which no counter tells how much of the work is needed, and what stays.

    Causes whose ideal is that of one of them are among them.
    """
    left = {row.cause: float(row.left) for row in load_ideals() if row.limits is not None}
    return {name: left[ideal_of(name)] for name in ROWS if ideal_of(name) in left}


@cache
def bounded_needs() -> frozenset[str]:
    """Return the causes of which the counters tell no more than bounds of what is needed."""
    return frozenset(row.cause for row in load_ideals() if row.bounded)


def needs_all(state: LaunchState, cause: str) -> bool:
    """Return whether a launch may need all the work of a unit that stands at its roof."""
    name = ideal_of(cause)
    row = next((row for row in load_ideals() if row.cause == name and row.roof), None)
    if row is None:
        return False
    full = max(_level(state, limit) for limit in row.roof) >= _ROOF
    return full and state.value(_formula(row.needed)) > 0


def ideal_launch(launch: Launch, *, more_blocks: bool = False) -> Launch:
    """Return the ideal side of a launch: its time is that of its fullest unit."""
    # Busy levels and waits are parts of that time. With `more_blocks` the grid can be split as far
    # as one wave has places, which no counter tells.
    state = LaunchState.of(launch)
    counters = ideal_counters(state)
    counters |= _shape(state, more_blocks)
    part = min(max(fullest(LaunchState.of(replace(launch, counters=counters))), _LEAST), _MOST)
    for name in counters:
        if name.startswith("stall_") or "_utilization" in name:
            counters[name] /= part
    return replace(launch, counters=counters, time_us=launch.time_us * part)


def ideal_counters(
    state: LaunchState, causes: Container[str] | None = None, left: float | None = None
) -> dict[str, float]:
    """Return a launch's counters without some causes (all by default), in its own time.

    `left` is what stays of them; by default what the rows say.
    """
    counters = dict(state.launch.counters)
    lost: set[str] = set()
    for row in load_ideals():
        if (causes is not None and row.cause not in causes) or not lost.isdisjoint(row.unless):
            continue
        stays = _left(row, state, alone=causes is not None) if left is None else left
        if stays < 1:
            lost.add(row.cause)
            _scale(counters, row.scales, stays)
            counters |= {name: at for name, at in row.sets.items() if name in counters}
    return counters


def best_counters(state: LaunchState, cause: str) -> dict[str, float]:
    """Return a launch's counters without a cause at best: with the least that a fix may leave."""
    counters = dict(state.launch.counters)
    rows = [row for row in load_ideals() if row.cause == ideal_of(cause)]
    if rows and _left(rows[0], state, alone=True) >= 1:
        return counters  # what counters show nothing of cannot be mended
    for row in rows:
        stays = _left(row, state, alone=True) if row.best is None else _part(row.best, state)
        _scale(counters, row.scales, stays)
        if stays < 1:
            # what is only guessed of a unit that takes the work over is no least time of it
            even = (name for name in row.sets if name.endswith("_efficiency"))
            counters |= {name: row.sets[name] for name in even if name in counters}
        if row.along:
            along = _part(row.along, state)
            _scale(counters, _INSTRUCTIONS, along)
            _scale(counters, _BELOW, 1 - state["share.local_memory"] * (1 - along))
    return counters


def _scale(counters: dict[str, float], names: Sequence[str], stays: float) -> None:
    counters |= {name: stays * counters[name] for name in names if name in counters}


def _part(formula: float | str, state: LaunchState) -> float:
    if formula in _LEFT:
        value = _LEFT[str(formula)](state)
    else:
        value = formula if isinstance(formula, float) else state.value(_formula(formula))
    return min(1.0, known(max(value, 0.0), 1.0))


_formula = cache(parse)


def _left(row: Ideal, state: LaunchState, *, alone: bool) -> float:
    """Return what stays of a row's counters; `alone` where its cause is known to be one."""
    left = row.alone if alone and row.alone is not None else row.left
    if isinstance(left, str):
        if not alone and left in _WHERE and not _WHERE[left](state):
            return 1.0
        value = _LEFT[left](state) if left in _LEFT else state.value(_formula(left))
        return min(1.0, known(max(value, 0.0), 1.0))
    if row.limits and not alone:
        return left if max(_level(state, name) for name in row.limits) >= NEAR else 1.0
    return left


def _level(state: LaunchState, limit: str) -> float:
    """Return how near its ceiling a unit stands; one of a multiprocessor while that has a block."""
    span = 1.0 if limit_of(limit).group == "memory" else max(state["active"], _LEAST)
    return nearness(state, limit) / span


def _coalesced(state: LaunchState) -> float:
    """Return the sectors that the bytes asked for need, one a request at least, over those moved.

    Asynchronous copies share the sectors of loads, and have an efficiency of their own.
    """
    launch, sectors = state.launch, state["sectors"]
    if launch["inst_executed_async_copies"] > 0:
        return known(launch["ldgsts_efficiency"], 1.0)
    requests, asked = state["requests"], state["bytes_asked"]
    if math.isnan(requests):
        # what a request touches was not counted, only what part of it was asked for
        return known(state["asked_of_moved"], known(launch["gld_efficiency"], 1.0))
    needed = asked / _SECTOR if asked > 0 else min(_WORDS * requests, sectors)
    return max(needed, requests) / sectors if requests > 0 < sectors else 1.0


def _coalesced_dram(state: LaunchState) -> float:
    """Return the same of DRAM's bytes: no fewer than are asked for."""
    return max(_coalesced(state), known(state["asked_of_dram"]))


def _asked_once(state: LaunchState) -> float:
    """Return what DRAM moves at least for what is asked for: nothing known where it is twice."""
    asked = state["asked_of_dram"]
    return asked if asked < 1 else 0.0


def _once(state: LaunchState) -> float:
    """Return the loads that are left where each byte from DRAM is loaded once."""
    # What comes from DRAM may all be needed, and so may two loads a store; between both nothing is
    # known.
    launch = state.launch
    least = min(1.0, known(state["stores_per_load"] * 2))
    needed = min(1.0, known(state["dram_of_loads"]))
    left = math.sqrt(least * max(least, needed))
    return left if launch["global_load_requests"] > 0 else 1.0


def _without_repeats(state: LaunchState) -> float:
    """Return the instructions that are left; what other threads load each thread asks for still."""
    return 1 - 2 * state["load_part"] * (1 - max(_once(state), 0.5))


def _loaded_again(state: LaunchState) -> bool:
    """Return whether loads that fill their sectors keep L1 or L2 near its ceiling."""
    launch = state.launch
    again = launch["gld_efficiency"] / state["dram_of_loads"] if state["dram_of_loads"] > 0 else 0.0
    full = max(nearness(state, "l1"), nearness(state, "l2")) >= NEAR
    return again >= _AGAIN and full and state["sectors_per_request"] <= 2 * _WORDS


def _is_narrow(state: LaunchState) -> bool:
    """Return whether neighbouring lanes ask for little."""
    return 0 < state["bytes_per_request"] <= _NARROW and state["gld_efficiency"] >= _USED


def _without_divisions(state: LaunchState) -> float:
    """Return what stays of conversions where those of integers that are divided go."""
    launch = state.launch
    divides = launch["inst_integer"] >= DIVISION * launch["inst_bit_convert"] > 0
    return 0.5 if divides else 1.0


def _conflict_free(state: LaunchState) -> float:
    """Return what a round of shared memory carries; words that many lanes read look like less."""
    if state["wavefronts_per_shared_load"] < _WIDE_LOAD:
        return 1.0
    return state["shared_efficiency"] or 1.0


def _is_product(state: LaunchState) -> bool:
    """Return whether a library computes a product on CUDA cores."""
    on_cuda_cores = state["tensor_level"] < 0.01 and nearness(state, "fp32") >= NEAR
    return on_cuda_cores and is_product(state.launch.kernel)


_LEFT: Mapping[str, Callable[[LaunchState], float]] = {
    "coalesced": _coalesced,
    "coalesced_dram": _coalesced_dram,
    "once": _once,
    "wide": lambda state: state["bytes_per_request"] / _WIDEST,
    "by_each_thread": lambda state: max(_once(state), 0.5),
    "asked_once": _asked_once,
    "without_repeats": _without_repeats,
    "without_divisions": _without_divisions,
    "conflict_free": _conflict_free,
    "full_warps": lambda state: state["warp_execution_efficiency"],
    "by_tensor_cores": lambda _: _TENSOR_RATE,
    "one_a_warp": lambda _: 0.0,
}
_WHERE: Mapping[str, Callable[[LaunchState], bool]] = {
    "once": _loaded_again,
    "without_repeats": _loaded_again,
    "wide": _is_narrow,
    "by_tensor_cores": _is_product,
    # a request an address: where all lanes read one, a load in five instructions is usual (0.19)
    "one_a_warp": lambda state: not state["constants_an_instruction"] <= _UNIFORM,
}
"""What has to be so for an ideal to be claimed of one launch, where no other one says it."""


def _shape(state: LaunchState, more_blocks: bool) -> dict[str, float]:
    """Return the counters of a launch whose multiprocessors and warps have work all the time."""
    # A grid below one wave has no more warps and no more busy multiprocessors than its blocks give,
    # if it is split evenly, unless it can be split further.
    launch, waves = state.launch, state["waves_per_sm"]
    fits, resident = 1.0, _RESIDENT
    balance = 1 / max(known(state["imbalance"], 1.0), 1.0)
    busy = 1.0
    if 0 < waves <= 1 and not more_blocks:
        fits = known(state["theoretical_occupancy"], 1.0)
        resident = max(min(_RESIDENT, waves * fits), known(state["achieved_occupancy"]))
        # where nobody knows how many fit, all that is idle is the grid's
        busy = min(1.0, max(known(state["even"], balance), balance))
    shape = {
        "theoretical_occupancy": fits,
        "achieved_occupancy": resident,
        "sm_active_cycles_mean": launch["sm_active_cycles_max"] * busy,
        "sm_efficiency": _active(state, busy, balance),
    }
    if waves > 1 or (waves > 0 and more_blocks):
        shape["waves_per_sm"] = float(math.ceil(waves))
    return {name: value for name, value in shape.items() if not math.isnan(launch[name])}


def _active(state: LaunchState, busy: float, balance: float) -> float:
    """Return the part of the time with a block; the start of a launch is none on either side."""
    active = state.launch["sm_efficiency"]
    whole = 1.0 if busy == 1 else min(1.0, active * max(1.0, busy / balance))
    return max(active, whole - min(START_US / state.launch.duration_us, whole))
