"""What could be done: the hazards that the counters show, with their evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.datasets.loading import UNKNOWN
from perfml.explain.advice.equal_layers import group_name, listed_layers
from perfml.explain.advice.persons import what_to_do
from perfml.explain.certainty import IN_WORDS, marked
from perfml.report.document import (
    Cell,
    Notices,
    Panels,
    ReportTable,
    Section,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.labels import listed, percent
from perfml.report.sections.first_screen import listed_table, more_with_other_sets
from perfml.report.tables import amount, sentences_of, time_texts
from perfml.util.words import count, micros

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.network import NetworkFinding

_MOST = 60
"""Findings of a condition on a page; the largest savings are kept."""

_LEAST = 12
"""Findings of each of very many conditions."""

_ON_A_PAGE = 2000
"""Findings from which on each condition keeps fewer: a browser takes seconds for ten thousand."""

_NEARLY = 0.95
"""A likely saving of this part of the largest is not told beside it."""

_MOST_SHORT = 3
"""Findings of a hazard in Markdown."""

LEAD = (
    "Hazards that the counters show, what helps, and the evidence. A gain is a range, as a share "
    "of the layer's time; the saving is its upper end, estimated from the counters of this backend "
    "alone, where the answer at the top counts the distance to the fastest backend. Findings of "
    "one layer are often two views of one loss, so their gains do not add up."
)


def advice_section(advice: Mapping[str, Advice]) -> Section | None:
    """Return what could be done, a table a condition, the largest possible saving first.

    Parameters
    ----------
    advice
        By the label of a condition.

    Returns
    -------
    Section or None
        None where no rule finds a hazard.
    """
    panels = []
    most = max(_LEAST, min(_MOST, _ON_A_PAGE // max(len(advice), 1)))
    for label, each in advice.items():
        groups = each.groups
        if each.listed:
            parts = (*network_tables(each), listed_table(each.listed), more_with_other_sets(each))
            panels.append(section(label, *parts, *time_texts(each.time_notes)))
        elif len(groups) or each.network:
            kept = groups.sort_values("saved_us", ascending=False, kind="stable").head(most)
            panels.append(
                section(
                    label,
                    Text(_notes(each, groups, len(kept)), note=True),
                    Notices(sentences_of(each.warnings), "this advice"),
                    *network_tables(each),
                    *_by_hazard(kept, label),
                    *time_texts(each.time_notes),
                )
            )
    if not panels:
        return None
    blocks = Panels("condition of the advice", tuple(panels))
    return section("What could be done", blocks, anchor="advice", link="Advice", lead=LEAD)


def _by_hazard(table: pd.DataFrame, label: str) -> list[Section]:
    """Return the findings hazard by hazard, so that what helps stands there once."""
    sections = []
    for _, part in table.groupby("rules", sort=False):
        first = part.iloc[0]
        rule = listed(first["rules"])
        rows = [_place(row) for row in part.to_dict("records")]
        columns = (*words("layer"), *numbers("saves up to, µs"), *words("evidence"))
        caption = f"Layers with the hazard {rule}, {label}"
        findings = ReportTable(caption, columns, rows, cards=True, most=_MOST_SHORT)
        hazard = str(first["hazard"])
        source = Text(f"{rule}; {first['source']}", note=True)
        cures = [Text(f"What to do: {each}") for each in dict.fromkeys(part["mitigation"])]
        own = [Text(f"If you write the kernel: {each}", note=True) for each in _own(part)]
        title = f"{hazard[:1].upper()}{hazard[1:]}"
        sections.append(section(title, *cures, *own, source, findings))
    return sections


def _own(findings: pd.DataFrame) -> list[str]:
    """Return what authors of kernels could do that users of them are not told."""
    said = set(findings["mitigation"])
    return [each for each in findings["for_author"].dropna().unique() if each not in said]


def _place(row: Mapping[Any, Any]) -> list[Cell]:
    """Return where a hazard is, what it may cost, and the numbers behind it."""
    layer, saved, _, evidence, _ = _finding(row, "layer")
    agreed = ""
    if isinstance(row["faster"], str):
        agreed = f". Or take {row['faster']}"
    if row["certainty"] != "firm":
        sure = IN_WORDS[row["certainty"]]
        agreed += ". How sure: likely" if sure == "likely" else f". {sure.capitalize()}"
        agreed += f": {row['tells']}" if row["tells"] else ""
    return [layer, saved, dataclasses.replace(evidence, note=f"{evidence.note}{agreed}")]


def findings_in_words(advice: Advice, groups: pd.DataFrame) -> str:
    """Say how many findings there are, and how many of them are of equal layers."""
    said = count(len(advice.table), "finding")
    return (
        said if len(groups) == len(advice.table) else f"{said}, {len(groups):,} of them different"
    )


def network_tables(advice: Advice, most: int | None = None) -> tuple[ReportTable, ...]:
    """Return what to do over all layers of a network, largest sum first; none where that is nil.

    Parameters
    ----------
    advice
        On a table.
    most
        Rows in the short forms.
    """
    if not advice.network:
        return ()
    several = len({(each.backend, each.precision, each.batch) for each in advice.network}) > 1
    rows = [_action(each, several) for each in advice.network]
    columns = (*words("hazard"), *numbers("saves up to, µs"), *words("where", "what to do"))
    caption = "What helps many layers over the whole run"
    title = "Over the whole run: what helps many layers, the largest likely sum first"
    return (ReportTable(caption, columns, rows, title=title, cards=True, most=most),)


def _action(found: NetworkFinding, several: bool) -> list[Cell]:
    """Return the cells of one action; where it was measured, if there are several networks."""
    where = _condition(dataclasses.asdict(found)) if several else ""
    gain = f"{percent(found.saved_us / found.time_us)} of {micros(found.time_us)}"
    if found.gain * found.time_us < _NEARLY * found.saved_us:
        gain += f", likely {percent(found.gain)}"
    return [
        Cell(
            f"{found.hazard[:1].upper()}{found.hazard[1:]}",
            note="; ".join(filter(None, (where, listed(found.rules)))),
        ),
        amount(found.saved_us, note=gain),
        Cell(found.evidence),
        Cell(marked(found.mitigation, found.certainty, found.tells)),
    ]


def _notes(advice: Advice, groups: pd.DataFrame, shown: int) -> str:
    rules = sorted({str(name) for name in advice.not_checked["rule"]})
    notes = [findings_in_words(advice, groups)]
    if len(groups) > shown:
        notes.append(f"the {shown} with the largest savings are shown")
    if advice.below:
        notes.append(advice.left_out)
    if rules:
        notes.append(f"not checked everywhere, for want of metrics: {listed(rules, 6)}")
    return "; ".join(notes) + "."


def findings_table(
    table: pd.DataFrame, caption: str, *, first: str = "layer", most: int | None = None
) -> ReportTable:
    """Return findings as a table; the kernel, the rule and the source stand in small print.

    Parameters
    ----------
    table
        Of an Advice (`Advice.groups`), or of a layer's advice.
    caption
        Of the table.
    first
        What a finding is of: its ``layer``, or the ``side`` of a comparison.
    most
        Rows in the short forms.
    """
    rows = [_finding(row, first) for row in table.to_dict("records")]
    columns = (
        *words(first),
        *numbers("saves up to, µs"),
        *words("hazard", "evidence", "what to do"),
    )
    return ReportTable(caption, columns, rows, cards=True, most=most)


def _finding(row: Mapping[Any, Any], first: str) -> list[Cell]:
    high = float(row["gain_high"])
    gain = percent(high)
    likely = percent(float(row["gain"]))
    if likely == percent(0):
        likely = "next to nothing"
    certainty = f", likely {likely}" if likely != percent(high) else ""
    source = str(row["source"])
    if isinstance(row["for_author"], str):
        source = f"If you write the kernel: {row['for_author']} {source[:1].upper()}{source[1:]}"
    kernel = row["kernel"] if isinstance(row["kernel"], str) else ""
    layers = row.get("layers") or (str(row[first]),)
    whole = "layer" if len(layers) == 1 else f"{len(layers)} layers together"
    return [
        Cell(group_name(layers), note="" if first == "side" else _equal(layers, row)),
        amount(float(row["saved_us"]), note=f"{gain} of the {whole}{certainty}"),
        Cell(str(row["hazard"]), note=listed(row["rules"])),
        Cell(str(row["evidence"]), note=kernel),
        Cell(what_to_do(row), note=source),
    ]


def _equal(layers: Sequence[str], row: Mapping[Any, Any]) -> str:
    """Return which layers are equal to the first, and where they were measured."""
    told = "" if len(layers) == 1 else f"equal: {listed_layers(layers[1:])}"
    return "; ".join(filter(None, (_condition(row), told)))


def _condition(row: Mapping[Any, Any]) -> str:
    """Return what tells this layer's measurement from others: backend, precision, batch."""
    known = {name: row.get(name) for name in ("backend", "precision", "batch")}
    parts = [
        f"b{value}" if name == "batch" else str(value)
        for name, value in known.items()
        if value is not None and not pd.isna(value) and value != UNKNOWN
    ]
    return " ".join(parts)
