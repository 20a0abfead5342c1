"""The machine's part of a report: layers under its roofs, and what could be done about them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report import figures
from perfml.report._figures_explain import Roofs, layer_roofs
from perfml.report._grids import Cell, Grid, amount, share
from perfml.report._kernels import printable
from perfml.report._labels import clean, count, listed, percent
from perfml.report._sections import MOST_FIGURES, picture_of, told_warnings
from perfml.report._times import Condition, conditions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain import Advice
    from perfml.explain.peaks import Peaks

_BOUNDS = {"compute": "arithmetic", "dram": "device memory", "l2": "L2 cache", "l1": "L1 cache"}

_MOST_ADVICE = 60
"""Findings of a condition in its table; the largest savings are kept."""


def roofline_section(
    shown: Sequence[Condition],
    palette: Mapping[str, str],
    series: Mapping[str, int],
    peaks: Mapping[str, float] | Peaks | None = None,
) -> list[dict[str, Any]]:
    """Return every condition's layers under the device's roofs, where its peaks are known."""
    found = []
    for place, condition in enumerate(shown[:MOST_FIGURES]):
        try:
            roofs = layer_roofs(condition.rows, peaks)
            image = picture_of(
                "Roofline",
                _caption(roofs, condition),
                f"o{place}",
                functools.partial(_draw, roofs, palette),
            )
        except PerfmlError:
            # no peaks of this device, or neither operations nor bytes
            continue
        found.append(
            {
                "label": condition.label,
                "picture": image,
                "grid": roofline_grid(roofs, condition.label, series),
            }
        )
    return found


def _draw(roofs: Roofs, palette: Mapping[str, str], width: int) -> Axes:
    return figures.layer_roofline(roofs, palette=palette, width=width)


def _caption(roofs: Roofs, condition: Condition) -> str:
    points = roofs.points[roofs.points["fraction"].notna()]
    text = f"Layers under the device's roofs, {condition.label}"
    if points.empty:
        return f"{text}."
    middle = points.groupby("backend", sort=False)["fraction"].median()
    best = points.nlargest(1, "fraction").iloc[0]
    text += (
        f"; the median layer reaches {percent(float(middle.min()))} to "
        f"{percent(float(middle.max()))} of its roof, the best ({best['layer']}, "
        f"{best['backend']}) {percent(float(best['fraction']))}."
        if len(middle) > 1
        else f"; the median layer reaches {percent(float(middle.iloc[0]))} of its roof."
    )
    text += f" Peaks, {clean(roofs.source, 300)}."
    if not roofs.counted:
        text += (
            " Bytes of device memory were not counted here: the intensity is the highest that the "
            "layer's shape allows, so a point may belong further left."
        )
    return text


def roofline_grid(roofs: Roofs, label: str, series: Mapping[str, int]) -> Grid:
    """Return the layers with the roof that bounds them and the share of it they reach."""
    rows = []
    for row in roofs.points.to_dict("records"):
        intensity = float(row["flops"]) / float(row["bytes"]) if row["bytes"] else float("nan")
        bound = row["bound"]
        rows.append(
            [
                Cell(str(row["layer"])),
                Cell(str(row["backend"]), series=series.get(str(row["backend"]))),
                amount(intensity),
                amount(float(row["flop_rate"]) / 1e12),
                Cell(_BOUNDS.get(str(bound), clean(bound, 40))),
                share(float(row["fraction"]), bar=min(max(float(row["fraction"]), 0.0), 1.0))
                if row["fraction"] == row["fraction"]
                else Cell("–"),
            ]
        )
    columns = (
        ("layer", False),
        ("backend", False),
        ("FLOP/byte", True),
        ("TFLOP/s", True),
        ("bound by", False),
        ("of its roof", True),
    )
    return Grid(f"Layers under the device's roofs, {label}", columns, rows)


def advise_conditions(
    layers: pd.DataFrame,
    kernels: pd.DataFrame | None = None,
    *,
    peaks: Mapping[str, float] | Peaks | None = None,
) -> list[tuple[str, Advice]]:
    """Check the layers of every condition against the rules of advice.

    Parameters
    ----------
    layers
        A Layers table.
    kernels
        The Kernels table behind it; rules about single launches need it.
    peaks
        As for `perfml.explain.advise`.

    Returns
    -------
    list
        Label of the condition, and what the rules say. Conditions that cannot be checked (a
        table without the columns of launches) are left out.
    """
    from perfml.explain import advise

    named = None if kernels is None else printable(kernels)
    found = []
    for condition in conditions(layers):
        launches = None if named is None else condition.select(named)
        if launches is not None and launches.empty:
            launches = None
        try:
            advice = advise(condition.rows, kernels=launches, peaks=peaks)
        except PerfmlError:
            continue
        found.append((condition.label, advice))
    return found


def advice_section(advice: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Return what could be done, a table a condition, the largest possible saving first.

    Parameters
    ----------
    advice
        Label of a condition, and an Advice or its ``table``.
    """
    found = []
    for label, each in advice:
        table: pd.DataFrame = getattr(each, "table", each)
        if table.empty:
            continue
        kept = table.sort_values("saved_us", ascending=False, kind="stable").head(_MOST_ADVICE)
        below = int(getattr(each, "below", 0))
        unchecked = getattr(each, "not_checked", None)
        rules = [] if unchecked is None else sorted({clean(name, 60) for name in unchecked["rule"]})
        notes = [count(len(table), "finding")]
        if len(table) > len(kept):
            notes.append(f"the {len(kept)} with the largest savings are shown")
        if below:
            notes.append(f"{below} more promise too little to be listed")
        if rules:
            notes.append(f"not checked everywhere, for want of metrics: {listed(rules, 6)}")
        found.append(
            {
                "label": label,
                "grid": advice_grid(kept, label),
                "notes": "; ".join(notes),
                "warnings": told_warnings(getattr(each, "warnings", ())),
            }
        )
    return found


def advice_grid(table: pd.DataFrame, label: str) -> Grid:
    """Return findings as a table; the kernel, the rule and the source stand in small print."""
    rows = [_finding(row) for row in table.to_dict("records")]
    columns = (
        ("layer", False),
        ("saves up to, µs", True),
        ("hazard", False),
        ("evidence", False),
        ("what to do", False),
    )
    return Grid(f"What could be done, {label}", columns, rows, cards=True)


def _finding(row: Mapping[Any, Any]) -> list[Cell]:
    backend = clean(row.get("backend"), 200)
    low, high = _number(row.get("gain_low")), _number(row.get("gain_high"))
    saved = _number(row.get("saved_us"))
    gain = ""
    if high == high:
        same = low != low or percent(low) == percent(high)
        gain = percent(high) if same else f"{percent(low)} to {percent(high)}"
        gain += " of the layer"
    kernel = row.get("kernel")
    named = isinstance(kernel, str) and kernel != ""
    ncu = row.get("ncu")
    beside = {"agree": "; Nsight Compute agrees", "silent": "; Nsight Compute is silent"}
    source = clean(row.get("source"), 300) + beside.get(ncu if isinstance(ncu, str) else "", "")
    return [
        Cell(clean(row.get("layer"), 200), note=backend),
        amount(saved, note=gain),
        Cell(clean(row.get("hazard"), 300), note=clean(row.get("rule"), 80)),
        Cell(clean(row.get("evidence"), 600), note=clean(kernel, 160) if named else ""),
        Cell(clean(row.get("mitigation"), 600), note=source),
    ]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
