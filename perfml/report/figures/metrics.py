"""Figures of the metrics: stalls, which metrics move together, and the device's roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Expression
from perfml.report.conditions import named_layers
from perfml.report.figures.axes import is_narrow, markers, name_rows, tell
from perfml.report.figures.style import (
    GRID,
    INK,
    MUTED,
    colours,
    new_axes,
    plain,
    stall_colours,
    styled,
)
from perfml.util.words import number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STALLS = 8

_DARK = ("#54478c", "#3f6b6b", "#8c5a3c", "#5b6571")
"""Tints on which white is read."""


def stall_shares(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the stall reasons of every backend, weighted by the layers' times.

    A row is a backend, a column a stall reason that was measured, largest first: a share of the
    warps' active cycles. ``stall_selected`` (issuing, no stall) is left out, and so is a part of
    another reason that was measured, or its cycles would be shown twice.
    """
    frame = named_layers(layers)
    stalls = [name for name in frame.columns if str(name).startswith("stall_")]
    names = _reasons([name for name in stalls if frame[name].notna().any()])
    backends = list(dict.fromkeys(frame["backend"]))
    values, times = frame[names].to_numpy(dtype=float), frame["time_us"].to_numpy(dtype=float)
    found = np.full((len(backends), len(names)), np.nan)
    for row, backend in enumerate(backends):
        mine = (frame["backend"] == backend).to_numpy()
        for column in range(len(names)):
            has = mine & np.isfinite(values[:, column]) & np.isfinite(times)
            if times[has].sum() > 0:
                found[row, column] = np.average(values[has, column], weights=times[has])
    shares = pd.DataFrame(found, index=pd.Index(backends, name="backend"), columns=names)
    shares = shares.dropna(axis=1, how="all")
    return shares[shares.max().sort_values(ascending=False, kind="stable").index]


def _reasons(measured: Sequence[str]) -> list[str]:
    """Return the measured stall reasons, without those that a sum among them holds."""
    catalogue = load_catalogue()
    known = [
        name
        for name in catalogue.names
        if name.startswith("stall_") and name != "stall_selected" and name in measured
    ]
    reads = {name: _counters(catalogue[name].ncu) for name in known}
    return [
        name
        for name, mine in reads.items()
        if not (mine and any(mine < other for other in reads.values()))
    ]


def _counters(expression: Expression | None) -> frozenset[str]:
    return frozenset() if expression is None else frozenset(expression.names)


@styled
def stall_breakdown(
    layers: pd.DataFrame,
    *,
    layer: str | None = None,
    ax: Axes | None = None,
    width: float = 900,
) -> Axes:
    """Draw why warps waited, a bar a backend.

    Parameters
    ----------
    layers
        A Layers table of one condition.
    layer
        One layer; the whole network, weighted by time, without.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If the table has no stall metric, or not this layer.
    """
    rows = layers if layer is None else layers[layers["layer"] == layer]
    if rows.empty:
        msg = "the table has no such layer"
        cure = did_you_mean(str(layer), layers["layer"].dropna(), "Choose one of its layers.")
        raise PerfmlError(msg, where=plain(layer), cure=cure)
    # a backend whose stalls were not counted would look as if its warps never waited
    shares = stall_shares(rows).dropna(how="all")
    if shares.empty or not len(shares.columns):
        msg = "no stall metric was measured"
        raise PerfmlError(msg, cure="Collect with --metrics published or --metrics stalls.")
    kept = list(shares.columns[:_MOST_STALLS])
    narrow = is_narrow(width)
    labels = [plain(name.removeprefix("stall_").replace("_", " "), 40) for name in kept]
    columns = _legend_columns(labels, width, shares.index) if narrow else 4
    lines = -(-len(kept) // columns)
    ax = new_axes(ax, width, 44 * len(shares) + 62 + 22 * lines)
    place = np.arange(len(shares), dtype=float)
    left = np.zeros(len(shares))
    for (name, tint), label in zip(stall_colours(kept).items(), labels, strict=True):
        value = np.nan_to_num(shares[name].to_numpy(dtype=float))
        bars = ax.barh(place, value, 0.62, left=left, color=tint, label=label)
        tell(bars, [f"{label}: {percent(size)}" for size in value])
        for at, size, start in zip(place, value, left, strict=True):
            if size >= (0.18 if narrow else 0.05):
                white = tint in _DARK
                ax.text(
                    start + size / 2,
                    at,
                    percent(size),
                    ha="center",
                    va="center",
                    color="#ffffff" if white else "#111111",
                )
        left += value
    name_rows(ax, [plain(name, 24) for name in shares.index])
    ax.set_xlim(0, max(1.0, float(left.max())))
    if narrow:
        ax.set_xticks([0, 0.5, 1])
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}".replace("%", " %"))
    ax.set_xlabel(
        "share of warps' active cycles"
        if narrow
        else "share of the warps' active cycles; the rest: other reasons, or issuing"
    )
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderpad=0,
        handlelength=1.1,
        columnspacing=1.2,
    )
    return ax


def _legend_columns(labels: Sequence[str], width: float, names: Iterable[object]) -> int:
    """Return 2 where two columns of a legend fit on a phone beside the bars' names, else 1."""
    beside = max(7.2 * max(len(plain(name, 24)) for name in names) + 20, 72)
    half = -(-len(labels) // 2)
    widest = [max(map(len, part), default=0) for part in (labels[:half], labels[half:])]
    return 2 if sum(widest) * 7.8 + 2 * 34 <= width - beside else 1


@styled
def roofline(
    points: pd.DataFrame,
    *,
    peak_flops: float | Mapping[str, float],
    peak_bandwidth: float | Mapping[str, float],
    ax: Axes | None = None,
    palette: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    width: float = 760,
) -> Axes:
    """Draw layers under a device's roofline: arithmetic intensity against achieved FLOP/s.

    Parameters
    ----------
    points
        One row a layer: ``flops``, ``bytes`` (moved to and from device memory) and ``time_us``;
        ``backend`` colours the points, ``layer`` names them.
    peak_flops
        The device's peak in FLOP/s, or several by name (``{"FP32": 67e12}``).
    peak_bandwidth
        The device's memory bandwidth in byte/s, or several by name.
    ax
        Where to draw; a new figure without.
    palette
        Backend to colour.
    names
        Layers to write beside their points.
    width
        Width of a new figure, points.

    Raises
    ------
    PerfmlError
        If a column is missing, or no row has positive numbers in all three.
    """
    missing = [name for name in ("flops", "bytes", "time_us") if name not in points.columns]
    if missing:
        msg = f"columns are missing: {', '.join(missing)}"
        raise PerfmlError(msg, cure="A roofline needs flops, bytes and time_us of every layer.")
    rows = points[(points[["flops", "bytes", "time_us"]] > 0).all(axis=1)]
    if rows.empty:
        msg = "no layer has positive flops, bytes and time"
        raise PerfmlError(msg, cure="Collect with --metrics roofline.")
    ax = new_axes(ax, width, max(width * 0.5, 330))
    intensity = rows["flops"].to_numpy(float) / rows["bytes"].to_numpy(float)
    achieved = rows["flops"].to_numpy(float) / (rows["time_us"].to_numpy(float) * 1e-6)
    roofs = _named(peak_flops, "peak")
    slopes = _named(peak_bandwidth, "memory")
    ridge = max(roofs.values()) / min(slopes.values())
    span = (min(intensity.min(), ridge) / 3, max(intensity.max(), ridge) * 3)
    line = np.geomspace(*span, 200)
    for slope in slopes.values():
        for peak in roofs.values():
            ax.plot(line, np.minimum(line * slope, peak), color=MUTED, linewidth=1.2)
    for name, peak in roofs.items():
        label = f"{plain(name, 30)}: {number(peak / 1e12)} TFLOP/s"
        ax.text(span[1], peak * 1.06, label, ha="right", va="bottom", color=MUTED)
    for name, slope in slopes.items():
        label = f"{plain(name, 30)}: {number(slope / 1e12)} TB/s"
        style: dict[str, Any] = {"textcoords": "offset points", "va": "top", "color": MUTED}
        if is_narrow(width):
            # points lie where the roof slopes
            ax.annotate(label, (0, 0), xycoords="axes fraction", xytext=(6, 20), **style)
        else:
            ax.annotate(label, (span[0], span[0] * slope), xytext=(6, -4), **style)
    backends = (
        rows["backend"].astype(str) if "backend" in rows.columns else pd.Series("", rows.index)
    )
    tint = colours(list(dict.fromkeys(backends)), palette)
    for backend, marker in markers(list(tint)).items():
        mine = (backends == backend).to_numpy()
        if not mine.any():
            continue
        marks = ax.scatter(
            intensity[mine],
            achieved[mine],
            s=34,
            marker=marker,
            color=tint[backend],
            linewidths=0,
            label=plain(backend, 30) or None,
            zorder=3,
        )
        at = np.flatnonzero(mine)
        of = [str(rows["layer"].iloc[place]) for place in at] if "layer" in rows.columns else []
        said = zip(of or [backend] * len(at), achieved[at], intensity[at], strict=True)
        texts = [
            f"{name}, {backend}: {number(rate / 1e12)} TFLOP/s, {number(each)} FLOP/byte"
            for name, rate, each in said
        ]
        tell([marks], texts, of)
    if "layer" in rows.columns:
        # a layer is named once, at its fastest point, or its backends' names cover each other
        order = np.argsort(-achieved, kind="stable")
        named = rows["layer"].to_numpy()
        wanted = {named[at]: at for at in order[::-1] if named[at] in set(names)}
        # neighbours stand above and below their points, so that their names do not overlap
        from_left = sorted(wanted.items(), key=lambda each: intensity[each[1]])
        for place, (layer, at) in enumerate(from_left):
            right = not is_narrow(width) or intensity[at] < np.sqrt(span[0] * span[1])
            style = {"textcoords": "offset points", "ha": "left" if right else "right"}
            style["xytext"] = (6 if right else -6, -14 if place % 2 else 4)
            point = (float(intensity[at]), float(achieved[at]))
            ax.annotate(plain(layer, 30), point, color=INK, **style)
    ax.set(xscale="log", yscale="log", xlim=span)
    ax.set_ylim(bottom=achieved.min() / 4, top=max(roofs.values()) * 2.5)
    ax.set_xlabel("arithmetic intensity, FLOP/byte of device memory")
    ax.set_ylabel("achieved, FLOP/s")
    ax.grid(color=GRID)
    if "backend" in rows.columns:
        ax.legend(loc="lower right", handletextpad=0.2)
    return ax


def _named(value: float | Mapping[str, float], name: str) -> dict[str, float]:
    found = dict(value) if isinstance(value, Mapping) else {name: float(value)}
    if not found or any(not each > 0 for each in found.values()):
        msg = "a roofline needs the device's positive peaks"
        raise PerfmlError(
            msg, found=str(found), cure="Give FLOP/s and byte/s, such as 67e12, 4.8e12."
        )
    return found
