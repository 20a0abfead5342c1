"""What a repair of a kernel would gain: the times of its mutants over those of their controls."""

from __future__ import annotations

from dataclasses import dataclass

from perfml.experiments.mutation.catalog import MUTATIONS, OFF, RECOMPILED, WORDS, mutations_of
from perfml.experiments.responses import Responses

UNREACHED = frozenset({"cached_loads"})
"""Mutations that no source change can match: they bound the total cost of memory."""
HEAVY = 1.1
"""From this overhead on the switch is a part of what is measured, and the interval holds both."""


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
        Time over that of the control, and the interval over the rounds. Where the overhead is
        above `HEAVY` it reaches to the time over that of the kernel without a switch.
    gain_us, gain_low_us, gain_high_us
        What the launch saves at most, microseconds, and its interval.
    overhead
        Time of the control over that of the kernel's unchanged PTX: what the switch costs.
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

    @property
    def sentence(self) -> str:
        """Say the gain."""
        return (
            f"Measured ({self.words}): {100 * self.factor:.0f} % of the time"
            f" ({100 * self.low:.0f} to {100 * self.high:.0f} %), {self.gain_us:.3g} µs less"
            f" ({self.gain_low_us:.3g} to {self.gain_high_us:.3g} µs)."
        )


def repairs(responses: Responses) -> list[Repair]:
    """Return the repairs that were measured of a launch, the largest gain first.

    Upper bounds that no source change can match (`UNREACHED`) are last.
    """
    made = [
        _repair(responses, mutation) for mutation in MUTATIONS if mutation in responses.by_condition
    ]
    return sorted(made, key=lambda each: (each.mutation in UNREACHED, each.factor))


def _repair(responses: Responses, mutation: str) -> Repair:
    answer = responses.by_condition[mutation]
    control = responses.by_condition.get(f"{mutation}.{OFF}")
    overhead = 1.0 if control is None else control.ratio
    high = answer.high if overhead <= HEAVY else max(answer.high, answer.ratio * overhead)
    gain, least, most = (
        max(0.0, responses.time_us * (1 - each)) for each in (answer.ratio, high, answer.low)
    )
    words, ratios = WORDS[mutation], (answer.ratio, answer.low, high)
    return Repair(mutation, words, *ratios, gain, least, most, overhead)


def habit_of(responses: Responses, cause: str) -> Repair | None:
    """Return the repair that takes away the habit that a cause is; None where none was measured."""
    return _of(responses, mutations_of()["habits"].get(cause, ()))


def repair_of(responses: Responses, cause: str) -> Repair | None:
    """Return the repair of a cause that gains most; None where none was measured."""
    bound = _of(responses, mutations_of()["bounds"].get(cause, ()))
    return habit_of(responses, cause) or bound


def _of(responses: Responses, mutations: tuple[str, ...]) -> Repair | None:
    return next((each for each in repairs(responses) if each.mutation in mutations), None)


def recompiled(responses: Responses) -> float:
    """Return the time of the unchanged PTX over the program's own; NaN where there is none."""
    return responses.ratio(RECOMPILED)
