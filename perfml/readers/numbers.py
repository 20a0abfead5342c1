"""Numbers of a text export under an English (1,234.5) or a German (1.234,5) convention.

``1,234`` is a thousand under one convention and little more than one under the other, so the
convention is never guessed from a single cell: it is decided by a cell that allows only one
reading, and then every other cell has to follow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfml.errors import PerfmlError
from perfml.metrics.expressions import Array

MISSING = frozenset(
    {"", "-", "n/a", "na", "nan", "-nan", "nan(ind)", "-nan(ind)", "no data", "none", "null"}
)
"""Cells, in lower case, that say that there is no value."""


@dataclass(frozen=True)
class Convention:
    """How a file writes numbers: the decimal mark, and the mark between groups of three digits."""

    name: str
    decimal: str
    group: str


ENGLISH = Convention("en", ".", ",")
GERMAN = Convention("de", ",", ".")
CONVENTIONS = {"en": ENGLISH, "de": GERMAN}

_SEPARATED = re.compile(r"[+-]?(\d+)([.,])(\d+)")
_PRINTED = re.compile(r"(?ai)[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf(?:inity)?)")
_OTHER_MARKS = "\u00a0\u202f\u2009'\u2019"
"""Group marks of further locales (French, Swiss), which no convention uses for anything else."""

_SAMPLE = 500
"""Rows of each column that are looked at before the whole column is."""


class BadNumberError(ValueError):
    """A cell that is no number under the convention of its file."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row
        self.text = text


def convention_of(locale: str) -> Convention:
    """Return the convention a user names: ``en``, ``de``, or a locale such as ``de_DE.UTF-8``.

    Raises `PerfmlError` if there is none of that name.
    """
    try:
        return CONVENTIONS[re.split(r"[_.\-]", locale.strip().lower())[0]]
    except KeyError:
        msg = f"no number convention is called {locale!r}"
        cure = "Use en (1,234.5) or de (1.234,5)."
        raise PerfmlError(msg, where="--locale", cure=cure) from None


def reading(cell: str, *, percent: bool = False) -> Convention | None:
    """Return the only convention that a cell can follow, or None if it follows either.

    Parameters
    ----------
    cell
        Text of a number.
    percent
        The cell is a percentage, which never has groups of thousands.

    Examples
    --------
    >>> reading("46.63").name, reading("46,63").name, reading("1.234,5").name
    ('en', 'de', 'de')
    >>> reading("1,234") is None
    True
    """
    comma, dot = cell.rfind(","), cell.rfind(".")
    if comma < 0 and dot < 0:
        return None
    if comma >= 0 and dot >= 0:
        return ENGLISH if dot > comma else GERMAN
    mark = "," if comma >= 0 else "."
    as_decimal, as_group = (GERMAN, ENGLISH) if mark == "," else (ENGLISH, GERMAN)
    if cell.count(mark) > 1:
        return as_group
    match = _SEPARATED.match(cell)
    if match is None:
        return None
    before, _, after = match.groups()
    grouped = len(after) == 3 and len(before) <= 3 and before[0] != "0"
    return None if grouped and not percent else as_decimal


def decide(
    columns: Sequence[tuple[str, pa.ChunkedArray, str]],
) -> tuple[Convention | None, tuple[str, str] | None]:
    """Find a file's convention from its columns of numbers.

    A column is its name, cells (strings) and unit. The convention is that of the first cell with
    only one reading; without any, name and text of a cell that can be read both ways are returned,
    if there is one.
    """
    example: tuple[str, str] | None = None
    for rows in (_SAMPLE, None):
        example = None
        for name, cells, unit in columns:
            part = cells.slice(0, rows) if rows else cells
            for cell in pc.unique(part).to_pylist():
                if not cell or ("," not in cell and "." not in cell):
                    continue
                found = reading(cell, percent=unit == "%")
                if found is not None:
                    return found, None
                if example is None and _SEPARATED.match(cell) is not None:
                    example = name, cell
        if rows and all(len(cells) <= rows for _, cells, _ in columns):
            break
    return None, example


def to_numbers(cells: pa.ChunkedArray, convention: Convention) -> Array:
    """Return the numbers of a column; a missing value is NaN.

    `cells` are strings, shape (n,), as the array is. Raises `BadNumberError` with the row and the
    text of the first cell that is no number.
    """
    if convention is ENGLISH:
        # Most columns need nothing else; a cell with a group mark fails here as a whole.
        try:
            return _floats(pc.cast(cells, pa.float64()))
        except pa.ArrowInvalid:
            pass
    plain = _without_marks(pc.utf8_trim_whitespace(cells), convention)
    try:
        return _floats(pc.cast(plain, pa.float64()))
    except pa.ArrowInvalid:
        pass
    texts = plain.to_pylist()
    for row, text in enumerate(texts):
        if text is not None and _float(text) is None:
            raise BadNumberError(row, cells[row].as_py() or "")
    return np.array([np.nan if text is None else _float(text) for text in texts], dtype=float)


def _floats(numbers: Any) -> Array:
    return np.asarray(numbers.to_numpy(), dtype=float)


def _float(text: str) -> float | None:
    # Python reads more than printed numbers, such as 1_000.
    return float(text) if _PRINTED.fullmatch(text) else None


def _without_marks(cells: pa.ChunkedArray, convention: Convention) -> pa.ChunkedArray:
    """Take out group marks where they stand rightly, and make the decimal mark a point."""
    cells = pc.replace_substring_regex(cells, r"^\(!\)\s*", "")
    lower = pc.utf8_lower(cells)
    missing = pc.is_in(lower, value_set=pa.array(sorted(MISSING)))
    cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
    # "12.5 (3; 4)": ncu's aggregate before its instances.
    cells = pc.replace_substring_regex(cells, r"\s*\([^()]*\)$", "")
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    marks = re.escape(convention.group) + _OTHER_MARKS
    decimal = re.escape(convention.decimal)
    # Only whole groups lose their mark, so "46,63" in an English file stays and is an error.
    grouped = pc.match_substring_regex(
        cells, rf"^[+-]?\d{{1,3}}([{marks}]\d{{3}})+({decimal}\d+)?$"
    )
    bare = pc.replace_substring_regex(cells, rf"[{marks}]", "")
    cells = pc.if_else(grouped, bare, cells)
    if convention is ENGLISH:
        return cells
    wrong = pc.match_substring(cells, convention.group)
    pointed = pc.replace_substring(cells, convention.decimal, ".")
    # A point that is left over is no group mark; a word cannot be mistaken for a number.
    return pc.if_else(wrong, pc.binary_join_element_wise("no number: ", cells, ""), pointed)
