"""The first thing to do about a slower side as a result, with the time after it.

Two kinds of causes differ in what can be said. Of the first, counters tell what the fix leaves (the
bytes that lanes asked for, the lanes that work, the waves that are full): a number is said. Of the
second, they do not (how many atomics stay, how few instructions would do): only the interval is
said, and what is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from perfml.explain.advice.finding import Gain
from perfml.explain.confidence import Confidence
from perfml.explain.launches import Launch
from perfml.explain.remedies import Remedy
from perfml.explain.tree.causes import Term
from perfml.explain.tree.one_side import unknown_of
from perfml.util.findings import Time
from perfml.util.json_values import json_object
from perfml.util.words import capital, ended, micros_alike, say

SAID = 0.5
"""A number is said where counters tell what the fix leaves for so much of the time or more."""


@dataclass(frozen=True)
class Width:
    """How wide an interval is: how far its ends are from the estimate."""

    # of the logarithm of the time after the fix over the estimate, where a number is said
    low: float
    high: float
    # the same where no counter tells what the fix leaves, and only the interval is said
    untold_low: float
    untold_high: float
    saved: float  # how much it grows with the logarithm of the saving (0: it does not)

    def doubt(self, saving: float) -> float:
        """Return what the ends are multiplied by; `saving` is the logarithm of now over after."""
        return 1 + self.saved * saving

    def around(self, estimate_us: float, now_us: float, told: float) -> tuple[float, float]:
        """Return both ends, microseconds; no fix makes a launch slower.

        `told` is the part of the time whose counters tell what the fix leaves.
        """
        ends = (self.low, self.high) if told >= SAID else (self.untold_low, self.untold_high)
        doubt = self.doubt(math.log(max(now_us / estimate_us, 1.0)))
        low, high = (estimate_us * math.exp(each * doubt) for each in ends)
        return min(low, now_us), min(high, now_us)


WIDTH = Width(-0.43, 0.33, -0.65, 0.54, 0.5)
"""Measured and chosen by ``python -m studies.truth.fixes`` (the rule is in
`studies.truth.intervals`)."""


def gain_of(now: Time, saved: float, sure: float = 1.0) -> Gain | None:
    """Return what a fix saves, with its ends; None where nothing is saved, or all.

    `saved` is the part of `now` that goes, `sure` that whose counters tell what the fix leaves.
    """
    if not 0 < saved < 1:
        return None
    after = now.without(saved)
    least, most = (Time(us, now.of) for us in WIDTH.around(after.us, now.us, sure))
    return Gain(now - after, now - least, "counters", now - most)


def told(launches: Sequence[Launch], term: str) -> float:
    """Return the part of the time of some launches whose counters tell what a fix leaves."""
    time = sum(one.time_us for one in launches)
    return sum(one.time_us for one in launches if not unknown_of(one, term)) / time


def unknown_of_all(launches: Sequence[Launch], term: str) -> str | None:
    """Return what counters do not tell of the longest of the launches of which they do not.

    None where they tell it for so much of the time that a number is said.
    """
    if told(launches, term) >= SAID:
        return None
    found = {unknown_of(one, term): one.time_us for one in launches}
    return max((each for each in found if each), key=lambda each: found[each])


CannotSay = Literal["algorithm", "several", "counters"]
"""Why the time after a fix is not said."""


@dataclass(frozen=True)
class Fix:
    """The first thing to do about a slower side: what to take, what to change, what that saves."""

    side: Annotated[str, "the slower side's name"]
    term: Annotated[Term, "its largest cause that counters prove"]
    kernel: Annotated[str, "where that cause is largest"]
    remedy: Annotated[Remedy, "for the author of the kernel, or who calls it"]
    now: Annotated[Time, "the layer's time on that side"]
    gain: Annotated[Gain | None, "what goes without this cause; None if it cannot be said"]
    unsaid: Annotated[CannotSay | None, "why not"] = None
    confidence: Annotated[Confidence, "how sure the cause is that this follows"] = "high"
    tells: Annotated[str, "what would tell; empty where the confidence is high"] = ""
    unknown: str | None = None  # what no counter tells, where there is an interval only
    # what the other side ran, where who reads it can choose that, and its time
    take: str = ""
    other: Time | None = None

    @property
    def do(self) -> str:
        """What to do first, in a sentence or two."""
        if not self.take:
            return self.remedy.text
        return say("explain.fix.take", other=self.take, side=self.side)

    @property
    def stay(self) -> str:
        """What to do where the other side cannot be taken, and what that saves; else empty."""
        return f"{ended(self.remedy.text)} {capital(self.saving())}" if self.take else ""

    @property
    def action(self) -> str:
        """All that can be done."""
        return say("explain.fix.action", do=self.do, stay=self.stay)

    @property
    def saves(self) -> str:
        """What doing it saves: measured of the other side, else what removing the cause may."""
        if not self.take or self.other is None:
            return self.saving()
        us = micros_alike((self.now - self.other).us, self.now.us)
        return say("explain.fix.taken", us=us, times=self.now / self.other)

    def saving(self) -> str:
        """Say what removing the cause may save, or why that cannot be said."""
        if self.gain is None:
            why = say(f"explain.fix.{self.unsaid or 'counters'}")
            return say("explain.fix.unsaid", why=why)
        ends = self.after_low_us or 0.0, self.after_high_us or 0.0
        times = (*ends, self.now.us, self.now.us - self.likely_us)
        kind = "measured" if self.gain.known_by == "measured" else "about"
        if self.unknown:
            kind = "interval" if ends[1] < self.now.us else "open"
        return say(f"explain.fix.{kind}", us=micros_alike(*times), unknown=self.unknown)

    @property
    def likely_us(self) -> float:
        """What removing the cause is likely to save, microseconds; NaN where that is not said."""
        return math.nan if self.gain is None else self.gain.likely.us

    @property
    def most_us(self) -> float:
        """What that saves at most in 80 % of such cases; NaN where that is not said."""
        return math.nan if self.gain is None else self.gain.high.us

    @property
    def after_us(self) -> float | None:
        """The time after it; None where no counter tells what it leaves."""
        return None if self.gain is None or self.unknown else (self.now - self.gain.likely).us

    @property
    def after_low_us(self) -> float | None:
        """In 80 % of such cases the time after it lies between this and `after_high_us`."""
        return None if self.gain is None else (self.now - self.gain.high).us

    @property
    def after_high_us(self) -> float | None:
        """See `after_low_us`."""
        low = None if self.gain is None else self.gain.low
        return None if low is None else (self.now - low).us

    JSON: ClassVar = (
        *("side", "term", "kernel", "action", ("now_us", "now.us"), "after_us", "after_low_us"),
        *("after_high_us", "unknown", "unsaid", "confidence", "tells", "do", "saves", "stay"),
    )
    to_dict = json_object
