"""The first findings of an explanation, and what experiments on the slower side say of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from perfml.errors import InputError
from perfml.experiments.responses import Responses
from perfml.experiments.verdicts import OPEN, Verdict, of_layer, verdict


@dataclass(frozen=True)
class Finding:
    """The first cause that an explanation names for a layer.

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
        Share of the time that the cause is said to make: what the other side takes less.
    second
        The id of the next cause; empty where there is none.
    """

    layer: str
    cause: str
    label: str
    confidence: str
    kernel: str = ""
    claimed: float = 1.0
    second: str = ""


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
    """Read the first findings of what ``perfml explain --json`` printed, of layers that differ.

    Raises `InputError` if the file is missing or is no explanation.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [
            _finding(row)
            for row in document["details"]
            if row["causes"]["terms"] and row["time"]["verdict"] in ("slower", "faster")
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = "this is no explanation"
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


def _finding(row: dict[str, Any]) -> Finding:
    causes, fix = row["causes"], row.get("fix") or {}
    first, *others = causes["terms"]
    slower = row["target_layer"] if causes["log_ratio"] >= 0 else row["layer"]
    return Finding(
        str(slower),
        str(first["term"]),
        str(first["label"]),
        str(causes["confidence"]),
        str(fix.get("kernel", "")),
        claimed_of(causes["log_ratio"]) or 1.0,
        str(others[0]["term"]) if others else "",
    )


def claimed_of(log_ratio: float) -> float:
    """Return the share of the slower side's time that the faster one does not take."""
    return 1 - math.exp(-abs(log_ratio))
