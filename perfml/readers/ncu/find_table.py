"""Find the table in what ``ncu --csv`` printed, among the lines of the profiled program.

ncu writes its messages (``==PROF== ...``), the program's output and the table into one stream.
The header says how rows look; a line that is no row is no part of the table. Rows are kept as
bytes and parsed elsewhere, so a clean file is never split into Python strings.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from perfml.errors import InputError
from perfml.readers.ncu.page import CUT, NOTICE, Notices, Page, Rows, cells_of, header_at
from perfml.readers.source import Source, in_threads

_SUMMARY = re.compile(rb'(?m)^"?Process ID"?,[^\r\n]*')
_INK = re.compile(rb"\S")
_NEWLINES = re.compile(rb"\n")
_SECTION = re.compile(rb"(?m)^[ \t]+Section: \S")
_FIRSTNOTICES = 1 << 20
"""Bytes before the table in which messages are looked for."""

_UTF_16 = frozenset({b"\xff\xfe", b"\xfe\xff"})
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_PART = 1 << 22
_SHORTEST = 4
"""Bytes of the shortest line that can be a row."""


def has_table(head: bytes) -> bool:
    """Tell whether the beginning of a file looks like output of ncu."""
    if head[:2] in _UTF_16:
        head = head.decode("utf-16", "ignore").encode()
    return header_at(head) >= 0 or is_summary(head) or NOTICE.search(head) is not None


def is_summary(data: bytes) -> bool:
    """Tell whether there is the header of a summary over launches."""
    for line in _SUMMARY.findall(data):
        _, found, rest = line.partition(b"Invocations")
        if found and b"Minimum" in rest:
            return True
    return False


def find_page(source: Source, *, thorough: bool = False) -> Page:
    """Find the table in a source.

    `thorough` checks each row, instead of trusting lines that begin and end as rows do. Raises
    `InputError` if there is none, or it is cut, doubled or damaged; the message names the line.
    """
    data: bytes | memoryview = source.view
    if bytes(data[:2]) in _UTF_16:
        data = source.text().encode()
    notices = Notices()
    start = header_at(data)
    if start < 0:
        notices.collect(bytes(data[:_FIRSTNOTICES]))
        raise _no_table(source, bytes(data), notices)
    notices.collect(bytes(data[max(0, start - _FIRSTNOTICES) : start]))
    line = bytes(data[:start]).count(b"\n") + 1
    text, body = _line(data, start)
    header = cells_of(text)
    if not body or header is None:
        msg = "the header of the table is cut or damaged"
        raise InputError(msg, where=f"{source.path}:{line}", cure=CUT)
    units: list[str] | None = None
    line += 1
    if "Metric Value" in header:
        data = _padded(bytes(data), body, header)
    else:
        units, body, line = _units(source, data, body, line, header)
    if _INK.search(data, body) is None:
        msg = "no kernels in this profile"
        cure = "Check that the program launches kernels, and ncu's filters."
        raise InputError(msg, where=str(source.path), found="a header without rows", cure=cure)
    page = Page(header, units, b"", 0, 0, False, notices, 0, [(0, line)])
    if not thorough and _clean_rows(data, body, page):
        return page
    return Rows(source, page).fill(bytes(data), body, line)


def _line(data: bytes | memoryview, start: int) -> tuple[bytes, int]:
    """Return the line that begins at a place, and where the next one begins; 0 if it is cut."""
    end = _NEWLINES.search(data, start)
    if end is None:
        return bytes(data[start:]), 0
    return bytes(data[start : end.start()]), end.end()


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
    if rest.endswith(b'",'):  # the newline of the last row was taken off
        rest += b"," * lacking + b'""'
    return data[:body] + rest


def _clean_rows(data: bytes | memoryview, body: int, page: Page) -> bool:
    """Fill the page if every line from `body` on begins and ends as a row does."""
    text = np.frombuffer(data, dtype=np.uint8)[body:]
    if text[-1] != _NEWLINE:
        return False

    # By parts, which stay in the processor's cache and need no second copy of the file.
    def ends_in(at: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(text[at : at + _PART] == _NEWLINE) + at

    breaks = np.concatenate(in_threads(ends_in, range(0, len(text), _PART)))
    starts = np.concatenate(([0], breaks[:-1] + 1))
    sizes = breaks - starts
    if (sizes < _SHORTEST).any():
        return False
    last = text[breaks - 1]
    last = np.where(last == _RETURN, text[breaks - 2], last)
    second = text[starts + 1]
    rows = (text[starts] == _QUOTE) & (last == _QUOTE)
    rows &= (second >= ord("0")) & (second <= ord("9"))
    if not rows.all():
        return False
    page.rows, page.count, page.longest = memoryview(data)[body:], len(breaks), int(sizes.max()) + 2
    return True


def _units(
    source: Source, data: bytes | memoryview, body: int, line: int, header: list[str]
) -> tuple[list[str], int, int]:
    """Read the row of units, which the raw page has under its header."""
    text, after = _line(data, body)
    cells = cells_of(text)
    if not after or cells is None or len(cells) != len(header) or cells[0] != "":
        msg = "the row of units under the header is missing or cut"
        raise InputError(
            msg,
            where=f"{source.path}:{line}",
            found=repr(text[:60].decode("utf-8", "replace")),
            cure="Export again with: ncu --import FILE.ncu-rep --csv --page raw",
        )
    return cells, after, line + 1


def _no_table(source: Source, data: bytes, notices: Notices) -> InputError:
    where = str(source.path)
    if is_summary(data):
        return InputError(
            "a summary over launches, not the launches",
            where=where,
            found="columns Minimum, Maximum and Average",
            cure="Export the launches: ncu --import FILE.ncu-rep --csv --page raw",
        )
    if b"No kernels were profiled" in data:
        return InputError(
            "no kernels in this profile",
            where=where,
            found="No kernels were profiled",
            cure="Check that the program launches kernels, and ncu's filters.",
        )
    if notices.errors:
        return InputError(
            "Nsight Compute ended with an error, and wrote no table of kernels",
            where=where,
            found="; ".join(dict.fromkeys(notices.errors))[:200],
            cure="Remove the cause, which that message names, and profile again.",
        )
    if _SECTION.search(data) is not None:
        return InputError(
            "Nsight Compute's printed text, not its table",
            where=where,
            found="sections under the names of kernels",
            cure="Export again with --csv --page raw, or read the .ncu-rep file.",
        )
    message = next(iter(notices.warnings), "messages of Nsight Compute, and no table")
    return InputError(
        "no table of kernels in this output of Nsight Compute",
        where=where,
        found=message.removeprefix("Nsight Compute said: ")[:200],
        cure="Export again with --csv --page raw, or read the .ncu-rep file.",
    )
