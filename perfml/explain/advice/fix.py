"""The first thing to do about a slower side, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from perfml.explain.advice.after_fix import Estimate
from perfml.explain.certainty import IN_WORDS, Certainty
from perfml.explain.tree.causes import Term
from perfml.util.json_values import json_value
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
    certainty
        How sure the cause is that this follows.
    tells
        What would tell whether it is the cause; empty where that is firm.
    """

    side: str
    term: Term
    kernel: str
    action: str
    now_us: float
    after: Estimate | None
    unsaid: CannotSay | None = None
    certainty: Certainty = "firm"
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
        sure = "" if self.certainty == "firm" else f" ({IN_WORDS[self.certainty]})"
        told = f". What tells: {self.tells}" if self.tells and self.certainty == "open" else ""
        return (
            f"what to do in {self.side}{sure}: {self.action} {saving[0].upper()}{saving[1:]}{told}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        after = self.after
        document = {
            "side": self.side,
            "term": self.term.id,
            "kernel": self.kernel,
            "action": self.action,
            "now_us": self.now_us,
            "after_us": None if after is None or after.unknown else after.time_us,
            "after_low_us": None if after is None else after.low_us,
            "after_high_us": None if after is None else after.high_us,
            "unknown": after.unknown if after is not None and after.unknown else None,
            "unsaid": None if self.unsaid is None else self.unsaid.name.lower(),
            "certainty": self.certainty,
            "tells": self.tells,
            "sentence": self.sentence(),
        }
        cleaned: dict[str, Any] = json_value(document)
        return cleaned
