"""Tables of a report, apart from how they are written: HTML and Markdown print the same ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfml.report._labels import clean, is_random, members, model, number, percent, protocol
from perfml.report._shapes import Shape
from perfml.report._times import Condition
from perfml.report.summary import higher_is_better


@dataclass(frozen=True)
class Cell:
    """One cell: what it says, what it sorts by, how it looks.

    Attributes
    ----------
    text, note
        What it says, and in smaller print below.
    value
        What it sorts by; the text without.
    series
        Number of the backend whose colour stands before the text, or None.
    strong
        Whether it is the best of its row.
    bar
        Length of the bar below the text, 0..1, or None.
    fold
        A long text, shown when the cell is opened; `text` is its short form.
    """

    text: str
    note: str = ""
    value: float | None = None
    series: int | None = None
    strong: bool = False
    bar: float | None = None
    fold: str = ""


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes
    ----------
    caption
        For those who hear it.
    columns
        Name, and whether it holds numbers.
    rows
        Cells.
    cards
        Whether a row becomes a card on a phone, because its texts are long.
    """

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: list[list[Cell]] = field(default_factory=list)
    cards: bool = False

    @property
    def widths(self) -> list[int]:
        """Least width of every column of text, in characters: its longest word, within reason."""
        return [
            0 if numeric else min(self._longest_word(place), 24)
            for place, (_, numeric) in enumerate(self.columns)
        ]

    def _longest_word(self, place: int) -> int:
        words = [word for row in self.rows for word in row[place].text.split()]
        return max(map(len, words), default=0)

    @property
    def long(self) -> bool:
        """Whether a filter is worth its place."""
        return len(self.rows) > 8


def amount(value: float, *, strong: bool = False, note: str = "", bar: float | None = None) -> Cell:
    """Return a cell with a number of three significant digits."""
    known = math.isfinite(value)
    return Cell(number(value), note, value if known else None, strong=strong, bar=bar)


def share(value: float, *, strong: bool = False, note: str = "", bar: float | None = None) -> Cell:
    """Return a cell with a fraction in percent."""
    known = math.isfinite(value)
    return Cell(percent(value), note, value if known else None, strong=strong, bar=bar)


def shape_text(shape: Shape | None) -> str:
    """Return a shape as ``3×3/1, 64 filters``."""
    if shape is None or shape.size is None:
        return "–"
    text = f"{shape.size}×{shape.size}"
    if shape.stride is not None:
        text += f"/{shape.stride}"
    return text + (f", {shape.filters} filters" if shape.filters is not None else "")


def time_grid(condition: Condition, shapes: Mapping[str, Shape], series: Mapping[str, int]) -> Grid:
    """Return the times of every layer, a column a backend."""
    described = any(layer in shapes for layer in condition.layers)
    several = len(condition.backends) > 1
    columns = [("layer", False)]
    columns += [("filters", False)] if described else []
    columns += [(f"{name}, µs", True) for name in condition.backends]
    columns += [("fastest", False), ("lead", True)] if several else []
    found = {(row.layer, row.backend): row for row in condition.times.itertuples(index=False)}
    winners = {row["layer"]: row for _, row in condition.winners.iterrows()}
    rows = []
    for layer in condition.layers:
        shape = shapes.get(layer)
        cells = [Cell(layer)]
        if described:
            size = None if shape is None or shape.size is None else float(shape.size)
            cells.append(Cell(shape_text(shape), value=size))
        best = winners.get(layer)
        for name in condition.backends:
            row: Any = found.get((layer, name))
            if row is None or math.isnan(row.median):
                cells.append(Cell("–"))
                continue
            spread = "" if math.isnan(row.low) else f"{number(row.low)}–{number(row.high)}"
            first = best is not None and str(best["fastest"]) == name
            cells.append(amount(row.median, strong=first, note=spread))
        if several:
            cells += _lead(best, series)
        rows.append(cells)
    spread = "medians, and the range of the repeats"
    return Grid(f"Time of every layer, {condition.label}: {spread}", tuple(columns), rows)


def _lead(best: pd.Series | None, series: Mapping[str, int]) -> list[Cell]:
    if best is None:
        return [Cell("–"), Cell("–")]
    note = "within spread" if best["clear"] == 0 else ""
    ratio = float(best["ratio"])
    lead = Cell(f"{ratio:.2f}×", note, ratio) if math.isfinite(ratio) else Cell("–")
    return [Cell(str(best["fastest"]), series=series.get(str(best["fastest"]))), lead]


def rank_grid(summary: pd.DataFrame, descriptions: Mapping[str, str]) -> Grid:
    """Return the metric groups with their ranks and probabilities, best first."""
    rows = []
    for place, (_, row) in enumerate(summary.iterrows(), start=1):
        names = members(row["members"])
        others = ", ".join(names[1:])
        note = f"interchangeable with {others}" if others else descriptions.get(names[0], "")
        interval = f"{_rank(row['rank_low'])}–{_rank(row['rank_high'])}"
        rows.append(
            [
                Cell(str(place), value=float(place)),
                Cell(names[0], note),
                amount(float(row["mean_rank"])),
                Cell(interval, value=float(row["rank_low"])),
                share(float(row["p_top1"]), bar=_fraction(row["p_top1"])),
                share(float(row["p_top3"]), bar=_fraction(row["p_top3"])),
            ]
        )
    columns = (
        ("#", True),
        ("metric", False),
        ("mean rank", True),
        ("interval", True),
        ("first", True),
        ("in top 3", True),
    )
    return Grid("Metric groups over all models, methods and resamples", columns, rows)


def _rank(value: Any) -> str:
    place = float(value)
    return number(place, 2) if not place.is_integer() else f"{place:.0f}"


def _fraction(value: Any) -> float | None:
    fraction = float(value)
    return min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else None


def importance_grid(table: pd.DataFrame) -> Grid:
    """Return every importance: model, method, metric, value with interval, rank."""
    rows = []
    for _, row in table.iterrows():
        interval = f"{number(float(row['low']))} to {number(float(row['high']))}"
        rows.append(
            [
                Cell(model(row["model"])),
                Cell(clean(row["method"], 80)),
                Cell(clean(row["metric"], 120)),
                amount(float(row["importance"]), note=interval),
                amount(float(row["mean_rank"])),
                share(float(row["p_top3"])),
            ]
        )
    columns = (
        ("model", False),
        ("method", False),
        ("metric", False),
        ("importance", True),
        ("mean rank", True),
        ("in top 3", True),
    )
    return Grid("Every importance by model and method", columns, rows)


def score_grid(evaluation: Any) -> Grid:
    """Return the scores, a row a model, a column a protocol; the last protocol's best first."""
    scores: pd.DataFrame = evaluation.scores
    protocols = list(dict.fromkeys(scores["protocol"]))
    protocols.sort(key=lambda name: not is_random(name))
    score = str(scores["score"].iloc[0]) if len(scores) else "score"
    up = higher_is_better(score)
    ordered = scores[scores["protocol"] == protocols[-1]].sort_values("mean", ascending=not up)
    names = list(dict.fromkeys([*ordered["model"], *scores["model"]]))
    largest = float(scores["mean"].max())
    best = {
        each: (part["mean"].max() if up else part["mean"].min())
        for each, part in scores.groupby("protocol")
    }
    rows = []
    for name in names:
        mine = scores[scores["model"] == name]
        plainly = bool(mine["baseline"].iloc[0])
        cells = [Cell(model(name), "baseline" if plainly else "")]
        for each in protocols:
            found = mine[mine["protocol"] == each]
            if found.empty or math.isnan(float(found["mean"].iloc[0])):
                cells.append(Cell("–"))
                continue
            row = found.iloc[0]
            mean = float(row["mean"])
            note = f"{percent(float(row['q025']))} to {percent(float(row['q975']))}"
            length = 1.0 if up else largest
            cells.append(
                share(mean, strong=mean == best[each], note=note, bar=_fraction(mean / length))
                if length > 0
                else share(mean, note=note)
            )
        rows.append(cells)
    columns = (("model", False), *((protocol(each), True) for each in protocols))
    meaning = "accuracy" if up else "mean absolute percentage error (MAPE)"
    return Grid(f"Scores of every model under every protocol: {meaning}", columns, rows)


def stall_grid(shares: pd.DataFrame, label: str, series: Mapping[str, int]) -> Grid:
    """Return the stall reasons, a row a reason, a column a backend."""
    rows = [
        [
            Cell(str(name).removeprefix("stall_").replace("_", " ")),
            *(share(float(shares.loc[backend, name])) for backend in shares.index),
        ]
        for name in shares.columns
    ]
    columns = (("reason", False), *((clean(name, 80), True) for name in shares.index))
    return Grid(f"Stall reasons, {label}, weighted by time", columns, rows)


def source_grid(sources: Sequence[Any]) -> Grid | None:
    """Return the files that a table was made of, or None without any."""
    rows = []
    for source in sources:
        if not isinstance(source, Mapping):
            continue
        digest = clean(source.get("sha256") or "–", 80)
        short = f"{digest[:12]}…" if len(digest) > 12 else digest
        tool = " ".join(
            clean(source[key], 80) for key in ("tool", "tool_version") if source.get(key)
        )
        rows.append(
            [
                Cell(clean(source.get("path"), 200)),
                Cell(clean(source.get("format"), 80)),
                Cell(tool or "–"),
                Cell(clean(source.get("device"), 80)),
                Cell(short, fold=digest if short != digest else ""),
            ]
        )
    columns = (
        ("file", False),
        ("format", False),
        ("tool", False),
        ("device", False),
        ("sha256", False),
    )
    return Grid("Files that this report was made from", columns, rows) if rows else None


def record_grid(caption: str, records: Sequence[Any]) -> Grid | None:
    """Return flat records as a table, a column a key; None without any.

    Lists and mappings inside a record are left out: they have tables of their own, or are in
    the provenance document.
    """
    flat = [
        {
            str(key): value
            for key, value in record.items()
            if not isinstance(value, (list, tuple, Mapping))
        }
        for record in records
        if isinstance(record, Mapping)
    ]
    names = list(dict.fromkeys(key for record in flat for key in record))
    if not names:
        return None
    numeric = {
        name: all(isinstance(record.get(name, 0), (int, float)) for record in flat)
        for name in names
    }
    rows = [
        [
            share(float(record[name]))
            if name == "share" and numeric[name] and record.get(name) is not None
            else _record_cell(record.get(name), numeric[name])
            for name in names
        ]
        for record in flat
    ]
    columns = tuple((_heading(name), numeric[name]) for name in names)
    return Grid(caption, columns, rows)


def _heading(name: str) -> str:
    text = clean(name, 80)
    unit = ", µs" if text.endswith("_us") else ""
    return text.removesuffix("_us").replace("_", " ") + unit


def _record_cell(value: Any, numeric: bool) -> Cell:
    if value is None:
        return Cell("–")
    if numeric and not isinstance(value, bool):
        text = f"{value:,}" if isinstance(value, int) else number(float(value), 4)
        return Cell(text, value=float(value) if math.isfinite(float(value)) else None)
    text = clean(value, 2000)
    return Cell(text if len(text) <= 80 else f"{text[:79]}…", fold=text if len(text) > 80 else "")
