"""Doubles in place of floats: the arithmetic is slower, and all that is moved is twice as large."""

from __future__ import annotations

import math
import re

from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.launches import Launch

_DOUBLES, _FLOATS = "flop_count_dp", "flop_count_sp"
_TWICE = math.log(2.0)
"""A double is twice a float."""

_MOST = 0.5
"""Operations that changed their type are at least this part of those that there were."""

_MOVED = (
    "global_requests",
    "redundant_traffic",
    "sectors_per_request",
    "dram_bytes",
    "l2_sectors",
    "l1_sectors",
    "dram_bytes_per_sector",
    "l2_sectors_per_l1_sector",
)
"""Terms that grow where elements are wider: of what is asked for, and of what that brings along."""

_OF_DOUBLES = re.compile(r"\bdouble\b")


def name_doubles(decomposition: Decomposition, pair: Pair) -> None:
    """Name bytes that are moved because the slower side computes in doubles, the other in floats.

    No more than twice as many are. (A kernel without arithmetic tells its type by its name only,
    if it is a template's.)
    """
    times = [launch.time_us for launch in pair.both]
    slow, fast = pair.both if times[0] > times[1] else pair.both[::-1]
    if not (_turned(slow, fast) or _named(slow, fast)):
        return
    sign = math.copysign(1.0, times[1] - times[0])
    room = _TWICE
    for term in _MOVED:
        if term in decomposition and sign * decomposition.log_ratio(term) > 0:
            value = min(room, sign * decomposition.log_ratio(term))
            room -= value
            levels = pair.levels("double_precision_fu_utilization")
            decomposition.name("fp64_pipe_time", *levels, sign * value, of=term)


def _turned(slow: Launch, fast: Launch) -> bool:
    """Return whether operations on floats became operations on doubles."""
    doubles, floats = slow[_DOUBLES] - fast[_DOUBLES], fast[_FLOATS] - slow[_FLOATS]
    return floats > _MOST * fast[_FLOATS] and doubles > _MOST * fast[_FLOATS]


def _named(slow: Launch, fast: Launch) -> bool:
    """Return whether a template was made for doubles on the slower side only."""
    return bool(_OF_DOUBLES.search(slow.kernel)) and not _OF_DOUBLES.search(fast.kernel)
