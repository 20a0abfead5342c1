"""What a kernel's time can be divided by: the work counters, and where they come from.

An account names one kind of work. Time is then work x cost, and cost is split along the machine:
how many warps fit, how full the waves are, how many of those warps were resident, and what is
left is the rate of a resident warp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

Pair = tuple[pd.Series, pd.Series]
"""A launch (or a whole layer) of the baseline, and what answers to it in the target."""

OUTSIDE = "outside the profiler"
"""Time without the profiler over the duration under it: warm caches, clocks, overlap."""


@dataclass(frozen=True)
class Account:
    """A kind of work.

    Attributes
    ----------
    name, work
        What it is called, and what its work term is called.
    columns
        Counters it needs.
    level
        Busy fraction of the unit that does this work; it tells which account matters.
    derived
        Whether the work is busy fraction x duration, which compares one kind of device only.
    """

    name: str
    work: str
    columns: tuple[str, ...]
    level: str
    derived: bool = False

    def amount(self, row: pd.Series) -> float:
        """Return the work of a launch (NaN where it was not counted)."""
        if not all(name in row.index for name in self.columns):
            return float("nan")
        values = [float(row[name]) for name in self.columns]
        if not self.derived:
            return float(sum(values))
        # a level of active multiprocessors misses those without a block, unless that was counted
        active = number(row, "sm_efficiency") if self.level in _OF_ACTIVE else 1.0
        busy = values[0] * (1.0 if np.isnan(active) else active)
        return busy * duration(row)

    def parts(self, row: pd.Series) -> list[tuple[str, float]]:
        """Return the work as a product: names and factors, as far as the counters split it.

        Sectors that cross L1 or L2 are requests of warps, times the sectors a request touches
        (4 for 32 lanes that read neighbouring floats, 32 where every lane is somewhere else), times
        the share that L1 does not hold.
        """
        amount = self.amount(row)
        if self.name not in _SECTORS:
            return [(self.work, amount)]
        requests = number(row, "global_load_requests") + number(row, "global_store_requests")
        sectors = number(row, "gld_transactions") + number(row, "gst_transactions")
        found = [(self.work, amount)]
        if requests > 0 and sectors > 0:
            found = [
                ("work: global requests", requests),
                ("sectors per request", sectors / requests),
            ]
            if self.name == "L2 sectors":
                found.append(("L2 sectors per L1 sector", amount / sectors))
        return found


_SECTORS = ("L1 sectors", "L2 sectors")
_OF_ACTIVE = (
    "single_precision_fu_utilization",
    "double_precision_fu_utilization",
    "special_fu_utilization",
    "tensor_utilization",
    "issue_slot_utilization",
)

ACCOUNTS = (
    Account(
        "tensor pipe", "work: tensor pipe time", ("tensor_utilization",), "tensor_utilization", True
    ),
    Account(
        "FP32 operations",
        "work: FP32 operations",
        ("flop_count_sp",),
        "single_precision_fu_utilization",
    ),
    Account(
        "FP32 pipe",
        "work: FP32 pipe time",
        ("single_precision_fu_utilization",),
        "single_precision_fu_utilization",
        True,
    ),
    Account(
        "FP64 pipe",
        "work: FP64 pipe time",
        ("double_precision_fu_utilization",),
        "double_precision_fu_utilization",
        True,
    ),
    Account(
        "special functions",
        "work: special-function pipe time",
        ("special_fu_utilization",),
        "special_fu_utilization",
        True,
    ),
    Account(
        "DRAM bytes",
        "work: DRAM bytes",
        ("dram_read_bytes", "dram_write_bytes"),
        "dram_utilization",
    ),
    Account("DRAM time", "work: DRAM busy time", ("dram_utilization",), "dram_utilization", True),
    Account(
        "L2 sectors",
        "work: L2 sectors",
        ("l2_read_transactions", "l2_write_transactions"),
        "l2_utilization",
    ),
    Account(
        "L1 sectors",
        "work: L1 sectors",
        ("gld_transactions", "gst_transactions"),
        "ldst_fu_utilization",
    ),
    Account("L2 time", "work: L2 busy time", ("l2_utilization",), "l2_utilization", True),
    Account(
        "shared memory",
        "work: shared-memory busy time",
        ("shared_utilization",),
        "shared_utilization",
        True,
    ),
    Account("instructions", "work: instructions", ("inst_executed",), "issue_slot_utilization"),
)
"""In order of preference where the levels tie; counted work comes before derived work."""


def number(row: pd.Series, name: str) -> float:
    """Return a cell, NaN where the table lacks it."""
    return float(row[name]) if name in row.index else float("nan")


def duration(row: pd.Series) -> float:
    """Return the duration the counters were taken over: the profiler's, or else the time."""
    under = number(row, "ncu_time_us")
    return number(row, "time_us") if np.isnan(under) or under <= 0 else under


BUSY = 0.6
"""A unit below this level limits nobody: what is left is latency. Nsight Compute's own rule
(SOLBottleneck) speaks of latency below the same 60 %."""

MOST = 0.5
"""What warps spend more than half of their time on is what a waiting launch waits for."""

_MEMORY = ("DRAM bytes", "DRAM time", "L2 sectors", "L1 sectors", "L2 time")
_WAITS_FOR_MEMORY = ("stall_memory_dependency", "stall_memory_throttle", "stall_texture")
_OTHER_WAITS = (
    "stall_inst_fetch",
    "stall_exec_dependency",
    "stall_sync",
    "stall_constant_memory_dependency",
    "stall_sleeping",
    "stall_branch_resolving",
    "stall_gmma",
)


def usable(pairs: Sequence[Pair], same_device: bool) -> list[Account]:
    """Return the accounts that at least one pair has on both sides, the likeliest limit first.

    The order is that of the busy fractions on the slower side: the time to be explained was spent
    there, and no side can be faster than its busiest unit; what was busy on the faster side limits
    that one. Where no unit of the slower side reaches `BUSY`, its time is waiting, and units of
    global memory come first where its warps wait for memory more than half of the time, and last
    where they wait for something else. (A busy pipe or queue does not say whose it is.)
    """
    slower = _slower(pairs)
    found = []
    for place, account in enumerate(ACCOUNTS):
        if account.derived and not same_device:
            continue
        both = [pair for pair in pairs if all(account.amount(row) > 0 for row in pair)]
        if both:
            found.append((-_level(account.level, slower), account.derived, place, account))
    found.sort(key=lambda each: each[:3])
    memory = _waits_for_memory(slower)
    if found and -found[0][0] < BUSY and memory is not None:
        found.sort(key=lambda each: (each[3].name in _MEMORY) != memory)
    return [account for *_, account in found]


def _waits_for_memory(rows: Sequence[pd.Series]) -> bool | None:
    """Return whether warps wait for global memory, or for else; None where neither is most."""
    memory, others = (
        sum(_level(name, rows) for name in names) for names in (_WAITS_FOR_MEMORY, _OTHER_WAITS)
    )
    return memory > others if max(memory, others) > MOST else None


def _slower(pairs: Sequence[Pair]) -> list[pd.Series]:
    """Return the launches of the side that takes longer."""
    sides = [list(side) for side in zip(*pairs, strict=True)]
    return max(reversed(sides), key=lambda rows: sum(number(row, "time_us") for row in rows))


def _level(name: str, rows: Sequence[pd.Series]) -> float:
    """Return the mean of a fraction over some launches, weighted by time."""
    total = sum(number(row, "time_us") for row in rows)
    levels = [number(row, name) * number(row, "time_us") for row in rows]
    return float(np.nansum(levels)) / total


@dataclass(frozen=True)
class Factor:
    """A divisor of the work.

    Attributes
    ----------
    term
        What its term is called.
    value
        Its level for a launch.
    absolute
        Whether the level includes the levels before it (achieved occupancy includes the limit).
    then
        What is left, once the levels up to this one are taken out.
    most
        The largest step that says something of its own.
    """

    term: str
    value: Callable[[pd.Series], float]
    absolute: bool
    then: str
    most: float | None = None


_LIMIT = Factor(
    "occupancy limit", lambda row: number(row, "theoretical_occupancy"), True, "rate at that limit"
)
_FILL = Factor(
    "wave fill",
    lambda row: wave_fill(number(row, "waves_per_sm")),
    False,
    "rate at that wave fill",
)
_REACHED = Factor(
    "occupancy reached",
    lambda row: number(row, "achieved_occupancy"),
    True,
    "rate per resident warp",
    1.0,
)
_ISSUED = Factor(
    "issue rate per resident warp", lambda row: number(row, "ipc"), True, "clock and idle SMs"
)


def cost_factors(account: Account, single: bool) -> tuple[Factor, ...]:
    """Return the divisors of the work, from the launch inwards.

    Parameters
    ----------
    account
        The work.
    single
        Whether rows are single launches; a mean of waves over kernels has no last wave.
    """
    launch = (_LIMIT, _FILL) if single else ()
    issue = (_ISSUED,) if account.name == "instructions" else ()
    return (*launch, _REACHED, *issue)


def wave_fill(waves: float) -> float:
    """Return how full the waves of blocks are on average: 0.13 waves fill 13 % of one.

    1.28 waves take the time of 2 and fill 64 % of them: the tail effect of the last wave.
    """
    return waves / float(np.ceil(waves)) if waves > 0 else float("nan")
