"""Read ``ncu --csv --print-summary per-kernel`` or ``per-gpu``: means over launches.

A row of the file is a metric of one kernel, shape and device; ``Invocations`` is how many launches
its mean is of.
"""

from __future__ import annotations

import csv
import io
import re

from perfml.errors import InputError
from perfml.readers.ncu.find_table import has_table, is_summary
from perfml.readers.ncu.page import CUT, Notices, header_at
from perfml.readers.ncu.printed import Cell, PrintedLaunch, kernels_of
from perfml.readers.ncu.table import dimensions
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.tables import Kernels

NAME = "ncu-summary"

_HEADER = re.compile(r'(?m)^(?:\ufeff)?"?Process ID"?,[^\r\n]*Invocations[^\r\n]*Average[^\r\n]*$')
_ROW = re.compile(r'"?\d+"?,')
_REQUIRED = ("Invocations", "Metric Name", "Metric Unit", "Average")
_GROUP = ("Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC")
_LAUNCHES = re.compile(r"\d{1,12}")
_AGAIN = "Export it again with: ncu --import FILE.ncu-rep --csv --print-summary per-kernel"


def recognises(source: Source) -> bool:
    """Tell whether the beginning holds the header of a summary, and none of a page of launches."""
    head = source.head_text().encode("utf-8", "replace")
    return has_table(head) and header_at(head) < 0 and is_summary(head)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a summary: a row a kernel, shape and device, with means and how many launches.

    Raises `InputError` if a column is missing, a row is cut, or a value is no number.
    """
    options = options or ReadOptions()
    text = source.text()
    match = _HEADER.search(text)
    if match is None:
        msg = "the header of the summary is cut"
        raise InputError(msg, where=str(source.path), cure=CUT)
    notices = Notices()
    notices.collect(text[: match.start()].encode())
    first = text.count("\n", 0, match.start()) + 1
    printed = _printed(source, text[match.start() :].lstrip("\ufeff"), first)
    total = sum(item.launches for item in printed)
    note = (
        f"Export without --print-summary to have each of {total} launches. This is a summary: "
        f"its {len(printed)} rows are means, so how launches differ is not in it."
    )
    warnings = [*notices.warnings, note]
    facts = {"summary": True}
    return kernels_of(printed, source, options, NAME, facts=facts, warnings=warnings)


def _printed(source: Source, text: str, first: int) -> list[PrintedLaunch]:
    lines = text.splitlines()
    header = _cells(source, lines[0], first)
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        msg = f"the summary has no column {missing[0]}"
        found = ", ".join(header)[:120]
        raise InputError(msg, where=f"{source.path}:{first}", found=found, cure=_AGAIN)
    groups: dict[tuple[str, ...], PrintedLaunch] = {}
    for line, content in enumerate(lines[1:], first + 1):
        if not _ROW.match(content):
            continue  # the program's output and ncu's messages
        cells = _cells(source, content, line)
        if len(cells) != len(header):
            msg = f"the row does not have the {len(header)} cells of the header"
            found = f"{len(cells)} cells"
            raise InputError(msg, where=f"{source.path}:{line}", found=found, cure=CUT)
        row = dict(zip(header, cells, strict=True))
        key = tuple(row.get(name, "") for name in _GROUP)
        group = groups.get(key) or groups.setdefault(key, _launch(source, row, line))
        if row["Metric Name"]:
            group.cells.setdefault(row["Metric Name"], Cell(row["Average"], row["Metric Unit"]))
    if not groups:
        msg = "no kernels in this summary"
        raise InputError(msg, where=str(source.path), found="a header without rows", cure=_AGAIN)
    return list(groups.values())


def _launch(source: Source, row: dict[str, str], line: int) -> PrintedLaunch:
    where = f"{source.path}:{line}"
    count = row["Invocations"].replace(",", "").replace(".", "")
    if not _LAUNCHES.fullmatch(count) or int(count) == 0:
        msg = "Invocations is no number of launches"
        raise InputError(msg, where=where, found=repr(row["Invocations"])[:60], cure=CUT)
    return PrintedLaunch(
        kernel=row.get("Kernel Name") or f"(all kernels of device {row.get('Device') or '?'})",
        line=line,
        grid=dimensions(row.get("Grid Size", "")),
        block=dimensions(row.get("Block Size", "")),
        capability=row.get("CC", "").replace(",", ".") or None,
        launches=int(count),
    )


def _cells(source: Source, line: str, number: int) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line), strict=True))
    except (csv.Error, StopIteration) as error:
        msg = "a row of the summary is cut or damaged"
        where = f"{source.path}:{number}"
        raise InputError(msg, where=where, found=str(error)[:80] or "nothing", cure=CUT) from error
