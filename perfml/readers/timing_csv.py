"""Read the timing pass: kernel durations without counters, as ``perfml collect`` writes them.

Columns ``iteration, layer, kernel, time_us`` and, where known, ``grid``, ``block`` and
``start_us``. ``layer`` is empty for a launch outside every range. A row with ``bytes`` is a copy or
a fill of memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from perfml.account.account import ACCOUNT, Account
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import Spans
from perfml.account.steps import numbered_steps
from perfml.account.window import WINDOW, window_of_each
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import with_moves
from perfml.tables import Kernels

NAME = "timing-csv"

_REQUIRED = ("iteration", "layer", "kernel", "time_us")
_OPTIONAL = ("grid", "block", "start_us", "bytes")
_BLOCK = 1 << 20
_MOST = 1e15
"""Beyond it a floating-point number is no longer every whole number."""
_LONGEST = 3e13
"""Microseconds; nanoseconds have to fit into whole numbers."""
_PLACE = re.compile(r"Row #(\d+)")
_CURE = "Copy it again, or collect the timing again; a whole file ends in a newline."


def recognises(source: Source) -> bool:
    """Tell whether the first line is the timing pass's header."""
    first = source.head_text().split("\n", 1)[0]
    return tuple(_cells(first)[: len(_REQUIRED)]) == _REQUIRED


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a timing CSV; metrics are absent from the table.

    Raises `InputError` if a row is cut or damaged, a number is no number, or there is no launch.
    """
    windows = (options or ReadOptions()).windows
    rows = _Rows(source)
    iteration = rows.numbers("iteration", whole=True)
    launches = pd.DataFrame(
        {"kernel": rows.texts("kernel"), "time_us": rows.numbers("time_us")},
    )
    unnamed = np.flatnonzero((launches["kernel"].str.strip() == "").to_numpy())
    if len(unnamed):
        raise rows.wrong(int(unnamed[0]), "a launch has no kernel name", None)
    for name in ("grid", "block"):
        if name in rows:
            launches[name] = rows.texts(name).mask(lambda cells: cells == "")
    launches["time_source"] = "timing"
    if rows.has_starts:
        launches["start_us"] = rows.numbers("start_us")
    layers = rows.texts("layer")
    moved = rows.moved
    if moved.all():
        raise rows.wrong(0, "no kernel in this timing CSV", "copies and fills of memory alone")
    moves = launches.assign(iteration=iteration, layer=layers, bytes=rows.bytes)[moved]
    launches, iteration, layers = launches[~moved], iteration[~moved], layers[~moved]
    launches = launches.reset_index(drop=True)
    ranges = [
        [f"iter_{number:.0f}", *([layer] if layer else [])]
        for number, layer in zip(iteration, layers, strict=True)
    ]
    frame = kernels_frame(launches, ranges)
    if len(moves) and rows.has_starts:
        late = np.flatnonzero(rows.numbers("start_us") + rows.numbers("time_us") > _LONGEST)
        if len(late):
            raise rows.wrong(int(late[0]), "start_us and time_us go on for over a year", None)
        frame = with_moves(frame, moves)
    provenance = {
        **source.provenance(NAME, "timing pass without counters"),
        "iterations": len(np.unique(iteration)),
    }
    if rows.has_starts and (account := _account(rows, windows)) is not None:
        provenance[ACCOUNT] = account.to_dict()
    return Kernels(frame, provenance)


def _account(rows: _Rows, windows: int) -> Account | None:
    """Return what the device did, by windows or else by iterations where there are several."""
    start, time = (np.rint(rows.numbers(name) * 1e3) for name in ("start_us", "time_us"))
    if not (start + time < 1e3 * _LONGEST).all():
        return None
    order, kernels = np.argsort(rows.moved, kind="stable"), int((~rows.moved).sum())
    device = np.zeros(len(order), dtype=np.int64)
    spans = Spans(device, start.astype(np.int64), (start + time).astype(np.int64))[order]
    names, layers = (rows.texts(name).to_numpy()[order] for name in ("kernel", "layer"))
    activities = kernels_of(names[:kernels], spans[:kernels], device[:kernels])
    activities += moves_of(names[kernels:], spans[kernels:], rows.bytes[order][kernels:].tolist())
    paths = [(layer,) if layer else () for layer in layers]
    numbers, name = rows.numbers("iteration")[order], "iteration"
    if windows > 1:
        numbers, name = window_of_each(spans.start / 1e3, time[order] / 1e3, windows), WINDOW
    steps = numbered_steps(name, numbers.tolist(), activities)
    if windows > 1 and steps is not None:
        steps = replace(steps, apart=True)
    return account_without_host(activities, paths, steps)


class _Rows:
    """The rows of a timing CSV, one a line: no cell holds a line break."""

    def __init__(self, source: Source) -> None:
        self._source = source
        text = source.text()
        lines = text.split("\n")
        if lines.pop() != "":
            msg = "the last line is cut"
            raise self._error(msg, len(lines) + 1, None)
        header = _cells(lines[0]) if lines else []
        self._check(header)
        self._lines = [n for n, line in enumerate(lines, 1) if line.strip("\r")][1:]
        if not self._lines:
            msg = "no launch in this timing CSV"
            raise self._error(msg, 1, "only a header")
        self._table = self._parsed(text, header, max(map(len, lines)))

    def __contains__(self, name: str) -> bool:
        return name in self._table.column_names

    @property
    def has_starts(self) -> bool:
        """Whether every launch says when it began."""
        return "start_us" in self and not (self.texts("start_us") == "").any()

    @property
    def moved(self) -> npt.NDArray[np.bool_]:
        """Whether each row is a copy or a fill of memory, shape (n,)."""
        if "bytes" not in self:
            return np.zeros(len(self._lines), dtype=bool)
        return np.asarray(self.texts("bytes") != "", dtype=bool)

    @property
    def bytes(self) -> npt.NDArray[np.float64]:
        """What a copy or a fill moves; NaN for a kernel, shape (n,)."""
        if not self.moved.any():
            return np.full(len(self._lines), np.nan)
        return self.numbers("bytes", empty=True)

    def texts(self, name: str) -> pd.Series[str]:
        """Return a column of text; an empty cell is an empty text."""
        found: pd.Series[str] = self._table.column(name).to_pandas().astype("string")
        return found

    def numbers(
        self, name: str, *, whole: bool = False, empty: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return a column of numbers, none of them negative or infinite.

        With `empty` a cell may be empty, and is NaN.
        """
        cells = self._table.column(name)
        try:
            found = np.asarray(pc.cast(cells, pa.float64()).to_numpy())
        except pa.ArrowInvalid:
            found = pd.to_numeric(cells.to_pandas(), errors="coerce").to_numpy(dtype=float)
        limit = _MOST if whole else np.inf
        good = (found >= 0) & (found < limit) & (not whole or found == np.floor(found))
        if empty:
            good |= np.asarray(self.texts(name) == "", dtype=bool)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            kind = "a whole number" if whole else "a number"
            msg = f"column {name} needs {kind} that is not negative"
            raise self.wrong(row, msg, repr(cells[row].as_py())[:80])
        return found

    def wrong(self, row: int, what: str, found: str | None) -> InputError:
        """Return the error for a row, which names its line."""
        return self._error(what, self._lines[row], found)

    def _check(self, header: list[str]) -> None:
        known = (*_REQUIRED, *_OPTIONAL)
        unknown = [name for name in header if name not in known]
        twice = [name for name in known if header.count(name) > 1]
        missing = [name for name in _REQUIRED if name not in header]
        if not (unknown or twice or missing):
            return
        what = (
            f"column {twice[0]} comes twice"
            if twice
            else f"not a timing CSV: {'unknown' if unknown else 'no'} column"
        )
        raise self._error(what, 1, repr((unknown or twice or missing)[0])[:80])

    def _parsed(self, text: str, header: list[str], longest: int) -> Any:
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(text.encode()),
                # Characters have up to four bytes.
                read_options=pa.csv.ReadOptions(
                    column_names=header,
                    skip_rows=1,
                    block_size=max(_BLOCK, 8 * longest),
                    use_threads=False,  # else an error does not say which row
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
                ),
            )
        except pa.ArrowException as error:
            found = str(error).splitlines()[0][:200]
            place = _PLACE.search(found)
            row = min(int(place.group(1)) - 2, len(self._lines) - 1) if place else 0
            msg = f"a row does not have the {len(header)} cells of the header"
            raise self.wrong(max(row, 0), msg, _PLACE.split(found)[-1].strip(" :")) from error
        if len(table) != len(self._lines):
            msg = "quotes that do not close: there are fewer rows than lines"
            raise self._error(msg, 1, f"{len(table)} rows in {len(self._lines)} lines")
        return table

    def _error(self, what: str, line: int, found: str | None) -> InputError:
        where = f"{self._source.path}:{line}"
        return InputError(what, where=where, found=found, cure=_CURE)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.strip().split(",")]
