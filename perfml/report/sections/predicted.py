"""Layers beside layers like them: what is slower than usual, why, and all the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perfml.report.document import (
    Block,
    Cell,
    Document,
    Points,
    ReportTable,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.tables import amount
from perfml.util.words import capital, count, ended, micros, number, percent

if TYPE_CHECKING:
    from perfml.predict.results import PredictedLayer, Prediction, Reason

_SHOWN = 12
"""Rows of the table of all layers in the short forms."""


def predict_document(found: Prediction) -> Document:
    """Return what is slower than usual and why, then every layer that was compared."""
    basis = (
        f"Compared with {count(found.distinct_layers, 'layer')} of "
        f"{count(found.networks, 'network')} "
        f"({found.reference}); {percent(found.confidence)} of layers like one lie in its interval."
    )
    blocks: list[Block] = [Text(found.summary), Text(basis, note=True)]
    if found.slower:
        caption = "Slower than layers like them, the largest loss first"
        blocks.append(_table(found.slower, caption))
    told = [each for each in found.slower if each.why is not None]
    sections = [section("Layers beside layers like them", *blocks)]
    if told:
        reasons = [Points(tuple(_reasons(each)), each.name, look="advised") for each in told]
        rest = [each for each in found.slower if each.why is None]
        if rest:
            lines = tuple(f"{each.name}: {_limit(each.limits)}" for each in rest)
            reasons.append(Points(lines, "The other slower layers", look="advised"))
        sections.append(section("Why", *reasons))
    others = [each for each in found.layers if each.verdict in ("usual", "faster")]
    if others:
        caption = "By the time that they take beyond the usual"
        title = "The others" if found.slower else "All of them"
        sections.append(section(title, _table(others, caption, most=_SHOWN)))
    return Document("", tuple(sections))


def _table(layers: Sequence[PredictedLayer], caption: str, most: int | None = None) -> ReportTable:
    several = {(each.backend, each.precision, each.batch) for each in layers}
    rows = [
        [
            Cell(each.name, note=_condition(each) if len(several) > 1 else ""),
            Cell(each.kind or "-"),
            amount(each.time_us),
            amount(each.time_us / each.ratio if each.ratio else float("nan")),
            Cell(_interval(each)),
            amount(each.ratio or float("nan")),
            amount(each.excess_us or 0.0),
        ]
        for each in layers
    ]
    columns = (
        *words("layer", "kind"),
        *numbers("µs", "usual, µs"),
        *words("interval, µs"),
        *numbers("times usual", "beyond usual, µs"),
    )
    return ReportTable(caption, columns, rows, most=most, spare=("kind", "interval, µs"))


def _interval(layer: PredictedLayer) -> str:
    """Return between which times layers lie that are like it in what it is compared by."""
    if layer.compared_by == "shape" and layer.shape_high_us is not None:
        return f"up to {number(layer.shape_high_us)}"
    return f"{number(layer.low_us or 0.0)} to {number(layer.high_us or 0.0)}"


def _reasons(verdict: PredictedLayer) -> Iterable[str]:
    why = verdict.why
    assert why is not None
    yield why.sentence
    at = why.kernel
    if at is not None and all(each.kernel != at.name for each in why.reasons):
        launches = count(at.launches, "launch", "launches")
        spent = f"{micros(at.time_us)} of {micros(verdict.time_us)}"
        yield f"Its slowest kernel is {at.name}: {launches}, {spent}."
    if why.unusual:
        counts = (
            f"{each.metric} is {number(each.factor, 2)} times that of layers like it"
            for each in why.unusual
        )
        yield "Counted: " + "; ".join(counts) + "."
    for reason in why.reasons:
        yield f"{ended(capital(reason.hazard))} {_evidence(reason)} Do: {reason.mitigation}"
    if not why.reasons and why.counted:
        yield "Advice finds no cause in it."
    if verdict.note:
        yield ended(capital(verdict.note))
    if why.peers:
        names = (
            f"{each.layer} of {each.workload} ({micros(each.time_us)}, bound "
            f"{micros(each.bound_us)})"
            for each in why.peers
        )
        yield f"Layers like it: {', '.join(names)}."


def _evidence(reason: Reason) -> str:
    # of several kernels the evidence names each
    named = reason.kernel is None or reason.evidence.startswith(f"{reason.kernel}:")
    inside = "" if named else f"{reason.kernel}, "
    return f"{inside}{ended(reason.evidence)}"


def _limit(reason: Reason | None) -> str:
    if reason is None:
        return "advice finds no cause in it."
    where = "" if reason.kernel is None else f" ({reason.kernel})"
    return f"{reason.hazard}{where}."


def _condition(each: PredictedLayer) -> str:
    parts = (each.backend, each.precision, None if each.batch is None else f"b{each.batch}")
    return " ".join(part for part in parts if part)
