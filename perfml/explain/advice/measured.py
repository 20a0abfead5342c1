"""What experiments say of findings: proven, refuted, and the gain that was measured.

They lie beside a table (`perfml.datasets.loading.EXPERIMENTS`). A repair that was measured beside a
clean control is a finding, also where no counter named its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfml.experiments.mutation.programs import LINES, cause_of
from perfml.experiments.repairs import repairs
from perfml.experiments.responses import Responses
from perfml.experiments.verdicts import PROVEN, REFUTED, Examination, Finding, examine, of_layer
from perfml.explain.advice.findings import Layer, finding_of
from perfml.explain.advice.persons import Person
from perfml.explain.advice.symptoms import situation_of, symptom_of
from perfml.explain.confidence import Confidence


def measured(
    findings: Sequence[dict[str, Any]], layers: Sequence[Layer], launches: Sequence[Responses]
) -> list[dict[str, Any]]:
    """Return findings with their verdicts, and the measured repairs of which none of them is."""
    if not launches:
        return [*findings]
    rows = [_finding(row, launches) for row in findings]
    for layer in layers:
        named = {r["rules"][0] for r in rows if r["layer"] == layer.row["layer"]}
        rows += [row for row in _repaired(layer, launches) if row["rules"][0] not in named]
    return rows


def _repaired(layer: Layer, launches: Sequence[Responses]) -> Iterator[dict[str, Any]]:
    """Return a finding for every measured repair of a layer's kernels that surely saves time."""
    for label in dict.fromkeys(layer.labels):
        launch = of_layer(launches, layer.row["layer"], label)
        for repair in () if launch is None else repairs(launch):
            cause = cause_of(repair.mutation)
            symptom = symptom_of(cause)
            if symptom is None or not repair.proves:
                continue
            same = [one for one, n in zip(layer.launches, layer.labels, strict=True) if n == label]
            share = sum(one.time_us for one in same) / layer.time_us
            found = finding_of(
                layer,
                cause,
                (share * (1 - repair.factor), share * (1 - repair.low)),
                situation_of(same[0], Person.AUTHOR, convolves=layer.convolves),
                kernel=label,
                share=share,
                rules=(cause,),
                hazard=symptom.hazard,
                evidence=f"Proven by experiment. {repair.sentence}".rstrip("."),
                numbers=(),
            )
            if repair.mutation in LINES:
                found["mitigation"] += f" In the source: {LINES[repair.mutation]}."
            yield found | {"confidence": "proven", "probability": 1.0, "tells": ""}


def _finding(row: dict[str, Any], launches: Sequence[Responses]) -> dict[str, Any]:
    cause, sure, gain = row["rules"][0], row["confidence"], float(row["gain"])
    claimed = gain if 0 < gain <= 1 else 1.0
    (said,) = examine([Finding(row["layer"], cause, cause, sure, row["kernel"], claimed)], launches)
    if not said.tells:
        return row
    row = row | {
        "evidence": f"{said.said} {row['evidence']}",
        "confidence": confidence_by(said, sure),
    }
    if row["confidence"] == "proven":
        row["probability"] = 1.0
    if said.gains is not None:
        likely, _, high = (min(row["share"] * each, 1.0) for each in said.gains)
        row |= {"gain": likely, "gain_high": high, "saved_us": high * float(row["time_us"])}
    return row


def confidence_by(said: Examination, before: Confidence) -> Confidence:
    """Return the word of a finding that an experiment decides on; as it was where none does."""
    verdict = "" if said.verdict is None else said.verdict.verdict
    return "proven" if verdict == PROVEN else "refuted" if verdict == REFUTED else before
