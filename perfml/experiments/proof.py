"""What ``perfml prove`` found, as dataclasses, and which experiments it makes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from perfml.errors import PerfmlError
from perfml.experiments.limits import Breakdown, breakdown
from perfml.experiments.mutation.programs import RECOMPILED, WORDS, cause_of, mutations_of
from perfml.experiments.record import Experiments
from perfml.experiments.repairs import (
    CLEAN,
    UNREACHED,
    Repair,
    recompiled,
    repairs,
    without_number,
)
from perfml.experiments.responses import LEVEL, Responses, responses
from perfml.experiments.verdicts import (
    IMPLAUSIBLE_BELOW,
    LIMITS_OF,
    PROVES,
    Examination,
    Finding,
    examine,
    of_layer,
    verdict,
)
from perfml.kernel_names import kernel_label
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
    replay
        What lay between two launches that were timed: nothing (``warm``), what the launch writes
        was put back (``restored``), L2 was emptied besides (``cold``).
    limit
        That makes half of the time; null where none does.
    shares
        Limit to its share of the time; they add up to 1. Null where fewer multiprocessors were
        refused.
    repairs
        Measured with its mutants, the largest gain first.
    recompiled
        Time of its unchanged PTX, compiled by the driver, over its own; null without PTX.
    not_tried
        Ids of mutants that were not run, since another one decided or the time was up.
    """

    answer: Responses

    @cached_property
    def breakdown(self) -> Breakdown:
        """The shares of its time."""
        return breakdown(self.answer)

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
        *(("shares", "breakdown.shares"), "repairs", "recompiled"),
        *(("responses", "answer.by_condition"), ("not_tried", "answer.launch.not_tried")),
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
        Launches that were not asked: their part of the clock is too small.
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
    launch, `findings` are the first causes of an explanation. Raises `PerfmlError` if no experiment
    can tell the cause.
    """
    if cause is not None and cause not in LIMITS_OF:
        msg = "no experiment on one launch can tell this cause"
        raise PerfmlError(msg, found=cause, cure=f"It can tell: {', '.join(sorted(LIMITS_OF))}.")
    answers = sorted(responses(experiments), key=lambda each: -each.time_us)
    if layers:
        answers = [each for each in answers if not set(layers).isdisjoint(each.launch.ranges)]
    asked = [*examine(findings, answers)]
    for each in answers:
        if cause is None:
            break
        label = kernel_label(each.launch.kernel)
        finding = Finding((label, *each.launch.ranges)[-1], cause, cause, "", label)
        asked.append(Examination(finding, each, verdict(each, cause)))
    return Proof(experiments, tuple(asked), tuple(map(LaunchProof, answers)))


def turns(
    mutations: Sequence[str],
    launches: Sequence[Responses],
    findings: Sequence[Finding] = (),
    *,
    everything: bool = False,
) -> dict[str, tuple[int, float]]:
    """Return when a mutation of a kernel is tried, and what part of the time decides on a launch.

    The causes of the answer come first, in its order. What their limits make plausible follows,
    what these leave undecided, and what they make implausible: in 5 of 25 public programs the best
    repair was among these (``studies/experiments``, 2026-11-29).

    Parameters
    ----------
    mutations
        That can be made of the kernel.
    launches
        Of it, under the conditions of the experiments.
    findings
        Of the answer, the first one first.
    everything
        Nothing decides.
    """
    known = mutations_of().values()
    shares = breakdown(max(launches, key=lambda each: each.time_us)).shares
    claims: dict[str, float] = {}
    for finding in findings:
        if of_layer(launches, finding.layer, finding.kernel) is not None:
            claims.setdefault(finding.cause, finding.claimed)
    stages = [({m for kind in known for m in kind.get(c, ())}, claims[c]) for c in claims]
    # a share that is not known rules nothing out
    likely = {
        mutation: max(
            float(np.nan_to_num(sum(shares[each] for each in LIMITS_OF.get(cause, ())), nan=1.0))
            for kind in known
            for cause, names in kind.items()
            if mutation in names
        )
        for mutation in mutations
        if cause_of(mutation)
    }
    for least in (PROVES, IMPLAUSIBLE_BELOW, -1.0):
        stages.append(({name for name in likely if likely[name] >= least}, 1.0))
    made, turn = {RECOMPILED: (0, 0.0)}, 0
    for chosen, claimed in stages:
        left = [name for name in mutations if name in chosen and name not in made]
        decides = 0.0 if everything else 1 - max(PROVES * claimed, CLEAN)
        made |= {name: (turn, 0.0 if name in UNREACHED else decides) for name in left}
        turn += bool(left)
    return made
