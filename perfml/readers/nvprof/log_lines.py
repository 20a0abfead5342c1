"""nvprof's own lines in a log that the profiled program writes to as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfml.errors import InputError
from perfml.readers.source import at_most

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
