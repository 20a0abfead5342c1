"""A document as plain text, for a terminal or for a program that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perfml.report import document as doc
from perfml.report.document import Cell, ReportTable
from perfml.report.labels import clean
from perfml.util.shown import fitted, wrap
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


def table_grid(table: ReportTable, rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    """Return the heads and rows of a table, then what they leave out.

    `width` is characters of a line.
    """
    heads = [(one_line(column.name), column.numeric) for column in table.columns]
    cells = [[(one_line(cell.text), one_line(cell.note)) for cell in row] for row in rows]
    names = [column.name for column in table.columns]
    spare = [names.index(name) for name in table.spare if name in names]
    grid, kept = fitted(heads, cells, width, spare)
    # a head without its unit: a list of them has commas of its own
    short = [name.partition(", ")[0] for name in names]
    without = [short[at] for at in range(len(short)) if at not in kept]
    without += [f"small print of {short[at]}" for at in grid.silent]
    they = "it" if len(without) == 1 else "them"
    said = f"({width} columns: without {listed(without, 12)}; --json has {they})" if without else ""
    return [*grid.lines(), *(wrap(said, width) if said else [])]


def told(cell: Cell) -> str:
    """Return a cell's text with its small print."""
    return one_line(f"{cell.text} ({cell.note})" if cell.note else cell.text)


def one_line(text: str) -> str:
    """Return text from outside as one printable line."""
    return " ".join(clean(text).split())
