"""The importances of every model side by side: a panel a model, a row of panels a question."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.report.figures.axes import is_narrow, name_rows, reach
from perfml.report.figures.style import INK, MUTED, PALETTE, plain, styled
from perfml.report.labels import model as model_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.modeling.results import Ranking

BUILTIN = ("gini", "coefficient", "explained-variance", "term-importance", "own")
"""What ``builtin`` is called in the table of a ranking."""

_NAMES = 220
"""Points that the names of metrics take, at most."""

_ASKED = {"regression": "What explains the time", "classification": "What tells libraries apart"}


@styled
def model_importances(
    rankings: Ranking | Sequence[Ranking],
    *,
    method: str = "builtin",
    top: int = 8,
    measured: str = "",
    ax: Axes | None = None,
    width: float = 1000,
) -> Axes:
    """Draw the importances of all models of one or more rankings, with their intervals.

    Each panel is a model. Its importances are shown as shares of their sum, because those of
    different models have different units. The panels of a ranking list the same metrics, those
    with the largest mean share first; below them stands what chance gives.

    Parameters
    ----------
    rankings
        Such as one of the time and one of the backend: with the defaults of `perfml.rank`, the six
        models of the study.
    method
        ``builtin`` (what each model brings along) or another method of the rankings.
    top
        Metrics of each ranking.
    measured
        Precisions and batch sizes, for the headings.
    ax
        Not taken: there are several panels.
    width
        Width of the figure, points; on a narrow one the panels stand below each other.

    Returns
    -------
    Axes
        The first panel; its ``figure`` has all.

    Raises
    ------
    PerfmlError
        If a ranking has no model with that method, or `ax` is given.
    """
    if ax is not None:
        msg = "this figure has a panel a model, so it cannot be drawn on given axes"
        raise PerfmlError(msg, cure="Leave out ax=, or draw one model with importances.")
    listed = list(rankings) if isinstance(rankings, Sequence) else [rankings]
    shares = [_shares(ranking, method) for ranking in listed]
    narrow = is_narrow(width)
    metrics = [_most_important(models, top) for models in shares]
    told = [_told(ranking, width) for ranking in listed]
    heights: list[float] = []
    for names, models, lines in zip(metrics, shares, told, strict=True):
        heights.append(13 * len(lines) + 32)
        heights += [22.0 * len(names) + 50] * (len(models) if narrow else 1)
    figure = _figure(width, sum(heights))
    grid = figure.add_gridspec(
        len(heights), 1 if narrow else max(map(len, shares)), height_ratios=heights
    )
    panels: list[Axes] = []
    row = 0
    for ranking, models, names, lines in zip(listed, shares, metrics, told, strict=True):
        _heading(figure.add_subplot(grid[row, :]), ranking, lines, measured, narrow)
        row += 1
        of_ranking = []
        for place, (name, table) in enumerate(models.items()):
            at = grid[row + place, 0] if narrow else grid[row, place]
            of_ranking.append(
                _panel(figure, at, table.reindex(names), name, labels=narrow or not place)
            )
        longest = max(panel.get_xlim()[1] for panel in of_ranking)
        for panel in of_ranking:  # what is compared has one scale
            panel.set_xlim(0, longest)
        panels += of_ranking
        row += len(models) if narrow else 1
    return panels[0]


def _shares(ranking: Ranking, method: str) -> dict[str, pd.DataFrame]:
    """Return by model: importance and its interval as shares of the sum, by metric."""
    table = ranking.table
    wanted = BUILTIN if method == "builtin" else (method,)
    found = {}
    for name, rows in table[table["method"].isin(wanted)].groupby("model", sort=False):
        by_metric = rows.set_index("metric")[["importance", "low", "high"]]
        total = float(by_metric["importance"].clip(lower=0).sum())
        found[str(name)] = by_metric / total if total > 0 else by_metric
    if not found:
        known = list(dict.fromkeys(table["method"]))
        msg = f"the ranking has no importances by {method}"
        cure = did_you_mean(method, known, "Rank again with methods= that has it.")
        raise PerfmlError(msg, found=", ".join(known), cure=cure)
    return found


def _most_important(models: dict[str, pd.DataFrame], top: int) -> list[str]:
    mean = pd.concat([table["importance"] for table in models.values()], axis=1).mean(axis=1)
    return [str(name) for name in mean.nlargest(top).index]


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")


def _panel(figure: Any, at: Any, table: pd.DataFrame, name: str, *, labels: bool) -> Axes:
    from matplotlib.ticker import MaxNLocator

    from perfml.report.figures.canvas import ShownAxes

    ax: Axes = figure.add_subplot(at, axes_class=ShownAxes)
    value = table["importance"].to_numpy(dtype=float)
    ax.barh(
        np.arange(len(table)),
        value,
        0.62,
        xerr=reach(value, table["low"], table["high"]),
        color=PALETTE[0],
        error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 0},
    )
    name_rows(ax, [plain(metric, 34) for metric in table.index])
    if not labels:
        ax.tick_params(axis="y", labelleft=False)
    ax.set_xlim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}".replace("%", " %"))
    title = plain(model_name(name), 40)
    ax.set_title(title[:1].upper() + title[1:], fontsize=13)
    return ax


def _told(ranking: Ranking, width: float) -> list[str]:
    """Return what the panels of a ranking show and what chance gives, in lines of a width."""
    text = (
        f"Share of each model's importances, with the interval of 95 % of the {ranking.resamples} "
        f"resamples. {ranking.chance}"
    )
    room = width - 12 if is_narrow(width) else width - _NAMES
    # no line ends between a number and its unit
    lines = textwrap.wrap(plain(text, 600).replace(" %", "\u00a0%"), int(room / 5.4))
    return [line.replace("\u00a0", " ") for line in lines]


def _heading(ax: Axes, ranking: Ranking, lines: Sequence[str], measured: str, narrow: bool) -> None:
    """Write above the panels of a ranking what they answer; on a phone from the figure's edge."""
    ax.set_axis_off()
    asked = ranking.words.target if ranking.words.own else _ASKED[ranking.task]
    asked = f"{asked} ({measured})" if measured else asked
    for size, weight, colour, text, down in (
        (14, "bold", INK, plain(asked, 60), 0),
        (10, "normal", MUTED, "\n".join(lines), 20),
    ):
        said = ax.annotate(
            text,
            (0, 1),
            (4 if narrow else 0, -down),
            xycoords=("figure fraction" if narrow else "axes fraction", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=size,
            fontweight=weight,
            color=colour,
        )
        said.set_in_layout(False)  # its room is the row; it must not widen a column
