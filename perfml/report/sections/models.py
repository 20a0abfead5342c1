"""Which metrics explain the time or the backend, and how far the models can be trusted."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml.report import figures
from perfml.report.document import (
    WIDE,
    Block,
    Cell,
    Facts,
    Fold,
    Notices,
    Panels,
    Picture,
    Pictures,
    Preformatted,
    ReportTable,
    Section,
    Text,
    TreeInWords,
    numbers,
    section,
    words,
)
from perfml.report.labels import TASKS, is_random, members, model, percent, protocol
from perfml.report.readable_tree import DEPTH, ReadableTree
from perfml.report.results import Results
from perfml.report.scores import best_scores, higher_is_better
from perfml.report.tables import amount, illustrated, record_table, sentences_of, share
from perfml.util.words import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.modeling.results import Evaluation, Ranking

_MOST_ROWS = 1500
"""Rows of a full table of importances; what is cut is said below it."""

_MOST_RANKS = 8
"""Metric groups in the short forms."""

_SCATTER = 380
"""Width and height of predictions against measurements."""

MEANINGS = {
    "regression": "By how much the predicted time is off (mean absolute percentage error, MAPE); "
    "smaller is better.",
    "classification": "How often the backend is predicted right (accuracy); larger is better.",
}


def metrics_section(results: Results) -> Section | None:
    """Return the rankings and the trees that can be read; None without any."""
    if not results.rankings and not results.trees:
        return None
    blocks: list[Block] = []
    if results.rankings:
        panels = tuple(ranking_section(each, results.settings) for each in results.rankings)
        blocks.append(Panels("explains", panels))
    if results.trees:
        trees = tuple(
            _tree_section(tree, results.palette, results.settings) for tree in results.trees
        )
        title = "One tree that can be read"
        blocks.append(Section(title, (Panels("tree of", trees),), page_only=True))
    if results.correlated is not None:
        blocks.append(Fold("Which metrics move together", (_clusters(results.correlated),)))
    return section(
        "Which metrics explain it",
        *blocks,
        lead="A ranking is never one number: every metric has a mean rank over models, methods "
        "and resamples, the interval of that rank, and the share of resamples in which it is among "
        "the first three. Metrics that rise and fall together are interchangeable and stand as one "
        "group. An importance says what a model uses; it is no proof of a cause. It is about all "
        "layers: for one layer, believe the counters above."
        if results.rankings
        else "",
        anchor="metrics",
        link="Metrics",
    )


def _clusters(layers: pd.DataFrame) -> Pictures:
    caption = "Spearman correlations of the metrics; boxes hold metrics that move together."
    draw = functools.partial(_draw_clusters, layers)
    return Pictures((Picture("Heat map of correlations", caption, draw, (760, 760)),))


def _draw_clusters(layers: pd.DataFrame, width: int) -> Axes:
    return figures.correlation_clusters(layers, width=width)


def ranking_section(ranking: Ranking, settings: str = "") -> Section:
    """Return the figure and the tables of one ranking, of rows measured under some settings."""
    cut = len(ranking.table) - _MOST_ROWS
    importances = importance_table(ranking.table.head(_MOST_ROWS))
    left_out = Text(f"{cut} more rows: perfml rank --out writes all of them.", note=True)
    agreement = record_table(
        "Share of the first three metrics that two rankings have in common",
        ranking.agreement.to_dict("records"),
    )
    summary = f"Every importance, by model and method ({count(len(importances.rows), 'row')})"
    return section(
        TASKS.get(ranking.task, ranking.task),
        _ranks_picture(ranking, settings) if len(ranking.summary) else None,
        ranks_table(ranking.summary),
        _null_note(ranking),
        Text(ranking.tie) if ranking.tie else None,
        Notices(sentences_of(ranking.warnings), "this ranking"),
        Fold(summary, (importances, *((left_out,) if cut > 0 else ()))),
        None if agreement is None else Fold("How far models and methods agree", (agreement,)),
    )


def _null_note(ranking: Ranking) -> Text | None:
    return Text(ranking.chance) if ranking.chance else None


def _of(settings: str) -> str:
    return f" ({settings})" if settings else ""


def _ranks_picture(ranking: Ranking, settings: str) -> Pictures:
    first = ranking.summary.iloc[0]
    caption = (
        f"Mean rank of every metric group with its interval{_of(settings)}. First: "
        f"{members(first['members'])[0]}, rank {number(float(first['mean_rank']))}, in the top 3 "
        f"of {percent(float(first['p_top3']))} of the resamples."
    )
    if (ranking.summary["p_top3"] >= figures.STRONG).any():
        caption += f" Blue: in the top 3 of {percent(figures.STRONG)} or more."
    if any(len(members(each)) > 1 for each in ranking.summary["members"]):
        caption += " A number after a name counts the metrics it is interchangeable with."
    return illustrated(
        "Chart of ranks with intervals", caption, lambda width: figures.ranks(ranking, width=width)
    )


def ranks_table(summary: pd.DataFrame, most: int | None = _MOST_RANKS) -> ReportTable:
    """Return the metric groups with their ranks and probabilities, best first."""
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    tested = "p_value" in summary.columns and bool(summary["p_value"].notna().any())
    rows = []
    for place, row in enumerate(summary.to_dict("records"), start=1):
        first, *others = members(row["members"])
        known = catalogue[first].description if first in catalogue.names else ""
        note = f"interchangeable with {', '.join(others)}" if others else known
        low, high = float(row["rank_low"]), float(row["rank_high"])
        rows.append(
            [
                Cell(str(place), value=float(place)),
                Cell(first, note),
                amount(float(row["mean_rank"])),
                Cell(f"{_rank(low)}–{_rank(high)}", value=low),
                share(float(row["p_top1"]), bar=float(row["p_top1"])),
                share(float(row["p_top3"]), bar=float(row["p_top3"])),
                *([amount(float(row["p_value"]))] if tested else []),
            ]
        )
    columns = (
        *numbers("#"),
        *words("metric"),
        *numbers("mean rank", "interval", "first", "in top 3"),
        *(numbers("p-value") if tested else ()),
    )
    caption = "Metric groups over all models, methods and resamples"
    return ReportTable(caption, columns, rows, most=most, spare=("first", "interval"))


def _rank(place: float) -> str:
    return f"{place:.0f}" if place.is_integer() else number(place, 2)


def importance_table(table: pd.DataFrame) -> ReportTable:
    """Return every importance: model, method, metric, value with interval, rank."""
    rows = [
        [
            Cell(model(row["model"])),
            Cell(str(row["method"])),
            Cell(str(row["metric"])),
            amount(
                float(row["importance"]),
                note=f"{number(float(row['low']))} to {number(float(row['high']))}",
            ),
            amount(float(row["mean_rank"])),
            share(float(row["p_top3"])),
        ]
        for row in table.to_dict("records")
    ]
    columns = (
        *words("model", "method", "metric"),
        *numbers("importance", "mean rank", "in top 3"),
    )
    return ReportTable("Every importance by model and method", columns, rows)


def _tree_section(tree: ReadableTree, palette: Mapping[str, str], settings: str) -> Section:
    verb = "right in" if tree.classes else "off by"
    unseen = f", {percent(tree.unseen)} on layers left out" if tree.unseen >= 0 else ""
    caption = (
        f"A decision tree of {DEPTH} levels for the {TASKS[tree.task]}{_of(settings)}, fitted on "
        f"every row: {verb} {percent(tree.fitted)} there{unseen}."
    )
    label = "Decision tree; it is written out below"
    picture = Picture(label, caption, functools.partial(_draw_tree, tree, palette), (WIDE, None))
    equations = "A linear model tree: two levels of questions, an equation a leaf"
    return section(
        TASKS[tree.task],
        Pictures((picture,)),
        TreeInWords(tree.root),
        Fold(equations, (Preformatted(tree.equations),)) if tree.equations else None,
    )


def _draw_tree(tree: ReadableTree, palette: Mapping[str, str], width: int) -> Axes:
    return figures.decision_tree(
        tree.model,
        feature_names=tree.names,
        class_names=tree.classes or None,
        depth=DEPTH,
        unit="" if tree.classes else "µs",
        palette=palette,
        width=width,
    )


def trust_section(results: Results) -> Section | None:
    """Return the scores of every task, its predictions, and what it left out."""
    if not results.evaluations:
        return None
    panels = tuple(
        _evaluation(each, results.palette, results.settings) for each in results.evaluations
    )
    return section(
        "How far the models can be trusted",
        Panels("predicts", panels),
        lead="Rows are repeats of a few layers. A random split tests on near-copies of its "
        "training rows; the score on unseen layers says what the model knows about a layer that it "
        "never saw. A model that does not beat the baselines has learned nothing from the metrics.",
        anchor="trust",
        link="Trust",
    )


def _evaluation(evaluation: Evaluation, palette: Mapping[str, str], settings: str) -> Section:
    pictures = _predictions(evaluation, palette, settings)
    dropped = f", {len(evaluation.dropped)} left out" if evaluation.dropped else ""
    features: tuple[Block, ...] = (Text(", ".join(evaluation.features)),)
    if evaluation.dropped:
        features += (Facts(tuple(evaluation.dropped.items())),)
    warnings = (evaluation.leakage.warning or "", *evaluation.warnings)
    return section(
        TASKS.get(evaluation.task, evaluation.task),
        Notices(sentences_of(warnings), "these scores"),
        Text(MEANINGS.get(evaluation.task, "The score.")),
        scores_table(evaluation),
        Text("Mean over the splits; below it, the range of 95 % of them.", note=True),
        Pictures(pictures) if pictures else None,
        Fold(f"{count(len(evaluation.features), 'metric')} used{dropped}", features),
    )


def scores_table(evaluation: Evaluation) -> ReportTable:
    """Return the scores, a row a model, a column a protocol; the last protocol's best first."""
    scores = evaluation.scores
    score = str(scores["score"].iloc[0]) if len(scores) else "score"
    up = higher_is_better(score)
    protocols = sorted(dict.fromkeys(scores["protocol"]), key=lambda name: not is_random(name))
    ordered = scores[scores["protocol"] == protocols[-1]].sort_values("mean", ascending=not up)
    longest = 1.0 if up else float(scores["mean"].max())
    best = scores.groupby("protocol")["mean"].agg("max" if up else "min")
    cells = {(row["model"], row["protocol"]): row for row in scores.to_dict("records")}
    rows = []
    for name in dict.fromkeys([*ordered["model"], *scores["model"]]):
        plain = bool(scores.loc[scores["model"] == name, "baseline"].iloc[0])
        line = [Cell(model(name), "baseline" if plain else "")]
        for each in protocols:
            row = cells.get((name, each))
            mean = math.nan if row is None else float(row["mean"])
            if row is None or math.isnan(mean):
                line.append(Cell("–"))
                continue
            note = f"{percent(float(row['q025']))} to {percent(float(row['q975']))}"
            bar = mean / longest if longest > 0 else None
            line.append(share(mean, strong=mean == best[each], note=note, bar=bar))
        rows.append(line)
    columns = (*words("model"), *numbers(*(protocol(each) for each in protocols)))
    meaning = "accuracy" if up else "mean absolute percentage error (MAPE)"
    return ReportTable(f"Scores of every model under every protocol: {meaning}", columns, rows)


def _predictions(
    evaluation: Evaluation, palette: Mapping[str, str], settings: str
) -> tuple[Picture, ...]:
    """Return predictions against measurements of times, a picture a protocol with equal axes."""
    if evaluation.predictions.empty or evaluation.task != "regression":
        return ()
    drawn = {}
    for name, (score, _) in reversed(best_scores(evaluation).items()):
        rows = evaluation.predictions[
            (evaluation.predictions["model"] == score["model"])
            & (evaluation.predictions["protocol"] == name)
        ]
        # a protocol may be scored without keeping its predictions; the table has its score
        if ((rows["truth"] > 0) & (rows["predicted"] > 0)).any():
            caption = (
                f"Predicted against measured times, {model(score['model'])}, {protocol(name)}"
                f"{_of(settings)}: off by {percent(float(score['mean']))} on average."
            )
            drawn[caption] = rows
    return tuple(
        Picture(
            "Scatter plot of predictions",
            caption,
            functools.partial(_draw_predictions, rows, _limits(drawn.values()), palette),
            (_SCATTER, _SCATTER),
        )
        for caption, rows in drawn.items()
    )


def _limits(tables: Iterable[pd.DataFrame]) -> tuple[float, float]:
    """Return the limits of axes, in microseconds, that show all of several predictions."""
    times = np.concatenate([table[["truth", "predicted"]].to_numpy(float) for table in tables])
    shown = 1000 * times[(times > 0).all(axis=1)]
    return float(shown.min()) / 1.25, float(shown.max()) * 1.25


def _draw_predictions(
    rows: pd.DataFrame, limits: tuple[float, float], palette: Mapping[str, str], width: int
) -> Axes:
    ax = figures.predicted_vs_measured(rows, palette=palette, width=width)
    ax.set(xlim=limits, ylim=limits)
    return ax
