"""How requests of memory, rounds of shared memory and issue slots are used: inputs of rules.

Each is made of the columns of all launches at once; what was not counted has a value that lets no
rule claim anything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from perfml.explain.advice.pressures import per_launch
from perfml.explain.advice.slow_launch import SUSTAINED
from perfml.explain.limits import traffic
from perfml.explain.tree.mix import DIVISION
from perfml.metrics.expressions import Array

SECTORS: tuple[str, ...] = ("gld_transactions", "gst_transactions")
CARRIED: tuple[str, ...] = (
    "shared_efficiency",
    "shared_load_bank_conflicts",
    "inst_executed_shared_loads",
)
"""Any of these may tell what a round of shared memory carries."""
LOCAL: tuple[str, ...] = ("local_load_transactions", "local_store_transactions")

_OF_SLOTS = 0.35
"""Of all issue slots: integers that take as many are the most of what is issued where these are
full, floating point and memory having less each."""
_HALF = 0.5
_OF_WORDS = 4
"""Sectors of a warp's neighbouring words, of 4 bytes."""
_BUSIEST = ("issue_slot_utilization", "l1_utilization", "l2_utilization", "dram_utilization")
_FULL = 0.25
"""Of what warps wait for, room in the queue: from there on it is full, as for causes."""
_CONFLICT = 1.5
"""Rounds of shared memory a load, below which most loads have no conflict."""


def numbers(frame: pd.DataFrame, name: str) -> Array:
    """Return a column; what is missing is NaN."""
    return np.asarray(frame[name].to_numpy(dtype=float, na_value=np.nan))


def first_known(frame: pd.DataFrame, *names: str) -> Array:
    """Return the first of some columns that is known, row by row."""
    known = np.full(len(frame), np.nan)
    for name in names:
        if is_present(frame, name):
            known = np.where(np.isnan(known), numbers(frame, name), known)
    return known


def is_present(frame: pd.DataFrame, name: str) -> bool:
    """Tell whether a column holds a number."""
    return name in frame.columns and bool(frame[name].notna().any())


def mean_of_each(parts: str, requests: str, otherwise: float) -> Callable[[pd.DataFrame], Array]:
    """Make the mean of what a request touches; another value where that was not counted."""

    def make(frame: pd.DataFrame) -> Array:
        if not {parts, requests} <= set(frame.columns):
            return np.full(len(frame), otherwise)
        asked = numbers(frame, requests)
        each = numbers(frame, parts) / np.where(asked > 0, asked, np.nan)
        return np.where(np.isnan(each), otherwise, each)

    return make


def load_fill(frame: pd.DataFrame) -> Array:
    """Return how much of what loads move was asked for; 1 where none can be scattered.

    Neighbouring words of a warp are four sectors. A load of fewer is no scattered one, though a
    word that all lanes read fills an eighth of its sector.
    """
    sectors = mean_of_each("gld_transactions", "global_load_requests", np.inf)(frame)
    return np.asarray(np.where(sectors <= _OF_WORDS, 1.0, numbers(frame, "gld_efficiency")))


def most_of(*names: str) -> Callable[[pd.DataFrame], Array]:
    """Make the largest of some columns; NaN where one is missing."""

    def make(frame: pd.DataFrame) -> Array:
        highest: Array = np.max([numbers(frame, name) for name in names], axis=0)
        return highest

    return make


def share_of_sectors(name: str) -> Callable[[pd.DataFrame], Array]:
    """Make the share of one kind of access among the sectors of all global ones."""

    def make(frame: pd.DataFrame) -> Array:
        if not set(SECTORS) <= set(frame.columns):
            return np.ones(len(frame))
        own = numbers(frame, name)
        whole = np.sum([numbers(frame, each) for each in SECTORS], axis=0)
        share = own / np.where(whole > 0, whole, np.nan)
        return np.where(np.isnan(share), 1.0, share)

    return make


def without_fences(frame: pd.DataFrame) -> Array:
    """Return the waits for synchronisation that are none for memory fences."""
    fences = numbers(frame, "stall_membar") if "stall_membar" in frame.columns else np.nan
    return np.maximum(numbers(frame, "stall_sync") - np.nan_to_num(fences), 0.0)


shared_carried: Callable[[pd.DataFrame], Array] = per_launch(
    traffic.shared_filled, ("shared_efficiency", "shared_utilization"), np.nan
)


def shared_filled(frame: pd.DataFrame) -> Array:
    """Return what a round of shared memory carries of its width, broadcasts as full ones."""
    filled = shared_carried(frame)
    names = ("shared_load_transactions", "inst_executed_shared_loads", "shared_utilization")
    if not all(is_present(frame, name) for name in (*names, "inst_executed", "ipc")):
        return filled
    rounds, loads, busy = (numbers(frame, name) for name in names)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = rounds / (busy * numbers(frame, "inst_executed") / numbers(frame, "ipc"))
        alone = np.where(rounds < _CONFLICT * loads, np.clip(share, 0.0, 1.0), 0.0)
    return np.asarray(np.where(np.isnan(filled), np.nan, np.fmax(filled, np.nan_to_num(alone))))


def integer_slots(frame: pd.DataFrame) -> Array:
    """Return the share of issue slots that integer instructions take; 0 where not counted."""
    names = ("inst_integer", "inst_executed", "issue_slot_utilization")
    if not all(is_present(frame, name) for name in names):
        return np.zeros(len(frame))
    integers, executed, slots = (numbers(frame, name) for name in names)
    active = first_known(frame, "warp_execution_efficiency")
    lanes = 32 * np.where(active > 0, active, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(integers / lanes / executed, 0.0, 1.0)
    return np.asarray(np.nan_to_num(share * slots))


def integer_level(frame: pd.DataFrame) -> Array:
    """Return how busy the integer pipe is, or issue slots that integers fill."""
    slots, pipe = integer_slots(frame), numbers(frame, "alu_utilization")
    busy = first_known(frame, "issue_slot_utilization")
    return np.asarray(np.where(slots >= _OF_SLOTS, np.fmax(pipe, busy), pipe))


def divisions(frame: pd.DataFrame) -> Array:
    """Return the share of conversions among what keeps the unit of special functions busy.

    Only where as many integer instructions go with them as a division of integers takes, and not
    more of floats: bytes and indices are converted for those, too.
    """
    lanes = 32 * 0.5  # the unit takes 16 lanes a cycle of the 32 of a warp
    names = ("inst_bit_convert", "inst_integer", "inst_executed", "ipc")
    if not all(is_present(frame, name) for name in names):
        return np.zeros(len(frame))
    converted, integers, executed, ipc = (numbers(frame, name) for name in names)
    with np.errstate(invalid="ignore", divide="ignore"):
        done = numbers(frame, "special_fu_utilization") * executed / ipc * lanes
        divided = (integers >= DIVISION * converted) & (integers >= _floats(frame))
        share = np.where(divided, converted / done, 0.0)
    return np.asarray(np.clip(np.nan_to_num(share, nan=0.0, posinf=0.0), 0.0, 1.0))


def _floats(frame: pd.DataFrame) -> Array:
    """Return the instructions of floats, of threads, at least; 0 where they were not counted."""
    operations = first_known(frame, "flop_count_sp")
    return np.asarray(np.nan_to_num(operations) / 2)  # a multiply-add counts as two


def latency_stalls(frame: pd.DataFrame) -> Array:
    """Return how long warps wait for memory and operands, of their time.

    Where nobody counted what they wait for, and no unit is busy half of the time, that is what the
    busiest one leaves: what does not work waits.
    """
    waits = first_known(frame, "stall_memory_dependency") + first_known(
        frame, "stall_exec_dependency"
    )
    if not all(is_present(frame, name) for name in _BUSIEST):
        return waits
    busiest = np.max([numbers(frame, name) for name in _BUSIEST], axis=0)
    idle = np.where(busiest < _HALF, 1 - busiest, np.nan)
    return np.where(np.isnan(waits), idle, waits)


l1_level: Callable[[pd.DataFrame], Array] = per_launch(
    traffic.l1_level, (*traffic.L1_ACCESSES, *traffic.L1_ACCESSES.values())
)


def queue_level(frame: pd.DataFrame) -> Array:
    """Return how full the queue of loads and stores is, by what warps wait for room in it."""
    if not is_present(frame, "stall_memory_throttle"):
        return np.zeros(len(frame))
    return np.asarray(
        np.clip(np.nan_to_num(numbers(frame, "stall_memory_throttle")) / _FULL, 0.0, 1.0)
    )


def cache_level(frame: pd.DataFrame) -> Array:
    """Return how busy L1 or L2 is, of what it sustains.

    Some devices take a request in two cycles: then L1's own level says so.
    """
    below = numbers(frame, "l2_utilization") / SUSTAINED["l2_utilization"]
    busiest = np.fmax(l1_level(frame), first_known(frame, "l1_utilization"))
    return np.asarray(np.fmin(np.fmax(below, busiest), 1.0))
