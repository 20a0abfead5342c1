"""What ``perfml prove`` found, as dataclasses: its JSON is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from perfml.errors import PerfmlError
from perfml.experiments.findings import Examination, Finding, examine
from perfml.experiments.limits import Breakdown, breakdown
from perfml.experiments.mutation.catalog import WORDS
from perfml.experiments.record import Experiments
from perfml.experiments.repairs import Repair, recompiled, repairs, without_number
from perfml.experiments.responses import LEVEL, Responses, responses
from perfml.experiments.verdicts import LIMITS_OF, Verdict, verdict
from perfml.util.json_values import json_object


@dataclass(frozen=True)
class SkippedLaunch:
    """A launch, or a mutant of it, that was not measured."""

    kernel: str
    reason: str


@dataclass(frozen=True)
class LaunchProof:
    """A launch, what limits it, how it answered and what repairs would gain.

    Attributes
    ----------
    answer
        To the conditions of the experiments, and to the mutants.
    cause
        That was asked for.
    replay
        What lay between two launches that were timed: nothing (``warm``), what the launch writes
        was put back (``restored``), L2 was emptied besides (``cold``).
    limit
        That makes half of the time; null where none does.
    shares
        Limit to its share of the time; they add up to 1. Null where fewer multiprocessors were
        refused.
    verdict
        On the cause that was asked for.
    repairs
        Measured with its mutants, the largest gain first.
    recompiled
        Time of its unchanged PTX, compiled by the driver, over its own; null without PTX.
    """

    answer: Responses
    cause: str | None

    @cached_property
    def breakdown(self) -> Breakdown:
        """The shares of its time."""
        return breakdown(self.answer)

    @cached_property
    def verdict(self) -> Verdict | None:
        """On the cause; None where none was asked for."""
        return None if self.cause is None else verdict(self.answer, self.cause)

    @cached_property
    def repairs(self) -> list[Repair]:
        """Those that were measured."""
        return repairs(self.answer)

    @property
    def recompiled(self) -> float:
        """Time of its PTX, compiled by the driver, over its own."""
        return recompiled(self.answer)

    JSON: ClassVar = (
        *((name, f"answer.launch.{name}") for name in ("ranges", "kernel", "grid", "block")),
        *(("time_us", "answer.time_us"), ("replay", "answer.launch.replay")),
        ("limit", "breakdown.limit"),
        *(("shares", "breakdown.shares"), "verdict", "repairs", "recompiled"),
        ("responses", "answer.by_condition"),
    )


@dataclass(frozen=True)
class Proof:
    """Launches under experiments, the longest first.

    Attributes
    ----------
    empty_us
        Microseconds that a launch of an empty kernel takes in a batch.
    interval
        Level of all intervals: over the rounds of one launch in one process.
    left
        Launches that the time limit left open.
    shortened
        Long launches with fewer rounds or conditions.
    skipped
        Launches and mutants that were not measured.
    findings
        First causes of an explanation.
    launches
        Those that were examined.
    """

    experiments: Experiments
    findings: tuple[Examination, ...]
    launches: tuple[LaunchProof, ...]
    interval: float = field(default=LEVEL)

    @property
    def skipped(self) -> tuple[SkippedLaunch, ...]:
        """What was not measured."""
        without = (
            SkippedLaunch(each.answer.launch.kernel, f"{WORDS[mutation]}: no number, since {why}")
            for each in self.launches
            for mutation, why in without_number(each.answer)
        )
        return (*(SkippedLaunch(*each) for each in self.experiments.skipped), *without)

    FACTS: ClassVar = ("multiprocessors", "l2_bytes", "empty_us", "left", "shortened")
    JSON: ClassVar = (
        *((name, f"experiments.{name}") for name in FACTS),
        *("interval", "skipped", "findings", "launches"),
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return json_object(self)


def proof(
    experiments: Experiments,
    *,
    layers: Sequence[str] = (),
    cause: str | None = None,
    findings: Sequence[Finding] = (),
) -> Proof:
    """Return what the experiments say.

    Only launches in `layers` (ranges) are taken, in any by default; `cause` is judged for every
    launch, `findings` are the first causes of an explanation. Raises `PerfmlError` if no launch
    lies in the range, or no experiment can tell the cause.
    """
    if cause is not None and cause not in LIMITS_OF:
        msg = "no experiment on one launch can tell this cause"
        raise PerfmlError(msg, found=cause, cure=f"It can tell: {', '.join(sorted(LIMITS_OF))}.")
    answers = sorted(responses(experiments), key=lambda each: -each.time_us)
    if layers:
        answers = _inside(answers, layers)
    launches = tuple(LaunchProof(each, cause) for each in answers)
    return Proof(experiments, tuple(examine(findings, answers)), launches)


def _inside(answers: Sequence[Responses], layers: Sequence[str]) -> list[Responses]:
    chosen = [each for each in answers if not set(layers).isdisjoint(each.launch.ranges)]
    if not chosen:
        names = sorted({each.launch.ranges[-1] for each in answers if each.launch.ranges})
        msg = "no examined launch lies in this range"
        cure = f"There are: {', '.join(names[:10])}."
        raise PerfmlError(msg, found=", ".join(layers), cure=cure)
    return chosen
