"""Two datasets, compared: which is faster, on which layers, what changed, and why."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.explain.confidence import marked, of_ratio
from perfml.explain.results import points_of
from perfml.report import figures
from perfml.report.conditions import EVERY_RUN, labelled
from perfml.report.document import (
    Answer,
    Card,
    Document,
    Panels,
    Section,
    Sentence,
    Text,
    Totals,
    section,
)
from perfml.report.pairs import Comparison
from perfml.report.sections.clock import step_differences, step_section
from perfml.report.sections.explanation import (
    difference,
    layers_alone,
    layers_table,
    times_in_words,
    undecided_note,
    why_section,
    why_sentence,
)
from perfml.report.sections.provenance import glossary_section, moment, provenance_section
from perfml.report.tables import illustrated
from perfml.util.words import capital, count, ended, listed, micros, ratio_text, say

if TYPE_CHECKING:
    from perfml.explain.times import Ratio

_HEADING = "What differs, and how sure that is"

RULES = {
    "high": "The 95 % interval from the repeats decides.",
    "medium": "Single launches differ by more than 3 %, or a metric changed beyond its noise. "
    "Of a cause: counters split at least half of the difference, and nothing contradicts them.",
    "low": "The repeats scatter too much, or single launches differ by less than 3 %. "
    "Of a cause: most of the difference is unexplained, or the evidence disagrees.",
}
"""What the words of confidence mean on a comparison; printed on the page."""


def comparison_document(
    comparisons: Sequence[Comparison],
    left_out: Sequence[str],
    provenance: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> Document:
    """Return comparisons as a document.

    The comparisons are of the same two datasets, whose names are the heading;
    `left_out` are sentences on what was not compared.
    """
    first = comparisons[0].pair.explanation
    names = (first.baseline, first.target)
    clock = [] if first.leading is None else step_differences(first.leading)
    steps = [*(each for each in clock if each.about == "do"), *_steps(comparisons)]
    said = (each for one in comparisons for each in _sentences(one))
    sentences = (*steps, *(each for each in clock if each.about == "time"), *said)
    on_the_clock = None
    if first.step is not None:
        on_the_clock = replace(step_section(first.step), anchor="clock", link="Clock")
    sections = (
        on_the_clock,
        _times_section(comparisons, left_out),
        why_section(
            [comparison.pair for comparison in comparisons],
            "Why, on the layers that differ most",
            say("report.lead.why"),
            several=True,
        ),
        provenance_section(*zip(names, provenance, strict=True)),
        glossary_section(),
    )
    made = [moment(document.get("created")) for document in provenance]
    labels = listed([comparison.pair.label for comparison in comparisons], 4)
    return Document(
        f"{first.target} against {first.baseline}",
        tuple(each for each in sections if each is not None),
        Answer("Look at this first" if steps else _HEADING, sentences, RULES, _HEADING),
        (
            ("baseline", names[0] + (f", ingested {made[0]}" if made[0] else "")),
            ("target", names[1] + (f", ingested {made[1]}" if made[1] else "")),
            *((("compared", labels),) if labels != EVERY_RUN else ()),
        ),
        "perfml comparison",
    )


def _name(comparison: Comparison) -> str:
    """Name a measurement; empty where it is the only one, without a name."""
    label = comparison.pair.label
    if label in ("", EVERY_RUN):
        return "" if comparison.pair.explanation.leading is None else "Kernels alone"
    return label


def _of(comparison: Comparison) -> str:
    """Name a measurement before what is said of it."""
    name = _name(comparison)
    return f"{name}: " if name else ""


def _begun(of: str, words: str) -> str:
    """Begin a sentence with a measurement's name, or with a capital."""
    return f"{of}{words}" if of else capital(words)


def _gains_and_losses(comparison: Comparison) -> str:
    """Say what slower layers cost and faster ones save, never as one sum."""
    changes = comparison.confirmed
    parts = []
    for verdict, word in (("slower", "cost"), ("faster", "save")):
        rows = changes[changes["verdict"] == verdict]
        if len(rows):
            layers, ending = count(len(rows), f"{verdict} layer"), "s" if len(rows) == 1 else ""
            parts.append(f"{layers} {word}{ending} {micros(float(rows['size'].sum()))}")
    return listed(parts, 4)


def _steps(comparisons: Sequence[Comparison]) -> list[Sentence]:
    """Say the largest confirmed change, why, and what all of them cost and save."""
    first = comparisons[0]
    if first.confirmed.empty:
        return []
    row = first.confirmed.iloc[0]
    explanation = first.pair.explanation
    names = (explanation.baseline, explanation.target)
    # single launches have no interval
    sure = of_ratio(row["verdict"], interval=row["low"] == row["low"])
    detail = next((each for each in explanation.details if each.layer == row["layer"]), None)
    if detail is None:
        text = times_in_words(row["layer"], names, row["baseline_us"], row["target_us"])
        text = f"{_of(first)}{text}"
    else:
        said = (points_of(detail).get(name, "") for name in ("do", "saves"))
        cure = " ".join(ended(capital(each)) for each in said if each)
        text = f"{_of(first)}{difference(detail)}"
        text = f"{marked(cure, detail.causes.confidence)} Why: {text}" if cure else text
    verb = "lost" if row["cost"] > 0 else "gained"
    gain = f"{micros(float(row['size']))} {verb}"
    title = f"{row['layer']} is {row['verdict']}"
    steps = [Sentence("do", sure, text, title, gain, look="lost" if row["cost"] > 0 else "")]
    changes = pd.concat([each.confirmed for each in comparisons])
    if len(changes) > 1:
        text = "; ".join(
            f"{_of(each)}{_gains_and_losses(each)}" for each in comparisons if len(each.confirmed)
        )
        slower = float(changes.loc[changes["cost"] > 0, "size"].sum())
        faster = float(changes.loc[changes["cost"] < 0, "size"].sum())
        sums = ((slower, "lost"), (faster, "gained"))
        gain = ", ".join(f"{micros(size)} {word}" for size, word in sums if size)
        title = "What slower layers cost" if slower else "What faster layers save"
        if slower and faster:
            title += ", and faster ones save"
        known = bool(changes["low"].notna().all())
        sure = of_ratio("slower" if slower else "faster", interval=known)
        loss = Sentence("do", sure, f"{text}.", title, gain)
        steps.append(replace(loss, look="lost") if slower else loss)
    return steps


def _times_section(comparisons: Sequence[Comparison], left_out: Sequence[str]) -> Section:
    panels = Panels("measurement", tuple(_times(comparison) for comparison in comparisons))
    notes = tuple(Text(text, note=True) for text in left_out)
    title = "Time of every layer"
    return section(
        title, *notes, panels, anchor="times", link="Times", lead=say("report.lead.times")
    )


def _times(comparison: Comparison) -> Section:
    explanation, label = comparison.pair.explanation, comparison.pair.label
    caption = labelled(f"Time of {explanation.target} over {explanation.baseline}", label)
    caption += ": thick lines are 95 % intervals from the repeats."
    alone = [
        f"Measured in {side} alone, so not compared: {listed(only, 8)}."
        for side, only in comparison.alone.items()
    ]
    told = (undecided_note(explanation), *layers_alone(explanation), *alone)
    notes = [Text(text, note=True) for text in told if text]
    return section(
        label,
        _totals(comparison),
        illustrated(
            "Chart of time ratios", caption, functools.partial(figures.time_ratios, explanation)
        ),
        layers_table(explanation, comparison.changed),
        *notes,
        summary=explanation.total.sentence(),
    )


def _totals(comparison: Comparison) -> Totals:
    explanation = comparison.pair.explanation
    total = explanation.total
    longest = max(total.baseline_us, total.target_us)
    layers = _of_both(len(explanation.layers))
    sides = ((explanation.baseline, total.baseline_us), (explanation.target, total.target_us))
    cards = [
        Card(name, micros(time), number, time / longest, (layers,))
        for number, (name, time) in enumerate(sides)
    ]
    verdicts = tuple(comparison.verdicts.items())
    cards.append(Card(f"layers of {explanation.target}", counts=verdicts))
    return Totals(f"Total of {layers}", tuple(cards))


def _sentences(comparison: Comparison) -> list[Sentence]:
    """Say which dataset is faster, on how many layers, why, and what changed."""
    reason = why_sentence(comparison.pair, _of(comparison))
    changed = _changed_sentence(comparison)
    return [each for each in (_time_sentence(comparison), reason, changed) if each is not None]


def _time_sentence(comparison: Comparison) -> Sentence:
    explanation, of = comparison.pair.explanation, _of(comparison)
    total, target, baseline = explanation.total, explanation.target, explanation.baseline
    layers = len(explanation.layers)
    verdicts = listed(
        [f"{amount} {word}" for word, amount in comparison.verdicts.items() if amount], 4
    )
    if explanation.leading is not None:  # whose verdict is said already
        return Sentence("time", "medium", f"{_name(comparison)}, layer by layer: {verdicts}.")
    if total.verdict in ("slower", "faster"):
        text = (
            f"{of}{target} is {total.verdict} than {baseline}, {micros(total.target_us)} "
            f"against {micros(total.baseline_us)} ({ratio_text(total.ratio)}×{_interval(total)}) "
            f"over {_of_both(layers)}"
        )
    elif total.verdict == "no difference" and len(comparison.confirmed):
        text = (
            f"{_begun(of, 'gains')} and losses cancel over {_of_both(layers)}: "
            f"{_gains_and_losses(comparison)} (in all {ratio_text(total.ratio)}×{_interval(total)})"
        )
    elif total.verdict == "no difference":
        text = (
            f"{_begun(of, 'no difference')} between {target} and {baseline} over "
            f"{_of_both(layers)} ({ratio_text(total.ratio)}×{_interval(total)})"
        )
    else:
        why = f"the repeats of {target} and {baseline} scatter too much"
        if total.interval is None:
            why = "one time a side is not exact to this"
        text = f"{_begun(of, 'undecided')}, {why} ({ratio_text(total.ratio)}×{_interval(total)})"
    sure = of_ratio(total.verdict, interval=total.interval is not None)
    return Sentence("time", sure, f"{text}. Layer by layer: {verdicts}.")


def _interval(ratio: Ratio) -> str:
    bounds = ratio.interval
    if bounds is None:
        return ", without an interval"
    return f", 95 % interval {ratio_text(bounds[0])} to {ratio_text(bounds[1])}"


def _changed_sentence(comparison: Comparison) -> Sentence | None:
    of, metrics = _of(comparison), comparison.changed["metric"]
    if not comparison.tested and metrics.empty:
        return None
    if metrics.empty:
        text = f"{_begun(of, 'no metric')} changed beyond its noise on any layer."
        return Sentence("metric", "high", text)
    layers = len(comparison.pair.explanation.layers)
    most = metrics.value_counts().head(3)
    often = [f"{name} ({amount} of {layers} layers)" for name, amount in most.items()]
    many = count(len(metrics.unique()), "metric")
    text = f"{of}{many} changed beyond noise, most often {listed(often, 4)}."
    return Sentence("metric", "medium", text)


def _of_both(layers: int) -> str:
    return count(layers, "layer of both", "layers of both")
