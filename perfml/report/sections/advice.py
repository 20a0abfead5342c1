"""What could be done: the hazards that the counters show, with their evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.datasets.loading import UNKNOWN
from perfml.explain.advice.equal_layers import group_name, listed_layers
from perfml.explain.advice.persons import what_to_do
from perfml.explain.confidence import marked
from perfml.report.document import (
    Block,
    Cell,
    Fold,
    Notices,
    Panels,
    ReportTable,
    Section,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.labels import capital, listed, percent
from perfml.report.sections.first_screen import listed_table, more_with_other_sets
from perfml.report.tables import amount, said_once, sentences_of, time_texts
from perfml.util.words import count, micros

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.network import NetworkFinding

_MOST = 8
"""Findings of a condition that a page shows; the largest savings are kept."""

_FOLDED = 40
"""Further ones behind a click."""

_ON_A_PAGE = 2000
"""Findings from which on each condition keeps fewer: a browser takes seconds for ten thousand."""

_NETWORK = 4
"""Actions over a whole network that a page shows."""

_NEARLY = 0.95
"""A likely saving of this part of the largest is not told beside it."""

LEAD = (
    "A saving is an upper bound from the counters of one backend alone. Findings of a layer are "
    "often two views of one loss: they do not add up."
)


def advice_section(advice: Mapping[str, Advice]) -> Section | None:
    """Return what could be done, a table a condition, the largest possible saving first.

    Advice stands by the label of a condition; None where no rule finds a hazard.
    """
    panels = []
    folded = min(_FOLDED, _ON_A_PAGE // max(len(advice), 1))
    for label, each in advice.items():
        groups = each.groups
        if each.listed:
            parts = (*network_tables(each), listed_table(each.listed), more_with_other_sets(each))
            panels.append(section(label, *parts, *time_texts(each.time_notes)))
        elif len(groups) or each.network:
            rows = groups.sort_values("saved_us", ascending=False, kind="stable")
            panels.append(
                section(
                    label,
                    Notices(sentences_of(each.warnings), "this advice"),
                    *(
                        dataclasses.replace(table, rows=table.rows[:_NETWORK])
                        for table in network_tables(each)
                    ),
                    *_findings(rows, folded, label),
                    Text(_notes(each, groups), note=True),
                    *time_texts(each.time_notes),
                )
            )
    if not panels:
        return None
    blocks = Panels("condition of the advice", tuple(panels))
    return section("What could be done", blocks, anchor="advice", link="Advice", lead=LEAD)


def _findings(rows: pd.DataFrame, folded: int, label: str) -> list[Block]:
    """Return the largest findings, and the others behind a click."""
    blocks: list[Block] = []
    if len(rows):
        blocks.append(findings_table(rows.head(_MOST), f"Findings, {label}", sources=False))
    more = rows.iloc[_MOST : _MOST + folded]
    if len(more):
        table = findings_table(more, f"Further findings, {label}", sources=False)
        blocks.append(Fold(f"{count(len(more), 'further finding')}", (table,)))
    return blocks


def findings_in_words(advice: Advice, groups: pd.DataFrame) -> str:
    """Say how many findings there are, and how many of them are of equal layers."""
    said = count(len(advice.table), "finding")
    return (
        said if len(groups) == len(advice.table) else f"{said}, {len(groups):,} of them different"
    )


def network_tables(advice: Advice, most: int | None = None) -> tuple[ReportTable, ...]:
    """Return what to do over all layers of a network, largest sum first; none where that is nil.

    One action under several backends is one row; `most` rows in the short forms.
    """
    if not advice.network:
        return ()
    alike: dict[tuple[object, ...], list[NetworkFinding]] = {}
    for each in advice.network:
        alike.setdefault((each.rules, each.mitigation), []).append(each)
    several = len({(each.backend, each.precision, each.batch) for each in advice.network}) > 1
    rows = [_action(found, several) for found in alike.values()]
    columns = (*words("hazard"), *numbers("saves up to, µs"), *words("where", "what to do"))
    caption = "What helps many layers over the whole run"
    title = "Over the whole run: what helps many layers, the largest likely sum first"
    return (ReportTable(caption, columns, rows, title=title, cards=True, most=most),)


def _action(found: Sequence[NetworkFinding], several: bool) -> list[Cell]:
    """Return the cells of one action; where it was measured, if there are several networks."""
    first = found[0]
    gains = []
    for each in found:
        where = f"{_condition(dataclasses.asdict(each))}: " if several else ""
        gain = f"{where}{percent(each.saved_us / each.time_us)} of {micros(each.time_us)}"
        if each.gain * each.time_us < _NEARLY * each.saved_us:
            gain += f", likely {percent(each.gain)}"
        gains.append(gain)
    return [
        Cell(capital(first.hazard), note=listed(first.rules)),
        amount(first.saved_us, note="; ".join(gains)),
        Cell(first.evidence),
        Cell(marked(first.mitigation, first.confidence, first.tells)),
    ]


def _notes(advice: Advice, groups: pd.DataFrame) -> str:
    rules = len({str(name) for name in advice.not_checked["rule"]})
    notes = [findings_in_words(advice, groups)]
    if advice.below:
        notes.append(advice.left_out)
    if rules:
        notes.append(f"Counters of {count(rules, 'cause')} are missing in part")
    return f"{'. '.join(notes)}. All of them: perfml advise."


def findings_table(
    table: pd.DataFrame,
    caption: str,
    *,
    first: str = "layer",
    most: int | None = None,
    sources: bool = True,
) -> ReportTable:
    """Return findings as a table; the kernel, the rule and the source stand in small print.

    `table` is of an Advice (`Advice.groups`), or a layer's advice; `first` is what a finding is of,
    its ``layer`` or the ``side`` of a comparison; `most` are rows in the short forms. With
    `sources` it is told where a rule is from, and what authors of kernels could do.
    """
    rows = said_once([_finding(row, first, sources) for row in table.to_dict("records")])
    columns = (
        *words(first),
        *numbers("saves up to, µs"),
        *words("hazard", "evidence", "what to do"),
    )
    return ReportTable(caption, columns, rows, cards=True, most=most)


def _finding(row: Mapping[Any, Any], first: str, sources: bool) -> list[Cell]:
    high = float(row["gain_high"])
    gain = percent(high)
    likely = percent(float(row["gain"]))
    if likely == percent(0):
        likely = "next to nothing"
    certainty = f", likely {likely}" if likely != percent(high) else ""
    source = str(row["source"])
    if isinstance(row["for_author"], str):
        source = f"If you write the kernel: {row['for_author']} {capital(source)}"
    kernel = row["kernel"] if isinstance(row["kernel"], str) else ""
    layers = row.get("layers") or (str(row[first]),)
    whole = "layer" if len(layers) == 1 else f"{len(layers)} layers together"
    return [
        Cell(group_name(layers), note="" if first == "side" else _equal(layers, row)),
        amount(float(row["saved_us"]), note=f"{gain} of the {whole}{certainty}"),
        Cell(str(row["hazard"]), note=listed(row["rules"])),
        Cell(str(row["evidence"]), note=kernel),
        Cell(what_to_do(row), note=source if sources else ""),
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
