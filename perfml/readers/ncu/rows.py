"""Take the rows of an ncu table out of a file where other lines stand between them.

The slow and careful way: every row is checked for its number of cells, and nothing that could
have been a row is left out without an error or a warning.
"""

from __future__ import annotations

import re

from perfml.errors import InputError
from perfml.readers.ncu.page import CUT, Page, cells_of, header_at
from perfml.readers.source import Source

_QUOTED_ROW = re.compile(rb'"\d+","\d+",')
_BARE_ROW = re.compile(rb'"?\d+"?,"?\d+"?,')


class Rows:
    """Tell rows from other lines, and whole rows from damaged ones.

    `page` is filled; its header says how many cells a row has. With `quoted` all cells are quoted,
    as ncu writes them; a spreadsheet may have unquoted them.
    """

    def __init__(self, source: Source, page: Page, quoted: bool) -> None:
        self._source = source
        self._page = page
        self._quoted = quoted
        self._start = _QUOTED_ROW if quoted else _BARE_ROW
        self._rows: list[bytes] = []
        self._multiline = False

    def fill(self, data: bytes, body: int, line: int) -> Page:
        """Fill the page with the rows from `body` on, which begins `line` of the file.

        Raises `InputError` at the first row that is cut, doubled or has the wrong number of cells.
        """
        page = self._page
        page.lines = []
        lines = data[body:].split(b"\n")
        tail = lines.pop()
        if self._is_whole(tail):
            lines.append(tail)
        elif tail:
            self._unfinished(tail, line + len(lines))
        pending: list[bytes] = []
        opened = quotes = 0
        for number, text in enumerate(lines, line):
            if self._start.match(text):
                if pending:
                    raise self._cut(opened)
                pending, opened, quotes = [text], number, text.count(b'"')
            elif pending:
                pending.append(text)
                quotes += text.count(b'"')
            else:
                found = self._other(text, number)
                if found is None:
                    continue
                pending, opened, quotes = [found], number, found.count(b'"')
            if quotes % 2 == 0:
                self._check(row := b"\n".join(pending).rstrip(b"\r"), opened)
                self._keep(row, opened, joined=len(pending) > 1)
                pending = []
        if pending:
            raise self._cut(opened)
        if not self._rows:
            msg = "no kernels in this profile"
            cure = "Check that the program launches kernels, and ncu's filters."
            where = str(self._source.path)
            raise InputError(msg, where=where, found="a header without rows", cure=cure)
        page.rows = b"\n".join(self._rows) + b"\n"
        page.count = len(self._rows)
        page.longest = max(map(len, self._rows)) + 2
        page.multiline = self._multiline
        return page

    def _keep(self, row: bytes, line: int, *, joined: bool) -> None:
        count = len(self._rows)
        lines = self._page.lines
        if not lines or lines[-1][1] + count - lines[-1][0] != line:
            lines.append((count, line))
        self._rows.append(row)
        self._multiline = self._multiline or joined

    def _check(self, row: bytes, line: int) -> None:
        """Check that a row with balanced quotes has the cells that it should have."""
        expected = len(self._page.header)
        ends = row.endswith(b'"') or not self._quoted
        if self._quoted and ends and row.count(b'","') == expected - 1 and row.isascii():
            return
        try:
            row.decode("utf-8")
        except UnicodeDecodeError as error:
            msg = "not UTF-8 text"
            raise InputError(
                msg,
                where=f"{self._source.path}:{line}",
                found=f"byte {row[error.start]:#04x}",
                cure="Export again with LC_ALL=C.UTF-8, or convert the file with iconv.",
            ) from error
        cells = cells_of(row)
        if cells is None or len(cells) != expected or not ends:
            found = f"{len(cells)} cells" if cells is not None else "text outside the quotes"
            if cells is not None and len(cells) == expected:
                found = "text after the last cell"
            msg = f"the row does not have the {expected} cells of the header"
            where = f"{self._source.path}:{line}"
            raise InputError(msg, where=where, found=found, cure=CUT)

    def _other(self, text: bytes, line: int) -> bytes | None:
        """Handle a line that begins no row; return the row that follows the program's text."""
        if text.startswith(b"=="):
            self._page.notices.collect(text)
            return None
        if header_at(text) >= 0:
            msg = "the header comes a second time: two exports in one file"
            cure = "Split the file before this line, and ingest the parts."
            raise InputError(msg, where=f"{self._source.path}:{line}", cure=cure)
        if text.startswith((b'"",', b",")) and self._is_units(text):
            msg = "the units change within the table: two exports in one file"
            cure = (
                "Split the file before this line, put the header before each part, and ingest both."
            )
            raise InputError(msg, where=f"{self._source.path}:{line}", cure=cure)
        match = _QUOTED_ROW.search(text) if self._quoted else None
        if match is not None:
            return text[match.start() :]
        if text.strip():
            self._page.skipped += 1
        return None

    def _is_units(self, text: bytes) -> bool:
        cells = cells_of(text)
        return cells is not None and len(cells) == len(self._page.header) and any(cells)

    def _is_whole(self, tail: bytes) -> bool:
        """Tell whether a last line lacks nothing but its newline, which editors take off.

        Only where cells are quoted: an unquoted number may have been longer.
        """
        row = tail.rstrip(b"\r")
        if not (self._quoted and self._start.match(row) and row.endswith(b'"')):
            return False
        cells = cells_of(row)
        return cells is not None and len(cells) == len(self._page.header)

    def _unfinished(self, tail: bytes, line: int) -> None:
        """Judge the last line, which no newline ends."""
        if tail.lstrip().startswith(b'"') or self._start.search(tail):
            raise self._cut(line)
        if self._other(tail, line) is not None:
            raise self._cut(line)

    def _cut(self, line: int) -> InputError:
        msg = "the row is cut"
        where = f"{self._source.path}:{line}"
        return InputError(msg, where=where, found="no end of the row", cure=CUT)
