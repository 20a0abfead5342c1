"""The kernels of a report of Nsight Compute by time, and how near they are to their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfml.report.document import (
    Cell,
    ReportTable,
    Section,
    numbers,
    section,
    words,
)
from perfml.report.sections.source_lines import bars_anchor, lines_anchor
from perfml.report.tables import amount, share

if TYPE_CHECKING:
    from perfml.explain.speed_of_light import KernelLevels

MOST_KERNELS = 12
"""Kernels in the short forms."""

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
            *([Cell(each.limits)] if known else ()),
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
