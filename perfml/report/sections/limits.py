"""The kernels of a report of Nsight Compute: time, limits, and lines of the source by samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfml.report.document import Cell, ReportTable, Section, numbers, section, words
from perfml.report.tables import amount, share

if TYPE_CHECKING:
    from perfml.explain.samples import SampledLine
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


_LINES_LEAD = (
    "Look at the lines with most samples first: there warps spend the kernel's time. A sample is "
    "a warp at an instruction (section SourceCounters). Click a kernel to see its limits."
)


def bars_anchor(kernel: str, levels: Sequence[KernelLevels]) -> str:
    """Return the address of a kernel's row among the bars."""
    return f"kernel-{[each.kernel for each in levels].index(kernel)}"


def lines_anchor(kernel: str, lines: Mapping[str, object]) -> str:
    """Return the address of a kernel's first line; empty where it has none."""
    return f"lines-{list(lines).index(kernel)}" if kernel in lines else ""


def lines_section(
    lines: Mapping[str, Sequence[SampledLine]], levels: Sequence[KernelLevels]
) -> Section | None:
    """Return the sampled lines, kernel by kernel, each linked to its kernel's bars."""
    rows = [
        [
            Cell(
                kernel,
                link=bars_anchor(kernel, levels),
                anchor="" if place else lines_anchor(kernel, lines),
            ),
            Cell(each.place),
            share(each.share, bar=each.share),
            Cell(each.stall or "issues"),
            Cell(each.sass),
        ]
        for kernel, of_kernel in lines.items()
        for place, each in enumerate(of_kernel)
    ]
    if not rows:
        return None
    columns = (
        *words("kernel", "line"),
        *numbers("of its samples"),
        *words("stall reason", "instruction"),
    )
    table = ReportTable("Lines of the source by samples", columns, rows, most=8)
    return section("Source lines", table, anchor="lines", link="Lines", lead=_LINES_LEAD)
