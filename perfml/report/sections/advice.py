"""What could be done: the findings of an answer, as steps, as one table, and layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from perfml.explain.advice.finding import listed_layers, saving
from perfml.explain.advice.unexplained import NOT_KNOWN
from perfml.explain.confidence import marked, with_check
from perfml.kernel_names import shortened
from perfml.report.document import (
    Block,
    Cell,
    Fold,
    Panels,
    ReportTable,
    Section,
    Sentence,
    Text,
    notices,
    numbers,
    section,
    words,
)
from perfml.report.tables import amount, said_once, sentences_of, time_texts
from perfml.util.shown import shorter
from perfml.util.words import capital, count, ended, listed, micros, percent, say

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.finding import Finding
    from perfml.explain.speed_of_light import KernelLevels

_MOST = 8
"""Findings of a condition that a page shows; those that are expected to save most are kept."""

_FOLDED = 40
"""Further ones behind a click."""

_ON_A_PAGE = 2000
"""Findings from which on each condition keeps fewer: a browser takes seconds for ten thousand."""

_NAME = 64
"""Characters of the name of a layer or kernel in a title; the tables below have all of it."""
_TITLE = 90
"""Characters of a finding in a title; of a longer sentence it is the rule that says it."""


def advice_section(advice: Mapping[str, Advice]) -> Section | None:
    """Return what could be done, a table a condition, in the order of the answer.

    Advice stands by the label of a condition; None where no rule finds a hazard.
    """
    folded = min(_FOLDED, _ON_A_PAGE // max(len(advice), 1))
    panels = [
        section(
            label,
            *notices(sentences_of(each.warnings), "this advice"),
            *_tables(each.findings, folded, label),
            Text(_notes(each), note=True),
            *time_texts(each.time_notes),
        )
        for label, each in advice.items()
        if any(one.gain is not None or one.evidence for one in each.findings)
    ]
    if not panels:
        return None
    blocks = Panels("condition of the advice", tuple(panels))
    return section(
        "What could be done", blocks, anchor="advice", link="Advice", lead=say("report.lead.advice")
    )


def _tables(found: Sequence[Finding], folded: int, label: str) -> list[Block]:
    """Return the first findings, and the others behind a click."""
    blocks: list[Block] = [answer_table(found[:_MOST], f"Findings, {label}")]
    more = found[_MOST : _MOST + folded]
    if more:
        table = answer_table(more, f"Further findings, {label}")
        blocks.append(Fold(count(len(more), "further finding"), (table,)))
    return blocks


def answer_table(found: Sequence[Finding], caption: str, most: int | None = None) -> ReportTable:
    """Return findings as they are ordered: where, what is saved, what it is, what to do."""
    rows = said_once([_row(each) for each in found])
    columns = (
        *words("where"),
        *numbers("likely saves, µs"),
        *words("finding", "what to do"),
    )
    return ReportTable(caption, columns, rows, cards=True, most=most)


def _row(one: Finding) -> list[Cell]:
    where = one.where
    told = [str(part) for part in (where.backend, where.precision) if part not in (None, "unknown")]
    told += [f"b{where.batch}"] if where.batch is not None else []
    if len(where.layers) > 1:
        told.append(f"equal: {listed_layers(where.layers[1:])}")
    do = " ".join(filter(None, (marked(one.what_to_do, one.confidence, one.tells), one.command)))
    return [
        Cell(where.name or "the whole run", note="; ".join(told)),
        amount(one.likely_us, note=_part(one)),
        Cell(capital(one.hazard), note="; ".join(filter(None, (one.evidence, _who(one))))),
        Cell(do or "–", note=f"To check: {one.check}." if one.check else ""),
    ]


def _part(one: Finding) -> str:
    """Say what part of the time is saved, likely and at most."""
    if one.gain is None:
        return ""
    likely, high = (percent(us / one.holds.us) for us in (one.likely_us, one.saved_us))
    most = f", at most {high}" if high != likely else ""
    return f"{likely} of {micros(one.holds.us)}{most}"


def _who(one: Finding) -> str:
    rules = f": {listed(one.rules, 4)}" if one.rules else ""
    return f"said by {listed(one.says, 4)}{rules}"


def finding_steps(
    found: Sequence[Finding], levels: Sequence[KernelLevels], label: str = ""
) -> list[Sentence]:
    """Return findings as things to do; `levels` say of a kernel what it takes, and its limit.

    `label` is the condition that they hold for, where there are several.
    """
    told: set[str] = set()
    steps = []
    for one in found:
        names = {*one.where.layers, one.where.kernel}
        own = [each for each in levels if each.kernel in names]
        own = [] if told & {each.kernel for each in own} else own
        steps.append(_step(one, own, label))
        told |= names
    return steps


def _step(one: Finding, own: Sequence[KernelLevels], label: str) -> Sentence:
    """Return a finding as a thing to do; `own` are its kernels, the longest first."""
    long = len(one.hazard) > _TITLE
    hazard = one.hazard
    if long and "perfml" in one.says:
        hazard = shorter(hazard, _TITLE)
    elif long:  # a message of Nsight Compute has the name of its rule
        hazard = f"{listed(one.says, 4)}: {listed(one.rules, 4)}"
    title = capital(hazard)
    if one.where.name and NOT_KNOWN not in one.rules:  # which names the kernel to measure
        title = f"{title} in {shortened([one.where.name], _NAME)[0]}"
    why = [one.hazard if long else "", one.evidence]
    if own:
        it = "it takes" if len(own) == 1 else f"these {len(own)} take"
        why.append(f"{it} {percent(sum(each.share for each in own))} of the time")
        why.append(own[0].sentence() if len(own) == 1 else f"of the longest, {own[0].sentence()}")
    why = [each for each in why if each]
    text = with_check(one.what_to_do, one.confidence, one.tells)
    text = ended(text)
    if why:
        at = f"at {label}, " if label else ""
        reasons = " ".join(ended(capital(each)) for each in why)
        text = " ".join(filter(None, (text, f"Why: {at}{reasons}")))
    look: Literal["", "unknown"] = "" if one.gain is not None else "unknown"
    return Sentence("do", one.confidence, text, title, saving(one), one.command, look)


def _notes(advice: Advice) -> str:
    rules = len({str(name) for name in advice.not_checked["rule"]})
    notes = [advice.title]
    if advice.below:
        notes.append(advice.left_out)
    if rules:
        notes.append(f"Counters of {count(rules, 'cause')} are missing in part")
    return f"{'. '.join(notes)}. All of them: perfml advise."


def more_with_other_sets(advice: Advice) -> Text | None:
    """Say in a line which set of counters would let more be said; None where nothing lacks."""
    rules = advice.not_checked["rule"].nunique() if len(advice.not_checked) else 0
    if not rules:
        return None
    return Text(
        "For more, profile with ncu --metrics $(perfml metrics default --request), or --set full. "
        f"{count(rules, 'cause lacks', 'causes lack')} counters."
    )
