"""A document as plain text, for a terminal or for a program that reads it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfml.report.document import (
    Block,
    Cell,
    Document,
    Facts,
    Fold,
    KernelChooser,
    LayerMap,
    Notices,
    Panels,
    Pictures,
    Points,
    Preformatted,
    ReportTable,
    Section,
    Shortlists,
    Text,
    Totals,
    TreeInWords,
)
from perfml.report.labels import clean, count

PIPE_WIDTH = 200
"""Characters of a line without a terminal: what another program reads is not folded."""


def to_text(document: Document, *, full: bool = False, terminal: bool = False) -> str:
    """Return a document as text: what stands in it but pictures.

    Control characters in text from outside are made visible, so that a terminal obeys none.

    Parameters
    ----------
    document
        Its title is not printed, nor a section's of the same title: who asked knows it.
    full
        Print every row, also of tables that have a short form.
    terminal
        Fit tables to the terminal's width, and set off their heads.
    """
    writer = _Writer(full, terminal)
    lines = list(document.lines)
    for section in document.sections:
        lines += writer.section(section, alone=section.title == document.title)
    return "\n".join(lines).lstrip("\n").rstrip() + "\n"


def table_text(table: ReportTable, *, terminal: bool = False) -> str:
    """Return a table alone as text; its caption stands above it, if it has one."""
    return "\n".join(_Writer(full=True, terminal=terminal).table(table)) + "\n"


@dataclass(frozen=True)
class _Writer:
    full: bool
    terminal: bool

    def section(self, section: Section, *, alone: bool = False) -> list[str]:
        """Return a section's lines, without its title if it stands alone.

        None where all it holds is for a page.
        """
        lines = list(self.blocks(section.blocks))
        if section.page_only or not (lines or section.summary):
            return []
        if alone:
            return lines
        summary = f": {_one_line(section.summary)}" if section.summary else ""
        return ["", f"== {_one_line(section.title)}{summary}", *lines]

    def blocks(self, blocks: Iterable[Block]) -> Iterator[str]:
        for block in blocks:
            yield from self.block(block)

    def block(self, block: Block) -> Iterator[str]:
        match block:
            case Panels():
                for section in block.sections:
                    yield from self.section(section)
            case Section():
                yield from self.section(block)
            case Text():
                yield _one_line(block.text)
            case Points():
                yield from ([f"{_one_line(block.heading)}:"] if block.heading else [])
                yield from (f"   {_one_line(item)}" for item in block.items)
            case Notices():
                yield from (f"   note: {_one_line(text)}" for text in block.texts)
            case Fold(page_only=False):
                yield from self.blocks(block.blocks)
            case Totals(table=ReportTable() as table):
                yield from self.table(table)
            case ReportTable():
                yield from self.table(block)
            case (
                Facts() | Fold() | KernelChooser() | LayerMap() | Pictures() | Preformatted()
                | Shortlists() | Totals() | TreeInWords()
            ):  # fmt: skip
                return  # what only a page has room for

    def table(self, table: ReportTable) -> Iterator[str]:
        rows = table.rows if self.full else table.rows[: table.most]
        if table.heading:
            yield _one_line(table.heading)
        yield from (_cards(table, rows) if table.cards else self.grid(table, rows))
        if len(rows) < len(table.rows):
            yield f"({count(len(table.rows) - len(rows), 'more row')} with -v or --json)"

    def grid(self, table: ReportTable, rows: list[list[Cell]]) -> list[str]:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text as RichText

        buffer = io.StringIO()
        console = Console(
            file=buffer,
            width=None if self.terminal else PIPE_WIDTH,
            force_terminal=self.terminal,
            highlight=False,
        )
        grid = Table(box=None, pad_edge=False)
        for column in table.columns:
            grid.add_column(
                RichText(_one_line(column.name)),
                justify="right" if column.numeric else "left",
                overflow="fold",
            )
        for row in rows:
            grid.add_row(*[RichText(_told(cell)) for cell in row])
        console.print(grid)
        return [line.rstrip() for line in buffer.getvalue().splitlines()]


def _cards(table: ReportTable, rows: list[list[Cell]]) -> Iterator[str]:
    """Print a row below its first cell, since its texts are too long for columns."""
    for row in rows:
        yield from ("", _told(row[0]))
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            yield f"  {_one_line(column.name)}: {_told(cell)}"


def _told(cell: Cell) -> str:
    return _one_line(f"{cell.text} ({cell.note})" if cell.note else cell.text)


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())
