"""The report as Markdown, for a pull request: the answer, short tables, what to be wary of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perfml._version import __version__
from perfml.report._grids import Cell, Grid, rank_grid, score_grid, time_grid
from perfml.report._labels import TASKS, clean, count, micros
from perfml.report._machine import advice_section
from perfml.report._sections import told_warnings
from perfml.report._shapes import layer_shapes
from perfml.report._times import Condition, conditions
from perfml.report._why import Pair, why_text
from perfml.report.html import default_title
from perfml.report.summary import sentences

_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""What Markdown reads as markup inside a line; an underscore within a word is none."""

_MOST_RANKS = 8
_MOST_ADVICE = 10
_MARKS = {"firm": "", "likely": " *(likely)*", "open": " *(open)*", "caution": ""}


def build_markdown(
    layers: pd.DataFrame,
    *,
    kernels: pd.DataFrame | None = None,
    evaluations: Sequence[Any] = (),
    rankings: Sequence[Any] = (),
    pairs: Sequence[Pair] = (),
    advice: Sequence[tuple[str, Any]] = (),
    provenance: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """Return a report in GitHub's Markdown; long tables fold.

    Parameters
    ----------
    layers, evaluations, rankings, pairs, advice, provenance, title
        As for `perfml.report.build_report`.
    kernels
        Taken so that both forms are called alike; single kernels are in the HTML report only.

    Raises
    ------
    TableError
        If there are no layers, or the table lacks what times need.
    """
    del kernels
    shown = conditions(layers)
    document = dict(provenance or {})
    shapes = layer_shapes(document)
    lines = [f"# {escape(title or default_title(layers))}", ""]
    said = sentences(shown, evaluations=evaluations, rankings=rankings, pairs=pairs)
    for each in said:
        mark = "> [!WARNING]\n> " if each.about == "caution" else "- "
        lines += [
            *([""] if each.about == "caution" else []),
            f"{mark}{escape(each.text)}{_MARKS[each.sure]}",
        ]
    lines += ["", "## Times"]
    for condition in shown:
        lines += ["", f"### {escape(condition.label)}", "", *_totals(condition), ""]
        lines += folded("Every layer", time_grid(condition, shapes, {}))
    for pair in pairs:
        lines += [
            "",
            f"## {escape(why_text(pair).label)}",
            "",
            f"All layers together: {escape(pair.explanation.total.sentence())}.",
            *details_of(pair),
        ]
    for part in advice_section(advice):
        grid = Grid(part["grid"].caption, part["grid"].columns, part["grid"].rows[:_MOST_ADVICE])
        lines += ["", f"## What could be done: {escape(part['label'])}", "", *table(grid)]
    for ranking in rankings:
        what = TASKS.get(str(ranking.task), str(ranking.task))
        grid = rank_grid(ranking.summary.head(_MOST_RANKS), {})
        lines += ["", f"## Metrics that explain the {escape(what)}", "", *table(grid)]
    for evaluation in evaluations:
        what = TASKS.get(str(evaluation.task), str(evaluation.task))
        lines += [
            "",
            f"## Scores of the models of the {escape(what)}",
            "",
            *table(score_grid(evaluation)),
        ]
    warnings = told_warnings(
        [
            *told_warnings(document.get("warnings")),
            *(text for each in (*evaluations, *rankings) for text in told_warnings(each.warnings)),
        ]
    )
    if warnings:
        lines += ["", "<details>", f"<summary>{count(len(warnings), 'warning')}</summary>", ""]
        lines += [*(f"- {escape(text)}" for text in warnings), "", "</details>"]
    lines += ["", f"perfml {__version__}"]
    return "\n".join(lines) + "\n"


def details_of(pair: Pair, *, differing: bool = False) -> list[str]:
    """Return the explained layers of a pair: a sentence each, and folded tables.

    With `differing` only those whose times differ.
    """
    lines: list[str] = []
    for name, sentence, grids in why_text(pair, differing=differing).details:
        lines += ["", f"**{escape(name)}**: {escape(sentence)}", ""]
        for grid in grids:
            lines += [*folded(escape(grid.caption), grid), ""]
    return lines


def mark(sure: str) -> str:
    """Return what follows a sentence that is not firm."""
    return _MARKS[sure]


def escape(text: object) -> str:
    r"""Return text from outside so that Markdown shows it as it is: no markup, HTML or mention.

    Examples
    --------
    >>> escape("<b>a|b</b>")
    '&lt;b&gt;a\\|b&lt;/b&gt;'
    """
    plain = " ".join(clean(text, 1000).split())
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # a word joiner is invisible, and keeps a name from notifying the person it resembles
    return _SPECIAL.sub(r"\\\1", plain).replace("@", "@\u2060")


def table(grid: Grid) -> list[str]:
    """Return a table's lines."""
    head = [escape(name) for name, _ in grid.columns]
    rule = ["---:" if numeric else "---" for _, numeric in grid.columns]
    rows = [[_cell(cell) for cell in row] for row in grid.rows]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.strong:
        text = f"**{text}**"
    return f"{text} <sub>{escape(cell.note)}</sub>" if cell.note else text


def folded(summary: str, grid: Grid) -> list[str]:
    """Return a table's lines behind a summary that opens it."""
    return ["<details>", f"<summary>{summary}</summary>", "", *table(grid), "", "</details>"]


def _totals(condition: Condition) -> list[str]:
    wins = condition.winners["fastest"].value_counts()
    compared = len(condition.winners)
    rows = []
    for row in condition.totals.to_dict("records"):
        first = f"{wins.get(row['backend'], 0)} of {compared}" if compared else "–"
        rows.append([Cell(str(row["backend"])), Cell(micros(float(row["total"]))), Cell(first)])
    columns = (("backend", False), (f"{condition.common} layers", True), ("fastest on", True))
    return table(Grid("Totals", columns, rows))
