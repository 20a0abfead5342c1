"""What sections make tables and pictures with: cells of numbers, tables of records, figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfml.report.document import Cell, Column, Picture, ReportTable, Text
from perfml.util.json_values import is_missing
from perfml.util.words import number, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def amount(value: float, *, strong: bool = False, note: str = "") -> Cell:
    """Return a cell with a number of three significant digits."""
    known = math.isfinite(value)
    return Cell(number(value), note if known else "", value if known else None, strong=strong)


def share(value: float, *, strong: bool = False, note: str = "", bar: float | None = None) -> Cell:
    """Return a cell with a fraction in percent, and a bar of a length (0..1) if one is given."""
    known = math.isfinite(value)
    length = None if bar is None or not math.isfinite(bar) else min(max(bar, 0.0), 1.0)
    return Cell(percent(value), note, value if known else None, strong=strong, bar=length)


def folded(text: str, longest: int = 80) -> Cell:
    """Return a cell with text that may be long: its beginning shows, all of it opens."""
    return Cell(text) if len(text) <= longest else Cell(f"{text[: longest - 1]}…", fold=text)


def illustrated(kind: str, caption: str, draw: Callable[..., Axes]) -> Picture:
    """Return a figure whose numbers stand in the table below it."""
    return Picture(f"{kind}; the table below has its numbers", caption, draw)


def record_table(caption: str, records: Iterable[object], **how: Any) -> ReportTable | None:
    """Return flat records as a table, a column a key; None without any.

    Lists and mappings inside a record are left out: they have tables of their own, or are in the
    provenance document. What is no record is left out, too. `how` are further fields of the
    `ReportTable`.
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
        [_record_cell(name, record.get(name), numeric[name]) for name in names] for record in flat
    ]
    columns = tuple(Column(_heading(name), numeric[name]) for name in names)
    return ReportTable(caption, columns, rows, **how)


def _heading(name: str) -> str:
    unit = ", µs" if name.endswith("_us") else ""
    return name.removesuffix("_us").replace("_", " ") + unit


def _record_cell(name: str, value: Any, numeric: bool) -> Cell:
    if value is None:
        return Cell("–")
    if numeric and name == "share":
        return share(float(value))
    if numeric and not isinstance(value, bool):
        text = f"{value:,}" if isinstance(value, int) else number(float(value), 4)
        return Cell(text, value=float(value) if math.isfinite(float(value)) else None)
    return folded(str(value))


def time_texts(notes: Sequence[str]) -> tuple[Text, ...]:
    """Return what `perfml.account.time_sources` says of times, for where they are shown."""
    return tuple(Text(note, note=True) for note in notes)


def sentences_of(texts: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return warnings, each once; a single one may stand for itself."""
    given = [texts] if isinstance(texts, str) else texts or ()
    return tuple(dict.fromkeys(str(text) for text in given if text))


def value_table(
    columns: Iterable[str],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    spare: Sequence[str] = (),
) -> ReportTable:
    """Return plain values as a table; columns of nothing but numbers are aligned to the right.

    A narrow terminal leaves out `spare` columns first.
    """
    texts = [[value_text(value) for value in row] for row in rows]
    heads = tuple(
        Column(str(name), bool(texts) and all(_is_number(row[index]) for row in texts))
        for index, name in enumerate(columns)
    )
    cells = [[Cell(text) for text in row] for row in texts]
    return ReportTable(caption, heads, cells, spare=tuple(spare))


def frame_table(frame: pd.DataFrame, caption: str = "", **how: Any) -> ReportTable:
    """Return a frame as a table, its values as they are; `how` are fields of the table."""
    table = value_table(frame.columns, frame.itertuples(index=False, name=None), caption)
    return dataclasses.replace(table, **how)


def value_text(value: Any) -> str:
    """Return a value as a table shows it: four significant digits, ``-`` for missing."""
    if is_missing(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%").rstrip())
    except ValueError:
        return text in ("-", "–")
    return True


def said_once(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Return rows whose last cell stands once: a later row that says the same names the first."""
    first: dict[str, str] = {}
    for row in rows:
        text = row[-1].text
        if text in first and text != "–":
            row[-1] = Cell(f"As above, for {first[text]}.")
        first.setdefault(text, row[0].text)
    return rows
