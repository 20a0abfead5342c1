"""The columns of an ncu table that are needed, as Arrow arrays of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from perfml.errors import InputError
from perfml.metrics.expressions import Array
from perfml.readers import _nvtx
from perfml.readers._ncu_text import CUT, find_page
from perfml.readers._numbers import (
    ENGLISH,
    BadNumberError,
    Convention,
    convention_of,
    decide,
    to_numbers,
)
from perfml.readers._options import ReadOptions
from perfml.readers._source import Source

_DIMENSIONS = re.compile(r"\s*\(?\s*(\d+)[,;x\s]+(\d+)[,;x\s]+(\d+)\s*\)?\s*")
_PUSH_POP = "Push/Pop_Range"
_START_END = "Start/Stop_Range"
_REPEATED = ("Kernel Name", "Process ID", "Process Name", "Block Size", "Grid Size", "CC")
"""Columns whose texts recur, kept once each."""


T = TypeVar("T")


class Table:
    """Columns of a page, parsed when asked for.

    Parameters
    ----------
    source
        The export.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.page = find_page(source)
        self._columns: dict[str, pa.ChunkedArray] = {}

    def load(self, names: Iterable[str]) -> None:
        """Parse columns; names that the page lacks are passed over.

        Raises
        ------
        InputError
            If a row is damaged, or a column that is asked for comes twice.
        """
        wanted = [name for name in dict.fromkeys(names) if name in self.page.header]
        for name in wanted:
            if self.page.header.count(name) > 1:
                msg = f"column {name} comes twice"
                raise InputError(msg, where=str(self.source.path), cure="Export the profile again.")
        try:
            self._columns = self._parse(wanted)
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

    def _parse(self, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        place = {name: self.page.header.index(name) for name in names}
        keys = [f"c{number}" for number in range(len(self.page.header))]
        shared = pa.dictionary(pa.int32(), pa.string())
        recurring = {*_REPEATED, *self.ranges_in()}
        types = {
            f"c{number}": shared if name in recurring else pa.string()
            for name, number in place.items()
        }
        longest = max(1 << 20, _longest_row(self.page.rows))
        table = pa.csv.read_csv(
            pa.BufferReader(self.page.rows),
            read_options=pa.csv.ReadOptions(column_names=keys, block_size=longest),
            parse_options=pa.csv.ParseOptions(newlines_in_values=self.page.multiline),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types), column_types=types, strings_can_be_null=False
            ),
        )
        return {name: table.column(f"c{number}") for name, number in place.items()}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a loaded column's cells as they are written."""
        return self._columns[name]

    def take(self, rows: Array) -> None:
        """Keep these rows alone."""
        self._columns = {name: cells.take(rows) for name, cells in self._columns.items()}

    def convention(self, metrics: Sequence[tuple[str, str]], options: ReadOptions) -> Convention:
        """Decide how the file writes numbers.

        Parameters
        ----------
        metrics
            Columns of numbers, and their units.
        options
            The user's locale, if any, decides.

        Raises
        ------
        InputError
            If every number can be read in two ways.
        """
        if options.locale is not None:
            return convention_of(options.locale)
        found, ambiguous = decide((self.column(name), unit) for name, unit in metrics)
        if found is None and ambiguous:
            found, _ = decide(self._other_numbers())
        if found is None and ambiguous:
            name, cell = self._example(metrics)
            msg = f"column {name} can be read in two ways, and so can every other one"
            raise InputError(
                msg,
                where=str(self.source.path),
                found=repr(cell),
                cure="Say which: --locale en (1,234 is a thousand) or --locale de (a decimal).",
            )
        return found or ENGLISH

    def _other_numbers(self) -> Iterable[tuple[pa.ChunkedArray, str]]:
        """Parse the columns that were not asked for: one of their cells may decide."""
        header, units = self.page.header, self.page.units or []
        names = [name for name in header if name not in self._columns and "__" in name]
        names = [name for name in names if header.count(name) == 1]
        cells = self._parse(names)
        found = dict(zip(header, units, strict=False))
        return [(cells[name], found.get(name, "")) for name in names]

    def _example(self, metrics: Sequence[tuple[str, str]]) -> tuple[str, str]:
        for name, _ in metrics:
            for cell in pc.unique(self.column(name)).to_pylist():
                if "," in cell or "." in cell:
                    return name, cell
        return "", ""

    def numbers(self, name: str, convention: Convention) -> Array:
        """Return a column as numbers, NaN where there is none.

        Raises
        ------
        InputError
            If a cell is no number; the message names its line.
        """
        try:
            return to_numbers(self.column(name), convention)
        except BadNumberError as error:
            other = "de" if convention is ENGLISH else "en"
            msg = f"column {name} needs a number written like {_sample(convention)}"
            raise InputError(
                msg,
                where=f"{self.source.path}:{self.page.line(error.row)}",
                found=repr(error.text[:80]),
                cure=f"If the file was exported under another locale, say so: --locale {other}.",
            ) from error

    def ranges_in(self) -> list[str]:
        """Return the names of the columns with NVTX ranges."""
        return [name for name in self.page.header if _PUSH_POP in name or _START_END in name]

    def ranges(self) -> list[tuple[str, ...]]:
        """Return the range names around each row, start/end ranges outermost."""
        found: list[tuple[str, ...]] = [()] * len(self)
        for name in sorted(self.ranges_in(), key=lambda name: _PUSH_POP in name):
            parse = _nvtx.push_pop if _PUSH_POP in name else _nvtx.start_end
            inner = self.mapped(name, parse)
            found = [a + b if b else a for a, b in zip(found, inner, strict=True)]
        return found

    def mapped(self, name: str, function: Callable[[str], T]) -> list[T]:
        """Apply a function to a column of recurring texts, once a distinct text."""
        cells = self.column(name)
        if not pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        cells = cells.unify_dictionaries()
        results: list[T] = []
        values: list[T] | None = None
        for chunk in cells.chunks:
            if values is None:
                values = [function(text) for text in chunk.dictionary.to_pylist()]
            results += [values[code] for code in chunk.indices.to_numpy(zero_copy_only=False)]
        return results


def dimensions(cell: str) -> str | None:
    """Return ``(x, y, z)`` however it is spaced; None if the cell is something else."""
    match = _DIMENSIONS.fullmatch(cell)
    return f"({match.group(1)}, {match.group(2)}, {match.group(3)})" if match else None


def _sample(convention: Convention) -> str:
    return "1,234.5" if convention is ENGLISH else "1.234,5"


def _longest_row(rows: memoryview | bytes) -> int:
    """Return a block size that is sure to hold the longest row twice."""
    text = np.frombuffer(rows, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    return 2 * int(np.diff(ends, prepend=-1).max(initial=1)) + 2
