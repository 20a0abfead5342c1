"""The columns of an ncu table that are needed, as Arrow arrays of text; the NVTX ranges in a cell.

A cell holds the thread and one quoted entry a range, outermost first:
``546  "<default domain>:iter_0:none:none:none:none:none:none"  "<default domain>:conv_01:..."``.
An entry is ``domain:name:payload type:payload:colour type:colour:message type:message``; names
and messages may hold colons, and ncu escapes neither them nor quotes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from perfml.errors import InputError
from perfml.metrics.expressions import Array
from perfml.readers.frame import CodedRanges, text_column
from perfml.readers.ncu.find_table import find_page
from perfml.readers.ncu.page import CUT
from perfml.readers.numbers import EXPORT, MISSING, BadNumberError, english, to_numbers
from perfml.readers.source import Source, cores, in_threads
from perfml.util.ranges import LIBRARIES

_SEPARATOR = re.compile(r'"\s+"')
_BETWEEN = '"  "'
"""How ncu writes the separator."""
_PLAIN = ":none:none:none:none:none:none"

_IDENTIFIER = re.compile(r"\d{1,20}:(?=[^:]*:)")
_FIELDS_AFTER_NAME = 6


def push_pops(cells: pa.StringArray) -> CodedRanges:
    """Return the names of the push/pop ranges in each cell, outermost first.

    Many cells share their outermost range, which is an iteration, and many the ranges inside it,
    so each of both is taken apart once.
    """
    parts = pc.split_pattern(cells, _BETWEEN, max_splits=1)
    halves = parts.flatten().dictionary_encode()
    texts, codes = halves.dictionary.to_pylist(), np.asarray(halves.indices).astype(np.int64)
    ends = np.asarray(parts.offsets)
    halved = np.flatnonzero(np.diff(ends) == 2)
    outer, inner = np.zeros((2, len(cells)), dtype=np.int64)
    outer[halved], around = _paths(texts, codes[ends[halved]], _outermost)
    inner[halved], within = _paths(texts, codes[ends[halved] + 1], _inner)
    odd = np.flatnonzero((outer == 0) | (inner == 0))
    whole = [tuple(map(_name, _entries(cell))) for cell in cells.take(pa.array(odd)).to_pylist()]
    outer[odd], inner[odd] = 0, len(within) + np.arange(len(odd))
    return CodedRanges(outer, around, inner, [*within, *whole])


def start_ends(cells: pa.StringArray) -> CodedRanges:
    """Return `start_end` of each cell."""
    return CodedRanges.of([start_end(cell) for cell in cells.to_pylist()])


def _paths(
    texts: Sequence[str], used: npt.NDArray[np.int64], path: Callable[[str], tuple[str, ...]]
) -> tuple[npt.NDArray[np.int64], list[tuple[str, ...]]]:
    """Return the number of the path in each text that is used, and the paths; 0 is no path."""
    number = np.zeros(len(texts), dtype=np.int64)
    paths: list[tuple[str, ...]] = [()]
    for code in np.flatnonzero(np.bincount(used, minlength=len(texts))).tolist():
        names = path(texts[code])
        if names:
            number[code] = len(paths)
            paths.append(names)
    return number[used], paths


def _outermost(text: str) -> tuple[str, ...]:
    """Return the range in a cell's text before a separator; none if it is not just one.

    None, too, if it is a library's, which counts only where it is the only one.
    """
    start = text.find('"')
    whole = start >= 0 and '"' not in text[start + 1 :]
    whole = whole and text[start + 1 : text.find(":", start)] not in LIBRARIES
    return (_name(text[start + 1 :]),) if whole else ()


def _inner(text: str) -> tuple[str, ...]:
    """Return the ranges in a cell's text after a separator; none without an end."""
    end = text.rfind('"')
    if end <= 0 or text[: text.find(":")] in LIBRARIES:
        return ()  # what is a library's alone goes with the range around it
    return tuple(map(_name, _split(text[:end])))


def start_end(cell: str) -> tuple[str, ...]:
    """Return the names of the start/end ranges in a cell; an entry leads with the range's id."""
    return tuple(_name(_IDENTIFIER.sub("", entry, count=1)) for entry in _entries(cell))


def _entries(cell: str) -> list[str]:
    first = cell.find('"')
    last = cell.rfind('"')
    if first < 0 or last <= first:
        return []
    return _split(cell[first + 1 : last])


def _split(entries: str) -> list[str]:
    found = _SEPARATOR.split(entries) if '"' in entries else [entries]
    own = [entry for entry in found if entry.partition(":")[0] not in LIBRARIES]
    return own or found


@functools.lru_cache(maxsize=1 << 16)
def _name(entry: str) -> str:
    if entry.endswith(_PLAIN):
        body = entry.removesuffix(_PLAIN)
        return body.partition(":")[2] or body
    _, colon, rest = entry.partition(":")
    if not colon:
        return entry
    return _repeated(rest) or rest.rsplit(":", _FIELDS_AFTER_NAME)[0] or entry


def _repeated(rest: str) -> str | None:
    """Find the name by the message that repeats it; that settles where a name with colons ends."""
    end = rest.find(":")
    while 0 <= end < len(rest) / 2:
        if end and rest.endswith(":" + rest[:end]) and rest.count(":", end, len(rest) - end) == 6:
            return rest[:end]
        end = rest.find(":", end + 1)
    return None


_DIMENSIONS = re.compile(r"\(?\s*(\d{1,20})[,;x\s]+(\d{1,20})[,;x\s]+(\d{1,20})\s*\)?")
_BLOCK = 1 << 20
_SAMPLE = 50
"""Rows that show how the numbers of a file are written."""

_PUSH_POP = "Push/Pop_Range"
_START_END = "Start/Stop_Range"
_REPEATED = (
    "Kernel Name",
    "Process Name",
    "Block Size",
    "Grid Size",
    "CC",
    "Section Name",
    "Metric Name",
    "Metric Unit",
)
"""Columns whose texts recur, kept once each."""

_WHOLE = ("ID", "Process ID")
"""Columns of whole numbers, parsed as such in a file of plain numbers."""

T = TypeVar("T")

Codes = npt.NDArray[np.integer[Any]]
"""Row numbers, or what stands for recurring texts."""


class Table:
    """Columns of a page, parsed when asked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.page = find_page(source)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._rows: npt.NDArray[Any] | None = None

    def load(self, names: Iterable[str], numbers: Sequence[tuple[str, str]] = ()) -> None:
        """Parse columns; names that the page lacks are passed over.

        `numbers` are those of them that hold numbers, and their units. Where the first rows show
        that they need no care (English, no groups), they are parsed as numbers at once. Raises
        `InputError` if a row is damaged, or a column that is asked for comes twice.
        """
        wanted = [name for name in dict.fromkeys(names) if name in self.page.header]
        for name in wanted:
            if self.page.header.count(name) > 1:
                msg = f"column {name} comes twice"
                raise InputError(msg, where=str(self.source.path), cure="Export the profile again.")
        plain = self._plain(numbers)
        try:
            try:
                self._columns = self._parse(wanted, plain)
            except pa.ArrowInvalid:
                if not plain:
                    raise
                self._columns = self._parse(wanted)
            self.source.hash_aside()
            damaged = len(self) != self.page.count
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            damaged = True
        if damaged:
            # Lines that look like rows are not: look closely, which names the one at fault.
            self.page = find_page(self.source, thorough=True)
            try:
                self._columns = self._parse(wanted)
            except pa.ArrowInvalid as error:
                msg = "the table cannot be parsed"
                found = str(error).splitlines()[0][:200]
                where = str(self.source.path)
                raise InputError(msg, where=where, found=found, cure=CUT) from error

    def _plain(self, numbers: Sequence[tuple[str, str]]) -> frozenset[str]:
        """Return the columns of numbers that the first rows show to be plain English ones."""
        first = _first_rows(self.page.rows, _SAMPLE)
        try:
            cells = self._parse([name for name, _ in numbers], rows=first) if numbers else {}
        except pa.ArrowInvalid:
            return frozenset()
        shown, _ = english([(name, cells[name], unit) for name, unit in numbers])
        if not shown:
            return frozenset()
        return frozenset(
            name for name in cells if not pc.any(pc.match_substring(cells[name], ",")).as_py()
        )

    def _parse(
        self,
        names: Sequence[str],
        plain: frozenset[str] = frozenset(),
        rows: memoryview | bytes | None = None,
    ) -> dict[str, pa.ChunkedArray]:
        place = {name: self.page.header.index(name) for name in names}
        keys = [f"c{number}" for number in range(len(self.page.header))]
        shared = pa.dictionary(pa.int32(), pa.string())
        recurring = {*_REPEATED, *self.ranges_in()}
        types = {
            f"c{number}": shared
            if name in recurring
            else pa.float64()
            if name in plain
            else pa.int64()
            if plain and name in _WHOLE
            else pa.string()
            for name, number in place.items()
        }
        reading = pa.csv.ReadOptions(
            column_names=keys, block_size=max(_BLOCK, 2 * self.page.longest), use_threads=False
        )
        parsing = pa.csv.ParseOptions(newlines_in_values=self.page.multiline)
        converting = pa.csv.ConvertOptions(
            include_columns=list(types),
            column_types=types,
            null_values=sorted(MISSING),
            strings_can_be_null=False,
        )

        def parsed(part: memoryview) -> pa.Table:
            return pa.csv.read_csv(pa.BufferReader(part), reading, parsing, converting)

        # a part a core: Arrow's own threads share out cells so small that a third is overhead
        whole = memoryview(self.page.rows if rows is None else rows)
        parts = [whole] if self.page.multiline else _shares(whole, cores(), self.page.longest)
        table = pa.concat_tables(in_threads(parsed, parts))
        return {name: table.column(f"c{number}") for name, number in place.items()}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a loaded column's cells as they are written."""
        return self._columns[name]

    def take(self, rows: npt.NDArray[Any]) -> None:
        """Keep these rows alone."""
        self._columns = {name: cells.take(rows) for name, cells in self._columns.items()}
        self._rows = rows

    def line(self, row: int) -> int:
        """Return the line of the file that a row begins in."""
        return self.page.line(int(self._rows[row]) if self._rows is not None else row)

    def require_english(self, cells: Sequence[tuple[str, pa.ChunkedArray, str]]) -> None:
        """Raise `InputError` if no cell shows that numbers are English, and one may not be.

        `cells` are columns of numbers: name, texts and unit.
        """
        if any(pa.types.is_floating(column.type) for _, column, _ in cells):
            # Its first rows have shown it; every other cell is still checked.
            return
        _, doubtful = english(cells)
        if doubtful is not None:
            msg = f"column {doubtful[0]} is not in English, or can be read in two ways"
            where = str(self.source.path)
            raise InputError(msg, where=where, found=repr(doubtful[1][:80]), cure=EXPORT)

    def numbers(self, name: str, rows: Codes | None = None) -> Array:
        """Return a column as numbers, NaN where there is none.

        `rows` are those to read, all by default. Raises `InputError` if a cell is no number; the
        message names its line.
        """
        cells = self.column(name)
        if pa.types.is_floating(cells.type):
            return np.asarray(cells.to_numpy())
        try:
            return to_numbers(cells if rows is None else cells.take(rows))
        except BadNumberError as error:
            row = error.row if rows is None else int(rows[error.row])
            msg = f"column {name} needs a number written like 1,234.5"
            where = f"{self.source.path}:{self.line(row)}"
            found = repr(error.text[:80])
            raise InputError(msg, where=where, found=found, cure=EXPORT) from error

    def whole_numbers(self, name: str) -> Array:
        """Return a column of whole numbers, which have neither marks nor gaps.

        Raises `InputError` if a cell is something else.
        """
        cells = self.column(name)
        if pa.types.is_integer(cells.type):
            if not cells.null_count:
                return np.asarray(cells.to_numpy())
            cells = self._parse([name])[name]
        try:
            return np.asarray(pc.cast(cells, pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            texts = cells.to_pylist()
            row = next((row for row, text in enumerate(texts) if not text.isdigit()), 0)
            msg = f"column {name} needs a whole number"
            raise InputError(
                msg,
                where=f"{self.source.path}:{self.line(row)}",
                found=repr(texts[row][:60]),
                cure="Export the profile again.",
            ) from None

    def ranges_in(self) -> list[str]:
        """Return the names of the columns with NVTX ranges."""
        return [name for name in self.page.header if _PUSH_POP in name or _START_END in name]

    def ranges(self) -> CodedRanges:
        """Return the range names around each row, start/end ranges outermost."""
        found = CodedRanges.none(len(self))
        for name in sorted(self.ranges_in(), key=lambda name: _PUSH_POP in name):
            codes, cells = self._encoded(name)
            taken_apart = push_pops if _PUSH_POP in name else start_ends
            found = taken_apart(cells).take(codes).inside(found)
        return found

    def _encoded(self, name: str) -> tuple[Codes, pa.StringArray]:
        """Return a column of recurring texts as numbers, and the texts."""
        cells = self.column(name)
        if not pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        cells = cells.unify_dictionaries()
        if not cells.num_chunks:
            return np.empty(0, dtype=np.int64), pa.array([], pa.string())
        codes = np.concatenate([np.asarray(chunk.indices) for chunk in cells.chunks])
        return codes.astype(np.int64), cells.chunk(0).dictionary

    def coded(self, name: str) -> tuple[Codes, list[str]]:
        """Return a column of recurring texts as numbers, and the text each number stands for."""
        codes, texts = self._encoded(name)
        return codes, texts.to_pylist()

    def mapped(self, name: str, function: Callable[[str], T]) -> npt.NDArray[Any]:
        """Apply a function to a column of recurring texts, once a distinct text."""
        codes, texts = self.coded(name)
        values: npt.NDArray[Any] = np.array([function(text) for text in texts])[codes]
        return values

    def texts(self, name: str, function: Callable[[str], str | None]) -> pd.Series[str]:
        """Apply a function that gives text, or None for none, to a column of recurring texts."""
        codes, texts = self.coded(name)
        return text_column(codes, [function(text) for text in texts])


def _shares(rows: memoryview, count: int, longest: int) -> list[memoryview]:
    """Cut rows without newlines of their own into about equal shares, few if they are short."""
    count = max(1, min(count, len(rows) // _BLOCK))
    cuts = [0]
    for share in range(1, count):
        at = max(cuts[-1], len(rows) * share // count)
        cuts.append(at + bytes(rows[at : at + longest]).find(b"\n") + 1)
    return [rows[start:end] for start, end in pairwise([*cuts, len(rows)]) if start < end]


def _first_rows(rows: memoryview | bytes, count: int) -> bytes:
    """Return whole rows from the beginning, `count` or fewer."""
    part = bytes(rows[: 1 << 18])
    lines = part.split(b"\n", count)
    return part[: len(part) - len(lines[-1])]


def dimensions(cell: str) -> str | None:
    """Return ``(x, y, z)`` however it is spaced; None if the cell is something else."""
    match = _DIMENSIONS.fullmatch(cell.strip())
    return f"({match.group(1)}, {match.group(2)}, {match.group(3)})" if match else None
