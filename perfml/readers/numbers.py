"""Numbers of a text export, as English writes them: 1,234.5.

Under a German locale the profiler writes 1.234,5 and ``1,234`` is little more than one. So a file
is read only if one of its cells can be nothing but English, and then every other cell has to be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfml.metrics.expressions import Array

MISSING = frozenset(
    {"", "-", "n/a", "na", "nan", "-nan", "nan(ind)", "-nan(ind)", "no data", "none", "null"}
)
"""Cells, in lower case, that say that there is no value."""
EXPORT = (
    "Export it again with numbers in English: LC_ALL=C ncu --import FILE.ncu-rep --csv --page raw"
)
"""What to do where numbers are of another language."""


_ENGLISH = re.compile(
    r"[+-]?(?:\d+(?:,\d{3})*\.(?:\d{1,2}|\d{4,})(?!\d)|(?:0|\d{4}|\d*,)\d*\.\d(?!\d*\.)"
    r"|\d{1,3}(?:,\d{3}){2})"
)
"""Numbers that no other convention writes: 46.63 and 1,980,000, but not 1,234 nor 1.234."""
_PERCENT = re.compile(r"[+-]?\d+\.\d")
"""As `_ENGLISH`, of a percentage, which never has groups of thousands."""
_MARKED = re.compile(r"[+-]?\d+[.,]\d")
_PRINTED = re.compile(r"(?ai)[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf(?:inity)?)")

_SAMPLE = 500
"""Rows of each column that are looked at before the whole column is."""


class BadNumberError(ValueError):
    """A cell that is no number."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row
        self.text = text


def english(
    columns: Sequence[tuple[str, pa.ChunkedArray, str]],
) -> tuple[bool, tuple[str, str] | None]:
    """Tell whether a cell shows that numbers are English; else give one that may not be.

    A column is its name, cells (strings) and unit. A cell is given as the column's name and its
    text; it is None where no cell has a mark, or one is English.

    Examples
    --------
    >>> english([("a", pa.chunked_array([["1,234", "46.63"]]), "")])
    (True, None)
    >>> english([("a", pa.chunked_array([["1,234", "5"]]), "")])
    (False, ('a', '1,234'))
    """
    doubtful: tuple[str, str] | None = None
    for rows in (_SAMPLE, None):
        for name, cells, unit in columns:
            shape = _PERCENT if unit == "%" else _ENGLISH
            for cell in pc.unique(cells.slice(0, rows)).to_pylist():
                if cell and _MARKED.match(cell):
                    if shape.match(cell):
                        return True, None
                    doubtful = doubtful or (name, cell)
    return False, doubtful


def to_numbers(cells: pa.ChunkedArray) -> Array:
    """Return the numbers of a column; a missing value is NaN.

    `cells` are strings, shape (n,), as the array is. Raises `BadNumberError` with the row and the
    text of the first cell that is no number.
    """
    # Most columns need nothing else; a cell with a group mark fails here as a whole.
    try:
        return _floats(pc.cast(cells, pa.float64()))
    except pa.ArrowInvalid:
        plain = _without_marks(pc.utf8_trim_whitespace(cells))
    try:
        return _floats(pc.cast(plain, pa.float64()))
    except pa.ArrowInvalid:
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


def _without_marks(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Take out commas where they stand rightly between groups of three digits."""
    cells = pc.replace_substring_regex(cells, r"^\(!\)\s*", "")
    lower = pc.utf8_lower(cells)
    missing = pc.is_in(lower, value_set=pa.array(sorted(MISSING)))
    cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
    # "12.5 (3; 4)": ncu's aggregate before its instances.
    cells = pc.replace_substring_regex(cells, r"\s*\([^()]*\)$", "")
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    # Only whole groups lose their mark, so "46,63" stays and is an error.
    grouped = pc.match_substring_regex(cells, r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")
    return pc.if_else(grouped, pc.replace_substring(cells, ",", ""), cells)
