"""What ``perfml prove`` found, as dataclasses: its JSON is derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from perfml.errors import PerfmlError
from perfml.experiments.findings import Finding, examine
from perfml.experiments.limits import Breakdown, breakdown
from perfml.experiments.record import Experiments
from perfml.experiments.repairs import Repair, recompiled, repair_of, repairs
from perfml.experiments.responses import LEVEL, Responses, responses
from perfml.experiments.verdicts import LIMITS_OF, Verdict, verdict
from perfml.util.json_values import json_object


@dataclass(frozen=True)
class Device:
    """The device of the experiments."""

    multiprocessors: int
    l2_bytes: int
    empty_us: Annotated[float, "microseconds that a launch of an empty kernel takes in a batch"]


@dataclass(frozen=True)
class IntervalOf:
    """What the intervals are over."""

    level: float
    over: str


@dataclass(frozen=True)
class SkippedLaunch:
    """A launch, or a mutant of it, that was not measured."""

    kernel: str
    reason: str


@dataclass(frozen=True)
class ConditionResponse:
    """How the time answers to one condition.

    Attributes
    ----------
    condition
        Its name.
    ratio, low, high
        Time over that of its control, and the interval.
    amount
        Of the resource that is left; null where it is not known.
    elasticity
        Logarithm of the ratio over that of 1 / amount.
    """

    condition: str
    ratio: float
    low: float
    high: float
    amount: float
    elasticity: float


@dataclass(frozen=True)
class LaunchProof:
    """A launch, what limits it, how it answered and what repairs would gain.

    Attributes
    ----------
    ranges
        NVTX ranges around it, outermost first.
    kernel, grid, block
        What was launched.
    time_us
        Microseconds.
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
    responses
        To the conditions of the experiments and to the mutants.
    """

    ranges: tuple[str, ...]
    kernel: str
    grid: str
    block: str
    time_us: float
    limit: str | None
    shares: dict[str, float]
    verdict: Verdict | None
    repairs: tuple[Repair, ...]
    recompiled: float
    responses: tuple[ConditionResponse, ...]


@dataclass(frozen=True)
class FindingProof:
    """The first cause of an explanation, and what the experiment says of it.

    Attributes
    ----------
    layer
        Of the slower side.
    cause, label
        Its id and its words.
    certainty
        By counters.
    verdict
        Null where the layer was not examined.
    repair
        Of this cause, where one was measured.
    sentence
        The verdict and the gain.
    """

    layer: str
    cause: str
    label: str
    certainty: str
    verdict: Verdict | None
    repair: Repair | None
    sentence: str


@dataclass(frozen=True)
class Proof:
    """Launches under experiments, the longest first.

    Attributes
    ----------
    device
        On which they ran.
    interval
        What the intervals are over.
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

    device: Device
    interval: IntervalOf
    left: int
    shortened: int
    skipped: tuple[SkippedLaunch, ...]
    findings: tuple[FindingProof, ...]
    launches: tuple[LaunchProof, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return json_object(self)


def proof(
    experiments: Experiments,
    *,
    layer: str | None = None,
    cause: str | None = None,
    findings: Sequence[Finding] = (),
) -> Proof:
    """Return what the experiments say.

    Parameters
    ----------
    experiments
        Of a program.
    layer
        Only launches in this range.
    cause
        Id of a cause that is judged for every launch.
    findings
        First causes of an explanation.

    Raises
    ------
    PerfmlError
        If no launch lies in the range, or no experiment can tell the cause.
    """
    if cause is not None and cause not in LIMITS_OF:
        msg = "no experiment on one launch can tell this cause"
        raise PerfmlError(msg, found=cause, cure=f"It can tell: {', '.join(sorted(LIMITS_OF))}.")
    answers = sorted(responses(experiments), key=lambda each: -each.time_us)
    if layer is not None:
        answers = _inside(answers, layer)
    return Proof(
        Device(experiments.multiprocessors, experiments.l2_bytes, experiments.empty_us),
        IntervalOf(LEVEL, "rounds of one launch in one process"),
        experiments.left,
        experiments.shortened,
        tuple(SkippedLaunch(*each) for each in experiments.skipped),
        tuple(_finding(each, answers) for each in findings),
        tuple(_launch(each, cause) for each in answers),
    )


def _inside(answers: Sequence[Responses], layer: str) -> list[Responses]:
    chosen = [each for each in answers if layer in each.launch.ranges]
    if not chosen:
        names = sorted({each.launch.ranges[-1] for each in answers if each.launch.ranges})
        msg = "no examined launch lies in this range"
        raise PerfmlError(msg, found=layer, cure=f"There are: {', '.join(names[:10])}.")
    return chosen


def _launch(answer: Responses, cause: str | None) -> LaunchProof:
    launch, divided = answer.launch, breakdown(answer)
    return LaunchProof(
        launch.ranges,
        launch.kernel,
        launch.grid,
        launch.block,
        answer.time_us,
        divided.limit,
        divided.shares,
        None if cause is None else verdict(answer, cause),
        tuple(repairs(answer)),
        recompiled(answer),
        tuple(
            ConditionResponse(name, each.ratio, each.low, each.high, each.amount, each.elasticity)
            for name, each in answer.by_condition.items()
        ),
    )


def _finding(finding: Finding, answers: Sequence[Responses]) -> FindingProof:
    (examined,) = examine([finding], answers)
    answer = examined.responses
    repair = None if answer is None else repair_of(answer, finding.cause)
    said = examined.said if repair is None else f"{examined.said} {repair.sentence}"
    return FindingProof(
        finding.layer,
        finding.cause,
        finding.label,
        finding.certainty,
        examined.verdict,
        repair,
        said,
    )


def largest(launch: LaunchProof) -> Breakdown:
    """Return the shares of a launch's time as a breakdown."""
    known = {name: each for name, each in launch.shares.items() if not math.isnan(each)}
    return Breakdown(known or launch.shares, launch.limit)
