"""The evidence of a report, section by section: tables, figures in two widths, captions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report import figures
from perfml.report._figures_metrics import stall_shares
from perfml.report._grids import (
    importance_grid,
    rank_grid,
    record_grid,
    score_grid,
    stall_grid,
    time_grid,
)
from perfml.report._labels import (
    TASKS,
    clean,
    listed,
    members,
    micros,
    model,
    number,
    percent,
    protocol,
)
from perfml.report._shapes import Shape, filter_groups, speed_classes
from perfml.report._times import Condition
from perfml.report.summary import best_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 1040, 352
MOST_FIGURES = 6
"""Conditions drawn; the others have their tables, which keeps the page small."""

_MOST_ROWS = 1500
"""Rows of a full table; what is cut is said below it."""

_MEANINGS = {
    "regression": "By how much the predicted time is off (mean absolute percentage error, MAPE); "
    "smaller is better.",
    "classification": "How often the backend is predicted right (accuracy); larger is better.",
}


@dataclass(frozen=True)
class Picture:
    """A figure in two widths, and what it shows in words."""

    wide: str
    narrow: str
    caption: str


def picture_of(kind: str, caption: str, prefix: str, draw: Callable[[int], Axes]) -> Picture:
    """Draw a figure for wide and for narrow pages; the caption tells what the kind leaves out."""
    label = f"{kind}; the table below has its numbers"
    return Picture(
        figures.svg(draw(WIDE), prefix=f"{prefix}w", label=label),
        figures.svg(draw(NARROW), prefix=f"{prefix}n", label=label),
        caption,
    )


def times_section(
    condition: Condition,
    place: int,
    shapes: Mapping[str, Shape],
    series: Mapping[str, int],
    palette: Mapping[str, str],
) -> dict[str, Any]:
    """Return the totals, the figure and the table of one condition."""
    totals = condition.totals[condition.totals["total"].notna()]
    longest = float(totals["total"].max()) if len(totals) else math.nan
    fastest = float(totals["total"].min()) if len(totals) else math.nan
    wins = condition.winners["fastest"].value_counts()
    bars = [
        {
            "backend": row.backend,
            "series": series[str(row.backend)],
            "total": micros(float(str(row.total))),
            "spread": _spread(float(str(row.low)), float(str(row.high))),
            "length": float(str(row.total)) / longest if longest > 0 else 0.0,
            "ratio": f"{float(str(row.total)) / fastest:.2f}×" if fastest > 0 else "–",
            "wins": int(wins.get(row.backend, 0)),
        }
        for row in totals.itertuples(index=False)
    ]
    slowest = condition.slowest
    caption = f"Time of every layer, {condition.label}."
    if slowest is not None:
        caption += (
            f" The slowest is {slowest['layer']} under {slowest['backend']} with "
            f"{micros(float(slowest['median']))}."
        )
    caption += " Bars are medians, lines the range of the repeats."

    def draw(width: int) -> Axes:
        return figures.layer_times(
            condition.rows, palette=palette, width=width, horizontal=width == NARROW
        )

    picture = (
        picture_of("Bar chart of the layers' times", caption, f"t{place}", draw)
        if place < MOST_FIGURES and slowest is not None
        else None
    )
    return {
        "label": condition.label,
        "bars": bars,
        "common": condition.common,
        "compared": len(condition.winners),
        "picture": picture,
        "grid": time_grid(condition, shapes, series),
    }


def _spread(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{number(low, 4)}–{number(high, 4)} µs"


def filters_section(
    shown: Sequence[Condition], shapes: Mapping[str, Shape]
) -> list[dict[str, Any]]:
    """Return the slowest and fastest layers of every condition and backend."""
    found = []
    for condition in shown[:MOST_FIGURES]:
        for backend in condition.backends:
            mine = condition.times[condition.times["backend"] == backend]
            medians = mine.set_index("layer")["median"].dropna()
            if len(medians) < 2:
                continue
            groups = filter_groups(medians, shapes)
            sizes = sorted({size for size, _ in groups}, key=lambda each: -int(each.split("×")[0]))
            amounts = sorted({many for _, many in groups}, key=lambda each: each.startswith("≥"))
            order = medians.sort_values(kind="stable")
            classes = speed_classes(medians)
            found.append(
                {
                    "label": f"{condition.label}, {backend}" if len(shown) > 1 else backend,
                    "sizes": sizes,
                    "rows": [
                        (many, [groups.get((size, many), []) for size in sizes]) for many in amounts
                    ],
                    "fast": _extreme(order, classes, "fast"),
                    "slow": list(reversed(_extreme(order, classes, "slow"))),
                    "claim": _filter_claim(groups),
                }
            )
    return found


def _extreme(order: pd.Series, classes: Mapping[str, str], wanted: str) -> list[tuple[str, str]]:
    return [
        (str(name), micros(float(value)))
        for name, value in order.items()
        if classes[str(name)] == wanted
    ]


def _filter_claim(groups: Mapping[tuple[str, str], Sequence[tuple[str, float, str]]]) -> str:
    """Say what the table shows, in the study's terms: which filter sizes the extremes have."""
    sizes: dict[str, list[str]] = {"slow": [], "fast": []}
    for (size, _), layers in groups.items():
        for _, _, speed in layers:
            if speed in sizes:
                sizes[speed].append(size)
    parts = []
    for speed in ("slow", "fast"):
        amounts = pd.Series(sizes[speed], dtype=object).value_counts()
        if len(amounts):
            whole = len(sizes[speed])
            told = [
                f"{'all' if amount == whole else amount} have {size} filters"
                for size, amount in amounts.items()
            ]
            parts.append(f"of the {whole} {speed}est layers {listed(told)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def ranking_section(ranking: Any, place: int) -> dict[str, Any]:
    """Return the figure and the tables of one ranking."""
    summary: pd.DataFrame = ranking.summary
    table: pd.DataFrame = ranking.table
    caption, picture = "", None
    if len(summary):
        first = summary.iloc[0]
        caption = (
            f"Mean rank of every metric group with its interval. First: "
            f"{members(first['members'])[0]}, rank {number(float(first['mean_rank']))}, "
            f"in the top 3 of {percent(float(first['p_top3']))} of the resamples."
        )
        caption += " A number after a name counts the metrics it is interchangeable with."
        picture = picture_of(
            "Chart of ranks with intervals",
            caption,
            f"r{place}",
            lambda width: figures.ranks(ranking, width=width),
        )
    agreement = getattr(ranking, "agreement", None)
    return {
        "label": TASKS.get(str(ranking.task), clean(ranking.task, 40)),
        "picture": picture,
        "grid": rank_grid(summary, _descriptions()),
        "all": importance_grid(table.head(_MOST_ROWS)),
        "cut": max(0, len(table) - _MOST_ROWS),
        "warnings": told_warnings(getattr(ranking, "warnings", ())),
        "agreement": record_grid(
            "Share of the first three metrics that two rankings have in common",
            agreement.to_dict("records") if agreement is not None else [],
        ),
    }


def told_warnings(texts: Any) -> list[str]:
    """Return warnings as printable sentences, each once."""
    given = list(texts) if isinstance(texts, (list, tuple)) else [texts]
    return list(dict.fromkeys(clean(text, 1000) for text in given if text))


def _descriptions() -> dict[str, str]:
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    return {name: catalogue[name].description for name in catalogue.names}


def evaluation_section(evaluation: Any, place: int, palette: Mapping[str, str]) -> dict[str, Any]:
    """Return the scores of one task, its predictions, and what it left out."""
    leakage = getattr(evaluation, "leakage", None)
    warning = getattr(leakage, "warning", None)
    return {
        "label": TASKS.get(str(evaluation.task), clean(evaluation.task, 40)),
        "meaning": _MEANINGS.get(str(evaluation.task), "The score."),
        "grid": score_grid(evaluation),
        "pictures": _predictions(evaluation, place, palette),
        "features": [clean(name, 120) for name in evaluation.features],
        "dropped": [
            (clean(name, 120), clean(reason, 300)) for name, reason in evaluation.dropped.items()
        ],
        "warnings": told_warnings([warning, *getattr(evaluation, "warnings", ())]),
    }


def _predictions(evaluation: Any, place: int, palette: Mapping[str, str]) -> list[Picture]:
    predictions: pd.DataFrame | None = getattr(evaluation, "predictions", None)
    if predictions is None or predictions.empty or str(evaluation.task) != "regression":
        return []
    drawn = []
    for name, (score, _) in reversed(best_scores(evaluation).items()):
        caption = (
            f"Predicted against measured times, {model(score['model'])}, {protocol(name)}: "
            f"off by {percent(float(score['mean']))} on average."
        )
        try:
            ax = figures.predicted_vs_measured(
                predictions, model=score["model"], protocol=name, palette=palette, width=380
            )
        except PerfmlError:
            # a protocol may be scored without keeping its predictions; the table has its score
            continue
        drawn.append((ax, caption))
    found = []
    for index, (ax, caption) in enumerate(drawn):
        # equal axes let the eye compare the protocols
        limits = [ax.get_xlim() for ax, _ in drawn]
        both = (min(low for low, _ in limits), max(high for _, high in limits))
        ax.set(xlim=both, ylim=both)
        picture = figures.svg(ax, prefix=f"p{place}{index}", label="Scatter plot of predictions")
        found.append(Picture(picture, picture, caption))
    return found


def _draw_stalls(rows: pd.DataFrame, width: int) -> Axes:
    return figures.stall_breakdown(rows, width=width)


def stalls_section(shown: Sequence[Condition], series: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return why warps waited, for every condition whose stalls were measured."""
    found = []
    for place, condition in enumerate(shown[:MOST_FIGURES]):
        shares = stall_shares(condition.rows)
        if not len(shares.columns):
            continue
        largest = [
            f"{backend} waits most for {str(row.idxmax()).removeprefix('stall_').replace('_', ' ')}"
            f" ({percent(float(row.max()))})"
            for backend, row in shares.iterrows()
            if row.notna().any()
        ]
        caption = f"Why warps waited, {condition.label}, weighted by time: {listed(largest, 6)}."
        found.append(
            {
                "label": condition.label,
                "picture": picture_of(
                    "Stacked bars of stall reasons",
                    caption,
                    f"s{place}",
                    functools.partial(_draw_stalls, condition.rows),
                ),
                "grid": stall_grid(shares, condition.label, series),
            }
        )
    return found


def clusters_picture(layers: pd.DataFrame) -> Picture | None:
    """Return the correlations of the metrics, or None where nothing varies."""
    try:
        ax = figures.correlation_clusters(layers)
    except PerfmlError:
        # nothing varies together in one row or with one metric
        return None
    caption = "Spearman correlations of the metrics; boxes hold metrics that move together."
    drawn = figures.svg(ax, prefix="cc", label="Heat map of correlations")
    return Picture(drawn, drawn, caption)
