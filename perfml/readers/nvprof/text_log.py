"""Read what nvprof prints without ``--csv``: metrics, the summary, ``--print-gpu-trace``.

A printed line is taken apart into the cells that ``--csv`` has; the rest is the reader of those.
The profiled program prints into the same log, also between the rows of a table. A row that looks
like a table's and cannot be read is an error; any other line is counted as the program's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from perfml.metrics import load_catalogue
from perfml.readers.nvprof import csv_log
from perfml.readers.nvprof.kernels import Tables
from perfml.readers.nvprof.values import Line, Log, is_banner, metric_name, parse_time, parse_value
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

NAME = "nvprof-text"

_HEADER_LINE = re.compile(
    r"^[ \t]{0,80}(?:Invocations[ \t]{1,80}(?:Metric|Event) Name[ \t]{1,80}M"
    r"|(?:Type[ \t]{1,9})?Time\(%\)[ \t]{1,9}Time[ \t]|Start[ \t]{1,80}Duration[ \t]"
    r"|Device[ \t]{1,80}Context[ \t]{1,80}Stream[ \t]|GPU activities:[ \t]{1,80}\d)",
    re.MULTILINE,
)
_HEADERLESS = re.compile(r"\s*GPU activities:\s+[\d.]+%\s+[\d.]+[num]?s\s+\d+\s")
"""The first row of a summary, as it is posted without its header."""
_FOOTNOTE = re.compile(r"(Regs|SSMem|DSMem|SrcMemType|DstMemType|SrcDev|DstDev)\b.*?: ")
_COLUMNS = re.compile(r"\s{2,}")
_COUNT = re.compile(r"\d{1,15}")
_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_LIKE_TIME = re.compile(r"(?<!\S)\d\S*s,?(?!\S)")
_SUMMARY_ROW = re.compile(
    r"(?:(?P<Type>[A-Z][\w ()]{0,40}):\s*)?[-+\w.]+%\s+(?P<Time>\S+)\s+(?P<Calls>\d{1,15})"
    r"\s+(?P<Avg>\S+)\s+(?P<Min>\S+)\s+(?P<Max>\S+)\s+(?P<Name>\S.*)"
)
_DIM3 = re.compile(r"\((\d{1,10}) (\d{1,10}) (\d{1,10})\)")
_CSV_NAMES = {
    "Regs*": "Registers Per Thread",
    "SSMem*": "Static SMem",
    "DSMem*": "Dynamic SMem",
}
"""Columns of a printed trace that ``--csv`` names otherwise."""


def recognises(source: Source) -> bool:
    """Tell whether the head has nvprof's own lines, or the header of one of its tables."""
    text = source.head_text()
    printed = is_banner(text) or bool(_HEADER_LINE.search(text))
    return printed and not csv_log.has_header(text)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a log of nvprof.

    Rows of a metrics table or a summary are averages over ``launches``; a trace has one row a
    launch. A log with metrics and with times is joined by kernel. Raises `InputError` if a row is
    damaged or cut off, or the log has no kernels; the message says what it has.
    """
    text = source.text()
    if csv_log.has_header(text):
        return csv_log.read(source, options)
    reader = _Reader(Tables(Log(source.path)), headless="Time(%)" not in text)
    reader.walk(text)
    if reader.tables.trace and not reader.footnotes:
        reader.tables.notes.append(
            "The trace does not end in nvprof's footnotes; the log may be cut."
        )
    return reader.tables.finish(source, NAME, options or ReadOptions())


@dataclass
class _Reader(csv_log.Reader):
    """Takes printed lines apart.

    ``headless`` is a log without the header of any summary; ``heading`` are the device and the
    kernel that stand above rows of metrics.
    """

    headless: bool = False
    heading: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("Device", "Kernel"), ""))
    footnotes: bool = False

    def split(self, text: str) -> list[str]:
        if self.headless and not self.mode and _HEADERLESS.match(text):
            self._header([*csv_log.SUMMARY])
        texts = _COLUMNS.split(text.strip())
        if texts[0] == "Invocations":
            self.heading["Kernel"] = ""
        return texts

    def cells(self, line: Line, texts: list[str] | None) -> Mapping[str, str]:
        rows = {"summary": self._of_summary, "trace": self._of_trace}
        cells = rows.get(self.mode, self._of_counters)(line, texts or [])
        if cells is None:
            self.tables.log.foreign.append(line.number)
        return cells or {}

    def _of_counters(self, line: Line, texts: list[str]) -> dict[str, str] | None:
        """Return a row of metrics or events; a line that names the device or kernel is none."""
        text = line.text.strip()
        if text.startswith('Device "') and text.endswith('"'):
            self.heading = {"Device": text[8:-1], "Kernel": ""}
            return {}
        if text.startswith("Kernel: "):
            self.heading["Kernel"] = text[8:].strip()
            return {}
        start = next(
            (
                place
                for place, (count, name) in enumerate(pairwise(texts))
                if _COUNT.fullmatch(count) and _METRIC.fullmatch(name)
            ),
            None,
        )
        if start is None:
            return None
        # the program may have printed before the count, and a description may hold blanks
        name, values = texts[start + 1], ["?", "?", "?", *texts[start + 3 :]][-3:]
        damaged = not self.heading["Kernel"] or None in map(parse_value, values)
        if damaged and metric_name(name) not in load_catalogue():
            return None
        cells = dict(zip(("Min", "Max", "Avg"), values, strict=True)) | self.heading
        return cells | {"Invocations": texts[start], self.columns[1]: name}

    def _of_summary(self, line: Line, texts: list[str]) -> dict[str, str] | None:
        match = _SUMMARY_ROW.fullmatch(line.text.strip())
        if match and None not in map(parse_time, match.group("Time", "Avg", "Min", "Max")):
            return match.groupdict()
        if "%" in line.text and len(_LIKE_TIME.findall(line.text)) >= 2:
            msg = "the row of the summary cannot be read"
            raise self.tables.log.damaged(line.number, msg, line.text)
        return None

    def _of_trace(self, line: Line, texts: list[str]) -> dict[str, str] | None:
        if _FOOTNOTE.match(line.text):
            self.footnotes = True
            return {}
        timed, lacking = self.columns[0] == "Start", len(self.columns) - len(texts)
        if (parse_time(texts[0]) is None) if timed else (len(texts) <= 3 < len(self.columns)):
            return None
        if lacking > 0:
            msg = f"the row of the trace lacks {lacking} columns"
            raise self.tables.log.damaged(line.number, msg, line.text)
        place = self.columns.index("Name" if "Name" in self.columns else "Kernel")
        name = "  ".join(texts[place : place + 1 - lacking])
        texts = [*texts[:place], name, *texts[place + 1 - lacking :]]
        columns = [_CSV_NAMES.get(column, column) for column in self.columns]
        cells = dict(zip(columns, texts, strict=True))
        for side in ("Grid", "Block"):
            if f"{side} Size" in cells:
                sizes = _DIM3.fullmatch(cells.pop(f"{side} Size"))
                names = (f"{side} {axis}" for axis in "XYZ")
                cells.update(zip(names, sizes.groups() if sizes else ("", "", ""), strict=True))
        return cells
