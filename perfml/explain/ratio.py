"""The ratio of two times with its interval, its verdict, and the sentence that says them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from perfml.explain.confidence import TimeVerdict
from perfml.util.json_values import json_object
from perfml.util.words import Readable, number, ratio_text


@dataclass(frozen=True)
class Ratio:
    """Target time over baseline time.

    Attributes
    ----------
    baseline_us, target_us
        Geometric means over the repeats, microseconds.
    log_ratio
        Natural logarithm of target over baseline; above 0 the target is slower.
    log_low, log_high
        Interval of `log_ratio`; None without repeats on both sides.
    repeats
        Of the baseline and of the target.
    verdict
        ``slower``, ``faster``, ``no difference``, or ``undecided`` where the repeats scatter too
        much to say.
    processes
        Of the baseline and of the target. The interval covers the scatter between processes only
        where both sides have several.
    p_value
        Of a difference beyond the tolerance, for this ratio alone; None without an interval.
    compared
        How many ratios were judged together (`perfml.explain.times.corrected_verdicts`).
    unclaimed
        Why nothing is claimed of these times, as the beginning of a sentence; empty else.
    """

    baseline_us: float
    target_us: float
    log_ratio: float
    log_low: float | None
    log_high: float | None
    repeats: tuple[int, int]
    verdict: TimeVerdict
    processes: tuple[int, int] = (1, 1)
    p_value: float | None = None
    compared: int = 1
    unclaimed: str = ""

    JSON: ClassVar = (
        *("baseline_us", "target_us", "ratio", "interval", "log_ratio", "repeats", "processes"),
        *("scope", "p_value", "compared", "verdict"),
    )

    @property
    def scope(self) -> str | None:
        """What the interval covers, in words; None without one."""
        if self.interval is None:
            return None
        if min(self.processes) > 1:
            return f"over {self.processes[0]} and {self.processes[1]} processes"
        return "within one process"

    @property
    def ratio(self) -> float:
        """Target over baseline."""
        return math.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of `ratio`, or None."""
        if self.log_low is None or self.log_high is None:
            return None
        return math.exp(self.log_low), math.exp(self.log_high)

    def sentence(self) -> str:
        """Say it in words."""
        where, ratio = self.interval, ratio_text(self.ratio)
        if self.unclaimed:
            return f"{self.unclaimed} (ratio {ratio})"
        if where is None:
            sure = "no interval: it takes two repeats or more on both sides"
        else:
            sure = f"95 % interval {ratio_text(where[0])} to {ratio_text(where[1])} {self.scope}"
        if self.verdict == "undecided" and where is None:
            return f"undecided: one launch is not exact to this (ratio {ratio}; {sure})"
        if self.verdict == "undecided" and where is not None:
            repeats_tell = (self.p_value or 0.0) * self.compared <= 0.05
            if min(self.processes) == 1 and (where[0] - 1) * (where[1] - 1) > 0 and repeats_tell:
                told = "two processes of one program differ by as much"
                return f"undecided: {told} (ratio {ratio}, {sure})"
            many = f" for {self.compared} layers judged together" if self.compared > 1 else ""
            return f"undecided: the repeats scatter too much{many} (ratio {ratio}, {sure})"
        if self.verdict == "no difference":
            if where is None:
                return f"no difference (ratio {ratio}; {sure})"
            most = max(abs(math.expm1(bound)) for bound in (self.log_low or 0, self.log_high or 0))
            shown = f"one above {Readable(most):.1%} would show"
            return f"no difference (ratio {ratio}, {sure}; {shown})"
        fast = f", {number(1 / self.ratio)} times as fast" if self.ratio < 1 else ""
        return f"{self.verdict}: {ratio} times the baseline's time{fast} ({sure})"

    to_dict = json_object
