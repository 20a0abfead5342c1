"""Two launches that answer to each other, as the slower and the faster one; parts by cause."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfml.explain.launches import Launch
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.limits import Limit
from perfml.util.words import say

Parts = dict[str, float]


def spread(parts: Mapping[str, float], whole: float = 1.0) -> Parts:
    """Return positive parts in proportion, so that they add up to `whole`.

    Examples
    --------
    >>> spread({"a": 3.0, "b": 1.0, "c": -1.0})
    {'a': 0.75, 'b': 0.25}
    """
    total = sum(value for value in parts.values() if value > 0)
    if not total > 0 or not whole > 0:
        return {}
    return {cause: whole * value / total for cause, value in parts.items() if value > 0}


def add(parts: Mapping[str, float], others: Mapping[str, float], share: float) -> Parts:
    """Return parts with a share of others beside them.

    Examples
    --------
    >>> add({"a": 0.5}, {"a": 0.5, "b": 0.5}, 0.5)
    {'a': 0.75, 'b': 0.25}
    """
    found = dict(parts)
    for cause, value in others.items():
        if share * value > 0:
            found[cause] = found.get(cause, 0.0) + share * value
    return found


def log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers; it lies between them.

    Examples
    --------
    >>> round(log_mean(1.0, 2.0), 4)
    1.4427
    """
    step = math.log(a / b)
    return b if step == 0 else b * math.expm1(step) / step


class Pair:
    """Two launches; a mean of waves over kernels, not `single` launches, has no last wave."""

    def __init__(self, before: Launch, after: Launch, *, single: bool, ideal: bool = False) -> None:
        self.before, self.after = LaunchState.of(before), LaunchState.of(after)
        slower = after.time_us > before.time_us
        self.slow, self.fast = (self.after, self.before) if slower else (self.before, self.after)
        self.log_ratio = math.log(self.slow.launch.time_us / self.fast.launch.time_us)
        self.single, self.ideal = single, ideal
        fast, slow = self.fast["active"], self.slow["active"]
        self._active = (slow, fast) if slow > 0 and fast > 0 else (1.0, 1.0)

    def idle(self, nearest: float) -> float:
        """Return the part of the (logarithm of the) ratio that is multiprocessors without a block.

        A launch takes the mean time in which a multiprocessor has a block, over the part of its
        time that this is: what grew of either is additional, and as many that are idle on both
        sides add nothing. With all of them at work no unit would be busier than it sustains:
        `nearest` is how near to its ceiling the fullest unit of the device stands.
        """
        slow, fast = self._active
        gone = min(math.log(fast / slow), -math.log(max(nearest, 0.01)))
        return min(1.0, max(0.0, gone / self.log_ratio)) if self.log_ratio > 0 else 0.0

    def grew(self, name: str) -> float:
        """Return the logarithm of a quantity on the slow side over that on the fast side."""
        # 0 where it is not known, or nothing, on a side.
        slow, fast = self.slow[name], self.fast[name]
        return math.log(slow / fast) if slow > 0 and fast > 0 else 0.0

    def levels(self, cause: str) -> tuple[float, float]:
        """Return what a cause is on the slow and on the fast side; NaN where it has no level."""
        level = TERMS[cause].level
        return (
            (math.nan,) * 2 if level is None else (self.slow.value(level), self.fast.value(level))
        )

    def worse(self, cause: str) -> float:
        """Return how many times as bad a cause is on the slow side; NaN where that is unknown."""
        more, less = self.levels(cause)[:: -1 if TERMS[cause].falls else 1]
        return more / less if less > 0 else math.inf if more > 0 == less else math.nan

    def quantity(self, name: str) -> float:
        """Return a quantity of the pair: of a side (``slow.``, ``fast.``), ``grew.`` or ``more.``.

        What grew is a logarithm, infinite where the fast side has nothing of it, and more a
        difference. Both are NaN where the quantity is not known on both sides, or one side is the
        other's ideal: what grew was set.
        """
        side, _, quantity = name.partition(".")
        slow, fast = self.slow[quantity], self.fast[quantity]
        if side in ("slow", "fast"):
            return slow if side == "slow" else fast
        if self.ideal or math.isnan(slow + fast):
            return math.nan
        if side == "more":
            return slow - fast
        return math.inf if slow > 0 == fast else self.grew(quantity)

    def spans(self, limit: Limit) -> tuple[float, float]:
        """Return the times in which a limit can be at work, microseconds: of slow and fast side."""
        # A unit of a multiprocessor works while that has a block.
        active = (1.0, 1.0) if limit.device else self._active
        slow, fast = self.slow.launch.time_us, self.fast.launch.time_us
        return slow * active[0], fast * active[1]

    def taken(self, limit: Limit) -> tuple[float, float]:
        """Return the part of the slow side's time, and of the additional time, of a limit."""
        slow = self.slow.value(limit.time)
        if not (slow >= 0 and (fast := self.fast.value(limit.time)) >= 0):
            return 0.0, 0.0
        longer = slow * self.slow.launch.time_us - fast * self.fast.launch.time_us
        span, before = self.spans(limit)
        more = longer / (span - before) if span > before else 0.0
        return slow * self.slow.launch.time_us / span, more

    def longer(self, limit: Limit) -> float:
        """Return the logarithm by which a limit's time is longer on the slow side."""
        # Infinite where the fast side spends none there.
        slow, fast = self.slow.value(limit.time), self.fast.value(limit.time)
        if not fast > 0 or not slow > 0:
            return math.inf
        return math.log(slow * self.slow.launch.time_us / (fast * self.fast.launch.time_us))


def why_denied(pair: Pair, cause: str) -> str:
    """Return why a cause cannot be one; empty where nothing that was counted denies it."""
    term = TERMS[cause]
    # stalls are exempt: their levels are shares of a time that changed too
    if term.kind is not Kind.STALL and pair.worse(cause) < 1:
        return say("explain.denied.better")
    if not term.possible(pair.slow.launch):
        return say("explain.denied.device", least=term.capability)
    return next((why for why, one in term.beside.items() if one.number(pair.quantity) <= 0), "")
