"""An SQLite file from outside, opened so that it can neither run anything nor be changed."""

from __future__ import annotations

import itertools
import re
import sqlite3
import urllib.parse
import warnings
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.source import Source
from perfml.util.typing import Ints

_MAGIC = b"SQLite format 3\0"
_LONGEST_CELL = 16 << 20
_ROWS = 1 << 16
"""Rows of a table that are read at once."""
_DAMAGED = "The file is damaged; export or copy the profile again."


class Database:
    """A database opened for reading, whose tables come as frames.

    Table and column names that are passed in are constants of the readers, never names that a
    file holds.

    Parameters
    ----------
    connection
        The open file.
    where
        Its path, for the messages.
    """

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection = connection
        self.where = where
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(row[0]) for row in rows}

    def leave_out(self, table: str, *columns: str) -> str | None:
        """Pass over a table from now on that lacks one of some columns; return what it lacks.

        What such a table tells beside the kernels is then missing, and the kernels are there.
        """
        lacking = [name for name in columns if name not in self.columns(table)]
        if table not in self.tables or not lacking:
            return None
        self.tables.discard(table)
        return f"The table {table} lacks the columns {', '.join(lacking)}, and was left out."

    def has(self, table: str) -> bool:
        """Tell whether there is such a table, and a row in it."""
        return table in self.tables and bool(
            self._connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608
        )

    def count(self, table: str) -> int:
        """Return how many rows a table has; 0 if there is none."""
        if table not in self.tables:
            return 0
        query = f"SELECT COUNT(*) FROM {table}"  # noqa: S608 - our own constant names
        return int(self._connection.execute(query).fetchone()[0])

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; empty if there is no such table."""
        if table not in self.tables:
            return set()
        query = f"SELECT name FROM pragma_table_info('{table}')"  # noqa: S608
        return {str(row[0]) for row in self._connection.execute(query)}

    def frame(
        self, table: str, columns: Sequence[str], optional: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Return columns of a table as they are stored.

        Raises `InputError` if a column is missing.
        """
        present = self._present(table, columns, optional)
        if table not in self.tables:
            return pd.DataFrame({name: [] for name in (*columns, *optional)}, dtype="object")
        if not present:
            return pd.DataFrame(index=range(self.count(table)))
        quoted = ", ".join(f'"{name}"' for name in present)
        rows = self._connection.execute(f"SELECT {quoted} FROM {table}").fetchall()  # noqa: S608
        return pd.DataFrame(rows, columns=present, dtype="object")

    def integers(
        self, table: str, columns: Sequence[str], optional: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Return columns of a table as 64-bit integers.

        Without such a table the frame is empty; optional columns may be absent or NULL, and hold -1
        there. Raises `InputError` if a cell is no integer.

        SQLite joins a block of each column to one text, which NumPy reads: less than half of what a
        Python object a cell takes.
        """
        cells = {
            name: f'"{name}"' if name in columns else f'ifnull("{name}", -1)'
            for name in self._present(table, columns, optional)
        }
        rows = self.count(table)
        held = [np.full(rows, -1) for _ in cells]
        first, last = 0, -(1 << 63)
        joined = ", ".join(f"group_concat(c{n})" for n in range(len(cells)))
        named = ", ".join(f"{cell} AS c{n}" for n, cell in enumerate(cells.values()))
        query = (
            f"SELECT max(r), {joined} FROM (SELECT rowid AS r, {named} FROM {table} "  # noqa: S608
            f"WHERE rowid > ? ORDER BY rowid LIMIT {_ROWS})"
        )
        while cells and first < rows:
            last, *texts = self._connection.execute(query, (last,)).fetchone()
            block = [_numbers(text) for text in texts]
            count = min(_ROWS, rows - first)
            if any(len(numbers) != count for numbers in block):
                raise self._no_integer(table, cells)
            for column, numbers in zip(held, block, strict=True):
                column[first : first + count] = numbers
            first += count
        found = dict(zip(cells, held, strict=True))
        absent = np.full(rows, -1)
        return pd.DataFrame(
            {name: found.get(name, absent) for name in (*columns, *optional)}, copy=False
        )

    def codes(self, table: str, column: str) -> tuple[Ints, list[str]]:
        """Return a number for the text in each row of a table, and the texts.

        The number is -1 where there is no text, or no such column.
        """
        if column not in self.columns(table):
            return np.full(self.count(table), -1), []
        numbers: defaultdict[object, int] = defaultdict(itertools.count().__next__)
        decode, self._connection.text_factory = self._connection.text_factory, bytes
        rows = self._connection.execute(f'SELECT "{column}" FROM {table}')  # noqa: S608
        coded = array("q", map(numbers.__getitem__, chain.from_iterable(rows)))
        self._connection.text_factory = decode
        texts = [decode(cell) if isinstance(cell, bytes) else "" for cell in numbers]
        known = np.array(
            [place if text else -1 for place, text in enumerate(texts)], dtype=np.int64
        )
        return known[np.frombuffer(coded, dtype=np.int64)], texts

    def _present(self, table: str, columns: Sequence[str], optional: Sequence[str]) -> list[str]:
        """Return those of the columns that a table has, none without the table."""
        if table not in self.tables:
            return []
        known = self.columns(table)
        missing = [name for name in columns if name not in known]
        if missing:
            msg = f"the table {table} lacks the columns {', '.join(missing)}"
            raise InputError(msg, where=self.where, cure="Export the profile again.")
        return [*columns, *(name for name in optional if name in known)]

    def _no_integer(self, table: str, columns: Mapping[str, str]) -> InputError:
        """Return the error for the first cell of some columns, by SQL, that is no integer."""
        cells = (
            (name, cell)
            for name, cell in columns.items()
            for (cell,) in self._connection.execute(
                f"SELECT {cell} FROM {table} WHERE typeof({cell}) <> 'integer' LIMIT 1"  # noqa: S608
            )
        )
        name, cell = next(cells, ("*", None))
        msg = f"a cell of {table}.{name} is no integer"
        return InputError(msg, where=self.where, found=repr(cell)[:80], cure=_DAMAGED)

    def texts_of(self, table: str, key: str, text: str, wanted: Sequence[int]) -> dict[int, str]:
        """Return the texts of some keys of a table of strings; absent ones are left out."""
        keys = set(wanted)
        query = f'SELECT "{key}", "{text}" FROM {table}'  # noqa: S608 - our own constant names
        return {
            number: value
            for number, value in self._connection.execute(query)
            if number in keys and isinstance(value, str)
        }


def _numbers(text: object) -> Ints:
    """Return whole numbers between commas; none at all for anything else."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # what NumPy says of other text
        try:
            return np.fromstring(str(text), dtype=np.int64, sep=",")
        except (DeprecationWarning, ValueError):
            return np.zeros(0, dtype=np.int64)


_LATEST = 1 << 61
"""Nanoseconds no clock reaches: 73 years from 1970 or from the machine's start. The difference of
two times within fits into 64 bits."""


def on_the_clock(raw: pd.DataFrame) -> pd.DataFrame:
    """Return records in which those with an impossible start or end take no time."""
    times = raw[["start", "end"]]
    wrong = (times.lt(-_LATEST) | times.gt(_LATEST)).any(axis=1)
    if not wrong.any():
        return raw
    first = raw["start"][~wrong].min() if not wrong.all() else 0
    return raw.assign(**{name: raw[name].mask(wrong, first) for name in ("start", "end")})


def is_database(source: Source, *tables: str) -> bool:
    """Tell whether a file is an SQLite database with tables whose names begin like these.

    They mostly stand in the beginning of the file. One that is cut has no tables.
    """
    if not source.head.startswith(_MAGIC):
        return False
    if all(table.encode() in source.head for table in tables):
        return True
    try:
        with opened(source, ".sqlite") as database:
            return all(any(map(re.compile(name).match, database.tables)) for name in tables)
    except InputError:
        return False


def require_whole(source: Source) -> None:
    """Raise `InputError` if a file is an SQLite database that is cut or damaged."""
    if is_database(source):
        with opened(source, ".sqlite"):
            pass


@contextmanager
def opened(source: Source, suffix: str) -> Iterator[Database]:
    """Open an SQLite file for reading.

    `suffix` is the ending of the decompressed copy's name. Raises `InputError` if it is cut, or
    damaged where it is read.
    """
    _check_size(source)
    with source.local(suffix) as path:
        # Immutable: the file is opened without locks or journals, and cannot be changed.
        address = f"file:{urllib.parse.quote(str(Path(path).resolve()))}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
                connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
                connection.execute("PRAGMA trusted_schema = OFF")
                yield Database(connection, str(source.path))
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError) as error:
            msg = "the SQLite file cannot be read"
            said = " ".join(str(error).split())[:200]
            raise InputError(msg, where=str(source.path), found=said, cure=_DAMAGED) from error


def _check_size(source: Source) -> None:
    """Raise if the file is shorter than its own header says."""
    head = source.head[:100]
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    counted = head[24:28] == head[92:96]
    pages = int.from_bytes(head[28:32], "big") if counted else 0
    size = len(source.data) if source.compressed else source.path.stat().st_size
    if len(head) < 100 or size < page * pages:
        msg = "the SQLite file is cut off"
        raise InputError(
            msg,
            where=str(source.path),
            found=f"{size} bytes of {page * pages}",
            cure="Copy or export the profile again.",
        )
