"""Why one side is slower than the other: of all layers, and of the layers where it costs most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from perfml.explain.results import points_of
from perfml.kernel_names import shortened
from perfml.report.conditions import EVERY_RUN
from perfml.report.document import (
    Block,
    Cell,
    Document,
    Panels,
    Points,
    ReportTable,
    Section,
    Sentence,
    Text,
    notices,
    numbers,
    section,
    words,
)
from perfml.report.results import Pair
from perfml.report.sections.clock import step_section
from perfml.report.sections.layer_detail import (
    aligned_name,
    layer_section,
)
from perfml.report.tables import amount, sentences_of, share, time_texts
from perfml.util.words import capital, count, ended, listed, micros_alike, multiple, ratio_text, say

if TYPE_CHECKING:
    from perfml.explain.results import Explanation, LayerDiff

_SHORT = 3
"""Lines of a layer behind the first one."""

_FIRST_LAYERS = 6
"""Layers on the first screen of an explanation."""

_NAME = 64
"""Characters of a layer's name in a heading; --more and JSON have all of it."""


def why_section(pairs: Iterable[Pair], title: str, lead: str, *, several: bool) -> Section | None:
    """Return why one side of every pair is slower; None without pairs.

    `several`: the page shows more than one condition, so that a label must say which.
    """
    panels = []
    for pair in pairs:
        explanation = pair.explanation
        label = f"{explanation.target} against {explanation.baseline}"
        at = "" if pair.label == EVERY_RUN else pair.label
        if several and at:
            label = f"{pair.label}: {label}"
        differing = [each for each in explanation.details if each.time.verdict != "no difference"]
        layers: list[Block] = [
            layer_section(each, explanation, rows=pair.rows, at=at) for each in differing
        ]
        nothing = Text("No layer is explained in detail: none of them differs.")
        panels.append(
            section(
                label,
                *(layers or [nothing]),
                *notices(sentences_of(explanation.warnings), "this comparison"),
                *time_texts(explanation.further_notes),
                summary=f"all layers of both together: {explanation.headline}",
            )
        )
    blocks = Panels("pair", tuple(panels))
    return section(title, blocks, anchor="why", link="Why", lead=lead) if panels else None


def explanation_document(explanation: Explanation) -> Document:
    """Return one explanation with all that is known of it, layer by layer."""
    title = f"{explanation.target} against {explanation.baseline}"
    overview = section(
        f"{title}, all layers of both",
        *(Text(text) for text in explanation.pairing),
        layers_table(explanation, by_share=True),
        *(Text(text) for text in (undecided_note(explanation), *layers_alone(explanation)) if text),
        *time_texts(explanation.further_notes),
        summary=_of_layers(explanation),
    )
    layers = (layer_section(each, explanation, evidence=True) for each in explanation.details)
    return Document(title, _with_step(explanation, (overview, *layers)))


def _with_step(explanation: Explanation, sections: Iterable[Section]) -> tuple[Section, ...]:
    """Return sections with a step on the clock: first where it leads, else last."""
    if explanation.step is None:
        return tuple(sections)
    step = step_section(explanation.step)
    return (*sections, step) if explanation.leading is None else (step, *sections)


def _of_layers(explanation: Explanation) -> str:
    """Say what all layers take together, or what changed for certain below an undecided clock."""
    return explanation.headline if explanation.leading is None else explanation.certain


def explanation_summary(explanation: Explanation, *, named: bool = False) -> Document:
    """Return what fits on one screen: the layers that matter, their main cause, what to do.

    `named`: somebody asked for these layers. They come first, and of all others only the sum is
    told.
    """
    title = f"{explanation.target} against {explanation.baseline}"
    table = layers_table(explanation, by_share=True, most=_FIRST_LAYERS)
    # of a single layer the sum of all layers would say everything twice
    single = len(explanation.layers) == 1 == len(explanation.details)
    # beside the clock's headline it has to be said what the times are of
    of = "" if explanation.leading is None else f", times {explanation.total.of_what}"
    overview = section(
        "" if single else f"{title}, all layers of both",
        *(Text(text) for text in explanation.pairing),
        *(() if named or single else (table,)),
        *(Text(text) for text in (undecided_note(explanation),) if text and not named),
        *time_texts(explanation.time_notes if single else explanation.further_notes),
        summary="" if single else _of_layers(explanation),
    )
    layers = (
        section(
            f"{title}{of}: {_names(each)}" if single else _names(each),
            *(
                (Text(f"{capital(each.time.sentence())}."),)
                # the points say the sentence of what does not differ
                if each.time.verdict in ("slower", "faster")
                and (single or (named and each.time.interval))
                else ()
            ),
            main_points(each, short=place > 0),
        )
        for place, each in enumerate(explanation.details)
    )
    sections = (*layers, overview) if named or single else (overview, *layers)
    return Document(
        title, (*_with_step(explanation, sections), section("", Text(say("report.lead.more"))))
    )


def _names(detail: LayerDiff) -> str:
    times = " against ".join(micros_alike(detail.time.target_us, detail.time.baseline_us))
    name = shortened([aligned_name(detail)], _NAME)[0]
    return f"{name}: {detail.time.verdict}, {times} ({multiple(detail.time.ratio)})"


def layers_alone(explanation: Explanation) -> list[str]:
    """Say which layers only one side has."""
    sides = (
        (explanation.baseline, explanation.only_baseline),
        (explanation.target, explanation.only_target),
    )
    return [f"Only in {name}: {listed(layers, 12)}." for name, layers in sides if layers]


def undecided_note(explanation: Explanation) -> str:
    """Say why layers are undecided whose own intervals lie clear of 1; empty without any.

    With few repeats an interval alone is not sure enough to hold for all layers at once
    (`perfml.explain.times.corrected_verdicts`).
    """
    clear, undecided = explanation.alone_clear, explanation.undecided
    if not clear or not explanation.details:
        return ""
    repeats = min(explanation.details[0].time.repeats)
    which = f"{clear} of the {count(undecided, 'undecided layer')}"
    layers = count(len(explanation.layers), "layer")
    return (
        f"Measure more than {count(repeats, 'repeat')} of each side. {which} differ by their own "
        f"intervals, but not for all {layers} together (Holm's correction)."
    )


def layers_table(
    explanation: Explanation,
    changed: pd.DataFrame | None = None,
    *,
    by_share: bool = False,
    most: int | None = None,
) -> ReportTable:
    """Return the aligned layers: both times, ratio with interval, verdict, share.

    `changed` are metrics that changed beyond their noise (``layer, metric``), for a column of them;
    `by_share` puts the layers first that make most of the difference; `most` are rows in the short
    forms.
    """
    rows = explanation.by_share if by_share else explanation.layers
    cells = []
    for row in rows.to_dict("records"):
        layer, partner = str(row["layer"]), str(row["target_layer"])
        known = row["low"] == row["low"]
        bounds = "no interval"
        if known:
            bounds = f"{ratio_text(float(row['low']))}–{ratio_text(float(row['high']))}"
        line = [
            Cell(layer, f"{partner}, aligned by {row['aligned_by']}" if partner != layer else ""),
            amount(float(row["baseline_us"])),
            amount(float(row["target_us"])),
            Cell(f"{ratio_text(float(row['ratio']))}×", bounds, float(row["ratio"])),
            Cell(str(row["verdict"]), strong=row["verdict"] in ("slower", "faster")),
            share(float(row["share"]), bar=float(row["share"])),
        ]
        if changed is not None:
            names = [str(name) for name in changed.loc[changed["layer"] == layer, "metric"]]
            line.append(Cell(str(len(names)), value=float(len(names)), fold=", ".join(names)))
        cells.append(line)
    columns = (
        *words("layer"),
        *numbers(f"{explanation.baseline}, µs", f"{explanation.target}, µs", "ratio"),
        *words("verdict"),
        *numbers("share of difference", *(["metrics changed"] if changed is not None else [])),
    )
    caption = f"Times of every layer: {explanation.target} against {explanation.baseline}"
    return ReportTable(
        caption, columns, cells, title="Every layer", most=most, spare=("metrics changed",)
    )


def why_sentence(pair: Pair, of: str | None = None) -> Sentence | None:
    """Say what the largest difference of a pair is made of.

    `of` begins the sentence; the condition without. It is as sure as its causes are; None where no
    difference was explained.
    """
    details = [each for each in pair.explanation.details if each.time.slower is not None]
    if not details:
        return None
    where = "" if pair.label == EVERY_RUN else f"At {pair.label}, "
    where = where if of is None else of
    return Sentence("why", details[0].causes.confidence, f"{where}{difference(details[0])}")


def difference(detail: LayerDiff) -> str:
    """Say how long a layer takes on both sides, and why."""
    why, unsplit = points_of(detail).get("why", ""), say("explain.layer.unsplit")
    us = detail.time.baseline_us, detail.time.target_us
    times = times_in_words(detail.layer, detail.names, *us)
    why = why if why in ("", unsplit) else say("report.layer.caused", why=ended(why))
    return " ".join(filter(None, (times, why)))


def times_in_words(layer: str, names: tuple[str, str], baseline_us: float, target_us: float) -> str:
    """Say how long a layer takes on both sides, in a sentence."""
    times, ratio = micros_alike(target_us, baseline_us), target_us / baseline_us
    return say("report.layer.times", names=names, times=times, layer=layer, ratio=ratio)


def main_points(detail: LayerDiff, *, short: bool = False) -> Points:
    """Lay out what to do, what it saves and why; the short form is its beginning."""
    lines = detail.reasons
    if not points_of(detail) or detail.unseen:
        lines = (detail.time.sentence(), *lines)
    return Points(lines[:_SHORT] if short else lines)
