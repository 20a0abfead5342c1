"""The first screen of a report of Nsight Compute: what takes the time, its limit, what helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfml.explain.confidence import marked, with_check
from perfml.report.document import (
    Cell,
    ReportTable,
    Section,
    Sentence,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.labels import capital, percent
from perfml.report.sections.source_lines import bars_anchor, lines_anchor
from perfml.report.tables import amount, said_once, share
from perfml.util.words import count, micros

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.file_rules import ListedFinding
    from perfml.explain.speed_of_light import KernelLevels

MOST_KERNELS = 12
"""Kernels in the short forms."""

_TITLE = 90
"""Characters of a finding in a title."""

_STEPS = 3
"""Findings at the top of a page."""

_LEAD = (
    "Compute and memory (SOL): how busy the busiest unit of either was, in percent of its peak. "
    "Issue: issue slots in use. With neither above 60 %, latency is the limit."
)


def limits_section(levels: Sequence[KernelLevels], lines: Mapping[str, object]) -> Section | None:
    """Return the kernels by time with their bars; None without any.

    A kernel leads to its source lines where `lines` has it.
    """
    if not levels:
        return None
    names = {"anchor": "limits", "link": "Limits", "lead": _LEAD}
    return section("Kernels by time, and their limits", limits_table(levels, lines=lines), **names)


def limits_table(
    levels: Sequence[KernelLevels],
    most: int | None = MOST_KERNELS,
    *,
    lines: Mapping[str, object] | None = None,
) -> ReportTable:
    """Return one row a kernel: launches, time, share, three bars, and the limit."""
    known = any(not math.isnan(level) for each in levels for level in _bars(each))
    rows = [
        [
            Cell(
                each.kernel,
                link=lines_anchor(each.kernel, lines or {}),
                anchor=bars_anchor(each.kernel, levels),
            ),
            Cell(f"{each.launches:,}", value=each.launches),
            amount(each.time_us),
            share(each.share, bar=each.share),
            *(share(level, bar=level) for level in _bars(each) if known),
            *([Cell(each.limit)] if known else ()),
        ]
        for each in levels
    ]
    columns = (
        *words("kernel"),
        *numbers("launches", "µs a launch", "of all time"),
        *((*numbers("compute", "memory", "issue"), *words("limit")) if known else ()),
    )
    title = "Kernels by their time"
    title += ", and how near they are to their limits (of peak)" if known else ""
    return ReportTable(title, columns, rows, most=most, spare=("launches", "issue"), bars=True)


def _bars(each: KernelLevels) -> tuple[float, float, float]:
    return each.compute, each.memory, each.issue


def listed_table(found: Sequence[ListedFinding], most: int | None = None) -> ReportTable:
    """Return the findings of perfml and of Nsight Compute as one table."""
    rows = [
        [
            Cell(
                each.kernel,
                note=": ".join(filter(None, (f"said by {each.says}", ", ".join(each.rules)))),
            ),
            amount(each.saved_us, note=estimates(each)),
            Cell(each.hazard, note=each.evidence),
            Cell(_marked(each) or "–"),
        ]
        for each in found
    ]
    rows = said_once(rows)
    columns = (
        *words("kernel"),
        *numbers("saves up to, µs"),
        *words("finding", "what to do"),
    )
    title = (
        "Findings of perfml and of Nsight Compute, the largest saving first (they do not add up)"
    )
    return ReportTable(title, columns, rows, cards=True, most=most)


def _marked(found: ListedFinding) -> str:
    if found.confidence is None:
        return found.action
    return marked(found.action, found.confidence, found.tells)


def estimates(found: ListedFinding) -> str:
    """Say both estimates and what they are a part of."""
    if math.isnan(found.saved_us):
        return ""
    said = f"{percent(found.saved_us / found.time_us)} of {micros(found.time_us)}"
    both = (("perfml", found.perfml_us), ("Nsight Compute", found.ncu_us))
    known = [f"{name} {micros(value)}" for name, value in both if not math.isnan(value)]
    said += f" ({', '.join(known) if len(known) > 1 else f'estimate of {found.says}'})"
    local = found.local and not math.isnan(found.ncu_us)
    return f"{said}, of one unit alone" if local else said


def more_with_other_sets(advice: Advice) -> Text | None:
    """Say in a line which set of counters would let more be said; None where nothing lacks."""
    rules = advice.not_checked["rule"].nunique() if len(advice.not_checked) else 0
    if not rules:
        return None
    return Text(
        "For more, profile with ncu --metrics $(perfml metrics default --request), or --set full. "
        f"{count(rules, 'cause lacks', 'causes lack')} counters."
    )


def listed_steps(levels: Sequence[KernelLevels], listed: Sequence[ListedFinding]) -> list[Sentence]:
    """Return what to do first about a report of Nsight Compute, the largest saving first.

    `levels` are its kernels by time, `listed` the findings of perfml and of Nsight Compute.
    """
    estimated = [each for each in listed if not math.isnan(each.saved_us)]
    first = (estimated or listed)[:_STEPS]
    told = [each.kernel for each in first]
    return [
        _step(each, levels, again=each.kernel in told[:place]) for place, each in enumerate(first)
    ]


_BY_LIMIT = {
    "compute": "Compute less, in a narrower type, or on tensor cores.",
    "memory": "Move fewer bytes: fuse kernels, use a narrower type, keep tiles on the chip.",
    "latency": "Give it more warps, or more independent work a thread; stall reasons tell which.",
}


def bars_step(slowest: KernelLevels, command: str) -> Sentence:
    """Return where to look where no rule found anything: at the longest kernel and its limit."""
    text = f"{_BY_LIMIT[slowest.limit]} {capital(slowest.sentence())}."
    gain = f"{micros(slowest.total_us)}, {percent(slowest.share)} of the time, {slowest.limit}"
    return Sentence("do", "low", text, f"Look at {slowest.kernel}", gain, command)


def _step(found: ListedFinding, levels: Sequence[KernelLevels], *, again: bool) -> Sentence:
    """Return one finding as a step: what to do, then the kernel's time and limit unless `again`."""
    own = next((each for each in levels if f": {found.kernel}".endswith(f": {each.kernel}")), None)
    hazard = found.hazard
    if len(hazard) > _TITLE:
        hazard = f"{hazard[:_TITLE].rpartition(' ')[0]} …"
    sure = found.confidence or "low"
    texts = [with_check(found.action or found.evidence, sure, found.tells)]
    if hazard != found.hazard:
        texts.append(found.hazard)
    if own is not None and not again:
        texts.append(f"Why: it takes {micros(own.total_us)}, {percent(own.share)} of the time")
        texts.append(capital(own.sentence()))
    gain = f"no estimate from {found.says}"
    if not math.isnan(found.saved_us):
        gain = f"saves at most {micros(found.saved_us)}, {estimates(found)}"
    text = " ".join(f"{each.rstrip(' .')}." for each in texts if each)
    layer, _, kernel = found.kernel.rpartition(": ")
    title = f"{capital(hazard)} in {kernel}" + f" ({layer})" * bool(layer)
    return Sentence("do", sure, text, title, gain)
