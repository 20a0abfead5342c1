"""Read nvprof's ``--csv`` output: metrics, the summary, ``--print-gpu-trace``.

Each table has a header, and all but the aggregated metrics a row of units below it. nvprof's own
lines, and the program's, may stand before, between and behind the rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfml.readers.nvprof.kernels import Row, Tables
from perfml.readers.nvprof.values import (
    MICROSECONDS,
    Line,
    Log,
    Value,
    is_kernel,
    metric_name,
    parse_time,
    parse_value,
)
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

NAME = "nvprof-csv"

_METRICS = ("Device", "Kernel", "Invocations", "Metric Name")
_EVENTS = ("Device", "Kernel", "Invocations", "Event Name")
SUMMARY = ("Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name")
_TRACE = ("Start", "Duration")
_LAUNCHES = ("Device", "Context", "Stream")
_SIZES = ("Grid X", "Grid Y", "Grid Z", "Block X", "Block Y", "Block Z")
_TRACE_COLUMNS = {
    *("Start", "Duration", *_SIZES, "Registers Per Thread", "Static SMem", "Dynamic SMem", "Size"),
    *("Throughput", "SrcMemType", "DstMemType", "Device", "Context", "Stream", "Src Dev"),
    *("Src Ctx", "Dst Dev", "Dst Ctx", "Unified Memory", "Virtual Address", "Name", "Kernel"),
    *("Correlation_ID", ""),
}
_TABLES = (
    (_METRICS, "metrics", "metrics"),
    (_EVENTS, "events", "event counts"),
    (SUMMARY, "summary", "summary"),
    (("Type", *SUMMARY), "summary", "summary"),
    (_TRACE, "trace", "GPU trace"),
    (_LAUNCHES, "trace", "GPU trace"),
    (("Device", "Count", "Avg Size"), "unified", "unified memory"),
    (("Invocations", "Metric Name"), "metrics", "metrics"),
    (("Invocations", "Event Name"), "events", "event counts"),
    (("Count", "Avg Size"), "unified", "unified memory"),
)
"""First columns of each table; the last three are printed so without ``--csv``."""

_COUNT = re.compile(r"\d{1,15}")
_HEADER_LINE = re.compile(
    r'^[ \t]{0,80}"(?:Device","Kernel","Invocations"|(?:Type",")?Time\(%\)","Time","Calls"'
    r'|Start","Duration"|Device","Context","Stream")',
    re.MULTILINE,
)


def has_header(text: str) -> bool:
    """Tell whether a text has the header of one of nvprof's CSV tables."""
    return bool(_HEADER_LINE.search(text))


def recognises(source: Source) -> bool:
    """Tell whether the head has the header of one of nvprof's CSV tables."""
    return has_header(source.head_text())


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read nvprof's CSV output.

    Rows of a metrics table or a summary are averages over ``launches``; a trace has one row a
    launch. A file with metrics and with times is joined by kernel. Raises `InputError` if a row is
    damaged or cut off, the units row is missing, or there are no kernels; the message says what the
    file has instead.
    """
    reader = Reader(Tables(Log(source.path)))
    reader.walk(source.text())
    return reader.tables.finish(source, NAME, options or ReadOptions())


def _ended(row: str) -> bool:
    """Return whether a row without a line break is seen to be whole: its last cell is closed.

    Examples
    --------
    >>> _ended('2.1ms  [CUDA memcpy HtoD]'), _ended('1.1ms  add(int, float*'), _ended("98.7")
    (True, False, False)
    """
    closed = all(row.count(one) == row.count(other) for one, other in ("()", "[]"))
    closed &= row.count('"') % 2 == 0
    return closed and row.endswith((")", "]", '"', "%", "B/s"))


@dataclass
class Reader:
    """Walks the lines of a log; ``mode`` is the table that rows belong to, empty outside tables.

    A log without ``--csv`` differs in how a line becomes cells: `split` and `cells`.
    """

    tables: Tables
    mode: str = ""
    kind: str = ""
    ranges: bool = False
    columns: list[str] = field(default_factory=list)
    units: dict[str, str] | None = None

    def walk(self, text: str) -> None:
        """Take every line; raise `InputError` if the last row may lack its end."""
        last = None
        for line in self.tables.log.lines(text):
            if line.message is not None:
                self._hear(line.message)
            elif line.text.strip():
                self._take(line)
            last = line
        read = self.mode not in {"", "unified", "ranges"} and not self.kind.startswith("API")
        rest = "" if last is None else last.text.strip()
        if last is not None and (last.message is not None or (rest and read and not _ended(rest))):
            raise self.tables.log.cut(last.number, text.rsplit("\n", 1)[-1])

    def split(self, text: str) -> list[str] | None:
        """Return the cells of one line; None if its quotes do not close."""
        try:
            rows = list(csv.reader([text.strip()], strict=True))
        except csv.Error:
            return None
        return rows[0] if rows else None

    def cells(self, line: Line, texts: list[str] | None) -> Mapping[str, str]:
        """Return the texts of a row by their columns; empty if the line is no row."""
        if texts is None or len(texts) != len(self.columns):
            self._refuse(line, len(texts or ()))
            return {}
        cells = dict(zip(self.columns, texts, strict=True))
        if self.units is None:
            self.units = cells
            self._check_units(line)
            return {}
        return cells

    def _hear(self, message: str) -> None:
        """Take a line of nvprof's own, which may end a table."""
        if message.endswith("result:") or message.startswith("NVPROF is"):
            self.mode = self.kind = ""
            self.ranges = message.startswith("NVTX")
        elif message.startswith("API calls:"):
            self.mode, self.kind = "", "API calls"

    def _take(self, line: Line) -> None:
        """Take a line of a table, or of the program."""
        texts = self.split(line.text)
        if (texts is not None and self._header(texts)) or self.mode in {"", "unified", "ranges"}:
            return
        if cells := self.cells(line, texts):
            self._row(line, cells)

    def _header(self, cells: list[str]) -> bool:
        kind = next((table for table in _TABLES if tuple(cells[: len(table[0])]) == table[0]), None)
        if kind is None:
            return False
        _, mode, title = kind
        if mode == "summary" and self.ranges:
            mode, title = "ranges", "NVTX ranges"
            self.tables.notes.append(
                "For layers, export the profile with nvprof --export-profile. "
                "Tables of NVTX ranges were left out: their kernels are in the summary too."
            )
        if mode == "trace" and not {"Name", "Kernel"} & set(cells):
            return False
        self.mode, self.columns = mode, cells
        self.units = {} if mode in {"metrics", "events"} else None
        self.tables.open(title)
        return True

    def _check_units(self, line: Line) -> None:
        """Raise unless the row below the header holds units."""
        units = self.units or {}
        times = ("Time", "Avg", "Min", "Max") if self.mode == "summary" else ("Start", "Duration")
        wrong = [name for name in times if units.get(name, "ns") not in MICROSECONDS]
        if wrong or any(re.search(r"\d", unit) for unit in units.values()):
            msg = "the row of units below the header is missing or damaged"
            raise self.tables.log.damaged(line.number, msg, line.text)

    def _refuse(self, line: Line, found: int) -> None:
        """Raise if the line looks like a row; otherwise it is the program's."""
        commas = line.text.count(",")
        starts_like_row = line.text.startswith('"') if self.mode != "trace" else commas > 2
        if starts_like_row or (commas >= len(self.columns) // 2 and commas > 2):
            msg = f"a row has {found} cells where the header has {len(self.columns)}"
            if not found:
                msg = "a row's quotes do not close"
            raise self.tables.log.damaged(line.number, msg, line.text)
        self.tables.log.foreign.append(line.number)

    def _row(self, line: Line, cells: Mapping[str, str]) -> None:
        if self.mode == "metrics":
            self._metric(line, cells)
        elif self.mode == "events":
            self.tables.events.add(cells["Event Name"])
        elif self.mode == "summary":
            self._summary(line, cells)
        else:
            self._launch(line, cells)

    def _metric(self, line: Line, cells: Mapping[str, str]) -> None:
        values = [parse_value(cells.get(name, "")) for name in ("Avg", "Min", "Max")]
        if None in values or not _COUNT.fullmatch(cells["Invocations"]) or not cells["Kernel"]:
            msg = f"the row of metric {cells['Metric Name']} cannot be read"
            raise self.tables.log.damaged(line.number, msg, line.text)
        self.tables.add_metric(
            cells["Kernel"],
            cells["Device"] or None,
            line.process,
            int(cells["Invocations"]),
            cells["Metric Name"],
            tuple(value for value in values if value is not None),
        )

    def _summary(self, line: Line, cells: Mapping[str, str]) -> None:
        mean = self._time(cells, "Avg")
        if mean is None or not _COUNT.fullmatch(cells["Calls"]) or not cells["Name"].strip():
            msg = "the row of the summary cannot be read"
            raise self.tables.log.damaged(line.number, msg, line.text)
        self.kind = cells.get("Type") or self.kind
        self.tables.add_summary(
            cells["Name"].strip(), line.process, int(cells["Calls"]), mean, self.kind
        )

    def _launch(self, line: Line, cells: Mapping[str, str]) -> None:
        name = cells.get("Name", cells.get("Kernel", "")).strip()
        if not name:
            msg = "a row of the trace has no name"
            raise self.tables.log.damaged(line.number, msg, line.text)
        sizes = [cells.get(column, "") for column in _SIZES]
        duration = self._time(cells, "Duration")
        sized = all(_COUNT.fullmatch(size) for size in sizes)
        lacks = ("Grid X" in cells and not sized) or ("Duration" in cells and duration is None)
        if is_kernel(name) and lacks:
            msg = "the row of the trace has no grid, block or duration"
            raise self.tables.log.damaged(line.number, msg, line.text)
        numbers = [int(size) for size in sizes] if sized else []
        row = Row(
            name,
            cells.get("Device") or None,
            line.process,
            1,
            duration if duration is not None else float("nan"),
            (numbers[0], numbers[1], numbers[2]) if sized else None,
            (numbers[3], numbers[4], numbers[5]) if sized else None,
            self._number(cells, "Registers Per Thread"),
            self._number(cells, "Static SMem") + self._number(cells, "Dynamic SMem"),
            self._metrics(line, cells) if is_kernel(name) else {},
        )
        size = (self.units or {}).get("Size", "")
        self.tables.add_launch(row, self._time(cells, "Start"), cells, size)

    def _metrics(self, line: Line, cells: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
        found: dict[str, tuple[Value, ...]] = {}
        for name, cell in cells.items():
            if name in _TRACE_COLUMNS:
                continue
            value = parse_value(cell, (self.units or {}).get(name, ""))
            if value is None:
                msg = f"the value of {name} cannot be read"
                raise self.tables.log.damaged(line.number, msg, line.text)
            found[metric_name(name)] = (value,)
        return found

    def _time(self, cells: Mapping[str, str], name: str) -> float | None:
        return parse_time(cells.get(name, ""), (self.units or {}).get(name, ""))

    def _number(self, cells: Mapping[str, str], name: str) -> float:
        value = parse_value(cells.get(name, ""), (self.units or {}).get(name, ""))
        return value.number if value is not None else float("nan")
