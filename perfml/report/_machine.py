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
from perfml.report._labels import clean, count, micros, percent
from perfml.report._sections import MOST_FIGURES, picture_of
from perfml.report._times import Condition

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain.peaks import Peaks

_BOUNDS = {"compute": "arithmetic", "dram": "device memory", "l2": "L2 cache", "l1": "L1 cache"}

_MOST_ADVICE = 400
"""Findings in the table; the largest gains are kept."""


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


def advice_section(
    advice: Sequence[tuple[str, pd.DataFrame]],
    shown: Sequence[Condition],
    series: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Return what could be done, a table a condition, the largest possible saving first.

    Parameters
    ----------
    advice
        Label of a condition and its findings, one row a finding: ``layer, backend, rule, hazard,
        evidence, mitigation, gain_low, gain_high, source``; a gain is a fraction of the layer's
        time.
    shown
        The conditions, for the layers' times.
    series
        Backend to the number of its colour.
    """
    times = {
        (each.label, str(row["layer"]), str(row["backend"])): float(row["median"])
        for each in shown
        for row in each.times.to_dict("records")
    }
    found = []
    for label, table in advice:
        if table.empty:
            continue
        rows = [_finding(row, label, times, series) for row in table.to_dict("records")]
        rows.sort(key=lambda row: -(row[2].value or 0.0))
        columns = (
            ("layer", False),
            ("backend", False),
            ("saving up to", True),
            ("gain", True),
            ("hazard", False),
            ("evidence", False),
            ("what to do", False),
            ("source", False),
        )
        kept = rows[:_MOST_ADVICE]
        found.append(
            {
                "label": label,
                "grid": Grid(f"What could be done, {label}", columns, kept),
                "cut": len(rows) - len(kept),
                "count": count(len(rows), "finding"),
            }
        )
    return found


def _finding(
    row: Mapping[Any, Any],
    label: str,
    times: Mapping[tuple[str, str, str], float],
    series: Mapping[str, int],
) -> list[Cell]:
    layer, backend = clean(row.get("layer"), 200), clean(row.get("backend"), 200)
    low, high = _number(row.get("gain_low")), _number(row.get("gain_high"))
    time = times.get((label, layer, backend), float("nan"))
    saved = high * time
    gain = Cell("–")
    if high == high:
        same = low != low or percent(low) == percent(high)
        text = percent(high) if same else f"{percent(low)} to {percent(high)}"
        gain = Cell(text, value=high)
    return [
        Cell(layer),
        Cell(backend, series=series.get(backend)),
        Cell(micros(saved), value=saved) if saved == saved else Cell("–"),
        gain,
        Cell(clean(row.get("hazard"), 300), note=clean(row.get("rule"), 80)),
        Cell(clean(row.get("evidence"), 600)),
        Cell(clean(row.get("mitigation"), 600)),
        Cell(clean(row.get("source"), 300)),
    ]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
