"""The first thing to do about a slower side, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from perfml.explain.advice.after_fix import Estimate
from perfml.explain.confidence import IN_WORDS, Confidence
from perfml.explain.tree.causes import Term
from perfml.util.json_values import json_object
from perfml.util.words import micros_alike


class CannotSay(Enum):
    """Why the time after a fix is not said."""

    ALGORITHM = "the two sides run different algorithms"
    SEVERAL = "this cause is less than half of what differs between the sides"
    COUNTERS = "the counters of one launch do not tell"


@dataclass(frozen=True)
class Fix:
    """The first thing to do.

    Attributes
    ----------
    side
        The slower side's name.
    term
        Its largest cause that counters prove.
    kernel
        Where that cause is largest.
    action
        What to do, for the author of the kernel, or for the user of the library it is from.
    now_us
        The layer's time on that side.
    after
        Of the layer without this cause; None where that cannot be said.
    unsaid
        Why not.
    confidence
        How sure the cause is that this follows.
    tells
        What would tell whether it is the cause; empty where the confidence is high.
    """

    side: str
    term: Term
    kernel: str
    action: str
    now_us: float
    after: Estimate | None
    unsaid: CannotSay | None = None
    confidence: Confidence = "high"
    tells: str = ""

    def saving(self) -> str:
        """Say what it may save, or why that cannot be said."""
        time = self.after
        if time is None:
            why = (self.unsaid or CannotSay.COUNTERS).value
            return f"what removing this cause alone saves cannot be said: {why}"
        low, high, now, about = micros_alike(time.low_us, time.high_us, self.now_us, time.time_us)
        if time.unknown:
            most = f"{high} instead of {now}" if time.high_us < self.now_us else f"the {now} of now"
            return (
                f"without this cause between {low} and {most} in 80 % of such cases (no counter "
                f"tells {time.unknown})"
            )
        return (
            f"without this cause about {about} instead of {now} ({low} to {high} in 80 % of such "
            "cases)"
        )

    def sentence(self) -> str:
        """Say it in words."""
        saving = self.saving()
        sure = "" if self.confidence == "high" else f" ({IN_WORDS[self.confidence]})"
        told = f". To check: {self.tells}" if self.tells and self.confidence == "low" else ""
        return (
            f"what to do in {self.side}{sure}: {self.action} {saving[0].upper()}{saving[1:]}{told}"
        )

    @property
    def after_us(self) -> float | None:
        """The time after it; None where no counter tells what it leaves."""
        return None if self.after is None or self.after.unknown else self.after.time_us

    @property
    def after_low_us(self) -> float | None:
        """In 80 % of such cases the time after it lies between this and `after_high_us`."""
        return None if self.after is None else self.after.low_us

    @property
    def after_high_us(self) -> float | None:
        """See `after_low_us`."""
        return None if self.after is None else self.after.high_us

    @property
    def unknown(self) -> str | None:
        """What no counter tells, where there is an interval only."""
        return (self.after.unknown or None) if self.after is not None else None

    @property
    def unsaid_id(self) -> str | None:
        """Why there is no time: algorithm, several or counters."""
        return None if self.unsaid is None else self.unsaid.name.lower()

    JSON: ClassVar = (
        *("side", "term", "kernel", "action", "now_us", "after_us", "after_low_us"),
        *("after_high_us", "unknown", ("unsaid", "unsaid_id"), "confidence", "tells", "sentence"),
    )
    to_dict = json_object
