"""What rules read beside the metrics: shapes of a launch, occupancy limits, peaks, layer sums."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.chips import of_rows
from perfml.explain.advice import pressures
from perfml.explain.advice.accesses import (
    CARRIED,
    LOCAL,
    SECTORS,
    cache_level,
    divisions,
    first_known,
    integer_level,
    integer_slots,
    is_present,
    l1_level,
    latency_stalls,
    load_fill,
    mean_of_each,
    most_of,
    numbers,
    queue_level,
    share_of_sectors,
    shared_carried,
    shared_filled,
    without_fences,
)
from perfml.explain.advice.blocks import (
    even_blocks,
    filled_waves,
    limited_by,
    missing_blocks,
    sm_balance,
    tail_share,
)
from perfml.explain.advice.peak_inputs import peak_of_rows
from perfml.explain.advice.pressures import per_launch
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.launches import Launch
from perfml.explain.residency import SHAPE, product
from perfml.explain.roofs.peaks import Peaks
from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns


@dataclass(frozen=True)
class Input:
    """An input of rules that is no metric.

    Attributes
    ----------
    description
        What it is.
    needs
        Columns of the launches it is made from.
    make
        Makes it of the launches.
    either
        Columns of which one is enough, if there are any.
    """

    description: str
    needs: tuple[str, ...]
    make: Callable[[pd.DataFrame], Array]
    either: tuple[str, ...] = ()

    def lacks(self, frame: pd.DataFrame) -> list[str]:
        """Return the columns that it cannot be made without and `frame` does not hold."""
        absent = [name for name in self.needs if not is_present(frame, name)]
        if self.either and not any(is_present(frame, name) for name in self.either):
            absent += self.either[:1]
        return absent


_REQUESTS = ("global_load_requests", "global_store_requests")
_COPIES = "inst_executed_async_copies"
_TENSOR = ("tensor_cycles_utilization", "tensor_utilization")

INPUTS: dict[str, Input] = {
    "load_share": Input(
        "share of loads and copies among sectors of global memory; 1 where it was not counted",
        (),
        share_of_sectors("gld_transactions"),
    ),
    "store_share": Input(
        "share of stores among sectors of global memory; 1 where it was not counted",
        (),
        share_of_sectors("gst_transactions"),
    ),
    "memory_pressure": Input(
        "largest of DRAM level, L2 level and stalls on global memory",
        ("dram_utilization", "l2_utilization", "stall_memory_dependency"),
        most_of("dram_utilization", "l2_utilization", "stall_memory_dependency"),
    ),
    "sector_pressure": Input(
        "time that fewer sectors can save: L1, L2 or DRAM is busy, of what it sustains, or loads "
        "stand in a queue beyond their latency",
        ("dram_utilization", "l2_utilization", "stall_memory_dependency"),
        per_launch(pressures.sectors, SECTORS),
    ),
    "sectors_per_load": Input(
        "sectors that a load of a warp touches; 32 where they were not counted",
        (),
        mean_of_each("gld_transactions", "global_load_requests", 32.0),
    ),
    "sectors_per_store": Input(
        "sectors that a store of a warp touches; 32 where they were not counted",
        (),
        mean_of_each("gst_transactions", "global_store_requests", 32.0),
    ),
    "shared_filled": Input(
        "bytes that a round of shared memory carries, of its width; or the share of rounds that "
        "are loads without conflicts, whose lanes read the same words",
        (),
        shared_filled,
        CARRIED,
    ),
    "shared_carried": Input(
        "what a round of shared memory carries, of its width: by bytes, by conflicts, or at most, "
        "by the rounds of a load",
        (),
        shared_carried,
        CARRIED,
    ),
    "shared_level": Input(
        "how busy shared memory keeps L1 while there is a block: its wavefronts the data stage, "
        "or its loads and stores the entrance of all",
        ("shared_utilization",),
        per_launch(pressures.shared_level, ("shared_utilization",)),
    ),
    "integer_slots": Input(
        "share of issue slots that integer instructions take; 0 where they were not counted",
        (),
        integer_slots,
    ),
    "integer_level": Input(
        "how busy the integer pipe is; or issue slots, where integers take most of them",
        ("alu_utilization",),
        integer_level,
    ),
    "integer_share": Input(
        "how busy the integer pipe is, or the share of issue slots that integers take",
        ("alu_utilization",),
        lambda frame: np.fmax(numbers(frame, "alu_utilization"), integer_slots(frame)),
    ),
    "l1_level": Input(
        "how busy L1's data stage is: a request takes a cycle, or one for each four sectors; 0 "
        "where not counted",
        (),
        l1_level,
    ),
    "queue_level": Input(
        "how full the queue of loads and stores is: 1 where a quarter of what warps wait for is "
        "room in it; 0 where not counted",
        (),
        queue_level,
    ),
    "cache_level": Input(
        "how busy L1 or L2 is, of what it sustains",
        ("l2_utilization",),
        cache_level,
    ),
    "latency_stalls": Input(
        "stalls on global memory plus stalls on operands; where nobody counted them, what the "
        "busiest of issue slots, L1, L2 and DRAM leaves, if that is more than half",
        (),
        latency_stalls,
        ("stall_memory_dependency", "issue_slot_utilization"),
    ),
    "tensor_level": Input(
        "how busy tensor cores are: in cycles, or in instructions where cycles were not counted",
        (),
        lambda frame: first_known(frame, *_TENSOR),
        _TENSOR,
    ),
    "barrier_waits": Input(
        "stalls at barriers: those of synchronisation without memory fences",
        ("stall_sync",),
        without_fences,
    ),
    "async_copies": Input(
        "asynchronous copies of warps; 0 where they were not counted",
        (),
        lambda frame: np.nan_to_num(
            numbers(frame, _COPIES) if _COPIES in frame.columns else np.zeros(len(frame))
        ),
    ),
    "shared_access_share": Input(
        "share of loads and stores among the passes of shared memory; 1 where it was not counted",
        (),
        pressures.shared_access_share,
    ),
    "wave_fill": Input("filled share of the waves that run", ("waves_per_sm",), filled_waves),
    "blocks": Input("blocks launched", ("grid",), lambda frame: product(frame["grid"])),
    "block_threads": Input("threads a block", ("block",), lambda frame: product(frame["block"])),
    "register_limit": Input(
        "resident blocks that registers allow, over those that all else allows",
        SHAPE,
        limited_by("registers"),
    ),
    "shared_limit": Input(
        "resident blocks that shared memory allows, over those that all else allows",
        SHAPE,
        limited_by("shared_memory"),
    ),
    "slot_limit": Input(
        "places for blocks, over the resident blocks that all else allows",
        SHAPE,
        limited_by("slots"),
    ),
    "sm_balance": Input(
        "time in which a multiprocessor has a block, over that of the busiest one",
        ("sm_active_cycles_mean", "sm_active_cycles_max"),
        sm_balance,
    ),
    "tail_share": Input(
        "part of the time that the last wave takes, at most what it lacks of a full one",
        ("waves_per_sm",),
        tail_share,
    ),
    "even_blocks": Input(
        "how busy blocks of equal work would keep multiprocessors, over the busiest one",
        ("waves_per_sm",),
        even_blocks,
    ),
    "division_share": Input(
        "conversions of integer divisions, of what special functions do; 0 if not counted",
        ("special_fu_utilization",),
        divisions,
    ),
    "missing_blocks": Input(
        "blocks that one wave lacks, as far as multiprocessors are idle or warps wait",
        ("waves_per_sm",),
        missing_blocks,
    ),
    "atomic_pressure": Input(
        "time that atomics on global memory take: busiest slice of L2, or waiting",
        ("l2_atomic_utilization_max",),
        per_launch(
            pressures.global_atomics, ("global_atomic_requests", "global_reduction_requests")
        ),
    ),
    "shared_atomic_pressure": Input(
        "time that atomics on shared memory take: busy, or waiting",
        ("shared_atomic_transactions", "shared_utilization"),
        per_launch(pressures.shared_atomics, ("shared_atomic_transactions",)),
    ),
    "exchange_pressure": Input(
        "time that exchanges between lanes take: busy, or waiting",
        ("inst_inter_thread_communication", "shared_utilization"),
        per_launch(pressures.lane_exchange, ("inst_inter_thread_communication",)),
    ),
    "local_share": Input(
        "share of local memory among the sectors that pass L1",
        (*LOCAL, *SECTORS),
        per_launch(pressures.local_share, LOCAL),
    ),
    "local_pressure": Input(
        "time that local memory takes: busy, or waiting",
        (*LOCAL, *SECTORS),
        per_launch(pressures.local_memory, LOCAL),
    ),
    "bytes_per_request": Input(
        "bytes that a warp loads or stores at once",
        (*SECTORS, *_REQUESTS),
        per_launch(pressures.bytes_per_request, _REQUESTS),
    ),
    "load_fill": Input(
        "how much of what loads move was asked for; 1 where they touch four sectors or fewer",
        ("gld_efficiency",),
        load_fill,
    ),
    "loads_for_dram": Input(
        "how often each byte that DRAM read is loaded",
        ("gld_transactions", "gld_efficiency", "dram_read_bytes"),
        per_launch(pressures.loads_for_dram, ("gld_transactions",)),
    ),
}
"""Inputs of launches; peaks (``peak_fp32``, ..., ``peak_precision``) are added by `values_of`."""


def values_of(frame: pd.DataFrame, name: str, peaks: Peaks | None) -> Array | str:
    """Return an input of every launch, or what was not collected for it.

    Parameters
    ----------
    frame
        Launches (or merged layers).
    name
        A metric, an input, or ``peak_...``.
    peaks
        Given ones; else those known of each row's device, tabulated or from what its profile says
        of it (``frame.attrs``).
    """
    if name.startswith("peak_"):
        return peak_of_rows(frame, name.removeprefix("peak_"), peaks)
    if name in INPUTS:
        absent = INPUTS[name].lacks(frame)
        return INPUTS[name].make(frame) if not absent else ", ".join(absent)
    return numbers(frame, name) if is_present(frame, name) else name


class InputValues:
    """Inputs of some rows, each computed once however many rules read it.

    Parameters
    ----------
    frame, peaks
        As for `values_of`.
    """

    def __init__(self, frame: pd.DataFrame, peaks: Peaks | None) -> None:
        self.frame = frame
        self._peaks = peaks
        self._known: dict[str, Array | str] = {}

    def of(self, names: Sequence[str]) -> tuple[dict[str, Array], list[str]]:
        """Return inputs by name (NaN where there are none), and what was not collected."""
        values: dict[str, Array] = {}
        missing: list[str] = []
        for name in names:
            if name not in self._known:
                self._known[name] = values_of(self.frame, name, self._peaks)
            known = self._known[name]
            if isinstance(known, str):
                missing.append(known)
                values[name] = np.full(len(self.frame), np.nan)
            else:
                values[name] = known
        return values, missing

    @functools.cached_property
    def launches(self) -> list[Launch]:
        """The rows with their counters; taking one out of a table costs more than using it."""
        names = metric_columns(self.frame)
        values = self.frame[names].to_numpy(dtype=float, na_value=np.nan).tolist()
        times = self.frame["time_us"].astype(float).tolist()
        return [
            Launch("", time, dict(zip(names, row, strict=True)), chip=chip)
            for time, row, chip in zip(times, values, of_rows(self.frame), strict=True)
        ]

    @functools.cached_property
    def states(self) -> list[SlowLaunch]:
        """The launches as estimates see them."""
        return [SlowLaunch(launch) for launch in self.launches]

    @functools.cached_property
    def told(self) -> list[dict[Any, Any]]:
        """What the rows are, without their counters."""
        return self.frame.drop(columns=metric_columns(self.frame)).to_dict("records")

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return what was not collected for some inputs, without making them."""
        found: list[str] = []
        for name in names:
            if name in INPUTS:
                found += INPUTS[name].lacks(self.frame)
            else:
                found += self.of((name,))[1]
        return found


NOT_COLLECTED = "not collected"


def why_missing(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return why inputs of a rule have no value in any row: the words that follow their names.

    Parameters
    ----------
    frame
        Launches (or merged layers).
    names
        What `values_of` named as missing.
    """
    if all(name.startswith("peak ") for name in names):
        return "not known"
    catalogue = load_catalogue()
    undefined = [
        name
        for name in names
        if name in frame.columns
        and name in catalogue
        and (catalogue[name].zero_undefined or catalogue[name].guard is not None)
    ]
    if len(undefined) == len(names):
        return "undefined: no launch does what it measures"
    return NOT_COLLECTED
