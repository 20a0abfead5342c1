"""The first screen of a report of Nsight Compute: what takes the time, its limit, what helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
from perfml.report.labels import percent
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
    "Compute and memory: how busy the busiest unit of either was, in percent of its peak. Issue: "
    "issue slots in use. A kernel that keeps neither above 60 % waits: its limit is latency."
)


def limits_section(levels: Sequence[KernelLevels]) -> Section | None:
    """Return the kernels by time with their bars; None without any."""
    if not levels:
        return None
    names = {"anchor": "limits", "link": "Limits", "lead": _LEAD}
    return section("Kernels by time, and their limits", limits_table(levels), **names)


def limits_table(levels: Sequence[KernelLevels], most: int | None = MOST_KERNELS) -> ReportTable:
    """Return one row a kernel: launches, time, share, three bars, and the limit."""
    known = any(not math.isnan(level) for each in levels for level in _bars(each))
    rows = [
        [
            Cell(each.kernel),
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
            Cell(each.action or "–"),
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


def estimates(found: ListedFinding) -> str:
    """Say both estimates and what they are a part of."""
    if math.isnan(found.saved_us):
        return ""
    said = f"{percent(found.saved_us / found.time_us)} of {micros(found.time_us)}"
    both = (("perfml", found.perfml_us), ("Nsight Compute", found.ncu_us))
    known = [(name, value) for name, value in both if not math.isnan(value)]
    if len(known) > 1:
        said += f"; {', '.join(f'{name} {micros(value)}' for name, value in known)}"
    local = found.local and not math.isnan(found.ncu_us)
    return f"{said}; a local estimate, of one unit" if local else said


def more_with_other_sets(advice: Advice) -> Text | None:
    """Say in a line which set of counters would let more be said; None where nothing lacks."""
    rules = advice.not_checked["rule"].nunique() if len(advice.not_checked) else 0
    if not rules:
        return None
    return Text(
        f"More could be said: {count(rules, 'cause lacks', 'causes lack')} counters. Profile with "
        "ncu --metrics $(perfml metrics default --request), or --set full for Nsight Compute's."
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
    text = f"{micros(slowest.total_us)}; {slowest.sentence()}. {_BY_LIMIT[slowest.limit]}"
    gain = f"{percent(slowest.share)} of the time, limit: {slowest.limit}"
    return Sentence("do", "low", text, f"Look at {slowest.kernel}", gain, command)


def _step(found: ListedFinding, levels: Sequence[KernelLevels], *, again: bool) -> Sentence:
    """Return one finding as a step; its title has the kernel's share and limit, unless `again`."""
    own = next((each for each in levels if f": {found.kernel}".endswith(f": {each.kernel}")), None)
    hazard = found.hazard
    if len(hazard) > _TITLE:
        hazard = f"{hazard[:_TITLE].rpartition(' ')[0]} …"
    title, text = f"{found.kernel}: {hazard}", ""
    if own is not None and not again:
        share_of = f"{percent(own.share)} of the time, limit: {own.limit}"
        title = f"{found.kernel} ({share_of}): {hazard}"
        text = f"{own.kernel} takes {micros(own.total_us)}; {own.sentence()}. "
    text += f"{found.hazard}. " if hazard != found.hazard else ""
    text += f"What to do: {found.action or found.evidence}"
    gain = f"{found.says} gives no estimate"
    if not math.isnan(found.saved_us):
        gain = f"saves at most {micros(found.saved_us)} by {found.says}: {estimates(found)}"
    return Sentence("do", "low", text.rstrip(), title, gain)
