"""Two accounts of a step compared: the verdict of the clock, and the difference in microseconds.

Here to change: when two sides differ (`StepComparison.verdict`). What may be a cause, and what to
do about it, stands in ``perfml/account/causes.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from perfml.account.account import Account
from perfml.account.causes import Change, changes
from perfml.account.words import step_sentence
from perfml.explain.confidence import MOST, Confidence, TimeVerdict
from perfml.explain.times import Ratio
from perfml.util.json_values import json_object
from perfml.util.words import Readable, micros, multiple

_ALONE = 1.5
"""A ratio of one step a side is claimed from here on: first steps of 22 recordings of 2026-11-25
take up to 1.4 times the later ones where they are not warm-up."""
_CLOSE = 0.05
"""Steps within 5 % of each other are no difference, as layers are (`perfml.explain.times`)."""
_SHOWN = 0.1  # a smaller part of a step is no headline
_WHOLE = 1.1  # from here on a cause is no share of the difference, as others work against it
_NAMED = 0.02  # what makes less of the difference is told in one row


@dataclass(frozen=True)
class StepComparison:
    """Two sides on the clock."""

    names: tuple[str, str]
    baseline: Account
    target: Account

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of the target's step over the baseline's."""
        return math.log(self.target.step_us / self.baseline.step_us)

    @property
    def repeats(self) -> tuple[int, int]:
        """How many steps count on either side."""
        return len(self.baseline.kept_us), len(self.target.kept_us)

    @cached_property
    def verdict(self) -> TimeVerdict:
        """``slower``, ``faster``, ``no difference`` or ``undecided``."""
        # Three steps are too few for an interval. A side is slower if each of its steps takes
        # longer than all of the other side's, by more than the steps of either side differ.
        return _verdict(self.baseline.kept_us, self.target.kept_us, self.log_ratio)

    @cached_property
    def parts(self) -> dict[str, float]:
        """What the target's step takes more of, in microseconds that add up to the difference.

        Of one step a side the longest idle time is one event of the host, and equal bytes are
        copied: neither is a difference.
        """
        before, after = self.baseline.busiest, self.target.busiest
        names = ("computing_us", "copying_us", "both_us", "idle_us")
        parts = {name: getattr(after.step, name) - getattr(before.step, name) for name in names}
        return parts | {"other_us": self.difference_us - math.fsum(parts.values())}

    @property
    def between_us(self) -> float:
        """The difference of copies and idle time, without what one sample a side cannot prove."""
        copies, idle = self.parts["copying_us"], self.parts["idle_us"]
        before, after = self.baseline.busiest, self.target.busiest
        if max(self.repeats) == 1:
            moved = [sum(each.bytes for each in side.copies) for side in (before, after)]
            copies = 0.0 if math.isclose(*moved, rel_tol=_CLOSE) else copies
            chance = after.step.longest_us - before.step.longest_us
            idle = math.copysign(max(abs(idle) - abs(chance), 0.0), idle)
        return copies + idle

    @property
    def leads(self) -> bool:
        """Whether the clock says more than times of kernels do.

        It does of steps that both sides mark, and where more than a third of what differs passes
        between kernels.
        """
        if self.baseline.host and self.target.host and self.baseline.marked_by:
            return True
        large = abs(self.between_us) >= _SHOWN * min(self.baseline.step_us, self.target.step_us)
        return large and abs(self.between_us) > abs(self.parts["computing_us"]) / 2

    @property
    def total(self) -> Ratio:
        """The ratio of a step on the clock, which has no interval."""
        return Ratio(
            baseline_us=self.baseline.step_us,
            target_us=self.target.step_us,
            log_ratio=self.log_ratio,
            log_low=None,
            log_high=None,
            repeats=self.repeats,
            verdict=self.verdict,
        )

    @property
    def difference_us(self) -> float:
        """What the target's step takes more, in microseconds."""
        return self.target.step_us - self.baseline.step_us

    @cached_property
    def changes(self) -> list[Change]:
        """What that is made of; adds up to it, the first cause first."""
        return changes(self.baseline, self.target)

    @property
    def first(self) -> Change | None:
        """The largest part of the difference that has a cause and goes the same way."""
        sign = math.copysign(1.0, self.difference_us)
        return next((each for each in self.changes if sign * each.us > 0), None)

    @property
    def confidence(self) -> Confidence:
        """How sure the first cause is."""
        first = self.first
        if first is None or self.verdict not in ("slower", "faster"):
            return "low"
        large = abs(first.us) >= MOST * abs(self.difference_us)
        return "high" if large and first.cause is not None else "medium"

    @property
    def slower(self) -> str:
        """The name of the side that takes longer."""
        return self.names[1] if self.difference_us >= 0 else self.names[0]

    def sentence(self) -> str:
        """Say how long a step takes on either side, and the verdict."""
        one, other = micros(self.target.step_us), micros(self.baseline.step_us)
        times = f"a step takes {one} on the clock against {other}"
        return f"{self.verdict}: {times} ({multiple(math.exp(self.log_ratio))}){self._doubt()}"

    def _doubt(self) -> str:
        if self.verdict != "undecided":
            return ""
        if max(self.repeats) == 1:
            return ": one step of each side cannot tell"
        return ": the recorded steps of the sides overlap, or differ by as much"

    def cause(self) -> str | None:
        """Say the first cause with its part of the difference; None where nothing differs."""
        first = self.first
        if first is None:
            return None
        where = f", most in {first.where}" if first.where else ""
        on = f" ({', '.join(first.operators)})" if first.operators else ""
        said = f"in {self.slower} {first.words}{on}{where}: {micros(abs(first.us))}"
        share = first.us / self.difference_us
        if share > _WHOLE:
            over = abs(first.us) - abs(self.difference_us)
            return f"{said} more, of which the rest makes up for {micros(over)}"
        return f"{said} of the {micros(abs(self.difference_us))} ({Readable(share):.0%})"

    def action(self) -> str | None:
        """Return what to do about the first cause: a line to type, and why."""
        first = self.first
        return None if first is None else f"in {self.slower}: {first.row.action(self._slow)}"

    @property
    def _slow(self) -> Account:
        return self.target if self.difference_us >= 0 else self.baseline

    def rows(self) -> list[tuple[str, float]]:
        """Return the parts of the difference in words and microseconds; they add up to it."""
        least = _NAMED * max(abs(each.us) for each in self.changes) if self.changes else 0.0
        rows = [(each.words, each.us) for each in self.changes if abs(each.us) >= least]
        rest = self.difference_us - sum(us for _, us in rows)
        return [*rows, ("all else", rest), ("the whole step", self.difference_us)]

    def notes(self) -> tuple[str, ...]:
        """Say it of each side."""
        sides = zip((self.baseline, self.target), self.names, strict=True)
        return tuple(step_sentence(side, name) for side, name in sides)

    @property
    def ratio(self) -> float:
        """The target's step over the baseline's."""
        return math.exp(self.log_ratio)

    @property
    def first_cause(self) -> str | None:
        """Id of the first cause; None where nothing differs."""
        return None if self.first is None else self.first.id

    @property
    def command(self) -> str | None:
        """A line to type on the slower side."""
        return None if self.first is None else self.first.row.line(self._slow)

    JSON: ClassVar = (
        *(("baseline_us", "baseline.step_us"), ("target_us", "target.step_us"), "ratio"),
        *("verdict", "difference_us", "first_cause", "confidence", ("do", "command"), "changes"),
    )
    to_dict = json_object


def _verdict(one: Sequence[float], other: Sequence[float], log_ratio: float) -> TimeVerdict:
    scatter = max(max(side) / min(side) for side in (one, other))
    if max(len(one), len(other)) == 1:
        scatter = _ALONE
    apart = max(min(other) / max(one), min(one) / max(other))
    if apart > max(scatter, 1 + _CLOSE):
        return "slower" if log_ratio > 0 else "faster"
    close = abs(log_ratio) <= math.log1p(_CLOSE) and scatter <= 1 + _CLOSE
    return "no difference" if close else "undecided"
