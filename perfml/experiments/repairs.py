"""What a repair of a kernel would gain: the times of its mutants over those of their controls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfml.experiments.mutation.programs import (
    MUTATIONS,
    OFF,
    RECOMPILED,
    WORDS,
    mutations_of,
)
from perfml.experiments.responses import Responses

UNREACHED = frozenset({"cheap_functions"})
"""Mutations that no source change can match: they bound what functions cost in all."""
CLEAN = 0.03
"""A control is clean if its time is the program's kernel's within this share: of 259 mutants of
2026-11-25 (H100 and H200) 216 controls are. With another one the mutant has no number. Four saved
time beside a control that was 3 to 10 % slower: one was near the real repair (0.49 for 0.48), three
were wrong by a factor of two and more (``studies/experiments``, 2026-11-29)."""


@dataclass(frozen=True)
class Repair:
    """The measured bound of a repair: the launch without one habit of its kernel.

    Attributes
    ----------
    mutation
        Id of what was taken out (`WORDS`).
    words
        The same in words.
    factor, low, high
        Time over that of the control, and the interval over the rounds.
    gain_us, gain_low_us, gain_high_us
        What the launch saves at most, microseconds, and its interval.
    overhead
        Time of the control over that of the program's kernel: what the switch and the driver's
        compiler make of it.
    changed
        Part of the words that the kernel writes which are others without the habit; NaN where that
        was not compared.
    """

    mutation: str
    words: str
    factor: float
    low: float
    high: float
    gain_us: float
    gain_low_us: float
    gain_high_us: float
    overhead: float
    changed: float = math.nan

    @property
    def sentence(self) -> str:
        """Say the gain, and what it changes of the results."""
        gain = (
            f"Measured ({self.words}): {100 * self.factor:.0f} % of the time"
            f" ({100 * self.low:.0f} to {100 * self.high:.0f} %), {self.gain_us:.3g} µs less"
            f" ({self.gain_low_us:.3g} to {self.gain_high_us:.3g} µs)."
        )
        return (
            f"{gain} It changes {100 * self.changed:.2g} % of the results."
            if self.changed > 0
            else gain
        )

    @property
    def proves(self) -> bool:
        """Whether it surely saves time, beside a clean control, and a change can match it."""
        return self.high < 1 - CLEAN and self.mutation not in UNREACHED


def repairs(responses: Responses) -> list[Repair]:
    """Return the repairs that were measured, the largest gain first.

    The control of a mutant is clean, and a mutant that saves time executes the same blocks as often
    as it does. Upper bounds that no source change can match (`UNREACHED`) are last.
    """
    made = [each for each in _tried(responses) if not _why_without(responses, each)]
    return sorted(made, key=lambda each: (each.mutation in UNREACHED, each.factor))


def without_number(responses: Responses) -> list[tuple[str, str]]:
    """Return the mutations that were tried and have no number, and why."""
    tried = ((each.mutation, _why_without(responses, each)) for each in _tried(responses))
    return [(mutation, why) for mutation, why in tried if why]


def _why_without(responses: Responses, repair: Repair) -> str:
    if not abs(repair.overhead - 1) <= CLEAN:
        less = repair.overhead * repair.high < 1 - CLEAN
        hint = f"; even so it takes {repair.overhead * repair.factor:.2f} of its time"
        why = f"its control takes {repair.overhead:.2f} times as long as the kernel"
        return why + hint * (less and repair.mutation not in UNREACHED)
    if repair.mutation == "no_barriers" and f"no_barriers.{OFF}" in responses.by_condition:
        return "it was recorded with a switch, past which the compiler moves no load"
    condition = responses.launch.condition(repair.mutation)
    if condition is not None and condition.same_path is False:
        return "it executes other blocks, or the same ones more or less often"
    return ""


def _tried(responses: Responses) -> list[Repair]:
    names = responses.by_condition
    return [_repair(responses, mutation) for mutation in MUTATIONS if mutation in names]


def _repair(responses: Responses, mutation: str) -> Repair:
    answer = responses.by_condition[mutation]
    control = responses.by_condition.get(f"{mutation}.{OFF}")
    overhead = recompiled(responses) * (1.0 if control is None else control.ratio)
    ratio, low, high = answer.ratio, answer.low, answer.high
    gain, most, least = (max(0.0, responses.time_us * (1 - each)) for each in (ratio, low, high))
    condition = responses.launch.condition(mutation)
    changed = math.nan if condition is None else condition.changed
    return Repair(mutation, WORDS[mutation], ratio, low, high, gain, least, most, overhead, changed)


def habit_of(responses: Responses, cause: str) -> Repair | None:
    """Return the repair that takes away the habit that a cause is; None where none was measured."""
    return _of(responses, mutations_of()["habits"].get(cause, ()))


def repair_of(responses: Responses, cause: str) -> Repair | None:
    """Return the repair of a cause that gains most; None where none was measured."""
    known = mutations_of()
    names = (*known["habits"].get(cause, ()), *known["bounds"].get(cause, ()))
    return _of(responses, names)


def _of(responses: Responses, mutations: tuple[str, ...]) -> Repair | None:
    return next((each for each in repairs(responses) if each.mutation in mutations), None)


def recompiled(responses: Responses) -> float:
    """Return the time of the unchanged PTX over the program's own; NaN where there is none."""
    return responses.ratio(RECOMPILED)
