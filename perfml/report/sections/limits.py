"""The kernels of a report of Nsight Compute: time, limits, and lines of the source by samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from perfml.account.time_sources import time_notes
from perfml.report import figures
from perfml.report.document import (
    Cell,
    Fold,
    Panels,
    ReportTable,
    Section,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.figures.comparisons import Roofs
from perfml.report.results import Results
from perfml.report.tables import amount, illustrated, share, time_texts
from perfml.util.words import percent, say

if TYPE_CHECKING:
    from perfml.explain.lines import SampledLine
    from perfml.explain.speed_of_light import KernelLevels

MOST_KERNELS = 12
"""Kernels in the short forms."""


def limits_section(levels: Sequence[KernelLevels], lines: Mapping[str, object]) -> Section | None:
    """Return the kernels by time with their bars; None without any.

    A kernel leads to its source lines where `lines` has it.
    """
    if not levels:
        return None
    names = {"anchor": "limits", "link": "Limits", "lead": say("report.lead.limits")}
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
    return section(
        "Source lines", table, anchor="lines", link="Lines", lead=say("report.lead.lines")
    )


_BOUNDS = {"compute": "arithmetic", "dram": "device memory", "l2": "L2 cache", "l1": "L1 cache"}


def roofline_section(results: Results) -> Section | None:
    """Return every condition's layers under the device's roofs; None without any."""
    panels = []
    rows = {condition.label: condition.rows for condition in results.conditions}
    for label, roofs in results.roofs.items():
        if not roofs.counted:
            notes = time_texts(time_notes(("", rows[label])))
            panels.append(section(label, _rates(roofs, label), *notes))
            continue
        draw = functools.partial(figures.layer_roofline, roofs, palette=results.palette)
        picture = illustrated("Roofline", _roofs_caption(roofs, label), draw)
        notes = time_texts(time_notes(("", rows[label])))
        table = roofline_table(roofs, label, results.series)
        panels.append(section(label, picture, Fold(table.caption, (table,)), *notes))
    if not panels:
        return None
    return Section(
        "How far from the machine's roofs",
        (Panels("condition of the roofline", tuple(panels)),),
        anchor="roofline",
        link="Roofline",
        page_only=True,
    )


def _rates(roofs: Roofs, label: str) -> Text:
    """Say what is known without counted bytes: the share of the arithmetic peak."""
    known = roofs.points[roofs.points["flop_rate"].notna()]
    if known.empty:
        return Text(f"No roofline, {label}: neither operations nor bytes were counted.")
    rates = known["flop_rate"].astype(float) / max(roofs.flops.values())
    best = known.iloc[int(rates.to_numpy().argmax())]
    return Text(
        f"For a roofline of {label}, collect with --metrics roofline: bytes of device memory were "
        f"not counted. The median layer reaches {percent(rates.median())} of the arithmetic peak, "
        f"the best ({best['layer']}, {best['backend']}) {percent(rates.max())}. "
        f"Peaks, {roofs.source}."
    )


def _roofs_caption(roofs: Roofs, label: str) -> str:
    text = f"Layers under the device's roofs, {label}{_reached(roofs.points)}."
    return f"{text} Peaks, {roofs.source}."


def _reached(points: pd.DataFrame) -> str:
    """Say how much of their roofs the layers reach, where these are known."""
    known = points[points["fraction"].notna()]
    if known.empty:
        return ""
    middle = known.groupby("backend", sort=False)["fraction"].median()
    low, high = float(middle.min()), float(middle.max())
    if len(middle) == 1:
        return f"; the median layer reaches {percent(low)} of its roof"
    best = known.iloc[int(known["fraction"].argmax())]
    return (
        f"; the median layer reaches {percent(low)} to {percent(high)} of its roof, the best "
        f"({best['layer']}, {best['backend']}) {percent(float(best['fraction']))}"
    )


def roofline_table(roofs: Roofs, label: str, series: Mapping[str, int]) -> ReportTable:
    """Return the layers with the roof that bounds them and the share of it they reach."""
    rows = []
    for row in roofs.points.to_dict("records"):
        intensity = float(row["flops"]) / float(row["bytes"]) if row["bytes"] else float("nan")
        backend, fraction = str(row["backend"]), float(row["fraction"])
        rows.append(
            [
                Cell(str(row["layer"])),
                Cell(backend, series=series.get(backend)),
                amount(intensity),
                amount(float(row["flop_rate"]) / 1e12),
                Cell(_BOUNDS.get(str(row["bound"]), str(row["bound"]))),
                share(fraction, bar=fraction),
            ]
        )
    columns = (
        *words("layer", "backend"),
        *numbers("FLOP/byte", "TFLOP/s"),
        *words("bound by"),
        *numbers("of its roof"),
    )
    return ReportTable(f"Layers under the device's roofs, {label}", columns, rows)
