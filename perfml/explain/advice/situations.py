"""What to do where the counters of one launch tell more than its largest cause does.

Many programs share a cause, and its action is general. Some ways to get there leave counters behind
that nothing else leaves; then the author of the kernel is told the fix for that way.

Here to change: a situation is a row of `SITUATIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from perfml.explain.advice.slow_launch import BELOW, SlowLaunch
from perfml.explain.launches import Launch

_HALF = 0.5
"""Of the lanes of a warp, and of what warps wait for."""
_IDLE = 0.3
"""A memory that is busy for less is not what loads queue for."""
_FAR = 10.0
"""Loads that wait so many times their latency do not wait for device memory: of the recorded
launches whose loads are in order and whose DRAM and L2 are idle the longest wait for data on the
device is 5 times the latency; a table in host memory makes it 31 times (``curve_pinned``)."""
_DRAINED = 0.2
"""Of their time warps wait at their end for stores."""
_OTHERS = ("global_atomic_requests", "global_reduction_requests", "local_load_transactions")
_FROM = ("l2_read_transactions", "dram_read_bytes")
"""Without these a load's latency is not known."""


@dataclass(frozen=True)
class Situation:
    """A way to get to a cause.

    Attributes
    ----------
    terms
        Ids of the causes that it can be the way to.
    holds
        Whether the counters of the slow launch show it; not where one is missing.
    action
        What to do.
    """

    terms: frozenset[str]
    holds: Callable[[SlowLaunch], bool]
    action: str


def _few_work(state: SlowLaunch) -> bool:
    """Return whether most lanes idle, and most waiting is for the block's other warps."""
    return (
        state.launch["warp_execution_efficiency"] <= _HALF and state.waiting("stall_sync") >= _HALF
    )


def _large_arguments(state: SlowLaunch) -> bool:
    """Return whether sinf or cosf reduce large arguments.

    Their slow path multiplies by 2/pi in integers, keeps the words in a local array, and makes the
    result a float by one multiplication in double precision. No other double is computed. Where
    the slow path begins: CUDA C++ Programming Guide, arithmetic instructions, sine and cosine.
    """
    launch = state.launch
    return (
        launch["local_load_transactions"] > 0
        and launch["inst_bit_convert"] > 0
        and launch["flop_count_dp_mul"] > 0
        and launch.total(("flop_count_dp_add", "flop_count_dp_fma")) == 0
        and launch["flop_count_sp"] > launch["flop_count_dp_mul"]
    )


def _data_elsewhere(state: SlowLaunch) -> bool:
    """Return whether loads wait far longer than device memory takes, which is idle meanwhile."""
    launch = state.launch
    if not all(launch[name] < _IDLE for name in BELOW):
        return False
    # other requests are waited for in the same counter, or stand in the loads' way
    if launch.total(_OTHERS) != 0:
        return False
    # and so do the many sectors of scattered loads
    if not launch["gld_efficiency"] > _HALF or math.isnan(launch.total(_FROM)):
        return False
    cycles = state.waited("stall_memory_dependency", by="global_load_requests")
    return cycles > _FAR * state.latency and state.waiting("stall_memory_dependency") >= _HALF


def _random_stores(state: SlowLaunch) -> bool:
    """Return whether single words are stored in random order, over more than L2 holds.

    L2 reads a sector of which a part is written from DRAM, if it does not stay until the rest
    comes: DRAM is read for most sectors that are stored to, beside what is loaded, and is written
    as many; and warps wait for that when they end.
    """
    launch = state.launch
    stored = launch["gst_transactions"]
    filled = launch["dram_read_bytes"] / 32 - launch["gld_transactions"]
    return (
        launch["gst_efficiency"] <= _HALF
        and launch["stall_drain"] >= _DRAINED
        and filled >= _HALF * stored > 0
        and launch["dram_write_bytes"] / 32 >= _HALF * stored
        and launch.total(_OTHERS) == 0
    )


SITUATIONS = (
    Situation(
        frozenset({"dram_bytes_per_sector", "sectors_per_request", "uncoalesced_stores"}),
        _random_stores,
        "Single words are stored in random order: DRAM is read for most of the sectors that are "
        "stored to, and writes them back. Store in order (sort by destination, or read in random "
        "order instead, which writes nothing back), or do one part of the destination at a time, "
        "so that it stays in L2.",
    ),
    Situation(
        frozenset({"active_threads_per_warp", "stall_sync"}),
        _few_work,
        "Few threads work while the rest of their block wait at a barrier: let all threads of the "
        "block share that step (a search or a sum in pairs, by warp shuffles), then meet once.",
    ),
    Situation(
        frozenset(
            {
                "integer_arithmetic",
                "instructions",
                "local_memory",
                "active_threads_per_warp",
                "special_function_pipe_time",
                "fp64_pipe_time",
            }
        ),
        _large_arguments,
        "Integers, a local array and double-precision multiplications alone are what sinf, cosf "
        "and tanf do for large arguments (beyond 105,615): wrap the phase first, or call sinpif "
        "and cospif, whose arguments are in half turns.",
    ),
    Situation(
        frozenset({"stall_memory_dependency", "l2_busy_time"}),
        _data_elsewhere,
        "Loads wait more than ten times as long as device memory takes, which is idle: look for "
        "data in the host's memory (pinned, mapped, managed) or on another GPU, and copy it to the "
        "device first (lts__t_sectors_aperture_sysmem_op_read.sum counts what comes from the "
        "host).",
    ),
)
"""The first that holds is told."""


def action_here(term: str, launch: Launch) -> str | None:
    """Return what to do about a cause in this launch; None where nothing more is known.

    Parameters
    ----------
    term
        Id of the cause.
    launch
        Of the slow side.

    Examples
    --------
    >>> alone = {"warp_execution_efficiency": 0.2, "stall_sync": 0.9}
    >>> action_here("stall_sync", Launch("search", 9.0, alone))[:16]
    'Few threads work'
    >>> action_here("stall_sync", Launch("search", 9.0, alone | {"stall_sync": 0.3})) is None
    True
    """
    state = SlowLaunch(launch)
    for each in SITUATIONS:
        if term in each.terms and each.holds(state):
            return each.action
    return None
