"""How long a launch would take without one of its causes: that is taken out, the next limit stays.

A part of a launch's time is the cause's (the share of its warps' waiting, or the busy time of the
unit). The fix leaves a fraction of that part (scattered lanes: the bytes asked for, of those
moved; waiting for loads: their latency, shared by those in flight). The other parts stay, as far as
their instructions do, and no unit can become busier than it sustains. So

    after / now = start + (1 - start) x max((1 - part) x work + part x left,
                                            busiest other unit / what it sustains)

where `start` is the time before the first and after the last instruction, which no fix of a kernel
changes. From one launch alone: nothing of the faster side is used. What `studies.truth.fixes`
measured of it backwards, on launches whose fix is known, gives the interval. Where no such number
must be given, `cannot_say` tells why.

Here to change: what a fix takes away is in `cures`, what limits a launch in `slow_launch`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.explain.advice.cures import CURES
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.launches import Launch


@dataclass(frozen=True)
class Width:
    """How wide an interval is: its ends are this far from the estimate, in units of the doubt.

    Attributes
    ----------
    low, high
        Of the logarithm of the time after the fix, over the estimate.
    untold
        How many times as much where no counter says what the fix leaves of its cause.
    saved
        How much it grows with the logarithm of the saving (0: it does not).
    """

    low: float
    high: float
    untold: float
    saved: float

    def doubt(self, told: float, saving: float) -> float:
        """Return what the ends are multiplied by.

        Parameters
        ----------
        told
            The part of the time whose cure the counters tell.
        saving
            The logarithm of the time as it is, over the estimate.
        """
        return (told + (1 - told) * self.untold) * (1 + self.saved * saving)

    def around(self, estimate_us: float, now_us: float, told: float) -> tuple[float, float]:
        """Return both ends, microseconds; no fix makes a launch slower."""
        doubt = self.doubt(told, math.log(max(now_us / estimate_us, 1.0)))
        low, high = (estimate_us * math.exp(each * doubt) for each in (self.low, self.high))
        return min(low, now_us), min(high, now_us)


WIDTH = Width(-0.35, 0.23, 2.0, 0.5)
"""Measured and chosen by ``python -m studies.truth.fixes`` (the rule is in
`studies.truth.intervals`)."""


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
    return Estimate(after, *WIDTH.around(after, now_us, told(launches, term)))


def told(launches: Sequence[Launch], term: str) -> float:
    """Return the part of the time of some launches whose counters tell what a fix leaves."""
    time = sum(one.time_us for one in launches)
    sure = sum(one.time_us for one in launches if CURES[term](SlowLaunch(one)).told)
    return sure / time
