"""What ``perfml prove`` found, as dataclasses, and which experiments it makes first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from perfml.errors import PerfmlError
from perfml.experiments.limits import LIMITS, QUEUES, Breakdown, breakdown
from perfml.experiments.mutation.programs import RECOMPILED, WORDS, mutations_of
from perfml.experiments.record import Experiments
from perfml.experiments.repairs import Repair, recompiled, repairs, without_number
from perfml.experiments.responses import LEVEL, Responses, responses
from perfml.experiments.verdicts import LIMITS_OF, Examination, Finding, Verdict, examine, verdict
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
        # launches of one kernel in many sizes say the same
        made = [SkippedLaunch(*each) for each in self.experiments.skipped]
        return tuple(dict.fromkeys((*made, *without)))

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


ANY = "*"
"""Stands for every range."""
Plan = dict[str, tuple[str, ...]]
"""A range, or `ANY`, to the conditions of its launches, the best first."""
_AMOUNTS = {
    "sm_most": 0.79, "sm_half": 0.55, "warps_half": 0.5,
    "dram_traffic": 0.78, "l2_traffic": 0.83, "atomic_traffic": 0.78,
}  # fmt: skip
"""What is left of the resource, as on an H100 (``studies/data/h100-experiments``)."""
_CONTROLS = {"warps_half": ("l1_large", "l1_small")} | dict.fromkeys(
    ("dram_traffic", "l2_traffic", "atomic_traffic"), ("sm_most",)
)
_MULTIPROCESSORS = {"sm_most": 1.0, "sm_half": 1.0}
_ELASTICITIES: dict[str, dict[str, float]] = {
    "multiprocessor": _MULTIPROCESSORS,
    "warps": _MULTIPROCESSORS | {"warps_half": 1.0},
    "dram": {"dram_traffic": 1.0, "l2_traffic": 1.0, "atomic_traffic": 1.0},
    "l2": {"l2_traffic": 1.0, "atomic_traffic": 1.0},
    "memory_latency": {"dram_traffic": QUEUES, "l2_traffic": 1.0, "atomic_traffic": 1.0},
}
"""Of the time of a launch that stands at a limit; 0 where there is none (`limits`)."""


def order(first: str = "", second: str = "") -> tuple[str, ...]:
    """Return the conditions that a verdict needs, those that tell two causes apart best first.

    A cause that no launch can tell stands for any limit.
    """
    pairs = [LIMITS_OF.get(cause, frozenset(LIMITS)) for cause in (first, second)]
    left = dict(_AMOUNTS)
    made = ["all"]
    while left:
        best = max(left, key=lambda name: _power(name, pairs) / _cost(name, made))
        made += [*(each for each in _CONTROLS.get(best, ()) if each not in made), best]
        left = {name: amount for name, amount in left.items() if name not in made}
    return tuple(made)


def plan(findings: Sequence[Finding]) -> Plan:
    """Return what to measure for findings: their layers only, the best conditions first.

    Without ranges a layer is a kernel: then everything is examined.
    """
    if not findings:
        return {ANY: order()}
    return {
        ANY if each.layer == each.kernel else each.layer: order(each.cause, each.second)
        for each in findings
    }


def mutations(findings: Sequence[Finding]) -> frozenset[str] | None:
    """Return the mutations that decide on the causes of findings, if any; None for all."""
    if not findings:
        return None
    known = mutations_of()
    causes = {name for each in findings for name in (each.cause, each.second)}
    chosen = {m for kind in known.values() for cause in causes for m in kind.get(cause, ())}
    return frozenset({*chosen, RECOMPILED} if chosen else ())


def _power(condition: str, pairs: Sequence[frozenset[str]]) -> float:
    """Return by how much the logarithms of the times differ that two causes predict."""
    one, other = (_elasticity(condition, limits) for limits in pairs)
    # limits that both have in common are told apart a little, so that all are asked in the end
    spread = max(_elasticity(condition, [each]) for each in LIMITS)
    return (abs(one - other) + 0.01 * spread) * math.log(1 / _AMOUNTS[condition])


def _cost(condition: str, made: Sequence[str]) -> float:
    """Return how many launches as it is a condition takes."""
    controls = sum(each not in made for each in _CONTROLS.get(condition, ()))
    return 1 / _AMOUNTS[condition] + controls


def _elasticity(condition: str, limits: Sequence[str] | frozenset[str]) -> float:
    known = [_ELASTICITIES.get(each, {}).get(condition, 0.0) for each in limits]
    return sum(known) / len(known)
