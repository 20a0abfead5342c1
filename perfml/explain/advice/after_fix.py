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

Two kinds of causes differ in what can be said. Of the first, counters tell what the fix leaves (the
bytes that lanes asked for, the lanes that work, the waves that are full): a number is said. Of the
second, they do not (how many atomics stay, how few instructions would do): estimates of these were
off three times as much on kernels of people who had not seen perfml, so only the interval is said,
and what is not known. Where not even that can be said, `cannot_say` tells why.

Here to change: what a fix takes away is in `cures` and `warp_cures`, what limits a launch in
`slow_launch`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.explain.advice.cures import CURES
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.launches import Launch

SAID = 0.5
"""A number is said where counters tell what the fix leaves for so much of the time or more."""


@dataclass(frozen=True)
class Width:
    """How wide an interval is: how far its ends are from the estimate.

    Attributes
    ----------
    low, high
        Of the logarithm of the time after the fix, over the estimate, where a number is said.
    untold_low, untold_high
        The same where no counter tells what the fix leaves, and only the interval is said.
    saved
        How much it grows with the logarithm of the saving (0: it does not).
    """

    low: float
    high: float
    untold_low: float
    untold_high: float
    saved: float

    def doubt(self, saving: float) -> float:
        """Return what the ends are multiplied by.

        Parameters
        ----------
        saving
            The logarithm of the time as it is, over the estimate.
        """
        return 1 + self.saved * saving

    def around(self, estimate_us: float, now_us: float, told: float) -> tuple[float, float]:
        """Return both ends, microseconds; no fix makes a launch slower.

        Parameters
        ----------
        estimate_us, now_us
            The time after the fix, and as it is.
        told
            The part of the time whose cure the counters tell.
        """
        ends = (self.low, self.high) if told >= SAID else (self.untold_low, self.untold_high)
        doubt = self.doubt(math.log(max(now_us / estimate_us, 1.0)))
        low, high = (estimate_us * math.exp(each * doubt) for each in ends)
        return min(low, now_us), min(high, now_us)


WIDTH = Width(-0.32, 0.45, -1.2, 1.41, 0.0)
"""Measured and chosen by ``python -m studies.truth.fixes`` (the rule is in
`studies.truth.intervals`)."""


@dataclass(frozen=True)
class Estimate:
    """A time after a fix, microseconds.

    Attributes
    ----------
    time_us
        The best guess. Not to be said where `unknown` is not empty.
    low_us, high_us
        An interval that holds it in 80 %.
    unknown
        What no counter tells of what the fix leaves; empty where they tell it.
    """

    time_us: float
    low_us: float
    high_us: float
    unknown: str = ""


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
    return state_after(SlowLaunch(launch), term, left)


def state_after(state: SlowLaunch, term: str, left: float | None = None) -> float:
    """Return the same as `time_after` of a launch that estimates have seen already."""
    if term not in CURES:
        return math.nan
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
        # of work on all multiprocessors the limit is of the whole time
        return min(1.0, state.start + max((1 - state.start) * inside, limit))
    return min(1.0, state.start + (1 - state.start) * max(inside, limit))


def estimate(
    now_us: float, fraction: float, launches: Sequence[Launch], term: str
) -> Estimate | None:
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
    sure = told(launches, term)
    unknown = "" if sure >= SAID else _unknown(launches, term)
    return estimate_of(now_us * fraction, now_us, sure, unknown)


def estimate_of(
    after_us: float, now_us: float, told: float = 1.0, unknown: str = ""
) -> Estimate | None:
    """Return a time after a fix with its interval; None where nothing is saved, or all.

    Parameters
    ----------
    after_us, now_us
        After the fix, and as it is.
    told
        The part of the time whose cure is told.
    unknown
        What no counter tells.
    """
    if not 0 < after_us < now_us:
        return None
    return Estimate(after_us, *WIDTH.around(after_us, now_us, told), unknown)


def told(launches: Sequence[Launch], term: str) -> float:
    """Return the part of the time of some launches whose counters tell what a fix leaves."""
    time = sum(one.time_us for one in launches)
    sure = sum(one.time_us for one in launches if not CURES[term](SlowLaunch(one)).unknown)
    return sure / time


def _unknown(launches: Sequence[Launch], term: str) -> str:
    """Return what counters do not tell of the longest of the launches of which they do not."""
    found = {CURES[term](SlowLaunch(one)).unknown: one.time_us for one in launches}
    return max((each for each in found if each), key=lambda each: found[each])
