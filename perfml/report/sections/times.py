"""Where the time goes: totals and times of every layer."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

from perfml.account.time_sources import time_notes
from perfml.report import figures
from perfml.report.conditions import Condition, labelled
from perfml.report.document import (
    NARROW,
    Card,
    Cell,
    KernelChooser,
    Panels,
    Picture,
    ReportTable,
    Section,
    Totals,
    numbers,
    section,
    words,
)
from perfml.report.results import MOST_FIGURES, Results
from perfml.report.tables import amount, illustrated, time_texts
from perfml.util.words import count, micros, multiple, number, time_unit


def times_section(results: Results) -> Section:
    """Return the totals, the figure and the table of every condition."""
    panels = []
    for index, condition in enumerate(results.conditions):
        drawn = index < MOST_FIGURES and int(condition.times["median"].notna().sum()) > 1
        panels.append(
            section(
                condition.label,
                _totals(condition, results.series),
                _picture(condition, results.palette) if drawn else None,
                times_table(condition, results.shapes, results.series),
                *time_texts(time_notes(("", condition.rows))),
            )
        )
    nouns = {condition.noun for condition in results.conditions}
    title = f"Time of every {nouns.pop() if len(nouns) == 1 else 'layer'}"
    return section(title, Panels("condition", tuple(panels)), anchor="times", link="Times")


def _totals(condition: Condition, series: Mapping[str, int]) -> Totals | None:
    totals = condition.totals[condition.totals["total"].notna()]
    if totals.empty:
        return None
    fastest, longest = float(totals["total"].min()), float(totals["total"].max())
    wins, compared = condition.winners["fastest"].value_counts(), len(condition.winners)
    layers = count(condition.common, condition.noun)
    cards, rows = [], []
    for index, row in enumerate(totals.to_dict("records")):
        name, total = str(row["backend"]), float(row["total"])
        low, high = float(row["low"]), float(row["high"])
        spread = "" if math.isnan(low) else f", repeats {_range(low, high, total)}"
        won = f"{wins.get(name, 0)} of {compared}" if compared else "–"
        ratio = multiple(total / fastest) if fastest > 0 else "–"
        standing = f"{ratio} the shortest" if index else "shortest total"
        notes = [layers + spread, *([f"{standing}; fastest on {won}"] if compared else [])]
        length = total / longest if longest > 0 else 0.0
        cards.append(Card(name, micros(total), series[name], length, tuple(notes)))
        rows.append([Cell(name), Cell(micros(total)), Cell(won)])
    table = ReportTable("Totals", (*words("backend"), *numbers(layers, "fastest on")), rows)
    return Totals(f"Total time of {layers}", tuple(cards), table)


def _range(low: float, high: float, total: float) -> str:
    """Return a range in the unit of the total beside it, with a digit more."""
    size, unit = time_unit(total)
    return f"{number(low / size, 4)}–{number(high / size, 4)}\xa0{unit}"


def _picture(condition: Condition, palette: Mapping[str, str]) -> Picture:
    slowest = condition.slowest
    caption = f"{labelled(f'Time of every {condition.noun}', condition.label)}."
    if slowest is not None:
        under = f" under {slowest['backend']}" if len(condition.backends) > 1 else ""
        caption += (
            f" The slowest is {slowest['layer']}{under} with {micros(float(slowest['median']))}."
        )
    if condition.times["repeats"].max() > 1:
        caption += " Bars are medians, lines the range of the repeats."
    return illustrated(
        f"Bar chart of the {condition.noun}s' times",
        caption,
        lambda width: figures.layer_times(
            (condition,), palette=palette, width=width, horizontal=width == NARROW
        ),
    )


_NONE = (math.nan, "–")
"""The shape of a layer that nothing describes."""


def times_table(
    condition: Condition, shapes: Mapping[str, tuple[float, str]], series: Mapping[str, int]
) -> ReportTable:
    """Return the times of every layer, a column a backend."""
    described = any(not math.isnan(shapes.get(layer, _NONE)[0]) for layer in condition.layers)
    several = len(condition.backends) > 1
    columns = (
        *words(condition.noun, *(["filters"] if described else [])),
        *numbers(*(f"{name}, µs" for name in condition.backends)),
        *((*words("fastest"), *numbers("lead")) if several else ()),
    )
    times = {(row["layer"], row["backend"]): row for row in condition.times.to_dict("records")}
    winners = {row["layer"]: row for row in condition.winners.to_dict("records")}
    rows = []
    for layer in condition.layers:
        cells = [Cell(layer)]
        if described:
            size, text = shapes.get(layer, _NONE)
            cells.append(Cell(text, value=None if math.isnan(size) else size))
        best = winners.get(layer)
        for name in condition.backends:
            row = times.get((layer, name))
            median = math.nan if row is None else float(row["median"])
            first = best is not None and str(best["fastest"]) == name
            spread = ""
            if row is not None and not math.isnan(row["low"]):
                spread = f"{number(row['low'])}–{number(row['high'])}"
            cells.append(amount(median, strong=first, note=spread))
        if several:
            cells += [Cell("–"), Cell("–")] if best is None else _lead(best, series)
        rows.append(cells)
    caption = labelled(f"Time of every {condition.noun}", condition.label)
    caption += ": medians, and the range of the repeats"
    return ReportTable(caption, columns, rows, title=f"Every {condition.noun}")


def _lead(best: Mapping[Hashable, object], series: Mapping[str, int]) -> list[Cell]:
    fastest, ratio = str(best["fastest"]), float(str(best["ratio"]))
    note = "within spread" if best["clear"] == 0 else ""
    lead = Cell(multiple(ratio), note, ratio) if math.isfinite(ratio) else Cell("–")
    return [Cell(fastest, series=series.get(fastest)), lead]


def kernels_section(kernels: KernelChooser) -> Section:
    """Return the page's chooser of a condition, a layer and a backend."""
    return Section(
        "Kernels of a layer",
        (kernels,),
        lead="Mean time of one iteration, and share of the layer's time. Open a name to read all "
        "of it.",
        anchor="kernels",
        link="Kernels",
        page_only=True,
    )
