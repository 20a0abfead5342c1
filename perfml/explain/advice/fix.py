"""The first thing to do about a slower side, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfml.explain.advice.after_fix import Estimate
from perfml.explain.counters.terms import Term
from perfml.util.json_values import json_value
from perfml.util.words import micros


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
        Of the layer without this cause; None where one side's counters cannot tell.
    """

    side: str
    term: Term
    kernel: str
    action: str
    now_us: float
    after: Estimate | None

    def saving(self) -> str:
        """Say what it may save; empty where that cannot be told."""
        time = self.after
        if time is None:
            return ""
        return (
            f"without this cause about {micros(time.time_us)} instead of "
            f"{micros(self.now_us)} ({micros(time.low_us)} to "
            f"{micros(time.high_us)} in 80 % of such cases)"
        )

    def sentence(self) -> str:
        """Say it in words."""
        saving = self.saving()
        text = f"what to do in {self.side}: {self.action}"
        return f"{text} {saving[0].upper()}{saving[1:]}" if saving else text

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        after = self.after
        document = {
            "side": self.side,
            "term": self.term.id,
            "kernel": self.kernel,
            "action": self.action,
            "now_us": self.now_us,
            "after_us": None if after is None else after.time_us,
            "after_low_us": None if after is None else after.low_us,
            "after_high_us": None if after is None else after.high_us,
            "sentence": self.sentence(),
        }
        cleaned: dict[str, Any] = json_value(document)
        return cleaned
