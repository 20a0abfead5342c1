"""A document as plain text, for a terminal or for a program that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perfml.kernel_names import shortened
from perfml.report import document as doc
from perfml.report.document import Cell, ReportTable
from perfml.report.labels import clean
from perfml.util.shown import folded
from perfml.util.words import count, listed

PIPE_WIDTH = 200
"""Characters of a table's line without a terminal; there, sentences are a line each."""

_BAR = 8
"""Characters of a bar of full length."""


def to_text(
    document: doc.Document, *, full: bool = False, width: int = 0, styled: bool = False
) -> str:
    """Return a document as text: what stands in it but pictures.

    Control characters in text from outside are made visible, so that a terminal obeys none.

    Parameters
    ----------
    document
        Its title is not printed, nor a section's of the same title: who asked knows it.
    full
        Print every row, also of tables that have a short form.
    width
        Characters of a line; 0 for tables of `PIPE_WIDTH` and sentences that are not folded.
    styled
        Set off the heads of tables as a terminal does.
    """
    writer = _Writer(full, width, styled)
    lines = [line for sentence in document.lines for line in writer.wrapped(sentence)]
    for section in document.sections:
        lines += writer.section(section, alone=section.title == document.title)
    return "\n".join(lines).lstrip("\n").rstrip() + "\n"


def table_text(table: doc.ReportTable, *, width: int = 0, styled: bool = False) -> str:
    """Return a table alone as text; its caption stands above it, if it has one."""
    return "\n".join(_Writer(True, width, styled).table(table)) + "\n"


def _with_bar(cell: doc.Cell) -> doc.Cell:
    """Return a cell with its bar drawn in characters."""
    if cell.bar is None:
        return cell
    full = round(_BAR * cell.bar)
    return replace(cell, text=f"{cell.text} {'█' * full}{'·' * (_BAR - full)}")


@dataclass(frozen=True)
class _Writer:
    full: bool
    width: int
    styled: bool

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        return wrap(one_line(text), self.width, indent)

    def section(self, section: doc.Section, *, alone: bool = False) -> list[str]:
        """Return a section's lines, without its title if it stands alone.

        None where all it holds is for a page.
        """
        lines = list(self.blocks(section.blocks))
        if section.page_only or not (lines or section.summary):
            return []
        if alone or not section.title:
            return ["", *lines] if not alone else lines
        summary = f": {section.summary}" if section.summary else ""
        return ["", *self.wrapped(f"== {section.title}{summary}"), *lines]

    def blocks(self, blocks: Iterable[doc.Block]) -> Iterator[str]:
        for block in blocks:
            yield from self.block(block)

    def block(self, block: doc.Block) -> Iterator[str]:
        match block:
            case doc.Panels():
                for section in block.sections:
                    yield from self.section(section)
            case doc.Section():
                yield from self.section(block)
            case doc.Text():
                yield from self.wrapped(block.text)
            case doc.Points():
                noted = block.look == "notices"
                titled = block.heading and not noted
                yield from (self.wrapped(f"{block.heading}:") if titled else [])
                for item in block.items:
                    yield from self.wrapped(f"note: {item}" if noted else item, "   ")
            case doc.Fold(page_only=False):
                yield from self.blocks(block.blocks)
            case doc.Totals(table=doc.ReportTable() as table):
                yield from self.table(table)
            case doc.ReportTable():
                yield from self.table(block)
            case (
                doc.Facts() | doc.Fold() | doc.Glossary() | doc.KernelChooser() | doc.Picture()
                | doc.Totals()
            ):  # fmt: skip
                return  # what only a page has room for

    def table(self, table: doc.ReportTable) -> Iterator[str]:
        rows = table.rows if self.full else table.rows[: table.most]
        if table.heading:
            yield from self.wrapped(table.heading)
        yield from (self.cards(table, rows) if table.cards else self.grid(table, rows))
        if len(rows) < len(table.rows):
            yield f"({count(len(table.rows) - len(rows), 'more row')} with -v or --json)"

    def grid(self, table: doc.ReportTable, rows: Sequence[Sequence[doc.Cell]]) -> list[str]:
        if table.bars:
            rows = [[_with_bar(cell) for cell in row] for row in rows]
        lines = table_grid(table, rows, self.width or PIPE_WIDTH)
        if self.styled and any(column.name for column in table.columns):
            lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
        return lines

    def cards(self, table: doc.ReportTable, rows: Sequence[Sequence[doc.Cell]]) -> Iterator[str]:
        """Print a row below its first cell, since its texts are too long for columns."""
        for row in rows:
            yield from ("", *self.wrapped(told(row[0])))
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                yield from self.wrapped(f"{column.name}: {told(cell)}", "  ")


GAP = 2
"""Blanks between columns."""

_LEAST_NAME = 33
"""Characters that a name without blanks keeps: as many as any metric has, and a comma."""

_LEAST_TEXT = 24
"""Characters that a column of words keeps where its texts wrap."""


_LEAST_LAST = 18
"""The same of the last column beside the names."""


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines of a width; a longer word has a line for itself, whole.

    A `width` of 0 is one line; `indent` stands before the first line, and further lines two
    characters further in.
    """
    if not width:
        return [f"{indent}{text}"]
    return folded(text, width, indent, f"{indent}  " if indent else "") or [indent]


def table_grid(table: ReportTable, rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    """Return the heads and rows of a table, then what they leave out.

    `width` is characters of a line.
    """
    kept = list(range(len(table.columns)))
    order = _leaving(table)
    while True:
        fitted = _fit(table, rows, kept, width)
        if fitted is None and len(kept) == 2:  # a name alone tells nothing
            fitted = _Grid.of(table, rows, kept, notes=set()).squeezed(width, _LEAST_LAST)
            fitted = fitted if fitted.needs <= width else None
        if fitted is not None or len(kept) == 1:
            break
        kept.remove(order.pop(0))
    grid = fitted or _Grid.of(table, rows, kept, notes=set()).squeezed(width)
    # a head without its unit: a list of them has commas of its own
    heads = [column.name.partition(", ")[0] for column in table.columns]
    without = [heads[at] for at in range(len(heads)) if at not in kept]
    without += [f"small print of {heads[at]}" for at in grid.silent]
    they = "it" if len(without) == 1 else "them"
    said = f"({width} columns: without {listed(without, 12)}; --json has {they})" if without else ""
    return [*grid.lines(), *(wrap(said, width) if said else [])]


def _leaving(table: ReportTable) -> list[int]:
    """Return the columns in the order in which a narrow terminal leaves them out, never the first.

    Spare ones go first, then from the last to the second.
    """
    names = [column.name for column in table.columns]
    spare = [names.index(name) for name in table.spare if name in names]
    return [*spare, *(at for at in reversed(range(1, len(names))) if at not in spare)]


def _fit(
    table: ReportTable, rows: Sequence[Sequence[Cell]], kept: list[int], width: int
) -> _Grid | None:
    """Return these columns if they fit, with as much small print as there is room for."""
    notes = {at for at in kept if any(row[at].note for row in rows)}
    flat = _Grid.of(table, rows, kept, notes=notes, flat=True)
    if flat.needs <= width:
        return flat
    while True:
        grid = _Grid.of(table, rows, kept, notes=notes)
        if grid.needs <= width:
            return grid
        spare = notes - _telling_apart(rows)
        if not spare:
            squeezed = grid.squeezed(width)
            return squeezed if squeezed.needs <= width else None
        notes = notes - {max(spare, key=lambda at: max(len(row[at].note) for row in rows))}


def _telling_apart(rows: Sequence[Sequence[Cell]]) -> set[int]:
    """Return the first column where rows of one name differ in its small print alone."""
    names, whole = {row[0].text for row in rows}, {told(row[0]) for row in rows}
    return {0} if len(names) < len(whole) else set()


@dataclass(frozen=True)
class _Grid:
    """Texts by column, and how wide each column is."""

    heads: tuple[str, ...]
    numeric: tuple[bool, ...]
    texts: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    silent: tuple[int, ...]

    @classmethod
    def of(
        cls,
        table: ReportTable,
        rows: Sequence[Sequence[Cell]],
        kept: list[int],
        notes: set[int],
        *,
        flat: bool = False,
    ) -> _Grid:
        """Return the kept columns with the small print of some; flat heads take one line."""
        heads = tuple(one_line(table.columns[at].name) for at in kept)
        texts = tuple(
            tuple(told(row[at]) if at in notes else one_line(row[at].text) for row in rows)
            for at in kept
        )
        silent = tuple(at for at in kept if at not in notes and any(row[at].note for row in rows))
        widths = tuple(
            max([len(head) if flat else _longest(head), *map(len, column)])
            for head, column in zip(heads, texts, strict=True)
        )
        return cls(heads, tuple(table.columns[at].numeric for at in kept), texts, widths, silent)

    @property
    def needs(self) -> int:
        """Characters of a line."""
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    def squeezed(self, width: int, last: int = 0) -> _Grid:
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
        return _Grid(self.heads, self.numeric, texts, tuple(widths), self.silent)

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
        height = max(map(len, cells))
        lines = []
        for place in range(height):
            parts = [
                (cell[place] if place < len(cell) else "").rjust(size)
                if number
                else (cell[place] if place < len(cell) else "").ljust(size)
                for cell, size, number in zip(cells, self.widths, self.numeric, strict=True)
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


def told(cell: Cell) -> str:
    """Return a cell's text with its small print."""
    return one_line(f"{cell.text} ({cell.note})" if cell.note else cell.text)


def one_line(text: str) -> str:
    """Return text from outside as one printable line."""
    return " ".join(clean(text).split())
