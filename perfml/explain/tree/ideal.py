"""The ideal side of a launch: what it would count at least, for the tree to compare it with.

Advice asks the engine of two sides what separates a launch from this one. Where the counters tell
what is needed (the sectors of the bytes asked for, no conflict, full warps, even multiprocessors),
the ideal has that; where they do not, it has a part of the work of a limit that stands near its
ceiling (`ideals.toml`).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.limits.traffic import placed_blocks
from perfml.explain.tree.library_kernels import is_product
from perfml.explain.tree.limits import limit_of, load_limits
from perfml.metrics.expressions import parse

NEAR = 0.3
"""A limit that is less near its ceiling loses no time with work that may be needed."""

_SECTOR, _WORDS = 32, 4
"""Bytes of a sector, and sectors of a warp's neighbouring words of 4 bytes."""
_NARROW, _WIDEST = 80.0, 512.0
"""Bytes of a request: of half a warp's words and a little more, and of 16 bytes a lane."""
_USED = 0.9
"""Of the bytes that loads move: from there on narrow requests have neighbouring addresses."""
_AGAIN = 8.0
"""Times that a byte from DRAM is loaded, from which on it is loaded again and again."""
_WIDE_LOAD = 1.5
"""Wavefronts of a load of shared memory, below which most loads have no conflict."""
_RESIDENT = 0.9
"""Of the warps that fit, what is resident at best: a block that ends is replaced with a delay."""
_TENSOR_RATE = 1 / 8
"""Of the time of CUDA cores, what tensor cores take (TF32 beside FP32 on compute capability 8.0)."""
_DIGITS = 0.02
"""Nsight Compute says waves to two digits."""
_LEAST, _MOST = 0.05, 0.95
"""The ideal's time, as a part of the launch's."""


@dataclass(frozen=True)
class Ideal:
    """What one cause leaves of some counters; `ideals.toml` says what the fields mean."""

    cause: str
    left: float | str
    scales: tuple[str, ...]
    sets: Mapping[str, float]
    limits: tuple[str, ...] | None
    unless: tuple[str, ...]
    unknown: str


@cache
def load_ideals() -> tuple[Ideal, ...]:
    """Return the rows of ``ideals.toml``."""
    path = resources.files("perfml.explain.tree").joinpath("ideals.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["ideal"]
    return tuple(
        Ideal(
            row["cause"],
            row["left"],
            tuple(row["scales"]),
            row.get("sets", {}),
            tuple(row["limits"]) if "limits" in row else None,
            tuple(row.get("unless", ())),
            row.get("unknown", ""),
        )
        for row in rows
    )


@cache
def unknown_needs() -> frozenset[str]:
    """Return the causes of which no counter tells how much of the work is needed."""
    return frozenset(row.cause for row in load_ideals() if row.limits is not None)


def ideal_launch(launch: Launch, *, more_blocks: bool = False) -> Launch:
    """Return the ideal side of a launch.

    Parameters
    ----------
    launch
        The launch.
    more_blocks
        Whether its grid can be split as far as one wave has places, which no counter tells.

    Returns
    -------
    Launch
        With counters at their ideals. Its time is that of its fullest unit, and its busy levels
        and waits are parts of that time.
    """
    state = LaunchState(launch)
    counters = ideal_counters(state)
    counters |= _shape(state, more_blocks)
    part = min(max(fullest(replace(launch, counters=counters)), _LEAST), _MOST)
    for name in counters:
        if name.startswith("stall_") or "_utilization" in name:
            counters[name] /= part
    return replace(launch, counters=counters, time_us=launch.time_us * part)


def ideal_counters(
    state: LaunchState, causes: Container[str] | None = None, left: float | None = None
) -> dict[str, float]:
    """Return a launch's counters without some causes, in its own time.

    Parameters
    ----------
    state
        The launch.
    causes
        Ids of the causes; all by default.
    left
        What stays of them; by default what the rows say.
    """
    counters = dict(state.launch.counters)
    lost: set[str] = set()
    for row in load_ideals():
        if (causes is not None and row.cause not in causes) or not lost.isdisjoint(row.unless):
            continue
        stays = _left(row, state) if left is None else left
        if stays < 1:
            lost.add(row.cause)
            counters |= {name: stays * counters[name] for name in row.scales if name in counters}
            counters |= {name: at for name, at in row.sets.items() if name in counters}
    return counters


def fullest(launch: Launch) -> float:
    """Return how near to its ceiling the fullest unit of a launch stands."""
    state = LaunchState(launch)
    return max((nearness(state, unit.id) for unit in load_limits()[0] if unit.id != "idle"))


def nearness(state: LaunchState, unit: str) -> float:
    """Return how near to its ceiling a unit stands over the time of a launch; 0 if not known."""
    limit = limit_of(unit)
    return known(state.value(limit.time) / limit.ceiling)


def _left(row: Ideal, state: LaunchState) -> float:
    if isinstance(row.left, str):
        value = _LEFT[row.left](state) if row.left in _LEFT else state.value(parse(row.left))
        return min(1.0, known(value, 1.0))
    if row.limits:
        # a unit of a multiprocessor is as busy as it is while there is a block
        active = max(state["active"], _LEAST)
        shared = ("dram", "l2", "l1")
        levels = (nearness(state, u) / (1.0 if u in shared else active) for u in row.limits)
        return row.left if max(levels) >= NEAR else 1.0
    return row.left


def _coalesced(state: LaunchState) -> float:
    """Return the sectors that the bytes asked for need, one a request at least, over those moved.

    Asynchronous copies share the sectors of loads, and have an efficiency of their own.
    """
    launch, sectors = state.launch, state["sectors"]
    if launch["inst_executed_async_copies"] > 0:
        return known(launch["ldgsts_efficiency"], 1.0)
    requests, asked = state["requests"], state["bytes_asked"]
    needed = asked / _SECTOR if asked > 0 else min(_WORDS * requests, sectors)
    return max(needed, requests) / sectors if requests > 0 < sectors else 1.0


def _coalesced_dram(state: LaunchState) -> float:
    """Return the same of DRAM's bytes: no fewer than are asked for."""
    return max(_coalesced(state), known(state["asked_of_dram"]))


def _once(state: LaunchState) -> float:
    """Return the loads that are left where each byte from DRAM is loaded once.

    What comes from DRAM may all be needed, and so may two loads a store; between both nothing is
    known. Only of loads that fill their sectors, where L1 or L2 is near its ceiling.
    """
    launch = state.launch
    asked = _SECTOR * launch["gld_transactions"] * launch["gld_efficiency"]
    again = asked / launch["dram_read_bytes"] if launch["dram_read_bytes"] > 0 else math.nan
    full = max(nearness(state, "l1"), nearness(state, "l2")) >= NEAR
    if not (again >= _AGAIN and full and state["sectors_per_request"] <= 2 * _WORDS):
        return 1.0
    least = min(1.0, known(2 / state["loads_per_store"]))
    needed = launch["dram_read_bytes"] / _SECTOR / launch["gld_transactions"]
    return max(_LEAST, math.sqrt(least * max(least, min(1.0, needed))))


def _wide(state: LaunchState) -> float:
    """Return the requests that are left where each lane moves 16 bytes."""
    bytes_each = state["bytes_per_request"]
    if not (0 < bytes_each <= _NARROW and state["gld_efficiency"] >= _USED):
        return 1.0
    return bytes_each / _WIDEST


def _conflict_free(state: LaunchState) -> float:
    """Return what a round of shared memory carries; words that many lanes read look like less."""
    if state["wavefronts_per_shared_load"] < _WIDE_LOAD:
        return 1.0
    return state["shared_efficiency"] or 1.0


def _by_tensor_cores(state: LaunchState) -> float:
    """Return what tensor cores leave of a library's product on CUDA cores."""
    on_cuda_cores = state["tensor_level"] < 0.01 and nearness(state, "fp32") >= NEAR
    return _TENSOR_RATE if on_cuda_cores and is_product(state.launch.kernel) else 1.0


_LEFT: Mapping[str, Callable[[LaunchState], float]] = {
    "coalesced": _coalesced,
    "coalesced_dram": _coalesced_dram,
    "once": _once,
    "wide": _wide,
    "conflict_free": _conflict_free,
    "full_warps": lambda state: state["warp_execution_efficiency"],
    "by_tensor_cores": _by_tensor_cores,
}


def _shape(state: LaunchState, more_blocks: bool) -> dict[str, float]:
    """Return the counters of a launch whose multiprocessors and warps have work all the time.

    A grid below one wave has no more warps and no more busy multiprocessors than its blocks give,
    if it is split evenly, unless it can be split further.
    """
    launch, waves = state.launch, state["waves_per_sm"]
    fits, resident = 1.0, _RESIDENT
    even = math.nan
    if 0 < waves <= 1 and not more_blocks:
        fits = known(state["theoretical_occupancy"], 1.0)
        resident = max(min(_RESIDENT, waves * fits), known(state["achieved_occupancy"]))
        even = _even(placed_blocks(launch))
    balance = known(1 / state["imbalance"], 1.0)
    busy = 1.0 if math.isnan(even) else min(1.0, max(even, balance))
    shape = {
        "theoretical_occupancy": fits,
        "achieved_occupancy": resident,
        "sm_active_cycles_mean": launch["sm_active_cycles_max"] * busy,
        "sm_efficiency": 1.0
        if busy == 1
        else min(1.0, launch["sm_efficiency"] * max(1.0, busy / balance)),
    }
    if waves > 1 or (waves > 0 and more_blocks):
        shape["waves_per_sm"] = float(math.ceil(waves))
    return {name: value for name, value in shape.items() if not math.isnan(launch[name])}


def _even(blocks: float) -> float:
    """Return how busy even blocks keep multiprocessors, over the busiest one.

    132 blocks are one for each of 132 multiprocessors, however many would fit; 140 are two for
    some of them, and two waves of time.
    """
    if not blocks > 0:
        return math.nan
    whole = round(blocks)
    if whole >= 1 and abs(blocks - whole) <= _DIGITS * blocks:
        return 1.0
    return blocks / math.ceil(blocks)
