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
from perfml.report.labels import percent
from perfml.tables import metric_columns
from perfml.util.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STALLS = 8
_CLUSTER_NAME = 10.5
"""Height of the name of a metric in small print, points."""

_DARK = ("#54478c", "#3f6b6b", "#8c5a3c", "#5b6571")
"""Tints on which white is read."""


def stall_shares(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the stall reasons of every backend, weighted by the layers' times.

    Parameters
    ----------
    layers
        A Layers table.

    Returns
    -------
    DataFrame
        One row a backend, one column a stall metric that was measured, largest first; a share
        of the warps' active cycles. ``stall_selected`` (issuing, no stall) is left out, and so is
        a part of another reason that was measured, or its cycles would be shown twice.
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
        Where to draw; a new figure, so many points wide, without.

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


def clusters(layers: pd.DataFrame, threshold: float = 0.8) -> tuple[pd.DataFrame, list[list[str]]]:
    """Group metrics that rise and fall together.

    Parameters
    ----------
    layers
        A Layers table with two rows at least.
    threshold
        Metrics whose absolute Spearman correlation is at least this, on average, are one cluster
        (average linkage on 1 - |rho|).

    Returns
    -------
    correlation
        Spearman's rho, square, metrics in dendrogram order; constant metrics are left out.
    groups
        The clusters, in that order.

    Raises
    ------
    PerfmlError
        If fewer than two metrics vary.
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
    from scipy.spatial.distance import squareform

    frame = layers[metric_columns(layers)]
    varying = [name for name in frame.columns if len(frame[name].dropna().unique()) > 1]
    rho = frame[varying].corr(method="spearman", min_periods=3).dropna(axis=0, how="all")
    rho = rho.loc[rho.index, rho.index].fillna(0.0)
    if len(rho) < 2:
        msg = "fewer than two metrics vary"
        raise PerfmlError(msg, cure="Correlations need several layers and metrics.")
    distance = np.clip(1 - np.abs(rho.to_numpy(dtype=float)), 0, 1)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
    order = leaves_list(tree)
    metrics = list(rho.index)
    names = [str(metrics[int(place)]) for place in order]
    labels = fcluster(tree, t=1 - threshold, criterion="distance")[order]
    groups: dict[int, list[str]] = {}
    for name, label in zip(names, labels, strict=True):
        groups.setdefault(int(label), []).append(name)
    return rho.loc[names, names], list(groups.values())


@styled
def correlation_clusters(
    layers: pd.DataFrame,
    *,
    threshold: float = 0.8,
    ax: Axes | None = None,
    width: float = 760,
) -> Axes:
    """Draw the Spearman correlations of the metrics; clusters of interchangeable ones are boxed.

    Parameters
    ----------
    layers
        A Layers table.
    threshold
        See `clusters`.
    ax, width
        Where to draw; a new figure, so many points wide, without.

    Raises
    ------
    PerfmlError
        If fewer than two metrics vary.
    """
    rho, groups = clusters(layers, threshold)
    from matplotlib.patches import Rectangle

    size = len(rho)
    # names at the sides and the colours' bar take 270 points; below 10 a column, names would touch
    listed = width - 270 < _CLUSTER_NAME * size
    height = _CLUSTER_NAME * size + 150 if listed else width * 0.86
    ax = new_axes(ax, width, height)
    # an image of a pixel a cell: as shapes, 60 metrics would take half a megabyte of the page
    mesh = ax.imshow(
        rho.to_numpy(float),
        cmap="PuOr",
        vmin=-1,
        vmax=1,
        extent=(0, size, size, 0),
        interpolation="none",
    )
    middle = np.arange(size) + 0.5
    labels = [plain(name, 40) for name in rho.index]
    ax.set_yticks(middle, labels, fontsize=9)
    if listed:
        ax.set_aspect("auto")
        ax.set_xticks([])
        ax.set_xlabel("the same metrics, in the same order")
    else:
        ax.set_xticks(middle, labels, rotation=90, fontsize=9)
    ax.tick_params(length=0)
    start = 0
    for group in groups:
        if len(group) > 1:
            box = Rectangle((start, start), len(group), len(group), fill=False, ec=INK, lw=1.6)
            ax.add_patch(box)
        start += len(group)
    if ax.figure is not None:
        place: dict[str, Any] = {"location": "bottom"} if listed else {"shrink": 0.6}
        bar = ax.figure.colorbar(mesh, ax=ax, aspect=30, **place)
        bar.set_label("Spearman's rank correlation")
        bar.outline.set_visible(False)
    return ax


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
        points = ax.scatter(
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
        tell([points], texts, of)
    if "layer" in rows.columns:
        # a layer is named once, at its fastest point, or its backends' names cover each other
        order = np.argsort(-achieved, kind="stable")
        named = rows["layer"].to_numpy()
        wanted = {named[at]: at for at in order[::-1] if named[at] in set(names)}
        for layer, at in wanted.items():
            right = not is_narrow(width) or intensity[at] < np.sqrt(span[0] * span[1])
            style = {"textcoords": "offset points", "ha": "left" if right else "right"}
            style["xytext"] = (6 if right else -6, 4)
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
