"""Where an explanation must not say how much a fix saves: the fix would not be of one cause."""

from __future__ import annotations

from collections.abc import Sequence

from perfml.explain.advice.fix import CannotSay
from perfml.explain.advice.only_there import is_replaced
from perfml.explain.advice.persons import Person, person_of
from perfml.explain.confidence import MOST
from perfml.explain.launches import Launch
from perfml.explain.tree.causes import ONE_SIDED
from perfml.explain.tree.told import Causes


def cannot_say(
    term: str, causes: Causes, slow: Sequence[Launch], fast: Sequence[Launch]
) -> CannotSay | None:
    """Return why the time without a cause cannot be said; None where it can.

    Parameters
    ----------
    term
        Id of the cause.
    causes
        All that differs between the sides.
    slow, fast
        Their launches.
    """
    times = [sum(one.time_us for one in side) for side in (slow, fast)]
    at = int(causes.log_ratio > 0) if times[0] >= times[1] else int(causes.log_ratio < 0)
    if _of_library(slow) != _of_library(fast) or is_replaced(term, causes, at):
        return CannotSay.ALGORITHM
    if term not in ONE_SIDED and _another(slow, fast):
        return CannotSay.ALGORITHM
    if share_of(term, causes) < MOST:
        return CannotSay.SEVERAL
    return None


def share_of(term: str, causes: Causes) -> float:
    """Return the share of a cause among all that differs, whichever side it is in favour of."""
    parts = [(each.term.id, abs(each.log_ratio)) for each in causes.totals]
    whole = sum(part for _, part in parts)
    return sum(part for name, part in parts if name == term) / whole if whole > 0 else 0.0


def _another(slow: Sequence[Launch], fast: Sequence[Launch]) -> bool:
    """Return whether most of the time is a library's kernel that the other side does without.

    Who calls it cannot cure the kernel, only have another one in its place.
    """
    longest = max(slow, key=lambda one: one.time_us, default=None)
    if longest is None or person_of(longest.kernel) is Person.AUTHOR:
        return False
    # of other types it is the same kernel
    return all(one.kernel.split("<")[0] != longest.kernel.split("<")[0] for one in fast)


def _of_library(launches: Sequence[Launch]) -> bool:
    return any(person_of(one.kernel) is not Person.AUTHOR for one in launches)
