"""Figures of the reproduction; those of layers, kernels and trees are `perfml.report.figures`'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.report import figures as shared
from perfml.report.figures.axes import name_rows
from perfml.report.figures.style import GRID, INK, MUTED, PALETTE, colours, new_axes, plain, styled
from perfml.reproduce.published import KEY_METRIC, Recording
from perfml.reproduce.run import Reproduction, importance_table
from perfml.reproduce.splits import Runs, studied_model
from perfml.util.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 22


@styled
def table_picture(table: pd.DataFrame) -> Axes:
    """Draw a table of text, a row a line."""
    from matplotlib.transforms import Bbox

    heads = [str(name).replace("_", " ") for name in table.columns]
    rows = [[cell(value) for value in row] for row in table.itertuples(index=False)]
    widths = [max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True)]
    ax = new_axes(None, min(1400, 7.6 * sum(widths) + 30), _ROW * (len(rows) + 2))
    ax.set_axis_off()
    drawn = ax.table(
        cellText=rows,
        colLabels=heads,
        colWidths=[width / sum(widths) for width in widths],
        cellLoc="left",
        edges="horizontal",
        bbox=Bbox.unit(),
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(12)
    return ax


def cell(value: Any, *, missing: str = "-") -> str:
    """Return a value of a table as text."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return missing
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@styled
def distributions(
    scores: dict[str, np.ndarray],
    told: dict[str, float],
    titles: dict[str, str],
    *,
    label: str,
    log: bool = False,
) -> Axes:
    """Draw every split's score as a point cloud, its median and 95 %, and the published number."""
    names = list(scores)
    ax = new_axes(None, 820, 62 * len(names) + 80)
    rng = np.random.default_rng(0)
    for place, name in enumerate(names):
        values = scores[name]
        low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
        jitter = place + rng.uniform(-0.24, 0.24, len(values))
        ax.plot(values, jitter, ".", color=PALETTE[4], markersize=3, alpha=0.6)
        ax.plot([low, high], [place, place], color=INK, linewidth=1.6)
        ax.plot(middle, place, "o", color=INK, markersize=6)
        if name in told:
            ax.plot(told[name], place, "D", color=PALETTE[5], markersize=7)
    ax.plot([], [], "o-", color=INK, label="ours: median, 95 % of the splits")
    ax.plot([], [], "D", linestyle="none", color=PALETTE[5], label="published")
    name_rows(ax, [titles.get(name, name) for name in names])
    if log:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderpad=0)
    return ax


@styled
def mean_layer_time(means: pd.DataFrame) -> Axes:
    """Draw the mean time a layer of each backend (figure 2-1): ``data, backend, mean_us``."""
    ax = new_axes(None, 640, 30 * len(means) + 60)
    sets = list(dict.fromkeys(means["data"]))
    place = np.arange(len(means))
    tint = colours(list(dict.fromkeys(map(str, means["backend"]))))
    shades = [1.0 if sets.index(name) == 0 else 0.5 for name in means["data"]]
    bars = ax.barh(place, means["mean_us"], 0.66, color=[tint[str(x)] for x in means["backend"]])
    for bar, shade in zip(bars, shades, strict=True):
        bar.set_alpha(shade)
    for at, value in zip(place, means["mean_us"], strict=True):
        ax.text(float(value), float(at), f" {number(float(value))}", va="center", color=INK)
    labels = [
        f"{plain(row.backend, 20)}, {plain(row.data, 40)} ({row.layers} layers)"
        for row in means.itertuples()
    ]
    name_rows(ax, labels)
    ax.grid(axis="x", color=GRID)
    ax.margins(x=0.15)
    ax.set_xlabel("mean time a layer, µs")
    ax.xaxis.label.set_color(MUTED)
    return ax


def mean_times(found: Reproduction, beside: Recording | None = None) -> pd.DataFrame:
    """Return figure 2-1's numbers for the analysed data and for a recording beside it."""
    frames = []
    sources = [(found.source.name, found.source.layers)]
    if beside is not None and beside.name != found.source.name:
        sources.append((beside.name, beside.layers))
    for name, layers in sources:
        by_layer = layers.groupby(["backend", "layer"], observed=True, dropna=False)[
            "time_us"
        ].mean()
        means = by_layer.groupby("backend").agg(["mean", "size"]).reset_index()
        means.columns = pd.Index(["backend", "mean_us", "layers"])
        means.insert(0, "data", name)
        frames.append(means)
    return pd.concat(frames, ignore_index=True)


def score_figure(runs: Runs, told: dict[str, float], titles: dict[str, str]) -> Axes:
    """Draw table 2.5 or 2.6 as distributions."""
    scores = {name: each.score for name, each in runs.random.items() if each.importance is not None}
    lookup = runs.random.get(f"lookup:{KEY_METRIC}")
    if lookup is not None:
        scores[f"lookup:{KEY_METRIC}"] = lookup.score
    known = {name: told[name] for name in scores if name in told}
    regression = runs.problem.task == "regression"
    label = "test MAPE (logarithmic)" if regression else "test accuracy"
    return distributions(scores, known, titles, label=f"{label}, random splits", log=regression)


def weights_figure(runs: Runs, model: str = "gbr") -> Axes:
    """Draw figure 2-6: importances with the interval that holds 95 % of the splits."""
    return shared.importances(importance_table(runs, (model,)), model=model)


def tree_figure(runs: Runs) -> tuple[Axes, str]:
    """Draw figure 2-7 from a tree on all rows (model seed 0), and return it as text too."""
    from sklearn.tree import export_text

    from perfml.modeling.scoring.folds import prepare

    problem = runs.problem
    rows = np.arange(problem.rows)
    filled = prepare(problem, rows, rows)
    names = [problem.design.names[owner] for owner in filled.owners]
    tree = studied_model("dt", problem.task).make(0).fit(filled.train, problem.truth)
    text = export_text(tree, feature_names=names, class_names=list(problem.classes), decimals=3)
    return shared.decision_tree(tree, feature_names=names, class_names=problem.classes), str(text)
