"""Figures of where the time goes: layers, and the kernels of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.kernel_names import kernel_label, shortened
from perfml.report.conditions import Condition, conditions
from perfml.report.figures.axes import is_narrow, name_rows, reach, tell
from perfml.report.figures.style import (
    GRID,
    INK,
    colours,
    hatches,
    legend_columns,
    new_axes,
    plain,
    styled,
)
from perfml.report.kernels import kernel_times
from perfml.report.labels import clean
from perfml.util.words import micros, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNELS = ("#335c67", "#9fb3c8", "#9e2a2b", "#7a9e7e", "#a68a64", "#6d597a", "#b5838d")
"""Kernels have colours of their own: a backend's would say that it ran them."""

_LEGEND_LINE = 22
"""Height of a line of a legend, points."""

_LETTER, _PATCH = 7.2, 60
"""Width of a letter of a legend, and of what stands before its text, points."""


def one_condition(layers: pd.DataFrame | Sequence[Condition]) -> Condition:
    """Return the only condition of a Layers table, or of some conditions.

    Raises `PerfmlError` if there are several: their times must not be drawn as one.
    """
    found = conditions(layers)
    if len(found) > 1:
        msg = "a figure shows one workload, device, precision and batch"
        raise PerfmlError(
            msg,
            found="; ".join(each.label for each in found[:6]),
            cure="Choose one first, for example layers[layers['batch'] == 1].",
        )
    return found[0]


@styled
def layer_times(
    layers: pd.DataFrame | Sequence[Condition],
    *,
    ax: Axes | None = None,
    horizontal: bool = False,
    most: int = 40,
    palette: Mapping[str, str] | None = None,
    width: float = 1000,
) -> Axes:
    """Draw the time of every layer under every backend, with the spread of the repeats.

    Parameters
    ----------
    layers
        A Layers table of one condition, or that condition. Bars are medians over the repeats;
        lines reach from the fastest to the slowest repeat.
    ax
        Where to draw; a new figure without.
    horizontal
        Bars to the right, a row a layer: for narrow pages and long names.
    most
        Layers drawn; of more, the slowest are kept, in network order, and the title says so.
    palette
        Backend to colour.
    width
        Width of a new figure, points.

    Raises
    ------
    PerfmlError
        If the table holds more than one condition, or is empty.
    """
    condition = one_condition(layers)
    times = condition.times
    names = list(condition.layers)
    if len(names) > most:
        slowest = times.groupby("layer")["median"].max().nlargest(most).index
        names = [name for name in names if name in set(slowest)]
    backends = list(condition.backends)
    thickness = 0.8 / len(backends)
    rows = max(len(names) * len(backends) * 11 + len(names) * 7, 60)
    ax = new_axes(ax, width, rows + 90 if horizontal else 340)
    place = np.arange(len(names), dtype=float)
    tint, pattern = colours(backends, palette), hatches(backends)
    for index, backend in enumerate(backends):
        mine = times[times["backend"] == backend].set_index("layer").reindex(names)
        middle = mine["median"].to_numpy(dtype=float)
        ends = reach(middle, mine["low"], mine["high"])
        offset = place + (index - (len(backends) - 1) / 2) * thickness
        style: dict[str, Any] = {
            "color": tint[backend],
            "label": plain(backend, 16 if horizontal else 40),
            "hatch": pattern[backend],
            "edgecolor": "none" if not pattern[backend] else INK,
            "error_kw": {"ecolor": INK, "elinewidth": 0.9, "capsize": 0},
        }
        if horizontal:
            bars = ax.barh(offset, middle, thickness * 0.92, xerr=ends, **style)
        else:
            bars = ax.bar(offset, middle, thickness * 0.92, yerr=ends, **style)
        spread = zip(names, middle, mine["low"], mine["high"], strict=True)
        tell(bars, [_bar_text(name, backend, *sizes) for name, *sizes in spread], names)
    letters = 16 if horizontal else 22
    # layers of one module begin alike: what is kept is where they differ
    labels = [plain(name, letters) for name in shortened([clean(name) for name in names], letters)]
    if horizontal:
        name_rows(ax, labels)
        ax.set_xlabel("time, µs")
    else:
        turned = sum(map(len, labels)) > 90
        ax.set_xticks(
            place, labels, rotation=45 if turned else 0, ha="right" if turned else "center"
        )
        if turned:
            for label in ax.get_xticklabels():
                label.set_rotation_mode("anchor")
        ax.set_xlim(-0.6, len(names) - 0.4)
        ax.set_ylabel("time, µs")
        ax.grid(axis="y")
        ax.tick_params(axis="x", length=0)
    legend = 0.0
    if len(backends) > 1:
        above = (0.0, 1.0)
        fitting = legend_columns(backends, 0.8 * width)
        ax.legend(loc="lower left", bbox_to_anchor=above, ncols=fitting, borderpad=0)
        legend = -(-len(backends) // fitting) * _LEGEND_LINE
    if len(names) < len(condition.layers):
        title = f"The {len(names)} slowest of {len(condition.layers)} layers"
        # beside long names a phone has room to the left
        ax.set_title(title, pad=6 + legend, loc="right" if horizontal else "left")
    return ax


def _bar_text(layer: str, backend: str, middle: float, low: float, high: float) -> str:
    said = f"{layer}, {backend}: {micros(middle)}"
    return said if low != low else f"{said} ({number(low)} to {number(high)})"


@styled
def kernel_shares(
    kernels: pd.DataFrame,
    *,
    layer: str,
    ax: Axes | None = None,
    most: int = 6,
    width: float = 900,
) -> Axes:
    """Draw the kernels of one layer under every backend, as parts of a bar (figure 2-5).

    Parameters
    ----------
    kernels
        A Kernels table of one condition; bars are mean microseconds a repeat.
    layer
        Whose kernels.
    ax
        Where to draw; a new figure without.
    most
        Kernels with a colour of their own; the rest is drawn together.
    width
        Width of a new figure, points.

    Raises
    ------
    PerfmlError
        If no launch belongs to the layer, or the table holds more than one condition.
    """
    inside = kernels[kernels["layer"] == layer]
    if inside.empty:
        msg = "no launch belongs to this layer"
        known = ", ".join(map(str, kernels["layer"].dropna().unique()[:6]))
        cure = did_you_mean(layer, kernels["layer"].dropna(), "Choose one of the layers.")
        raise PerfmlError(msg, where=plain(layer), found=known, cure=cure)
    from matplotlib.patches import Patch

    condition = one_condition(inside)
    times = kernel_times(condition.rows)
    order = times.groupby("kernel", sort=False)["time_us"].sum().nlargest(most).index
    tints = dict(zip(order, _KERNELS, strict=False))
    own = ax is None
    ax = new_axes(ax, width, 46 * len(condition.backends) + 90 + 22 * (len(order) + 1))
    for place, backend in enumerate(condition.backends):
        left = 0.0
        mine = times[times["backend"] == backend]
        for kernel, size in zip(mine["kernel"], mine["time_us"].to_numpy(dtype=float), strict=True):
            if not size > 0:
                continue
            tint = tints.get(kernel, GRID)
            bar = ax.barh(
                place, size, 0.62, left=left, color=tint, edgecolor="white", linewidth=0.8
            )
            tell(bar, [f"{kernel_label(str(kernel), 100)}: {micros(size)}"])
            left += size
        ax.text(left, place, f"  {number(left)} µs", va="center", color=INK)
    letters = min(max(int((width - _PATCH) / _LETTER), 16), 110)
    labels = shortened([kernel_label(str(name), 1000) for name in tints], letters)
    handles = [
        Patch(color=tint, label=plain(label, letters + 2))
        for label, tint in zip(labels, tints.values(), strict=True)
    ]
    if times["kernel"].nunique() > len(tints):
        handles.append(Patch(color=GRID, label="other kernels"))
    name_rows(ax, [plain(backend, 30) for backend in condition.backends])
    ax.margins(x=0.3 if is_narrow(width) else 0.12)
    ax.set_xlim(left=0)
    ax.set_xlabel("time, µs an iteration")
    ax.set_title(f"Kernels of {plain(layer)}")
    _legend_below(ax, handles, own=own)
    return ax


def _legend_below(ax: Axes, handles: Sequence[Any], *, own: bool) -> None:
    """Put a legend of one column below the axes, in a new figure as wide as the figure."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    style: dict[str, Any] = {"handles": handles, "ncols": 1, "borderpad": 0}
    if not own:
        # a distance in points: a share of the Axes' height would grow while the layout is made
        below = ax.transAxes + ScaledTranslation(0, -52 / 72, figure.dpi_scale_trans)
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, **style)
        return
    # beside the names of the backends a phone has no room for the kernels' names
    legend = ax.legend(
        loc="lower left", bbox_to_anchor=(0, 0), bbox_transform=figure.transFigure, **style
    )
    legend.set_in_layout(False)
    room = (_LEGEND_LINE * len(handles) + 8) / (figure.get_figheight() * 72)
    figure.get_layout_engine().set(rect=(0, room, 1, 1 - room))
