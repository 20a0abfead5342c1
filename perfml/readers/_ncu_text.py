"""Find the table in what ``ncu --csv`` printed, among the lines of the profiled program.

ncu writes its messages (``==PROF== ...``), the program's output and the table into one stream.
The header says how rows look; a line that is no row is no part of the table. Rows are kept as
bytes and parsed elsewhere, so a clean file is never split into Python strings.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from perfml.errors import InputError
from perfml.readers._options import at_most
from perfml.readers._source import Source

_QUOTED_HEADER = b'"ID","Process ID",'
_BARE_HEADER = re.compile(rb"(?m)^(?:\xef\xbb\xbf)?(ID,Process ID,)")
_SUMMARY = re.compile(rb'(?m)^"?Process ID"?,[^\r\n]*')
_NOTICE = re.compile(rb"(?m)^==(PROF|WARNING|ERROR)==[ \t]*([^\r\n]*)")
_INK = re.compile(rb"\S")
_FIRST_NOTICES = 1 << 20
"""Bytes before the table in which messages are looked for."""

_UTF_16 = frozenset({b"\xff\xfe", b"\xfe\xff"})
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_PART = 1 << 20
_SHORTEST = 4
"""Bytes of the shortest line that can be a row."""

CUT = "Export or copy it again; ncu ends every row with a newline."


@dataclass
class Notices:
    """What ncu said beside the table."""

    program: str | None = None
    passes: int | None = None
    _said: dict[str, None] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """Return the distinct warnings and errors, as sentences, `MOST` at most."""
        return at_most([f"Nsight Compute said: {words}" for words in self._said])

    def collect(self, text: bytes) -> None:
        """Take in ncu's messages among these lines."""
        for kind, message in _NOTICE.findall(text):
            words = message.decode("utf-8", "replace").strip()
            if kind != b"PROF":
                self._said[words] = None
                continue
            connected = re.match(r"Connected to process \d+ \((.*)\)", words)
            if connected and self.program is None:
                self.program = connected.group(1)
            passes = re.search(r" - (\d+) pass(?:es)?$", words)
            if passes:
                self.passes = max(self.passes or 0, int(passes.group(1)))


@dataclass
class Page:
    """The table of an export.

    Attributes
    ----------
    header
        Names of the columns.
    units
        Units under the header of the raw page; None on the details page.
    rows
        The rows as CSV bytes, each ended by a newline.
    count
        How many rows.
    longest
        Bytes of the longest row.
    multiline
        Whether a cell holds a newline.
    notices
        What ncu said.
    skipped
        Lines after the header that are neither rows nor messages of ncu.
    lines
        Pairs (row, line of the file) where rows and lines begin to run in step.
    """

    header: list[str]
    units: list[str] | None
    rows: memoryview | bytes
    count: int
    longest: int
    multiline: bool
    notices: Notices
    skipped: int
    lines: list[tuple[int, int]]

    def line(self, row: int) -> int:
        """Return the line of the file that a row (from 0) begins in."""
        at = bisect_right(self.lines, (row, 1 << 62)) - 1
        first, line = self.lines[max(at, 0)]
        return line + row - first


def has_table(head: bytes) -> bool:
    """Tell whether the beginning of a file looks like output of ncu."""
    if head[:2] in _UTF_16:
        head = head.decode("utf-16", "ignore").encode()
    return header_at(head) >= 0 or _is_summary(head) or _NOTICE.search(head) is not None


def _is_summary(data: bytes) -> bool:
    """Tell whether there is the header of a summary over launches."""
    for line in _SUMMARY.findall(data):
        _, found, rest = line.partition(b"Invocations")
        if found and b"Minimum" in rest:
            return True
    return False


def header_at(data: bytes, start: int = 0) -> int:
    """Return where a header begins, which may be after text of the program; -1 without one."""
    quoted = data.find(_QUOTED_HEADER, start)
    if quoted >= 0:
        return quoted
    bare = _BARE_HEADER.search(data, start)
    return bare.start(1) if bare is not None else -1


def find_page(source: Source, *, thorough: bool = False) -> Page:
    """Find the table in a source.

    Parameters
    ----------
    source
        The export.
    thorough
        Check each row, instead of trusting lines that begin and end as rows do.

    Raises
    ------
    InputError
        If there is none, or it is cut, doubled or damaged; the message names the line.
    """
    data = source.data
    if data[:2] in _UTF_16:
        data = source.text().encode()
    notices = Notices()
    start = header_at(data)
    if start < 0:
        notices.collect(data[:_FIRST_NOTICES])
        raise _no_table(source, data, notices)
    notices.collect(data[max(0, start - _FIRST_NOTICES) : start])
    line = data.count(b"\n", 0, start) + 1
    end = data.find(b"\n", start)
    header = cells_of(data[start : end if end >= 0 else len(data)])
    if end < 0 or header is None:
        msg = "the header of the table is cut or damaged"
        raise InputError(msg, where=f"{source.path}:{line}", cure=CUT)
    units: list[str] | None = None
    body, line = end + 1, line + 1
    if "Metric Value" in header:
        data = _padded(data, body, header)
    else:
        units, body, line = _units(source, data, body, line, header)
    if _INK.search(data, body) is None:
        msg = "no kernels in this profile"
        cure = "Check that the program launches kernels, and ncu's filters."
        raise InputError(msg, where=str(source.path), found="a header without rows", cure=cure)
    quoted = data[start : start + 1] == b'"'
    page = Page(header, units, b"", 0, 0, False, notices, 0, [(0, line)])
    if quoted and not thorough and _clean_rows(data, body, page):
        return page
    from perfml.readers._ncu_rows import Rows

    return Rows(source, page, quoted).fill(data, body, line)


def _padded(data: bytes, body: int, header: list[str]) -> bytes:
    """Give rows of metrics the empty cells of the rule columns, which ncu leaves out.

    On the details page a row of a metric ends ``"406240",``: one empty cell for all five.
    """
    lacking = len(header) - header.index("Metric Value") - 2
    if lacking <= 0:
        return data
    rest = data[body:]
    for end in (b'",\n', b'",\r\n'):
        rest = rest.replace(end, b'",' + b"," * lacking + b'""\n')
    return data[:body] + rest


def _clean_rows(data: bytes, body: int, page: Page) -> bool:
    """Fill the page if every line from `body` on begins and ends as a row does."""
    text = np.frombuffer(data, dtype=np.uint8)[body:]
    if text[-1] != _NEWLINE:
        return False
    # By parts, which stay in the processor's cache and need no second copy of the file.
    ends = np.concatenate(
        [
            np.flatnonzero(text[at : at + _PART] == _NEWLINE) + at
            for at in range(0, len(text), _PART)
        ]
    )
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts
    if (sizes < _SHORTEST).any():
        return False
    last = text[ends - 1]
    last = np.where(last == _RETURN, text[ends - 2], last)
    second = text[starts + 1]
    rows = (text[starts] == _QUOTE) & (last == _QUOTE)
    rows &= (second >= ord("0")) & (second <= ord("9"))
    if not rows.all():
        return False
    page.rows, page.count, page.longest = memoryview(data)[body:], len(ends), int(sizes.max()) + 2
    return True


def cells_of(line: bytes) -> list[str] | None:
    """Parse one row; None if it is no whole row of CSV."""
    try:
        text = line.decode("utf-8").rstrip("\r\n")
        found = list(csv.reader([text], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return found[0] if len(found) == 1 else None


def _units(
    source: Source, data: bytes, body: int, line: int, header: list[str]
) -> tuple[list[str], int, int]:
    """Read the row of units, which the raw page has under its header."""
    end = data.find(b"\n", body)
    cells = cells_of(data[body : end if end >= 0 else len(data)])
    if end < 0 or cells is None or len(cells) != len(header) or cells[0] != "":
        msg = "the row of units under the header is missing or cut"
        raise InputError(
            msg,
            where=f"{source.path}:{line}",
            found=repr(data[body : body + 60].decode("utf-8", "replace")),
            cure="Export again with: ncu --import FILE.ncu-rep --csv --page raw",
        )
    return cells, end + 1, line + 1


def _no_table(source: Source, data: bytes, notices: Notices) -> InputError:
    where = str(source.path)
    if _is_summary(data):
        return InputError(
            "a summary over launches, not the launches",
            where=where,
            found="columns Minimum, Maximum and Average",
            cure="Export again without --print-summary.",
        )
    if b"No kernels were profiled" in data:
        return InputError(
            "no kernels in this profile",
            where=where,
            found="No kernels were profiled",
            cure="Check that the program launches kernels, and ncu's filters.",
        )
    said = next(iter(notices.warnings), "messages of Nsight Compute, and no table")
    return InputError(
        "no table of kernels in this output of Nsight Compute",
        where=where,
        found=said.removeprefix("Nsight Compute said: ")[:200],
        cure="Export again with --csv --page raw, or read the .ncu-rep file.",
    )
