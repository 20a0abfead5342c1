"""What the fix of a cause takes away from a slow launch: the type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cure:
    """What a fix takes away.

    Attributes
    ----------
    part
        Of the time that is the cause's.
    left
        What stays of that part.
    relieved
        What stays of the busy time of units.
    work
        What stays of the instructions, and so of the other parts of the time.
    spreads
        Whether it brings work to multiprocessors that idle.
    unknown
        What of it no counter of the launch tells, in words; empty where they tell what stays.
    """

    part: float
    left: float
    relieved: Mapping[str, float] = field(default_factory=dict)
    work: float = 1.0
    spreads: bool = False
    unknown: str = ""
