"""Read what nvprof prints: ``--metrics`` tables, the summary, ``--print-gpu-trace``.

The profiled program prints into the same log, also between the rows of a table, and several
processes may share it. A row that looks like a table's and cannot be read is an error; any other
line is counted as the program's. nvprof's warnings and errors are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from perfml.metrics import load_catalogue
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof.kernels import LogReader, Row, Tables
from perfml.readers.nvprof.log_lines import Line, Log, is_banner
from perfml.readers.nvprof.values import Value, is_kernel, parse_dim3, parse_time, parse_value
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

NAME = "nvprof-text"

_METRIC_HEADER = re.compile(r"\s*Invocations\s+Metric Name\s+Metric Description\s+Min\s+Max\s+Avg")
_EVENT_HEADER = re.compile(r"\s*Invocations\s+Event Name\s+Min\s+Max\s+Avg(\s+Total)?")
_SUMMARY_HEADER = re.compile(r"\s*(Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name")
_HEADERLESS = re.compile(r"\s*GPU activities:\s+[\d.]+%\s+[\d.]+[num]?s\s+\d+\s")
"""The first row of a summary, as it is posted without its header."""
_TRACE_HEADER = re.compile(r"\s*(Start\s+Duration\s+Grid Size|Device\s+Context\s+Stream\s+).*")
_UNIFIED_HEADER = re.compile(r"\s*Count\s+Avg Size\s+Min Size")
_HEADERS = (_METRIC_HEADER, _EVENT_HEADER, _SUMMARY_HEADER, _TRACE_HEADER)
_FOOTNOTE = re.compile(r"(Regs|SSMem|DSMem|SrcMemType|DstMemType|SrcDev|DstDev)\b.*?: ")

_COLUMNS = re.compile(r"\s{2,}")
_COUNT = re.compile(r"\d{1,15}")
_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_LIKE_TIME = re.compile(r"(?<!\S)\d\S*s,?(?!\S)")
_SUMMARY_ROW = re.compile(
    r"(?:(?P<type>[A-Z][\w ()]{0,40}):\s*)?(?P<share>[-+\w.]+)%\s+(?P<time>\S+)"
    r"\s+(?P<calls>\d{1,15})\s+(?P<avg>\S+)\s+(?P<min>\S+)\s+(?P<max>\S+)\s+(?P<name>\S.*)"
)
_TRACE_COLUMNS = {
    *("Start", "Duration", "Grid Size", "Block Size", "Regs*", "SSMem*", "DSMem*", "Size"),
    *("Throughput", "SrcMemType", "DstMemType", "Device", "Context", "Stream", "Unified Memory"),
    *("Virtual Address", "Src Dev", "Src Ctx", "Dst Dev", "Dst Ctx", "Name", "Kernel"),
    *("Correlation_ID", "Registers Per Thread"),
}


def recognises(source: Source) -> bool:
    """Tell whether the head has nvprof's own lines, or the header of one of its tables."""
    text = source.head_text()
    if nvprof_csv.has_header(text):
        return False
    return is_banner(text) or any(
        header.match(line) for line in text.split("\n") for header in (*_HEADERS, _HEADERLESS)
    )


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a log of nvprof.

    Rows of a metrics table or a summary are averages over ``launches``; a trace has one row a
    launch. A log with metrics and with times is joined by kernel. Raises `InputError` if a row is
    damaged or cut off, or the log has no kernels; the message says what it has.
    """
    text = source.text()
    headless = not any(_SUMMARY_HEADER.match(line) for line in text.split("\n"))
    reader = _Reader(Tables(Log(source.path)), headless=headless)
    reader.walk(text)
    if not reader.tables.titles and nvprof_csv.has_header(text):
        return nvprof_csv.read(source, options)
    if reader.tables.trace and not reader.footnotes:
        reader.tables.notes.append(
            "The trace does not end in nvprof's footnotes; the log may be cut."
        )
    return reader.tables.finish(source, NAME, options or ReadOptions())


@dataclass
class _Reader(LogReader):
    """Reads the tables; ``headless`` is a log without the header of any summary."""

    headless: bool = False
    device: str | None = None
    kernel: str | None = None
    footnotes: bool = False
    columns: list[str] = field(default_factory=list)

    def take(self, line: Line) -> None:
        if line.message is not None:
            self.hear(line.message)
            return
        if not line.text.strip() or self._header(line.text):
            return
        if self.headless and not self.mode and not self.ranges and _HEADERLESS.match(line.text):
            self._open("summary", "summary")
        if self.mode in {"", "ranges"}:
            return
        rows: dict[str, Callable[[Line], bool]] = {
            "metrics": self._metric_row,
            "events": self._event_row,
            "summary": self._summary_row,
            "trace": self._trace_row,
        }
        if not rows[self.mode](line):
            self.tables.log.foreign.append(line.number)

    def _header(self, text: str) -> bool:
        if _METRIC_HEADER.match(text):
            self._open("metrics", "metrics")
        elif _EVENT_HEADER.match(text):
            self._open("events", "event counts")
        elif _SUMMARY_HEADER.match(text):
            if self.ranges:
                self._open("ranges", "NVTX ranges")
                self.leave_ranges_out()
            else:
                self._open("summary", "summary")
        elif _TRACE_HEADER.match(text) and text.split()[-1] != "Stream":
            columns = _COLUMNS.split(text.strip())
            if "Name" not in columns and "Kernel" not in columns:
                return False
            self.columns = columns
            self._open("trace", "GPU trace")
        elif _UNIFIED_HEADER.match(text):
            self._open("", "unified memory")
        else:
            return False
        return True

    def _open(self, mode: str, title: str) -> None:
        self.mode = mode
        self.kernel = None
        self.tables.open(title)

    def _heading(self, text: str) -> bool:
        """Take a line that names the device or the kernel of the rows below."""
        stripped = text.strip()
        if stripped.startswith('Device "') and stripped.endswith('"'):
            self.device, self.kernel = stripped[8:-1], None
        elif stripped.startswith("Kernel: "):
            self.kernel = stripped[8:].strip()
        else:
            return False
        return True

    def _metric_row(self, line: Line) -> bool:
        if self._heading(line.text):
            return True
        tokens = _COLUMNS.split(line.text.strip())
        start = _row_start(tokens)
        if start is None:
            return False
        values = [parse_value(token) for token in tokens[-3:]]
        whole = len(tokens) - start >= 6 and None not in values
        if not whole or self.kernel is None:
            self._complain(line, tokens[start + 1], kernel_known=self.kernel is not None)
            return False
        low, high, mean = (value for value in values if value is not None)
        self.tables.add_metric(
            self.kernel or "",
            self.device,
            line.process,
            int(tokens[start]),
            tokens[start + 1],
            (mean, low, high),
        )
        return True

    def _complain(self, line: Line, name: str, *, kernel_known: bool) -> None:
        """Raise if the second column is a metric, so that the row is none of the program's."""
        if name in load_catalogue() or any(
            name in row.metrics for row in self.tables.averages[-1:]
        ):
            what = (
                f"the row of metric {name} cannot be read"
                if kernel_known
                else f"the row of metric {name} belongs to no kernel"
            )
            raise self.tables.log.damaged(line.number, what, line.text)

    def _event_row(self, line: Line) -> bool:
        if self._heading(line.text):
            return True
        tokens = _COLUMNS.split(line.text.strip())
        start = _row_start(tokens)
        if start is None or any(parse_value(token) is None for token in tokens[start + 2 :]):
            return False
        self.tables.events.add(tokens[start + 1])
        return True

    def _summary_row(self, line: Line) -> bool:
        match = _SUMMARY_ROW.fullmatch(line.text.strip())
        times = [parse_time(match[name]) for name in ("time", "avg", "min", "max")] if match else []
        if match is None or None in times:
            if "%" in line.text and len(_LIKE_TIME.findall(line.text)) >= 2:
                msg = "the row of the summary cannot be read"
                raise self.tables.log.damaged(line.number, msg, line.text)
            return False
        self.kind = match["type"] or self.kind
        mean = times[1] if times[1] is not None else float("nan")
        self.tables.add_summary(
            match["name"].strip(), line.process, int(match["calls"]), mean, self.kind
        )
        return True

    def _trace_row(self, line: Line) -> bool:
        if _FOOTNOTE.match(line.text):
            self.footnotes = True
            return True
        tokens = _COLUMNS.split(line.text.strip())
        timed = self.columns[0] == "Start"
        if timed and parse_time(tokens[0]) is None:
            return False
        place = self.columns.index("Name" if "Name" in self.columns else "Kernel")
        behind = len(self.columns) - place - 1
        if len(tokens) < len(self.columns):
            if timed or len(tokens) > 3:
                msg = f"the row of the trace lacks {len(self.columns) - len(tokens)} columns"
                raise self.tables.log.damaged(line.number, msg, line.text)
            return False
        end = len(tokens) - behind
        cells = dict(zip(self.columns[:place], tokens[:place], strict=True))
        cells.update(zip(self.columns[place + 1 :], tokens[end:], strict=True))
        row = self._launch(line, cells, "  ".join(tokens[place:end]))
        self.tables.add_launch(row, parse_time(cells.get("Start", "")), cells)
        return True

    def _launch(self, line: Line, cells: dict[str, str], name: str) -> Row:
        """Make a launch of a trace row; a memory operation has ``-`` for its grid."""
        grid = parse_dim3(cells.get("Grid Size", ""))
        block = parse_dim3(cells.get("Block Size", ""))
        duration = parse_time(cells.get("Duration", ""))
        sized = grid is not None and block is not None and duration is not None
        if "Grid Size" in cells and is_kernel(name) and not sized:
            msg = "the row of the trace has no grid, block or duration"
            raise self.tables.log.damaged(line.number, msg, line.text)
        metrics = self._trace_metrics(line, cells)
        return Row(
            name,
            cells.get("Device"),
            line.process,
            1,
            duration if duration is not None else float("nan"),
            grid,
            block,
            _number(cells.get("Regs*")),
            _number(cells.get("SSMem*")) + _number(cells.get("DSMem*")),
            metrics,
        )

    def _trace_metrics(self, line: Line, cells: dict[str, str]) -> dict[str, tuple[Value, ...]]:
        found: dict[str, tuple[Value, ...]] = {}
        for name, cell in cells.items():
            if name in _TRACE_COLUMNS:
                continue
            value = parse_value(cell)
            if value is None:
                msg = f"the value of {name} cannot be read"
                raise self.tables.log.damaged(line.number, msg, line.text)
            found[name] = (value,)
        return found


def _row_start(tokens: list[str]) -> int | None:
    """Return where a count is followed by a metric's name; the program may stand before it."""
    for place in range(len(tokens) - 1):
        if _COUNT.fullmatch(tokens[place]) and _METRIC.fullmatch(tokens[place + 1]):
            return place
    return None


def _number(cell: str | None) -> float:
    value = parse_value(cell) if cell is not None else None
    return value.number if value is not None else float("nan")
