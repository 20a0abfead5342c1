"""Read what ``ncu`` prints for people: sections under the name of each kernel, as pasted anywhere.

Versions differ: a header over each table or none, shape and device behind the name or not, units
spelt out or short. Lines that belong to no table (the program's output, a shell's messages) are
passed over. With ``--print-summary`` a kernel has means over its launches.
"""

from __future__ import annotations

import re

from perfml.errors import InputError
from perfml.readers.ncu.findings import PRINTED_KINDS, Rule
from perfml.readers.ncu.page import NOTICE, Notices, header_at
from perfml.readers.ncu.printed import OF_PEAK, PrintedLaunch, kernels_of, metric_of
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from perfml.util.words import first_few

NAME = "ncu-text"

_TAIL = re.compile(
    r"(?:(?:, |^\s*)Context \d{1,10}, Stream \d{1,10})?(?:(?:, |^\s*)Device (\d{1,4}))?"
    r"(?:, CC (\d{1,2}\.\d))?(?:, Invocations (\d{1,12}))?$"
)
_DATE = re.compile(r", \d{4}-[A-Z][a-z]{2}-\d{1,2} [\d:]{5,8}$")
_SHAPE = re.compile(
    r" \((\d{1,10}), (\d{1,10}), (\d{1,10})\)x\((\d{1,10}), (\d{1,10}), (\d{1,10})\)$"
)
_SECTION = re.compile(r"\s{0,40}Section: (\S.*)")
_SECTION_BYTES = re.compile(rb"(?m)^[ \t]{0,40}Section: \S")
_DASHES = re.compile(r"\s{0,40}-{3,}(?: -{3,})*\s*")
_RULE = re.compile(r"\s{0,40}(OPT|WRN|INF|OK|ERR)\s{2,}(\S.*)")
_SPEEDUP = re.compile(r"Est(?:\.|imated) (Local )?Speedup: ([\d.,]{1,12})%")
_CELLS = re.compile(r" {2,}")
_PERCENTAGE = re.compile(r"\d+(?:[.,]\d+)?")
_DIGIT = re.compile(r"[1-9]")
_VALUE_COLUMN = {3: 2, 5: 4}
"""Columns of a table, and which of them holds the value: with a summary it is the average."""
_LONGEST_LINE = 100_000
_SHOWN = (
    "The text shows what its sections show; export with --csv --page raw to have every metric that "
    "was collected."
)


def recognises(source: Source) -> bool:
    """Tell whether there are sections and no CSV; ncu's messages may come long before them."""
    head = source.head_text().encode("utf-8", "replace")
    if header_at(head) >= 0:
        return False
    if _SECTION_BYTES.search(head):
        return b"---" in head
    if NOTICE.search(head) is None:
        return False
    data = source.data
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    return header_at(data) < 0 and _SECTION_BYTES.search(data) is not None


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read printed sections.

    Raises `InputError` if there is no kernel with a value, or a needed value is no number.
    """
    options = options or ReadOptions()
    text = source.text()
    notices = Notices()
    notices.collect(text.encode("utf-8", "replace"))
    lines = _Lines(text)
    lines.read()
    where = str(source.path)
    # what failed has only nan and, of its launch, 0
    if not any(_DIGIT.search(text) for row in lines.launches for text, _ in row.cells.values()):
        raise _nothing(where, lines, notices)
    warnings = notices.warnings + lines.warnings()
    facts: dict[str, object] = {}
    if notices.program is not None:
        facts["process"] = notices.program
    return kernels_of(
        lines.launches, source, options, NAME, facts=facts, warnings=warnings, rules=lines.rules
    )


def _nothing(where: str, lines: _Lines, notices: Notices) -> InputError:
    if notices.errors:
        return InputError(
            "Nsight Compute ended with an error, and measured nothing",
            where=where,
            found="; ".join(notices.errors)[:200],
            cure="Remove the cause, which that message names, and profile again.",
        )
    unknown = _not_available(lines.launches)
    if unknown:
        return InputError(
            "no metric in this text of Nsight Compute has a value",
            where=where,
            found=f"n/a for {first_few([name[:80] for name in unknown], 3)}",
            cure="Ask for metrics that ncu --query-metrics or perfml metrics default --request "
            "lists. n/a is for what this GPU does not have, or for a misspelt name.",
        )
    found = f"{len(lines.launches)} kernels, none with a value"
    return InputError(
        "no measured kernel in this text of Nsight Compute",
        where=where,
        found=found,
        cure="Paste all of it, from the kernel's name on, or read the .ncu-rep file.",
    )


def _not_available(launches: list[PrintedLaunch]) -> list[str]:
    """Return the metrics that are ``n/a`` in all places; none if any cell has more."""
    cells = [(name, text) for item in launches for name, (text, _) in item.cells.items()]
    if not all(text.endswith("n/a") for _, text in cells):
        return []
    return list(dict.fromkeys(name for name, _ in cells))


class _Lines:
    """A walk through the lines, which keeps what it is in: kernel, section, table, rule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.launches: list[PrintedLaunch] = []
        self.rules: list[Rule] = []
        self._section = ""
        self._widths: list[int] | None = None
        self._open_table = False
        self._rule: tuple[str, str, list[str]] | None = None
        # kind, section and lines of a rule whose message may go on in the next lines
        self._pending: PrintedLaunch | None = None
        self._unread = 0
        self._ranges = 0

    def read(self) -> None:
        """Go through all lines."""
        for number, line in enumerate(self._text.splitlines(), 1):
            if len(line) <= _LONGEST_LINE:
                self._line(line.rstrip(), number)
        self._close_rule()

    def warnings(self) -> list[str]:
        """Return what has to be said of the text."""
        warnings = [_SHOWN]
        total = sum(item.launches for item in self.launches)
        if total > len(self.launches):
            warnings.append(
                f"A summary: {len(self.launches)} rows are means over {total} launches, so how "
                "launches differ is not in it."
            )
        if self._unread:
            warnings.append(
                f"{self._unread} lines within tables were left out: they have no name, unit and "
                "value. Were blanks lost when the text was copied?"
            )
        if self._ranges:
            warnings.append(
                "NVTX ranges in printed text are not read; export with --csv to have layers."
            )
        if self._open_table:
            warnings.append("The text ends within a table: is it cut?")
        return warnings

    def _line(self, line: str, number: int) -> None:
        if not line.strip():
            self._close_rule()
            self._widths = None
            return
        if line.startswith("=="):
            return
        section = _SECTION.fullmatch(line)
        if section is not None:
            self._close_rule()
            self._begin()
            self._section, self._widths, self._open_table = section.group(1), None, False
        elif _DASHES.fullmatch(line):
            self._dashes(line)
        elif (rule := _RULE.fullmatch(line)) is not None and self.launches:
            self._close_rule()
            self._rule = rule.group(1), self._section, [rule.group(2)]
        elif (launch := _launch(line, number)) is not None:
            self._close_rule()
            self._pending, self._section, self._widths = launch, "", None
        elif self._rule is not None:
            self._rule[2].append(line.strip())
        elif self._widths is not None and self.launches:
            self._row(line)
        elif self._pending is not None and line.lstrip().startswith("NVTX "):
            self._ranges += 1

    def _begin(self) -> None:
        """Begin the launch whose name was read, now that something of it follows."""
        if self._pending is not None:
            self.launches.append(self._pending)
            self._pending = None

    def _dashes(self, line: str) -> None:
        self._close_rule()
        self._begin()
        widths = [len(part) for part in line.split()]
        self._widths = widths if len(widths) in _VALUE_COLUMN else None
        self._open_table = False

    def _row(self, line: str) -> None:
        cells = _split(line.strip(), self._widths or [])
        if cells is None:
            self._unread += 1
            return
        name, unit, value = cells
        if name == "Metric Name":
            return
        self._open_table = True
        if metric_of(name) == OF_PEAK and unit not in ("%", ""):
            return
        # A metric shown in two sections has one value: the first one stays.
        self.launches[-1].cells.setdefault(name, (value, unit))

    def _close_rule(self) -> None:
        if self._rule is None:
            return
        kind, section, lines = self._rule
        message = " ".join(lines)
        speedup = _SPEEDUP.match(message)
        estimate = scope = None
        if speedup is not None:
            printed = speedup.group(2)  # without groups of thousands
            estimate = float(printed.replace(",", ".")) if _PERCENTAGE.fullmatch(printed) else None
            scope = "local" if speedup.group(1) else "global"
            message = message[speedup.end() :].strip()
        self.rules.append(
            Rule(
                len(self.launches) - 1,
                self.launches[-1].kernel,
                "",
                section,
                PRINTED_KINDS[kind],
                message,
                estimate,
                scope if estimate is not None else None,
            )
        )
        self._rule = None


def _launch(line: str, number: int) -> PrintedLaunch | None:
    """Return the launch whose name stands in a line; None if it is no such line."""
    tail = _TAIL.search(line)
    if tail is None or not ("Stream " in tail.group() or tail.group(3)):
        return None
    rest = _DATE.sub("", line[: tail.start()])
    shape = _SHAPE.search(rest)
    if shape is not None:
        rest = rest[: shape.start()]
    sizes = shape.groups() if shape is not None else None
    name = rest.strip() or f"(all kernels of device {tail.group(1) or '?'})"
    return PrintedLaunch(
        kernel=name,
        line=number,
        grid=f"({', '.join(sizes[:3])})" if sizes else None,
        block=f"({', '.join(sizes[3:])})" if sizes else None,
        capability=tail.group(2),
        launches=max(int(tail.group(3) or 1), 1),
    )


def _split(row: str, widths: list[int]) -> tuple[str, str, str] | None:
    """Split a row of a table into name, unit and value.

    The widths of the line of dashes say where a unit ends that fills its column; where blanks
    were changed by copying, two of them still part cells.
    """
    unit_at = widths[0] + 1
    value_at = unit_at + widths[1] + 1
    aligned = len(row) > value_at and row[widths[0]] == " " and row[value_at - 1] == " "
    if aligned:
        values = row[value_at:].split()
        wanted = _VALUE_COLUMN[len(widths)] - 1
        if len(widths) == 3:
            value = " ".join(values)
        elif len(values) == wanted:
            value = values[-1]
        else:
            return None
        return row[: widths[0]].strip(), row[unit_at : value_at - 1].strip(), value
    cells = _CELLS.split(row)
    if len(widths) == 3 and len(cells) in (2, 3):
        return cells[0], cells[1] if len(cells) == 3 else "", cells[-1]
    return None
