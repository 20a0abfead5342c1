"""Which metrics explain the time or the backend, and how far the models can be trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from perfml.report import figures
from perfml.report.document import (
    Block,
    Cell,
    Fold,
    Panels,
    Picture,
    ReportTable,
    Section,
    Text,
    notices,
    numbers,
    section,
    words,
)
from perfml.report.labels import TASKS, members, model, protocol
from perfml.report.results import Results, higher_is_better, ordered_scores
from perfml.report.tables import amount, illustrated, sentences_of, share
from perfml.util.words import number, percent

if TYPE_CHECKING:
    from perfml.modeling.results import Evaluation, Ranking

_MOST_RANKS = 8
"""Metric groups in the short forms."""

MEANINGS = {
    "regression": "By how much the predicted time is off (mean absolute percentage error, MAPE); "
    "smaller is better.",
    "classification": "How often the backend is predicted right (accuracy); larger is better.",
}


def models_section(results: Results) -> Section | None:
    """Return the rankings and scores of every task; behind a click what does not beat chance."""
    ranked = [each.task for each in results.rankings]
    tasks = dict.fromkeys([*ranked, *(each.task for each in results.evaluations)])
    if not tasks:
        return None
    panels = []
    for task in tasks:
        blocks = [
            block
            for each in results.rankings
            if each.task == task
            for block in _ranking(each, results.settings)
        ]
        for scored in results.evaluations:
            if scored.task == task:
                blocks.append(_scores(scored))
        panels.append(section(TASKS.get(task, task), *blocks))
    return section(
        "Which metrics explain it",
        Panels("explains", tuple(panels)),
        lead="An importance says what a model uses, over all layers; it is no proof of a cause.",
        anchor="metrics",
        link="Metrics",
    )


def _ranking(ranking: Ranking, settings: str) -> tuple[Block, ...]:
    """Return the figure and the table of one ranking, of rows measured under some settings."""
    told = tuple(Text(said) for said in (ranking.chance, ranking.tie) if said)
    if not len(ranking.summary):
        return told
    picture, table = _ranks_picture(ranking, settings), ranks_table(ranking.summary)
    warned = notices(sentences_of(ranking.warnings), "this ranking")
    tested = ranking.null is not None and not ranking.null.reason
    if tested and not ranking.beyond_chance:
        summary = "The ranking, in which nothing is shown beyond chance"
        return *told, Fold(summary, (picture, table, *warned), page_only=False)
    return *told, picture, Fold("Ranks and p-values", (table,), page_only=False), *warned


def _ranks_picture(ranking: Ranking, settings: str) -> Picture:
    first, of = ranking.summary.iloc[0], f" ({settings})" if settings else ""
    caption = (
        f"Mean rank of every metric group with its interval{of}. First: "
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


def _scores(evaluation: Evaluation) -> Fold:
    """Return how well the models of a task predict layers that they never saw."""
    # what its splits leak stands at the top of the page
    blocks: tuple[Block, ...] = (
        Text(MEANINGS.get(evaluation.task, "The score.")),
        *notices(sentences_of(evaluation.warnings), "these scores"),
        scores_table(evaluation),
    )
    return Fold("How well the models predict it", blocks, page_only=False)


def scores_table(evaluation: Evaluation) -> ReportTable:
    """Return the scores, a row a model, a column a protocol; the last protocol's best first."""
    scores = evaluation.scores
    score = str(scores["score"].iloc[0]) if len(scores) else "score"
    up = higher_is_better(score)
    protocols, names = ordered_scores(evaluation)
    longest = 1.0 if up else float(scores["mean"].max())
    best = scores.groupby("protocol")["mean"].agg("max" if up else "min")
    cells = {(row["model"], row["protocol"]): row for row in scores.to_dict("records")}
    rows = []
    for name in names:
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
