"""The time after a fix, estimated from the slow launch alone, with its interval.

Two kinds of causes differ in what can be said. Of the first, counters tell what the fix leaves (the
bytes that lanes asked for, the lanes that work, the waves that are full): a number is said. Of the
second, they do not (how many atomics stay, how few instructions would do): only the interval is
said, and what is not known. Where not even that can be said, `cannot_say` tells why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.explain.launches import Launch
from perfml.explain.tree.speedup import unknown_of

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
            The part of the time of which the counters tell what the fix leaves.
        """
        ends = (self.low, self.high) if told >= SAID else (self.untold_low, self.untold_high)
        doubt = self.doubt(math.log(max(now_us / estimate_us, 1.0)))
        low, high = (estimate_us * math.exp(each * doubt) for each in ends)
        return min(low, now_us), min(high, now_us)


WIDTH = Width(-1.03, 0.19, -1.01, 0.49, 0.5)
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
        The part of the time of which the counters tell what the fix leaves.
    unknown
        What no counter tells.
    """
    if not 0 < after_us < now_us:
        return None
    return Estimate(after_us, *WIDTH.around(after_us, now_us, told), unknown)


def told(launches: Sequence[Launch], term: str) -> float:
    """Return the part of the time of some launches whose counters tell what a fix leaves."""
    time = sum(one.time_us for one in launches)
    return sum(one.time_us for one in launches if not unknown_of(one, term)) / time


def _unknown(launches: Sequence[Launch], term: str) -> str:
    """Return what counters do not tell of the longest of the launches of which they do not."""
    found = {unknown_of(one, term): one.time_us for one in launches}
    return max((each for each in found if each), key=lambda each: found[each])
