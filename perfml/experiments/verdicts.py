"""Whether a cause that counters name is proven: the kernel without it, and the limits it predicts.

Only a measured saving proves: the kernel ran without the habit that the cause is
(`perfml.experiments.repairs.habit_of`), beside a clean control. Only a mutant that saves nothing
refutes. The limits at which a cause predicts that a launch stands (`LIMITS_OF`) make it plausible
or implausible: the shares of the time that experiments find there.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from perfml.errors import InputError
from perfml.experiments.limits import LIMITS, breakdown
from perfml.experiments.repairs import CLEAN, Repair, habit_of, repair_of
from perfml.experiments.responses import Responses, resampled
from perfml.kernel_names import kernel_label

ANSWER = "answer.json"
"""File of a run's folder: the findings of its answer, as ids and numbers."""
PROVEN, REFUTED = "proven", "refuted"
PLAUSIBLE, IMPLAUSIBLE, OPEN = "plausible", "implausible", "not decided"

_IDLE = frozenset({"fixed"})


def _limits_of() -> dict[str, frozenset[str]]:
    text = (resources.files(__package__) / "limits.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["group"]
    return {cause: frozenset(each["limits"]) for each in groups for cause in each["causes"]}


LIMITS_OF = _limits_of()
"""Id of a cause to the limits at which it can hold a launch (``limits.toml``)."""
PROVES = 0.5
"""A cause is proven where surely at least half of the time that it claims is saved without it, and
plausible where its limits surely make half of the launch's time."""
IMPLAUSIBLE_BELOW = 0.25
"""A cause is implausible where its limits surely make less than a quarter.

Between the two it is not decided: there limits by counters are as often right as wrong.
"""
DRAWS = 200
"""Bootstrap resamples of the rounds."""
LEVEL = 0.9
"""Of the interval of a share."""


@dataclass(frozen=True)
class Verdict:
    """What the experiment says of a cause.

    Attributes
    ----------
    cause
        Its id.
    verdict
        `PROVEN` or `REFUTED` by a mutant, `PLAUSIBLE` or `IMPLAUSIBLE` by limits, or `OPEN`.
    share, low, high
        Of the time at the cause's limits, and its interval of `LEVEL` over the rounds; NaN where no
        experiment on one launch can tell.
    claimed
        Share of the launch's time that the cause is said to make.
    repair
        The measured bound of its repair; None where the kernel was not run without it.
    decides
        Whether the repair decided.
    """

    cause: str
    verdict: str
    share: float = math.nan
    low: float = math.nan
    high: float = math.nan
    claimed: float = 1.0
    repair: Repair | None = None
    decides: bool = False

    def sentence(self, responses: Responses) -> str:
        """Say the verdict and why, and the measured gain."""
        gain = "" if self.repair is None else f" {self.repair.sentence}"
        if self.decides:
            return f"{self.verdict.capitalize()} by experiment.{gain}"
        if self.cause not in LIMITS_OF:
            return f"Not decided: it lies outside the launch.{gain}"
        if math.isnan(self.share):
            return f"Not decided: the launch could not be run on fewer multiprocessors.{gain}"
        limits = " or ".join(LIMITS[name] for name in LIMITS if name in LIMITS_OF[self.cause])
        words = (
            f"{self.verdict.capitalize()} by its limits: {100 * self.share:.0f} % of the time"
            f" ({100 * self.low:.0f} to {100 * self.high:.0f} %) goes to {limits}.{gain}"
        )
        return words if self.verdict == PLAUSIBLE else f"{words} {breakdown(responses).sentence()}"


def verdict(responses: Responses, cause: str, claimed: float = 1.0) -> Verdict:
    """Say whether a cause can be the cause of a launch's time.

    `claimed` is the share of the launch's time that the cause is said to make: what another side
    takes less, or the gain that was forecast.
    """
    habit = habit_of(responses, cause)
    by_limits = _by_limits(responses, cause)
    made = replace(by_limits, claimed=claimed, repair=habit or repair_of(responses, cause))
    if habit is None:
        return made
    return replace(made, verdict=_by_repair(habit, claimed), decides=True)


def _by_repair(habit: Repair, claimed: float) -> str:
    """Return what the time without a habit says of a cause that claims a share of the time."""
    if 1 - habit.high >= max(PROVES * claimed, CLEAN):
        return PROVEN
    # what a clean control may differ by is no saving
    return REFUTED if 1 - habit.low < CLEAN else OPEN


def _by_limits(responses: Responses, cause: str) -> Verdict:
    limits = LIMITS_OF.get(cause)
    if limits is None:
        return Verdict(cause, OPEN)
    share, low, high = share_at(responses, limits)
    if math.isnan(share):
        return Verdict(cause, OPEN)
    # blocks that wait for memory may be few at the end, too: shares do not tell
    most = share_at(responses, limits | {"memory_latency"})[2] if limits == _IDLE else high
    said = PLAUSIBLE if low >= PROVES else IMPLAUSIBLE if most < IMPLAUSIBLE_BELOW else OPEN
    return Verdict(cause, said, share, low, high)


def of_layer(launches: Sequence[Responses], layer: str, kernel: str = "") -> Responses | None:
    """Return the longest launch in a layer of the slower side; None where none was examined there.

    `layer` is the name of a range, or the label of a kernel where a profile has no ranges. The
    launch is of `kernel`, a label; of any where that is empty or "whole layer".
    """
    inside = []
    for each in launches:
        label = kernel_label(each.launch.kernel, 1000)
        if (layer in each.launch.ranges or _is(label, layer)) and (
            kernel in ("", "whole layer") or _is(label, kernel)
        ):
            inside.append(each)
    return max(inside, key=lambda each: each.time_us, default=None)


def _is(label: str, shortened: str) -> bool:
    """Whether a label, which may have lost its middle, stands for a whole one."""
    head, cut, tail = shortened.partition("…")
    return label.startswith(head) and label.endswith(tail) if cut else label == shortened


def share_at(responses: Responses, limits: frozenset[str]) -> tuple[float, float, float]:
    """Return the share of the time at some limits, and its interval of `LEVEL` over the rounds."""
    drawn = [_share(each, limits) for each in resampled(responses, DRAWS)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return _share(responses, limits), float(low), float(high)


def _share(responses: Responses, limits: frozenset[str]) -> float:
    shares = breakdown(responses).shares
    return sum(shares[name] for name in limits)


@dataclass(frozen=True)
class Finding:
    """A cause that an answer names for a layer.

    Attributes
    ----------
    layer
        On the slower side.
    cause, label
        Its id and its words.
    confidence
        Before the experiment.
    kernel
        Its label (`perfml.kernel_names.kernel_label`); empty where it is not known.
    claimed
        Share of the time that the cause is said to make: what the other side takes less, or the
        likely gain.
    """

    layer: str
    cause: str
    label: str
    confidence: str
    kernel: str = ""
    claimed: float = 1.0


@dataclass(frozen=True)
class Examination:
    """A finding, and what the longest launch of its layer says of it.

    Attributes
    ----------
    finding
        Of the explanation.
    responses
        Of that launch; None where none in the layer was examined.
    verdict
        Of the cause; None likewise.
    """

    finding: Finding
    responses: Responses | None
    verdict: Verdict | None

    JSON: ClassVar = (
        *((name, f"finding.{name}") for name in ("layer", "cause", "label", "confidence")),
        *("verdict", ("sentence", "said")),
    )

    @property
    def gains(self) -> tuple[float, float, float] | None:
        """What part of its time the launch saves without the cause, and the interval.

        None where that was not measured. Launches like it save the same part of theirs.
        """
        repair = None if self.verdict is None else self.verdict.repair
        if repair is None or self.responses is None:
            return None
        gains = (repair.gain_us, repair.gain_low_us, repair.gain_high_us)
        likely, low, high = (us / self.responses.time_us for us in gains)
        return likely, low, high

    @property
    def tells(self) -> bool:
        """Whether it was decided, or a gain was measured."""
        return self.verdict is not None and (
            self.verdict.verdict != OPEN or self.verdict.repair is not None
        )

    @property
    def said(self) -> str:
        """The verdict and why, in a sentence."""
        if self.responses is None or self.verdict is None:
            return "Not decided: no launch of this layer was examined."
        return self.verdict.sentence(self.responses)


def read_findings(path: Path) -> list[Finding]:
    """Read the findings of an answer, in its order.

    It is ``answer.json`` of a run, or what ``perfml advise --json`` printed, or ``perfml explain
    --json`` of layers that differ. Raises `InputError` if the file is missing or is no answer.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "answer" in document:
            return [one for row in document["answer"] for one in _of_answer(row)]
        # of layers that differ: their first two causes
        rows = (e for e in document["details"] if e["time"]["verdict"] in ("slower", "faster"))
        return [_finding(row, term) for row in rows for term in row["causes"]["terms"][:2]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = "this is no answer"
        cure = "Write one with: perfml explain ... --json > explain.json"
        raise InputError(msg, where=str(path), found=str(error)[:80], cure=cure) from error


def examine(findings: Sequence[Finding], launches: Sequence[Responses]) -> list[Examination]:
    """Return what experiments on the slower side say of each finding."""
    made = []
    for finding in findings:
        launch = of_layer(launches, finding.layer, finding.kernel)
        said = None if launch is None else verdict(launch, finding.cause, finding.claimed)
        made.append(Examination(finding, launch, said))
    return made


def _of_answer(row: dict[str, Any]) -> list[Finding]:
    """Return a finding of the one list of an answer, layer by layer; none if it is of no launch."""
    cause, where, gain = row["rules"][:1], row["where"], row["gain"]
    if not cause or gain is None or not (where["layers"] or where["kernel"]):
        return []
    claimed = float(gain["likely"]["us"]) / float(row["holds"]["us"])
    named = (cause[0], cause[0].replace("_", " "), row["confidence"], where["kernel"], claimed)
    return [Finding(layer, *named) for layer in where["layers"] or ("",)]


def _finding(row: dict[str, Any], term: dict[str, Any]) -> Finding:
    causes, fix = row["causes"], row.get("fix") or {}
    slower = row["target_layer"] if causes["log_ratio"] >= 0 else row["layer"]
    return Finding(
        str(slower),
        str(term["term"]),
        str(term["label"]),
        str(causes["confidence"]),
        str(fix.get("kernel", "")),
        claimed_of(causes["log_ratio"]) or 1.0,
    )


def claimed_of(log_ratio: float) -> float:
    """Return the share of the slower side's time that the faster one does not take."""
    return 1 - math.exp(-abs(log_ratio))
