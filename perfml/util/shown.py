"""How perfml's objects show themselves: a title, the warnings, one small table.

At a Python prompt within the columns of a terminal: numbers stay whole, long names lose their
middle, and what does not fit is said below the table. In a notebook as HTML.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perfml.util.words import count, plain_number

if TYPE_CHECKING:
    import pandas as pd


WIDTH = 80
"""Columns that every terminal has."""

_OPEN = 3
"""More warnings than these are counted, or fold."""

_KERNEL = re.compile(r"[(\[]?(?=\w+_\w)[\w:]+(…[\w:]+)?[)\],;:.]*")
"""What the name of a kernel looks like, also one that lost its middle: no path, no option."""

_UNIT = re.compile(r"(?<=\d) (?=(?:%|[µunm]?s\b|[GT]B/s|TFLOP/s))")
"""The blank between a number and its unit."""

_FIGURE = re.compile(r"[-+]?\d[\d.,]*(?: %)?|–")

_LEAST_NAME = 33
"""Characters that a name keeps: as many as any metric has."""

_LEAST_WORDS = 25
"""Characters that words keep."""


def screen(
    title: str,
    warnings: Iterable[str],
    frame: pd.DataFrame,
    *,
    after: Iterable[str] = (),
    rest: str = "",
    most: int = 12,
    width: int = WIDTH,
) -> str:
    """Return a few lines of text: the title, the warnings, the table, sentences `after` it.

    Columns come by importance: the last ones are left out first, and so are rows beyond `most`;
    `rest` says where all of them are, such as ``.summary``. Missing cells are empty.
    """
    lines = folded(title, width)
    told = [f"Warning: {warning}" for warning in warnings]
    lines += _sentences(told[:_OPEN], width)
    if len(told) > _OPEN:
        lines.append(f"({len(told) - _OPEN} more warnings)")
    shown = frame.head(most)
    kept, grid = _fitted(shown, width)
    lines += ["", *grid]
    left_out = [str(name) for name in frame.columns[kept:]]
    notes = [f"without {', '.join(left_out)}"] if left_out else []
    if len(frame) > len(shown):
        notes.append(count(len(frame) - len(shown), "more row"))
    if notes:
        lines += folded(f"({'; '.join(notes)}{f': all in {rest}' if rest else ''})", width)
    below = _sentences(after, width)
    return "\n".join([*lines, *([""] if below else []), *below])


def _sentences(sentences: Iterable[str], width: int) -> list[str]:
    return [line for sentence in sentences for line in folded(sentence, width)]


def folded(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """Return a paragraph in lines of a width; a longer word has a line for itself, whole.

    A number and its unit stay on one line. The name of a kernel that is longer than a line loses
    its middle; a path or a command, which one copies, does not. `first` and `further` begin the
    first line and the others.
    """
    room = width - max(len(first), len(further))
    words = (_without_middle(word, room) for word in text.split(" "))
    lines = textwrap.wrap(
        _UNIT.sub("\xa0", " ".join(words)),  # no blank to textwrap
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def _without_middle(word: str, room: int) -> str:
    """Return a word that fits, if it is a kernel's name."""
    if len(word) <= room or not _KERNEL.fullmatch(word):
        return word
    start, _, end = word.partition("…") if "…" in word else (word, "", word)
    tail = (room - 1) // 2
    return f"{start[: room - 1 - tail]}…{end[-tail:]}"


def _fitted(frame: pd.DataFrame, width: int) -> tuple[int, list[str]]:
    """Return how many columns fit, and their lines."""
    from pandas.api.types import is_numeric_dtype

    columns = [[cell(value) for value in frame[name]] for name in frame.columns]
    heads = [str(name) for name in frame.columns]
    numeric = [
        bool(is_numeric_dtype(frame[name])) or _figures(column)
        for name, column in zip(frame.columns, columns, strict=True)
    ]
    kept = len(heads)
    while True:
        sizes = [
            max([len(head), *map(len, column)])
            for head, column in zip(heads[:kept], columns[:kept], strict=True)
        ]
        over = sum(sizes) + 2 * (kept - 1) - width
        for at in sorted(range(kept), key=lambda at: -sizes[at]):
            of_words = any(" " in text for text in columns[at])
            least = max(_LEAST_WORDS if of_words else _LEAST_NAME, len(heads[at]))
            if over > 0 and not numeric[at] and sizes[at] > least:
                cut = min(over, sizes[at] - least)
                sizes[at] -= cut
                over -= cut
        if over <= 0 or kept == 1:
            break
        kept -= 1
    rows = zip(*columns[:kept], strict=True)
    lines = [_line(row, sizes, numeric) for row in [tuple(heads[:kept]), *rows]]
    return kept, lines


def _figures(column: list[str]) -> bool:
    """Return whether texts are numbers, in percent or plain."""
    return any(column) and all(_FIGURE.fullmatch(text) for text in column if text)


def _line(row: Iterable[str], sizes: list[int], numeric: list[bool]) -> str:
    cells = (
        shorter(text, size).rjust(size) if number else shorter(text, size).ljust(size)
        for text, size, number in zip(row, sizes, numeric, strict=False)
    )
    return "  ".join(cells).rstrip()


def cell(value: Any) -> str:
    """Return a cell's text: four digits of a number, nothing where it is missing."""
    import pandas as pd

    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return plain_number(value)
    return " ".join("".join(c if c.isprintable() else "?" for c in str(value)).split())


def shorter(text: str, width: int) -> str:
    """Return text of at most `width` characters: a name without its middle, words without end."""
    if len(text) <= width:
        return text
    if " " in text:
        return f"{text[: width - 1].rstrip()}…"
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:] if tail else ''}"


_STYLE = "<style>table.perfml th, table.perfml td { text-align: left }</style>"
"""Notebooks set cells flush right, which sentences cannot be read in."""


class Shown:
    """A result that shows itself by what its `shown` returns."""

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the title, warnings, the table, sentences below it, and where all rows are."""
        raise NotImplementedError

    def __repr__(self) -> str:
        title, warnings, frame, after, rest = self.shown()
        return screen(title, warnings, frame, after=after, rest=rest)

    def _repr_html_(self) -> str:
        title, warnings, frame, after, _ = self.shown()
        return section(title, warnings, frame, after=" ".join(after))


def section(title: str, warnings: Iterable[str], frame: pd.DataFrame, *, after: str = "") -> str:
    """Return a fragment of HTML; all text in it is shown as text.

    `warnings` are what the reader has to see before the table, whose row labels are not shown and
    whose missing cells are empty; `after` is a sentence below it.
    """
    import pandas as pd

    notes = "".join(f"<p><b>Warning:</b> {html.escape(warning)}</p>" for warning in warnings)
    if notes.count("<p>") > _OPEN:
        # a page of warnings would hide the table; one line still says how many there are
        count = notes.count("<p>")
        notes = f"<details><summary><b>{count} warnings</b></summary>{notes}</details>"
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(
            index=False,
            border=0,
            classes="perfml",
            na_rep="",
            float_format=plain_number,
        )
    below = f"<p>{html.escape(after)}</p>" if after else ""
    return f"<div>{_STYLE}<h4>{html.escape(title)}</h4>{notes}{table}{below}</div>"


def runs(frame: pd.DataFrame, rows: str) -> pd.DataFrame:
    """Return what a Kernels or Layers table holds, a row a run; `rows` is what its rows are."""
    identity = ["workload", "backend", "precision", "batch", "device"]
    grouped = frame.groupby("run_id", sort=False, dropna=False)
    found = grouped[identity].first()
    found["iterations"] = grouped["iteration"].nunique()
    found["layers"] = grouped["layer"].nunique()
    found[rows] = grouped.size()
    found["µs an iteration"] = grouped["time_us"].sum(min_count=1) / found["iterations"]
    return found.reset_index(drop=True)
