"""The table of an export of Nsight Compute: its header, its rows, and what ncu said beside.

`Rows` is the slow and careful way to take rows out of a file where other lines stand between them:
every row is checked for its number of cells, and nothing that could have been a row is left out
without an error or a warning.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from dataclasses import dataclass, field

from perfml.errors import InputError
from perfml.readers.source import Source, at_most

_HEADER = re.compile(rb'"ID","Process ID",')
NOTICE = re.compile(rb"(?m)^==(PROF|WARNING|ERROR)==[ \t]*([^\r\n]*)")
CUT = "Export or copy it again; ncu ends every row with a newline."

_ROW = re.compile(rb'"\d+","\d+",')


@dataclass
class Notices:
    """What ncu said beside the table."""

    program: str | None = None
    passes: int | None = None
    _errors: dict[str, None] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)

    @property
    def errors(self) -> list[str]:
        """Return the distinct errors, in ncu's words."""
        return list(self._errors)

    @property
    def warnings(self) -> list[str]:
        """Return the distinct errors, then warnings, as sentences, `MOST` at most."""
        messages = (*self._errors, *self._warnings)
        return at_most([f"Nsight Compute said: {words}" for words in messages])

    def collect(self, text: bytes) -> None:
        """Take in ncu's messages among these lines."""
        for kind, message in NOTICE.findall(text):
            words = message.decode("utf-8", "replace").strip()
            if kind == b"ERROR":
                self._errors[words] = None
                continue
            if kind == b"WARNING":
                self._warnings[words] = None
                continue
            connected = re.match(r"Connected to process \d+ \((.*)\)", words)
            if connected and self.program is None:
                self.program = connected.group(1)
            passes = re.search(r" - (\d+) pass(?:es)?$", words)
            if passes:
                self.passes = max(self.passes or 0, int(passes.group(1)))


@dataclass
class Page:
    """The table of an export."""

    header: list[str]  # names of the columns
    units: list[str] | None  # units under the header of the raw page; None on the details page
    rows: memoryview | bytes  # the rows as CSV bytes, each ended by a newline
    count: int  # how many rows
    longest: int  # bytes of the longest row
    multiline: bool  # whether a cell holds a newline
    notices: Notices  # what ncu said
    skipped: int  # lines after the header that are neither rows nor messages of ncu
    # pairs (row, line of the file) where rows and lines begin to run in step
    lines: list[tuple[int, int]]

    def line(self, row: int) -> int:
        """Return the line of the file that a row (from 0) begins in."""
        at = bisect_right(self.lines, (row, 1 << 62)) - 1
        first, line = self.lines[max(at, 0)]
        return line + row - first


def header_at(data: bytes | memoryview) -> int:
    """Return where a header begins, which may be after text of the program; -1 without one."""
    header = _HEADER.search(data)
    return header.start() if header is not None else -1


def cells_of(line: bytes) -> list[str] | None:
    """Parse one row; None if it is no whole row of CSV."""
    try:
        text = line.decode("utf-8").rstrip("\r\n")
        found = list(csv.reader([text], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return found[0] if len(found) == 1 else None


class Rows:
    """Tell rows from other lines, and whole rows from damaged ones.

    `page` is filled; its header says how many cells a row has. All cells are quoted.
    """

    def __init__(self, source: Source, page: Page) -> None:
        self._source = source
        self._page = page
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
            if _ROW.match(text):
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
        ends = row.endswith(b'"')
        if ends and row.count(b'","') == expected - 1 and row.isascii():
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
        if text.startswith(b'"",') and self._is_units(text):
            msg = "the units change within the table: two exports in one file"
            cure = (
                "Split the file before this line, put the header before each part, and ingest both."
            )
            raise InputError(msg, where=f"{self._source.path}:{line}", cure=cure)
        match = _ROW.search(text)
        if match is not None:
            return text[match.start() :]
        if text.strip():
            self._page.skipped += 1
        return None

    def _is_units(self, text: bytes) -> bool:
        cells = cells_of(text)
        return cells is not None and len(cells) == len(self._page.header) and any(cells)

    def _is_whole(self, tail: bytes) -> bool:
        """Tell whether a last line lacks nothing but its newline, which editors take off."""
        row = tail.rstrip(b"\r")
        if not (_ROW.match(row) and row.endswith(b'"')):
            return False
        cells = cells_of(row)
        return cells is not None and len(cells) == len(self._page.header)

    def _unfinished(self, tail: bytes, line: int) -> None:
        """Judge the last line, which no newline ends."""
        if tail.lstrip().startswith(b'"') or _ROW.search(tail):
            raise self._cut(line)
        if self._other(tail, line) is not None:
            raise self._cut(line)

    def _cut(self, line: int) -> InputError:
        msg = "the row is cut"
        where = f"{self._source.path}:{line}"
        return InputError(msg, where=where, found="no end of the row", cure=CUT)
