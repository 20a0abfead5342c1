"""The table of an export of Nsight Compute: where its header is, its rows, what ncu said beside."""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from dataclasses import dataclass, field

from perfml.readers.options import at_most

_QUOTED_HEADER = re.compile(rb'"ID","Process ID",')
_BARE_HEADER = re.compile(rb"(?m)^(?:\xef\xbb\xbf)?(ID,Process ID,)")
NOTICE = re.compile(rb"(?m)^==(PROF|WARNING|ERROR)==[ \t]*([^\r\n]*)")
CUT = "Export or copy it again; ncu ends every row with a newline."


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


def header_at(data: bytes | memoryview) -> int:
    """Return where a header begins, which may be after text of the program; -1 without one."""
    quoted = _QUOTED_HEADER.search(data)
    if quoted is not None:
        return quoted.start()
    bare = _BARE_HEADER.search(data)
    return bare.start(1) if bare is not None else -1


def cells_of(line: bytes) -> list[str] | None:
    """Parse one row; None if it is no whole row of CSV."""
    try:
        text = line.decode("utf-8").rstrip("\r\n")
        found = list(csv.reader([text], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return found[0] if len(found) == 1 else None
