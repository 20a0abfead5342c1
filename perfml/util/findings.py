"""What can be said of a recording, as ids and numbers: times, and numbers that show causes.

Words stand in tables and are filled in where people read; nothing here is a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from perfml.util.words import say

Of = Literal["launch", "all launches", "step", "recording"]
"""What a time is of: one launch, all of a kernel's or a layer's in one repeat, a step on
the clock, or the recording, where nothing marks steps."""


@dataclass(frozen=True)
class Time:
    """Microseconds, and what they are of; times of different things have no difference or ratio.

    Examples
    --------
    >>> Time(9.0, "all launches").without(1 / 3)
    Time(us=6.0, of='all launches')
    >>> Time(9.0, "all launches") - Time(3.0, "launch")
    Traceback (most recent call last):
    ValueError: a time of a launch is no part of one of all launches
    """

    us: float
    of: Of = "all launches"

    def without(self, part: float) -> Time:
        """Return what is left where a part of it goes; never less than nothing."""
        return replace(self, us=self.us * min(max(1 - part, 0.0), 1.0))

    def __sub__(self, other: Time) -> Time:
        return replace(self, us=self.us - self._same(other))

    def __truediv__(self, other: Time) -> float:
        return self.us / self._same(other)

    def _same(self, other: Time) -> float:
        if self.of != other.of:
            msg = f"a time of a {other.of} is no part of one of {self.of}"
            raise ValueError(msg)
        return other.us


@dataclass(frozen=True)
class Evidence:
    """A number that shows a cause: what it is, and what it would be without the cause."""

    quantity: Annotated[str, "id of a counter, or of a quantity of perfml/explain/limits"]
    slow: Annotated[float, "what it is"]
    fast: Annotated[float, "on the other side, or without the cause; null if not known"]
    unit: Annotated[str, "of both; empty for a part of something, or a ratio"] = ""
    ceiling: Annotated[float, "the most that it can be; null where nothing tells"] = math.nan


@dataclass(frozen=True)
class Remark:
    """What else to know of a result: the id of its words (``words.toml``), and what fills them."""

    id: str
    values: Mapping[str, Any] = field(default_factory=dict)

    JSON_ID: ClassVar = "text"

    @property
    def text(self) -> str:
        """What people read."""
        return say(self.id, **self.values)
