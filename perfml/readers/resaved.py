"""Pages of Nsight Compute that another program saved: a spreadsheet's separators, a table's index.

``ncu --csv`` parts cells by commas. Spreadsheets part them by semicolons or tabs where the decimal
mark is a comma, and may begin with ``sep=;``; pandas puts an unnamed column of row numbers before
the page, and makes ids ``0.0`` because the row of units has none. Such a file is read as the page
that it was.
"""

from __future__ import annotations

import csv
import io
import re
from typing import IO, cast

from perfml.errors import InputError
from perfml.readers.ncu.page import CUT
from perfml.readers.source import HEAD, Source

_HEADER = re.compile(
    r'(?m)^\ufeff?(?P<index>(?:"")?[,;\t])?(?:"?ID"?[,;\t])?"?Process ID"?(?P<mark>[,;\t])'
)
_FLOATING_IDS = re.compile(rb"(?m)^(?:ID,Process ID,|\d{1,9}\.0,\d{1,12}\.0,)")
_WHOLE = {"ID", "Process ID", "Context", "Stream", "Device"}
_LAST = "Metric Value"
"""Column of the details page behind which a row may end: the cells of rules follow."""

_SEPARATOR_LINE = re.compile(r"(?m)^\ufeff?\"?sep=.\"?\r?\n")


def has_floating_ids(head: bytes) -> bool:
    """Tell whether a page with commas has ids such as ``0.0``, which would be no rows of it."""
    return len({match[:2] == b"ID" for match in _FLOATING_IDS.findall(head)}) == 2


def restore(source: Source) -> bool:
    """Let a source stand for the page that it was saved from; tell whether it is such a file."""
    match = _HEADER.search(source.head_text())
    if match is None:
        return False
    if match["mark"] == "," and match["index"] is None and not has_floating_ids(source.head):
        return False
    page = _page(source, source.text(), match["mark"])
    if page is None:
        return False
    data = page.encode("utf-8")
    source.stand_for(source.member, lambda _: cast("IO[bytes]", io.BytesIO(data)), data[:HEAD])
    return True


def _cut(source: Source, cells: int, wanted: int) -> InputError:
    msg = "a row of the table is cut"
    found = f"{cells} of {wanted} cells"
    return InputError(msg, where=str(source.path), found=found, cure=CUT)


def _page(source: Source, text: str, mark: str) -> str | None:
    """Return the text with the rows of its table parted by commas; None if they are not whole."""
    match = _HEADER.search(text)
    if match is None:
        return None
    out = io.StringIO()
    out.write(_SEPARATOR_LINE.sub("", text[: match.start()]))
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    first = 1 if match["index"] is not None else 0
    lines = io.StringIO(text[match.start() :].removeprefix("\ufeff"), newline="")
    header: list[str] = []
    try:
        for row in csv.reader(lines, delimiter=mark):
            header = header or row
            if _LAST in header and header.index(_LAST) < len(row) < len(header):
                row += [""] * (len(header) - len(row))
            if len(row) != len(header):
                if len(row) > 1 and row[0].strip().isdigit():
                    raise _cut(source, len(row), len(header))
                out.write(mark.join(row) + "\n")  # a message of ncu
                continue
            cells = zip(header[first:], row[first:], strict=True)
            writer.writerow([_whole(cell) if name in _WHOLE else cell for name, cell in cells])
    except csv.Error:
        return None
    return out.getvalue()


def _whole(cell: str) -> str:
    return cell.removesuffix(".0").removesuffix(",0")
