"""Two accounts of a step compared: the verdict of the clock, and the difference in microseconds.

Here to change: when two sides differ (`StepComparison.verdict`). What may be a cause stands in
``perfml/account/causes.toml``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from perfml.account.account import SUM, Account
from perfml.account.causes import LAUNCH_BOUND, TIMES, Change, amounts, causes, changes
from perfml.explain.confidence import Confidence, TimeVerdict, confidence_of, probability
from perfml.explain.remedies import Remedy, of_account, remedy_for
from perfml.explain.times import Ratio
from perfml.util.findings import Evidence
from perfml.util.json_values import json_object

_ALONE = 1.5
"""A ratio of one step a side is claimed from here on: first steps of 22 recordings of 2026-11-25
take up to 1.4 times the later ones where they are not warm-up."""
_TWO = 2
"""Two equal steps a side lie apart by more than this many times their own scatter in 4 % of pairs,
by more than once in 9 % (200,000 drawn, normal and exponential); two beside three in 3 %."""
CLOSE = 0.05
"""Steps within 5 % of each other are no difference, as layers are (`perfml.explain.times`)."""
_RANKED, _MEDIANS = 4, 3
"""Steps a side from which on ranks decide: with four, two sides that lie apart have p = 0.029. Of
three the medians do."""
_COUNTED = 2500  # pairs of steps up to which orders are counted; of more they are near normal
_PROFILED = 1.39
"""Kineto makes a step longer by this factor in the median of 40 (H200, 2026-11-28), where the host
is the limit: so much more time to launch the same kernels is no difference of programs."""
AT_MOST = 2.24
"""And by this one at most: so much says nothing where all else differs the other way."""
LAUNCHING = next(each.idle for each in causes() if each.id == LAUNCH_BOUND)
"""States of the host in which it launches, and does no more."""
_GIVEN = {
    "operand_elements": "elements",
    "operand_bytes": "bytes",
    "off_row_elements": "off_rows",
    "step_threads": "threads",
}
"""What operators were given and launched, by the id of the quantity."""
Effect = Literal["against", "longer"]
"""What a profiler alone may do: launching takes longer where all else differs the other way, or
where nothing else differs."""
_TICK_US = 1e-3  # of the clocks of profilers
_SHOWN = 0.1  # a smaller part of a step is no headline
_NAMED = 0.02  # what makes less of the difference is told in one row


@dataclass(frozen=True)
class StepComparison:
    """Two sides on the clock."""

    names: tuple[str, str]
    baseline: Account
    target: Account
    capability: float = math.nan  # compute capability of the slower side's device
    bandwidth: float = math.nan  # of its memory, GB/s
    # how often the target was recorded to launch what the baseline launches once
    often: float = 1.0

    @cached_property
    def _sides(self) -> tuple[Account, Account]:
        """Both without the profiler's own time, where steps of both were timed without it."""
        if self.alone:
            return self.baseline.bare, self.target.bare
        return self.baseline, self.target

    @property
    def alone(self) -> bool:
        """Whether the steps of both sides were timed without a profiler."""
        return None not in (self.baseline.bare_us, self.target.bare_us)

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of the target's step over the baseline's."""
        one, other = (max(side.step_us, _TICK_US) for side in self._sides)
        return math.log(other / one)

    @property
    def _of_the_clock(self) -> TimeVerdict:
        return _verdict(*map(_walls, self._sides))

    @property
    def repeats(self) -> tuple[int, int]:
        """How many steps count on either side."""
        one, other = self._sides
        return len(one.kept_us), len(other.kept_us)

    @cached_property
    def verdict(self) -> TimeVerdict:
        """``slower``, ``faster``, ``no difference`` or ``undecided``."""
        found = self._of_the_clock
        if self._chance_us and found in ("slower", "faster"):
            certain = max(self._sides[1].step_us - self._chance_us, _TICK_US)
            if abs(math.log(certain / max(self._sides[0].step_us, _TICK_US))) <= math.log(_ALONE):
                return "undecided"
        if self.profiler:
            return "no difference" if found == "no difference" else "undecided"
        return found

    @cached_property
    def idle(self) -> tuple[bool, bool]:
        """Whether the device of either side is idle most of the time."""
        one, other = (side.busiest.step.idle_us > side.step_us / 2 for side in self._sides)
        return one, other

    @property
    def lengthened(self) -> bool:
        """Whether both sides are mostly idle under a profiler, which makes that longer."""
        return all(self.idle) and not self.alone

    @cached_property
    def profiler(self) -> Effect | None:
        """What a profiler alone may have done to the times of idle devices; None if nothing."""
        if self.alone:
            return None
        launching = sum(each.us for each in self.changes if each.id == LAUNCH_BOUND)
        rest, least = self.difference_us - launching, CLOSE * min(e.step_us for e in self._sides)
        factor = math.exp(abs(self.log_ratio))
        if abs(rest) > least:
            against = rest * self.difference_us < 0 and any(self.idle) and factor < AT_MOST
            return "against" if against else None
        launches = [side.busiest.launches for side in self._sides]
        alike = math.isclose(*launches, rel_tol=CLOSE) and factor < _PROFILED
        return "longer" if alike and all(self.idle) else None

    @property
    def doubt(self) -> Literal["one", "overlap"] | Effect | None:
        """Why the clock does not decide; None where it does."""
        if self.verdict != "undecided":
            return None
        if max(self.repeats) == 1:
            return "one"
        return "overlap" if self._of_the_clock == "undecided" else self.profiler

    @property
    def _by_speed(self) -> tuple[Account, Account]:
        """Both sides, the slower one last."""
        return self._sides if self._sign > 0 else self._sides[::-1]

    @property
    def _sign(self) -> float:
        """The direction of what differs: above 0 the target has more of it."""
        sign = math.copysign(1.0, self.difference_us)
        return -sign if self.profiler == "against" else sign

    @cached_property
    def parts(self) -> dict[str, float]:
        """What the target's step takes more of, in microseconds that add up to the difference.

        Of one step a side the longest idle time is one event of the host, and equal bytes are
        copied: neither is a difference.
        """
        before, after = (side.busiest for side in self._sides)
        names = ("computing_us", "copying_us", "both_us", "idle_us")
        parts = {name: getattr(after.step, name) - getattr(before.step, name) for name in names}
        return parts | {"other_us": self.difference_us - math.fsum(parts.values())}

    @property
    def between_us(self) -> float:
        """The difference of copies and idle time, without what one sample a side cannot prove."""
        return self.parts["copying_us"] + self.parts["idle_us"] - self._chance_us

    @property
    def _chance_us(self) -> float:
        """Of the difference, what one sample a side cannot prove: one wait, equal copies."""
        copies, idle = self.parts["copying_us"], self.parts["idle_us"]
        if max(self.repeats) > 1:
            return 0.0
        before, after = (side.busiest for side in self._sides)
        moved = [sum(each.bytes for each in side.copies) for side in (before, after)]
        if not any(moved):  # of unknown size: as many copies may be equal ones
            moved = [sum(each.times for each in side.copies) for side in (before, after)]
        event = abs(after.step.longest_us - before.step.longest_us)
        alike = copies if math.isclose(*moved, rel_tol=CLOSE) else 0.0
        return alike + math.copysign(min(abs(idle), event), idle)

    @property
    def leads(self) -> bool:
        """Whether the clock says more than times of kernels do.

        It does of steps that both sides mark, where there are no kernels, and where more than a
        third of what differs passes between them.
        """
        if not any(each.busiest.launches for each in self._sides):
            return True
        if all(each.host and each.marked_by for each in self._sides):
            return True
        large = abs(self.between_us) >= _SHOWN * min(side.step_us for side in self._sides)
        return large and abs(self.between_us) > abs(self.parts["computing_us"]) / 2

    @property
    def total(self) -> Ratio:
        """The ratio of a step on the clock, with its interval from four steps a side."""
        low, high = bounds_of(*map(_walls, self._sides)) or (None, None)
        return Ratio(
            baseline_us=self._sides[0].step_us,
            target_us=self._sides[1].step_us,
            log_ratio=self.log_ratio,
            log_low=low,
            log_high=high,
            repeats=self.repeats,
            verdict=self.verdict,
            of="clock",
        )

    @property
    def difference_us(self) -> float:
        """What the target's step takes more, in microseconds."""
        return self._sides[1].step_us - self._sides[0].step_us

    @cached_property
    def changes(self) -> list[Change]:
        """What that is made of; adds up to it, the first cause first."""
        return changes(*self._sides)

    @property
    def first(self) -> Change | None:
        """The largest part that goes the same way; None where the sides do not differ."""
        near = self.verdict == "undecided" and abs(self.log_ratio) <= math.log1p(CLOSE)
        if near or self.verdict == "no difference":
            return None
        along = [each for each in self.changes if self._sign * each.us > 0]
        along.sort(key=lambda each: -abs(each.us))
        if self.lengthened and self._as_much_longer:  # what the GPU computes tells more than that
            shorter = min(side.step_us for side in self._sides)
            others = (each for each in along if each.id != LAUNCH_BOUND)
            along = [*(o for o in others if abs(o.us) >= _NAMED * shorter), *along]
        return next(iter(along), None)

    @property
    def _as_much_longer(self) -> bool:
        """Whether a profiler alone may make launching take as much longer."""
        times = [
            sum(each.us for each in side.busiest.idle if each.state in LAUNCHING)
            for side in self._sides
        ]
        return max(times) < _PROFILED * min(times)

    @property
    def confidence(self) -> Confidence:
        """How sure the first cause is."""
        return confidence_of(self.probability)

    @property
    def probability(self) -> float:
        """That the first cause is right: as counted (`perfml.explain.confidence.COUNTED`).

        0 where the clock does not decide, or no cause has a name.
        """
        named = self.first is not None and self.first.named
        return probability("step") if named and self.verdict in ("slower", "faster") else 0.0

    @property
    def numbers(self) -> tuple[Evidence, ...]:
        """What the first cause takes of a step on the slower side and on the other."""
        first = self.first
        if first is None:
            return ()
        fast, slow = self._by_speed
        if first.cause is None:
            return self._of_operands(first)
        one, other = (amounts(side, side.busiest)[first.id] for side in (slow, fast))
        return tuple(
            Evidence(name, us, getattr(other, name), "us", slow.step_us)
            for name in TIMES
            if (us := getattr(one, name))
        )

    def _of_operands(self, first: Change) -> tuple[Evidence, ...]:
        """Return what the longest operator of a change was given, and at which rate it read it."""
        if not first.sides:
            return ()
        one, other = first.sides if self._sign < 0 else first.sides[::-1]
        found = [Evidence("computing_us", one.us, other.us, "us", self._by_speed[1].step_us)]
        found += (
            Evidence(name, slow, fast)
            for name, amount in _GIVEN.items()
            if (slow := getattr(one, amount)) and (fast := getattr(other, amount))
        )
        if one.bytes and other.bytes and one.us and other.us:
            slow, fast = (each.bytes / each.us / 1e3 for each in (one, other))
            found.append(Evidence("operand_rate", slow, fast, "GB/s", self.bandwidth))
        return tuple(found)

    @property
    def unlike(self) -> Evidence | None:
        """The first number of operands or launches that differs."""
        known = () if self.first is None else self._of_operands(self.first)[1:]
        close = (math.isclose(e.slow, e.fast, rel_tol=CLOSE / 2) for e in known)
        return next((e for e, same in zip(known, close, strict=True) if not same), None)

    @property
    def rows(self) -> list[tuple[str, float]]:
        """The parts of the difference by the ids of their causes, microseconds; they add up.

        ``rest`` is what is too small for a row, ``all`` the difference.
        """
        least = _NAMED * max(abs(each.us) for each in self.changes) if self.changes else 0.0
        rows = [(each.id, each.us) for each in self.changes if abs(each.us) >= least]
        rest = self.difference_us - math.fsum(us for _, us in rows)
        rest = 0.0 if abs(rest) < 1e-6 * self._sides[1].step_us else rest  # what rounding leaves
        return [*rows, ("rest", rest), ("all", self.difference_us)]

    @property
    def unit(self) -> str:
        """What is compared (`perfml.account.account.Account.unit`), or of what it is the sum."""
        known = (side.unit for side in self._sides if side.unit not in ("recording", SUM))
        return next(known, "recording")

    @property
    def summed(self) -> bool:
        """Whether sums of times are compared: nobody knows when anything ran."""
        return self._sides[0].unit == SUM

    @property
    def slower(self) -> str:
        """The name of the side that takes longer."""
        return self.names[1] if self._sign > 0 else self.names[0]

    @cached_property
    def remedy(self) -> Remedy:
        """What to do about the first cause on the slower side."""
        slow = self._by_speed[1]
        kernel = "" if self.first is None else self.first.kernel
        here = replace(of_account(slow, self.capability), kernel=kernel)
        return Remedy() if self.first is None else remedy_for(self.first.id, here)

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
        return self.remedy.line or None

    JSON: ClassVar = (
        *(("baseline_us", "total.baseline_us"), ("target_us", "total.target_us"), "ratio"),
        *("verdict", "difference_us", "first_cause", "confidence", "probability"),
        *("numbers", ("do", "command"), "changes"),
    )
    to_dict = json_object


def _walls(account: Account) -> list[float]:
    """Return the steps that count; one that the device did beside the one before takes a tick."""
    return [max(us, _TICK_US) for us in account.kept_us]


def bounds_of(one: Sequence[float], other: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the logarithm of the other's step over the one's.

    None with fewer than four steps a side. It is the interval of Hodges and Lehmann (1963) of the
    ratios of all pairs. It leaves 1 out where the rank test of Mann and Whitney has p < 0.05.
    """
    if min(len(one), len(other)) < _RANKED:
        return None
    ratios = np.sort((np.log(np.asarray(other))[:, None] - np.log(np.asarray(one))).ravel())
    place = _fewest(len(one), len(other))
    return float(ratios[place - 1]), float(ratios[-place])


def _verdict(one: Sequence[float], other: Sequence[float]) -> TimeVerdict:
    apart, near = math.log(statistics.median(other) / statistics.median(one)), math.log1p(CLOSE)
    scatter = max(math.log(max(side) / min(side)) for side in (one, other))
    if (bounds := bounds_of(one, other)) is not None:
        low, high = bounds
        differs = (low > 0 or high < 0) and abs(apart) > near
        alike = max(-low, high) <= near
    else:
        # Three steps are too few for an interval: those of one side have to be longer than all of
        # the other side's, and the medians further apart than the steps of either side.
        few = min(len(one), len(other)) < _MEDIANS
        least = max(scatter * (_TWO if max(len(one), len(other)) == 2 else 1), near)
        least = max(least, math.log(_ALONE)) if min(len(one), len(other)) == 1 else least
        gap = math.log(max(min(other) / max(one), min(one) / max(other)))
        differs = gap > least if few else gap > 0 and abs(apart) > least
        alike = abs(apart) <= near and scatter <= near
    if differs:
        return "slower" if apart > 0 else "faster"
    return "no difference" if alike else "undecided"


def _fewest(one: int, other: int) -> int:
    """Return how many pairs lie outside the 95 % interval at either end, and one more."""
    # how many orders of both sides' steps have each number of inversions (Mann and Whitney 1947)
    pairs = one * other
    if pairs > _COUNTED:
        spread = math.sqrt(pairs * (one + other + 1) / 12)
        return max(1, round(pairs / 2 - 1.96 * spread))
    orders = np.zeros(pairs + 1)
    orders[0] = 1.0
    for step in range(1, one + 1):
        if other + step <= pairs:
            orders[other + step :] -= orders[: -(other + step)].copy()
        for first in range(step):
            orders[first::step] = np.cumsum(orders[first::step])
    tail = np.cumsum(orders) / orders.sum()
    return max(1, int(np.searchsorted(tail, 0.025, side="right")))
