"""Single cells of nvprof's tables, and its own lines in a log that the program writes to, too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfml.errors import InputError
from perfml.metrics import load_catalogue
from perfml.readers.source import at_most

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?"
_VALUE = re.compile(rf"({_NUMBER}|[-+]?nan|[-+]?inf)\s*(%|[KMGTP]?B(?:/s)?)?", re.IGNORECASE)
_LEVEL = re.compile(r"(?:Idle|Low|Mid|High|Max) \((\d{1,2})\)")
_TIME = re.compile(rf"({_NUMBER})(ns|us|ms|s)?")
_CORRELATION = re.compile(r"\[\d+\]$")

MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""Microseconds in each of nvprof's time units."""

BYTES = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4, "PB": 5}
"""Powers of 1024 in nvprof's units.

Measured, not documented: in a recorded trace 256.00MB in 35.272 ms print as 7.0877GB/s, and in a
V100 metrics log the sector counts over the throughputs give one duration per kernel only so.
"""

_LATER_NAMES = {"sm_activity": "sm_efficiency", "executed_ipc": "ipc"}
"""Names that nvprof's metrics tables had for a while, beside the name they had before and after.

Seen in logs of a GTX 1080 Ti; the descriptions, "Multiprocessor Activity" and "Executed IPC", are
those of the other names, which the same logs lack.
"""

_EXPECTED = {
    "percent": {"percent"},
    "utilization_level_0_10": {"level"},
    "throughput_bytes_per_s": {"rate"},
    "bytes": {"plain", "bytes"},
    "count": {"plain"},
    "ratio": {"plain", "percent"},
}


@dataclass(frozen=True)
class Value:
    """One printed value: a number in base units, and the form it was printed in.

    ``form`` is ``plain``, ``percent`` (98.76), ``level`` (0..10), ``bytes``, ``rate`` (byte/s),
    ``overflow`` (a counter overflowed), ``missing``, ``infinite`` or ``negative``, which no metric
    is; the last four have NaN.
    """

    number: float
    form: str


def parse_value(text: str, unit: str = "") -> Value | None:
    """Read one cell; None if it is no value nvprof prints.

    `unit` is that of a units row, for a cell that carries none itself.

    Examples
    --------
    >>> parse_value("Max (10)"), parse_value("98.76%")
    (Value(number=10.0, form='level'), Value(number=98.76, form='percent'))
    >>> parse_value("1.5KB/s").number
    1536.0
    """
    text = text.strip().strip('"')
    if text.strip("<>").upper() == "OVERFLOW":
        return Value(float("nan"), "overflow")
    if text in {"-", "", "n/a", "N/A"}:
        return Value(float("nan"), "missing")
    level = _LEVEL.fullmatch(text)
    if level:
        return Value(float(level.group(1)), "level") if int(level.group(1)) <= 10 else None
    match = _VALUE.fullmatch(text)
    if match is None:
        return None
    number = float(match.group(1))
    suffix = match.group(2) or unit.strip()
    if np.isnan(number):
        return Value(float("nan"), "missing")
    if not 0 <= number < float("inf"):
        return Value(float("nan"), "negative" if number < 0 else "infinite")
    if suffix == "%":
        return Value(number, "percent")
    base, _, per = suffix.upper().partition("/")
    if base in BYTES and per in {"", "S"}:
        return Value(number * 1024.0 ** BYTES[base], "rate" if per else "bytes")
    return Value(number, "plain") if not suffix else None


def metric_name(text: str) -> str:
    """Return the name that the catalogue has for a metric of nvprof's.

    Examples
    --------
    >>> metric_name("sm_activity")
    'sm_efficiency'
    """
    return _LATER_NAMES.get(text, text)


def parse_time(text: str, unit: str = "") -> float | None:
    """Return a time such as ``1.6782ms`` in microseconds; None if no duration can be that.

    `unit` is that of a units row, for a cell that carries none itself.
    """
    match = _TIME.fullmatch(text.strip())
    scale = MICROSECONDS.get(match[2] or unit) if match else None
    time = float(match[1]) * scale if match and scale else -1.0
    return time if 0 <= time < float("inf") else None


def dim3(values: Sequence[int]) -> str:
    """Write three sizes as the Kernels table does.

    Examples
    --------
    >>> dim3([4, 1, 1])
    '(4, 1, 1)'
    """
    return f"({', '.join(str(int(value)) for value in values)})"


def kernel_name(text: str) -> str:
    """Return a printed kernel name without the correlation id that a trace appends.

    Examples
    --------
    >>> kernel_name("void copy<double>(double*) [135]")
    'void copy<double>(double*)'
    """
    return _CORRELATION.sub("", text.strip()).rstrip()


def is_kernel(name: str) -> bool:
    """Tell a kernel from ``[CUDA memcpy HtoD]``, ``[CUDA memset]``, ``[Unified Memory ...]``."""
    return not name.startswith(("[CUDA mem", "[Unified Memory", "[CUDA Unified"))


def canonical(
    name: str, values: Sequence[Value]
) -> tuple[npt.NDArray[np.float64], int, int] | None:
    """Convert one metric's values to the catalogue's unit.

    `name` is nvprof's, `values` are one a launch; None if the catalogue has no such metric of
    nvprof's. NaN is what is undefined (an efficiency of accesses that never happened, which nvprof
    prints as 0), or was printed in a form that the metric cannot have. Returned with the values are
    the numbers of launches of the latter, and of those whose value lay beyond the metric's limits
    and was clipped to them.
    """
    catalogue = load_catalogue()
    if name not in catalogue or not catalogue[name].nvprof_unit:
        return None
    metric = catalogue[name]
    expected = _EXPECTED.get(metric.nvprof_unit, {"plain"})
    numbers = np.array([value.number for value in values], dtype=float)
    forms = np.array([value.form for value in values], dtype=object)
    empty = np.isin(forms, ["overflow", "missing"])
    unusable = ~np.isin(forms, sorted(expected)) & ~empty
    numbers[unusable] = np.nan
    if metric.nvprof_unit == "ratio":
        numbers[forms == "percent"] /= 100.0
    undefined = (numbers == 0) if metric.zero_undefined else np.zeros(len(numbers), dtype=bool)
    numbers[undefined] = np.nan
    scaled = catalogue.scaled_from_nvprof(name, numbers)
    clipped = np.asarray(metric.clip(scaled), dtype=np.float64)
    return clipped, int(unusable.sum()), metric.beyond(scaled)


_MESSAGE = re.compile(r"==(\d{1,10})== ?(.*)$|={8} ?(.*)$")
_STARTED = re.compile(r"NVPROF is profiling process (\d+), command: (.*)")
_WRITTEN = re.compile(r"Generated result file: (.*)")
_SPOKEN = re.compile(
    r"^(?:warning|error)\b|profiling error|overflowed|invalid (?:records|timestamps)"
    r"|can(?:'|no)t be profiled|no kernels were|insufficient|not supported",
    re.IGNORECASE,
)
_ROUTINE = re.compile(r"Profiling application:|Replaying kernel ")
_BARE = re.compile(r"No kernels were profiled\.?|No API activities were profiled\.?")
_HARMLESS = re.compile(r"(?:Warning: )?Some kernel\(s\) will be replayed on device")
_SHOWN = 12


@dataclass(frozen=True)
class Line:
    """One line of a log: ``text`` is the program's or a table's part, ``message`` nvprof's."""

    number: int
    text: str
    process: int | None = None
    message: str | None = None


@dataclass
class Log:
    """What a log says besides its tables, gathered while the lines are read.

    There is a command line a process id, in order of appearance; nvprof's warnings and errors as
    sentences (`spoken`); titles of the result `sections`; files that nvprof wrote the profile to
    instead of printing it (`written`); lines inside tables that are not nvprof's (`foreign`).
    """

    path: Path
    commands: dict[int, str] = field(default_factory=dict)
    spoken: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)
    process: int | None = None
    runs: dict[int, int] = field(default_factory=dict)
    """Which run of the log each process is of: one begins after the tables of the one before."""

    def lines(self, text: str) -> Iterator[Line]:
        """Yield the lines of `text`, nvprof's messages taken apart from the program's output."""
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.rstrip("\r")
            match = _MESSAGE.search(line)
            if match is None:
                if _BARE.fullmatch(line.strip()):
                    self._speak(number, self.process, line.strip())
                    yield Line(number, "", self.process, line.strip())
                else:
                    yield Line(number, line, self.process)
                continue
            before = line[: match.start()]
            if before.strip(" \t="):
                yield Line(number, before, self.process)
            process = int(match[1]) if match[1] else None
            # Blanks of any kind become one, so that a message stays on its line wherever shown.
            message = " ".join((match[2] if match[1] else match[3]).split())
            self._note(number, process, message)
            yield Line(number, "", process, message)

    def _note(self, number: int, process: int | None, message: str) -> None:
        started = _STARTED.match(message)
        if process is not None:
            self.process = process
        if started:
            announced = int(started[1][:10])
            if announced in self.commands:
                self.spoken.append(
                    f"nvprof begins again as process {announced} in line {number}: two logs in one "
                    "file are read as one."
                )
            self.commands[announced] = started[2]
            self.runs[announced] = len(self.sections)
        elif written := _WRITTEN.match(message):
            self.written.append(written[1])
        elif message.endswith(("result:", "API calls:")):
            self.sections.append(message.rstrip(":"))
        elif _ROUTINE.match(message) or _HARMLESS.match(message):
            return
        elif _SPOKEN.search(message):
            self._speak(number, process, message)

    def _speak(self, number: int, process: int | None, message: str) -> None:
        who = f", process {process}" if process is not None else ""
        self.spoken.append(f"nvprof reports (line {number}{who}): {message}")

    def warnings(self) -> list[str]:
        """Return nvprof's messages and what else a user has to know, as sentences."""
        found = at_most(list(dict.fromkeys(self.spoken)))
        if self.foreign:
            shown = ", ".join(str(number) for number in self.foreign[:5])
            more = ", ..." if len(self.foreign) > 5 else ""
            found.append(
                f"{len(self.foreign)} lines inside nvprof's tables are none of its rows and were "
                f"taken for the program's output (line {shown}{more})."
            )
        return found

    def nothing(self, tables: list[str]) -> InputError:
        """Return the error for a log without kernels, saying what it holds instead."""
        parts = [f"{'an' if title[0] in 'aeiou' else 'a'} {title} table" for title in tables]
        parts += [title for title in dict.fromkeys(self.sections) if title != "Profiling result"]
        parts += [f"the profile was written to {name}" for name in self.written]
        parts += [text.removeprefix("nvprof reports ") for text in self.spoken[:_SHOWN]]
        cure = (
            "Ingest the file that nvprof wrote."
            if self.written
            else "Profile a program that launches kernels, with --metrics, --print-gpu-trace or "
            "--export-profile."
        )
        msg = "this nvprof output holds no kernels"
        found = "; ".join(dict.fromkeys(parts)) or "no result table"
        return InputError(msg, where=str(self.path), found=found, cure=cure)

    def damaged(self, number: int, what: str, line: str) -> InputError:
        """Return the error for a table row that cannot be read."""
        return InputError(
            what,
            where=f"{self.path}:{number}",
            found=repr(line.strip()[:120]),
            cure="The line is damaged; export the profile again, or repair the line.",
        )

    def cut(self, number: int, line: str) -> InputError:
        """Return the error for a table whose last row has no line end."""
        return InputError(
            "the last row of the table is cut off",
            where=f"{self.path}:{number}",
            found=repr(line.strip()[-120:]),
            cure="Copy or export the log again. If the row is whole, end it with a line break.",
        )


def is_banner(text: str) -> bool:
    """Tell whether a text has nvprof's own lines."""
    return bool(re.search(r"(?:==\d+==|={8}) (?:NVPROF is profiling|Profiling |Metric )", text))
