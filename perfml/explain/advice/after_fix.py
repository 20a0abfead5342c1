"""How long a launch would take without one of its causes: that is taken out, the next limit stays.

A part of a launch's time is the cause's (the share of its warps' waiting, or the busy time of the
unit). The fix leaves a fraction of that part (scattered lanes: the bytes asked for, of those
moved; waiting for loads: their latency, shared by those in flight). The other parts stay, as far as
their instructions do, and no unit can become busier than it sustains. So

    after / now = start + (1 - start) x max((1 - part) x work + part x left,
                                            busiest other unit / what it sustains)

where `start` is the time before the first and after the last instruction, which no fix of a kernel
changes. From one launch alone: nothing of the faster side is used. What `studies.truth.fixes`
measured of it backwards, on launches whose fix is known, gives the interval.

Here to change: what a fix takes away is in `cures`, what limits a launch in `slow_launch`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.explain.advice.cures import CURES
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.counters.traffic import waits
from perfml.explain.launches import Launch

SPREAD = (-0.51, 1.0)
"""The error's logarithm over `doubt`: between these in 80 % of the planted families and ladders
(`studies.truth.fixes`)."""
_LEAST_DOUBT, _UNKNOWN = 0.05, 0.25
"""Doubt in launches that wait for one thing alone, and the second wait of one whose stalls were not
collected."""
_UNTOLD = 5.0
"""How many times as much where no counter says what the fix leaves of its cause."""


@dataclass(frozen=True)
class Estimate:
    """A time after a fix, microseconds: best guess, and an interval that holds it in 80 %."""

    time_us: float
    low_us: float
    high_us: float


def time_after(launch: Launch, term: str, left: float | None = None) -> float:
    """Return how long a launch would take without a cause, as a fraction of its time.

    Parameters
    ----------
    launch
        The launch as it is.
    term
        Id of the cause.
    left
        What will stay of it, where that is known: 0.5 for half as many shared loads. By default
        what the launch says that it needs at least, or half.

    Returns
    -------
    float
        NaN for a cause whose end cannot be told from one launch.
    """
    if term not in CURES:
        return math.nan
    state = SlowLaunch(launch)
    cure = CURES[term](state)
    stays = cure.left if left is None else left
    relieved = dict(cure.relieved)
    if left is not None and cure.left < 1:
        # units are relieved by as much of their part as the cause itself
        relieved = {
            name: 1 - (1 - stay) * (1 - left) / (1 - cure.left) for name, stay in relieved.items()
        }
    if math.isnan(cure.part) or math.isnan(stays):
        return math.nan
    limit = state.limit(relieved, cure.spreads)
    work = 1.0 if left is not None else cure.work
    inside = (1 - cure.part) * work + cure.part * stays
    if cure.spreads:
        return min(1.0, max(inside, limit))
    return min(1.0, state.start + (1 - state.start) * max(inside, limit))


def estimate(now_us: float, fraction: float, launches: Sequence[Launch], term: str) -> Estimate:
    """Return the time after a fix with its interval.

    Parameters
    ----------
    now_us
        The time as it is.
    fraction
        What will be left of it.
    launches
        That are fixed.
    term
        Id of the cause that is taken out.
    """
    after = now_us * fraction
    low, high = (after * math.exp(each * doubt(launches, term)) for each in SPREAD)
    return Estimate(after, low, min(high, now_us))


def doubt(launches: Sequence[Launch], term: str) -> float:
    """Return what errors grow with: a second thing that the launches wait for.

    It is larger for a fix of which no counter says what it leaves. How much is saved is no part of
    it: that goes with neither the errors of the planted families nor those of the ladders.
    """
    time = sum(one.time_us for one in launches)
    return sum(one.time_us * _doubt(one, term) for one in launches) / time


def _doubt(launch: Launch, term: str) -> float:
    shares = [share for reason, share in waits(launch).items() if reason != "stall_not_selected"]
    second = sorted(shares)[-2] if len(shares) > 1 else _UNKNOWN
    told = CURES[term](SlowLaunch(launch)).told
    return (_LEAST_DOUBT + second) * (1.0 if told else _UNTOLD)
