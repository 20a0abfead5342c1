"""Figures of two sides: time ratios a layer, what a difference is made of, the device's roofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml.datasets.loading import DEVICE_FACTS
from perfml.errors import PerfmlError
from perfml.report.conditions import named_layers
from perfml.report.figures.axes import is_narrow, name_rows, row_height, tell
from perfml.report.figures.metrics import roofline
from perfml.report.figures.style import (
    FASTER,
    INK,
    PALETTE,
    SLOWER,
    new_axes,
    plain,
    styled,
    two_lines,
)
from perfml.util.words import factor_text, multiple, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain.results import Explanation, LayerDiff
    from perfml.explain.roofs.peaks import Peaks

NEITHER = PALETTE[6]

_VERDICTS = {"slower": SLOWER, "faster": FASTER}
_STEPS = (2.0, 10.0, 100.0, 5.0, 1.5, 1000.0, 3.0, 1.2, 1.1, 1.05, 1.02, 1.01, 20.0, 50.0)
"""Factors that an axis may be labelled with, the plainest first."""

_SMALLEST = 1e-4
"""Log ratio of the smallest term that is drawn."""


@styled
def time_ratios(
    explanation: Explanation,
    *,
    most: int = 40,
    ax: Axes | None = None,
    width: float = 900,
) -> Axes:
    """Draw how much slower the target is on every layer, with the interval from the repeats.

    Parameters
    ----------
    explanation
        Whose ``layers`` are drawn.
    most
        Layers drawn; of more, those with the largest shares of the difference.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If no layer has a ratio.
    """
    table = explanation.layers
    rows = table[table["ratio"].notna()]
    if rows.empty:
        msg = "no layer has a time ratio"
        raise PerfmlError(msg, cure="Compare sides that have layers in common.")
    whole = len(rows)
    if whole > most:
        rows = rows.loc[sorted(rows["share"].nlargest(most).index)]
    ax = new_axes(ax, width, 19 * len(rows) + 84)
    ratio = rows["ratio"].to_numpy(float)
    names = [str(name) for name in rows["layer"]]
    low = rows["low"].fillna(rows["ratio"]).to_numpy(float)
    high = rows["high"].fillna(rows["ratio"]).to_numpy(float)
    for at, (value, start, end, verdict) in enumerate(
        zip(ratio, low, high, rows["verdict"], strict=True)
    ):
        tint = _VERDICTS.get(str(verdict), NEITHER)
        ax.plot([1, value], [at, at], color=tint, linewidth=1.2, alpha=0.5, zorder=2)
        ax.plot([start, end], [at, at], color=tint, linewidth=4, solid_capstyle="butt", zorder=3)
        filled = tint if str(verdict) in _VERDICTS else "none"
        point = ax.plot(value, at, "o", color=tint, markerfacecolor=filled, markersize=7, zorder=4)
        text = f"{names[at]}: {multiple(value)} ({number(start)} to {number(end)}), {verdict}"
        tell(point, [text], [names[at]])
    ax.axvline(1, color=INK, linewidth=1)
    ax.set_xscale("log")
    ends = [float(min(low.min(), 1 / 1.04)), float(max(high.max(), 1.04))]
    narrow = is_narrow(width)
    _factor_axis(ax, *ends, few=narrow)
    name_rows(ax, [plain(name, 24) for name in rows["layer"]], above=0.6, below=0.6)
    target, baseline = plain(explanation.target, 24), plain(explanation.baseline, 24)
    ax.set_xlabel(
        "time ratio (log); hollow: no difference"
        if narrow
        else f"time of {target} over {baseline} (log scale); hollow: no difference, or undecided"
    )
    if whole > len(rows):
        ax.set_title(f"The {len(rows)} largest differences of {whole} layers")
    return ax


def _factor_axis(ax: Axes, low: float, high: float, *, few: bool) -> None:
    """Label an axis of ratios with factors, few enough to read; it is logarithmic already."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    pad = (high / low) ** 0.04
    low, high = low / pad, high * pad
    apart = np.log(high / low) / (3.2 if few else 6)
    ticks = [1.0]
    for step in _STEPS:
        for tick in (step, 1 / step):
            near = min(abs(np.log(tick / each)) for each in ticks)
            if low <= tick <= high and near >= apart:
                ticks.append(tick)
    ax.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{float(f'{value:.3g}'):,g}×"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low, high)


@styled
def attribution(
    found: LayerDiff | pd.DataFrame,
    *,
    most: int = 9,
    ax: Axes | None = None,
    width: float = 640,
) -> Axes:
    """Draw what a time ratio is made of: a bar a term, to the right what makes the target slower.

    Parameters
    ----------
    found
        A LayerDiff (its causes), or a DataFrame with the columns ``label`` (or ``term``,
        ``metric``) and ``log_ratio``.
    most
        Terms drawn; the rest is summed up, so that the bars always add up to the last one.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If there is no term.
    """
    terms = found if isinstance(found, pd.DataFrame) else found.causes.terms
    names, values, whole = _terms(terms, most)
    narrow = is_narrow(width)
    labels = [two_lines(name, 26 if narrow else 48) for name in names]
    ax = new_axes(ax, width, row_height(labels, 26) * (len(values) + 1) + 78)
    place = np.arange(len(values) + 1, dtype=float)
    shown = np.array([*values, whole])
    tints = [SLOWER if value > 0 else FASTER for value in values]
    factors = np.exp(shown)
    lefts = np.minimum(factors, 1.0)
    sizes = np.maximum(factors, 1.0) - lefts
    bars = ax.barh(place, sizes, 0.6, left=lefts, color=[*tints, INK])
    said = zip([*names, "all together"], factors, strict=True)
    tell(bars, [f"{name}: {factor_text(factor)} on the time" for name, factor in said])
    ax.set_xscale("log")
    low, high = float(min(factors.min(), 0.98)), float(max(factors.max(), 1.02))
    # a phone's names leave the axis so little that the numbers take two thirds of it
    numbers = [factor_text(factor) for factor in factors]
    longest = len(numbers[int(factors.argmax())]) - len("×1.23")
    room = (high / low) ** ((0.85 if narrow else 0.24) + 0.12 * max(longest, 0))
    for at, factor, text in zip(place, factors, numbers, strict=True):
        right = factor >= 1
        ax.annotate(
            text,
            (float(factor), float(at)),
            xytext=(4 if right else -4, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            color=INK,
        )
    before = (high / low) ** (1.3 if narrow else 0.45) if factors.min() < 1 else 1.02
    _factor_axis(ax, low / before, high * room, few=narrow)
    ax.axvline(1, color=INK, linewidth=1)
    name_rows(ax, [*labels, "all together"], above=0.6)
    ax.set_xlabel(
        "factor on the time (log)"
        if narrow
        else "factor on the time (log scale); to the right: slower",
        # long names leave the axis less room than this takes: it ends where the axis does
        loc="right",
    )
    return ax


def _terms(table: pd.DataFrame, most: int) -> tuple[list[str], list[float], float]:
    column = next(name for name in ("label", "term", "metric") if name in table.columns)
    rows = table[table["log_ratio"].abs() > _SMALLEST]
    if rows.empty:
        msg = "no term is left to draw"
        raise PerfmlError(msg, cure="Explain two sides whose times differ.")
    order = rows["log_ratio"].abs().sort_values(ascending=False, kind="stable").index
    rows = rows.loc[order]
    kept = rows.head(most if len(rows) <= most else most - 1)
    names = [str(name) for name in kept[column]]
    values = [float(value) for value in kept["log_ratio"]]
    whole = float(table["log_ratio"].sum())
    others = whole - sum(values)
    if abs(others) > 5e-3:
        names.append(f"{len(table) - len(kept)} smaller ones")
        values.append(others)
    return names, values, whole


@dataclass(frozen=True)
class Roofs:
    """Layers under their device's roofs."""

    # one row a layer and backend: ``layer, backend, flops, bytes, time_us, bound, fraction``;
    # medians over the repeats
    points: pd.DataFrame
    flops: dict[str, float]  # peak FLOP/s by the precision that ran
    bandwidth: dict[str, float]  # peak byte/s of device memory
    # whether ``bytes`` were counted at the device memory; else they are the least that the layer's
    # shape allows (input, weights and output once)
    counted: bool
    source: str  # where the peaks come from, as a sentence


def differ(terms: pd.DataFrame) -> bool:
    """Return whether any of some terms is large enough to be drawn."""
    return bool((terms["log_ratio"].abs() > _SMALLEST).any())


def layer_roofs(layers: pd.DataFrame, peaks: Mapping[str, float] | Peaks | None = None) -> Roofs:
    """Place the layers of one condition under the roofs of their device.

    `peaks` are as for `perfml.explain.roofline`; without, those known of the device. Raises
    `PerfmlError` if these are not known, or the table has neither bytes nor shapes.
    """
    from perfml.explain import roofline as place_under_roofs
    from perfml.explain.roofs.peaks import peaks_of

    frame = named_layers(layers)
    devices = sorted(set(frame["device"].dropna())) if "device" in frame.columns else []
    names = [str(name) for name in devices]
    known = peaks_of(names, peaks, layers.attrs.get(DEVICE_FACTS))
    found = place_under_roofs(frame, known)
    roofs = known.values
    counted = "dram_intensity" in found.columns and bool(found["dram_intensity"].notna().any())
    least = frame.get("arithmetic_intensity")
    if counted:
        least = found["dram_intensity"]
    elif least is None or not bool(least.notna().any()):
        msg = "the table has neither bytes of device memory nor shapes"
        raise PerfmlError(msg, cure="Collect with --metrics roofline.")
    intensity = np.asarray(least, dtype=float)
    found = found.assign(bytes=found["flops"] / np.where(intensity > 0, intensity, np.nan))
    keys = ["layer", "backend"]
    columns = ["flops", "bytes", "time_us", "flop_rate", "fraction"]
    points = found.groupby(keys, sort=False)[columns].median()
    # which roof is the lowest follows from the shape, so repeats agree
    points["bound"] = found.groupby(keys, sort=False)["bound"].first()
    ran = frame["precision"].dropna().unique() if "precision" in frame.columns else ["fp32"]
    flops = {str(name): roofs[str(name)] for name in ran if str(name) in roofs}
    bandwidth = {"device memory": roofs["dram"]} if "dram" in roofs else {}
    if not flops or not bandwidth:
        msg = "a peak that the roofline needs is not known"
        raise PerfmlError(
            msg,
            found=f"peaks {', '.join(roofs)}; ran in {', '.join(map(str, ran))}",
            cure="Give peaks with FLOP/s of this precision and dram in byte/s.",
        )
    return Roofs(points.reset_index(), flops, bandwidth, counted, known.sentence())


@styled
def layer_roofline(
    layers: pd.DataFrame | Roofs,
    *,
    peaks: Mapping[str, float] | Peaks | None = None,
    names: Sequence[str] | None = None,
    palette: Mapping[str, str] | None = None,
    ax: Axes | None = None,
    width: float = 760,
) -> Axes:
    """Draw the roofline of a device with the layers of one condition on it.

    Parameters
    ----------
    layers
        A Layers table of one condition, or what `layer_roofs` returned.
    peaks
        FLOP/s by precision and byte/s of ``dram``; those tabulated for the device without.
    names
        Layers to write beside their points; by default the three slowest.
    palette
        Backend to colour.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If the peaks are not known, or the table has neither bytes nor shapes.
    """
    roofs = layers if isinstance(layers, Roofs) else layer_roofs(layers, peaks)
    points = roofs.points
    if names is None:
        slowest = points.groupby("layer")["time_us"].max().nlargest(3)
        names = [str(name) for name in slowest.index]
    ax = roofline(
        points,
        peak_flops=roofs.flops,
        peak_bandwidth=roofs.bandwidth,
        palette=palette,
        names=names,
        ax=ax,
        width=width,
    )
    narrow = is_narrow(width)
    said = "counted at device memory" if roofs.counted else "of input, weights and output"
    ax.set_xlabel("FLOP/byte" if narrow else f"arithmetic intensity, FLOP/byte {said}")
    ax.minorticks_off()
    return ax
