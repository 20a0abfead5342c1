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
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from perfml.kernel_names import shortened
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
    from pandas.api.types import is_numeric_dtype

    lines = folded(title, width)
    told = [f"Warning: {warning}" for warning in warnings]
    lines += _sentences(told[:_OPEN], width)
    if len(told) > _OPEN:
        lines.append(f"({len(told) - _OPEN} more warnings)")
    shown = frame.head(most)
    texts = [[cell(value) for value in shown[name]] for name in shown.columns]
    heads = [
        (str(name), bool(is_numeric_dtype(shown[name])) or _figures(column))
        for name, column in zip(shown.columns, texts, strict=True)
    ]
    grid, kept = fitted(
        heads, [[(text, "") for text in row] for row in zip(*texts, strict=True)], width
    )
    lines += ["", *grid.lines()]
    left_out = [str(name) for at, name in enumerate(frame.columns) if at not in kept]
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


def _figures(column: list[str]) -> bool:
    """Return whether texts are numbers, in percent or plain."""
    return any(column) and all(_FIGURE.fullmatch(text) for text in column if text)


GAP = 2
"""Blanks between columns."""

_LEAST_NAME = 33
"""Characters that a name without blanks keeps: as many as any metric has, and a comma."""

_LEAST_TEXT = 24
"""Characters that a column of words keeps where its texts wrap."""

_LEAST_LAST = 18
"""The same of the last column beside the names."""

Head = tuple[str, bool]
"""What a column is called, and whether it is of numbers."""

Text = tuple[str, str]
"""A cell's text, and its small print."""


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines of a width; a longer word has a line for itself, whole.

    A `width` of 0 is one line; `indent` stands before the first line, and further lines two
    characters further in.
    """
    if not width:
        return [f"{indent}{text}"]
    return folded(text, width, indent, f"{indent}  " if indent else "") or [indent]


def fitted(
    heads: Sequence[Head], rows: Sequence[Sequence[Text]], width: int, spare: Sequence[int] = ()
) -> tuple[Grid, list[int]]:
    """Return a table that fits into a width, and the columns that it keeps.

    Columns of words get narrower first. Then `spare` ones go, then from the last to the second.
    """
    kept = list(range(len(heads)))
    order = [*spare, *(at for at in reversed(range(1, len(heads))) if at not in spare)]
    while True:
        grid = _fit(heads, rows, kept, width)
        if grid is None and len(kept) == 2:  # a name alone tells nothing
            grid = Grid.of(heads, rows, kept, notes=set()).squeezed(width, _LEAST_LAST)
            grid = grid if grid.needs <= width else None
        if grid is not None:
            return grid, kept
        if len(kept) == 1:
            return Grid.of(heads, rows, kept, notes=set()).squeezed(width), kept
        kept.remove(order.pop(0))


def _fit(
    heads: Sequence[Head], rows: Sequence[Sequence[Text]], kept: list[int], width: int
) -> Grid | None:
    """Return these columns if they fit, with as much small print as there is room for."""
    notes = {at for at in kept if any(row[at][1] for row in rows)}
    flat = Grid.of(heads, rows, kept, notes=notes, flat=True)
    if flat.needs <= width:
        return flat
    while True:
        grid = Grid.of(heads, rows, kept, notes=notes)
        if grid.needs <= width:
            return grid
        spare = notes - _telling_apart(rows)
        if not spare:
            squeezed = grid.squeezed(width)
            return squeezed if squeezed.needs <= width else None
        notes = notes - {max(spare, key=lambda at: max(len(row[at][1]) for row in rows))}


def _telling_apart(rows: Sequence[Sequence[Text]]) -> set[int]:
    """Return the first column where rows of one name differ in its small print alone."""
    names, cells = {row[0][0] for row in rows}, {_with_note(row[0]) for row in rows}
    return {0} if len(names) < len(cells) else set()


def _with_note(cell: Text) -> str:
    return f"{cell[0]} ({cell[1]})" if cell[1] else cell[0]


@dataclass(frozen=True)
class Grid:
    """Texts by column, and how wide each column is; `silent` ones have no small print."""

    heads: tuple[str, ...]
    numeric: tuple[bool, ...]
    texts: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    silent: tuple[int, ...]

    @classmethod
    def of(
        cls,
        columns: Sequence[Head],
        rows: Sequence[Sequence[Text]],
        kept: list[int],
        notes: set[int],
        *,
        flat: bool = False,
    ) -> Grid:
        """Return the kept columns with the small print of some; flat heads take one line."""
        heads = tuple(columns[at][0] for at in kept)
        texts = tuple(
            tuple(_with_note(row[at]) if at in notes else row[at][0] for row in rows) for at in kept
        )
        silent = tuple(at for at in kept if at not in notes and any(row[at][1] for row in rows))
        widths = tuple(
            max([len(head) if flat else _longest(head), *map(len, column)])
            for head, column in zip(heads, texts, strict=True)
        )
        return cls(heads, tuple(columns[at][1] for at in kept), texts, widths, silent)

    @property
    def needs(self) -> int:
        """Characters of a line."""
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    def squeezed(self, width: int, last: int = 0) -> Grid:
        """Return the grid with columns of words made narrower, the widest first.

        The last column may get as narrow as `last`, though its longest word lose its middle.
        """
        widths = list(self.widths)
        least = [self._least(at) for at in range(len(widths))]
        if last and not self.numeric[-1]:
            least[-1] = min(least[-1], last)
        over = self.needs - width
        while over > 0:
            at = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            if widths[at] <= least[at]:
                break
            others = [size for place, size in enumerate(widths) if place != at]
            step = min(over, widths[at] - max([least[at], *(s for s in others if s < widths[at])]))
            widths[at] -= max(step, 1)
            over -= max(step, 1)
        texts = tuple(
            _names_cut(column, size) for column, size in zip(self.texts, widths, strict=True)
        )
        return Grid(self.heads, self.numeric, texts, tuple(widths), self.silent)

    def _least(self, at: int) -> int:
        if self.numeric[at]:
            return self.widths[at]
        longest = max((_longest(text) for text in self.texts[at]), default=0)
        wanted = max(min(longest, _LEAST_NAME), _LEAST_TEXT, _longest(self.heads[at]))
        return min(self.widths[at], wanted)

    def lines(self) -> list[str]:
        """Return the heads, then the rows; cells of several lines fill up with blanks."""
        rows = [self.heads, *zip(*self.texts, strict=True)] if self.texts else []
        if not any(self.heads):
            rows = rows[1:]
        return [line for row in rows for line in self._row(row)]

    def _row(self, row: Sequence[str]) -> list[str]:
        cells = [wrap(text, size) for text, size in zip(row, self.widths, strict=True)]
        columns = list(zip(self.widths, self.numeric, strict=True))
        lines = []
        for texts in zip_longest(*cells, fillvalue=""):
            parts = [
                text.rjust(size) if number else text.ljust(size)
                for text, (size, number) in zip(texts, columns, strict=True)
            ]
            lines.append((" " * GAP).join(parts).rstrip())
        return lines


def _names_cut(texts: Sequence[str], width: int) -> tuple[str, ...]:
    """Return texts whose words fit into a width: a longer one loses what it shares with others."""
    long = list(dict.fromkeys(word for text in texts for word in text.split() if len(word) > width))
    short = dict(zip(long, shortened(long, width), strict=True))
    return tuple(
        " ".join(short.get(word, word) for word in text.split()) if long else text for text in texts
    )


def _longest(text: str) -> int:
    return max(map(len, text.split()), default=0)


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
