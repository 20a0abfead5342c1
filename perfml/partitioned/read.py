"""Read kernels piece by piece from a Parquet file or a folder of them, on several threads.

Here to change: how many numbers and threads are held at once, and how Arrow's columns become
numbers. Pieces come in the order of the files, whichever thread is done first: merging relies on
that.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from perfml.errors import TableError
from perfml.partitioned.files import KernelFiles
from perfml.partitioned.rows import (
    CODED,
    MISSING,
    Codes,
    Floats,
    Vocabularies,
    Vocabulary,
    distinct,
)
from perfml.tables import readable

CELLS = 1 << 22
"""Numbers of metric columns that a thread holds at once: 32 MiB."""

THREADS = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))

ALL = -1
"""In place of a row group's number: all of the unit, rows brought together by layer."""

Outside = tuple[int, int, int, float, float]
"""A run's number, its launches, those outside layers, their time, the time of all."""

Result = TypeVar("Result")
Task = TypeVar("Task")


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file: what a thread reads.

    Attributes
    ----------
    unit
        The files that share runs with this one, by number.
    first, last
        Whether it is the first or last of its unit, so that no layer goes on before or after it.
    """

    file: Path
    index: int
    unit: int = 0
    first: bool = False
    last: bool = False


@dataclass
class Piece:
    """The launches of one row group that lie in layers.

    Attributes
    ----------
    codes, index, time
        As in `Rows`.
    numbers
        Reads numeric columns: yields name and values, a few columns in memory at once.
    outside
        One row a run: its number, launches, those outside layers, their time, the time of all;
        NaN where no launch has a time.
    """

    codes: dict[str, Codes]
    index: npt.NDArray[Any]
    time: Floats
    numbers: Callable[[Sequence[str]], Iterator[tuple[str, Floats]]]
    outside: list[Outside] = field(default_factory=list)


def row_groups(files: KernelFiles, unit: int) -> Iterator[RowGroup]:
    """Yield the row groups of one unit's files, those that hold rows."""
    waiting: RowGroup | None = None
    for file in files.units[unit]:
        for index, rows in enumerate(files.row_groups[file]):
            if rows:
                if waiting is not None:
                    yield waiting
                waiting = RowGroup(file, index, unit, first=waiting is None)
    if waiting is not None:
        yield replace(waiting, last=True)


def in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, threads: int = THREADS
) -> Iterator[Result]:
    """Yield ``function(task)`` in the order of `tasks`, `threads` of them under way at once."""
    if threads == 1:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def read_piece(
    group: RowGroup,
    vocabularies: Vocabularies,
    keep: Callable[[str], bool] | None = None,
) -> Piece:
    """Read the identity and times of one row group.

    Parameters
    ----------
    group
        Which one.
    vocabularies
        Number its text.
    keep
        Says of a layer's name whether its launches count; all do without.
    """
    with readable(group.file):
        reader = pq.ParquetFile(
            group.file, read_dictionary=[*CODED], memory_map=False, pre_buffer=False
        )
        table = reader.read_row_group(
            group.index, columns=[*CODED, "kernel_index", "time_us"], use_threads=False
        )
    codes = {name: _codes(table.column(name), vocabularies.columns[name]) for name in CODED}
    _named(codes["kernel"], vocabularies.columns["kernel"], group)
    index = _array(table.column("kernel_index"))
    time = floats(table.column("time_us"))
    inside = codes["layer"] != MISSING
    outside = _outside(codes["run_id"], inside, time)
    if keep is not None:
        names = vocabularies.columns["layer"].values
        chosen = np.array([*(keep(str(name)) for name in names), False])
        inside &= chosen[codes["layer"]]
    rows = None if inside.all() else np.flatnonzero(inside)
    if rows is not None:
        codes = {name: values[rows] for name, values in codes.items()}
        index, time = index[rows], time[rows]
    has = set(reader.schema_arrow.names)
    total = table.num_rows

    def numbers(names: Sequence[str]) -> Iterator[tuple[str, Floats]]:
        width = max(1, CELLS // total)
        for first in range(0, len(names), width):
            some = names[first : first + width]
            with readable(group.file):
                part = reader.read_row_group(
                    group.index, columns=[name for name in some if name in has], use_threads=False
                )
            for name in some:
                values = floats(part.column(name)) if name in has else np.full(total, np.nan)
                yield name, values if rows is None else values[rows]

    return Piece(codes, index, time, numbers, outside)


def _codes(column: Any, vocabulary: Vocabulary) -> Codes:
    """Number a column's values."""
    parts = [np.zeros(0, dtype=np.int32)]
    for chunk in column.chunks:
        if pa.types.is_null(chunk.type):
            parts.append(np.full(len(chunk), MISSING, dtype=np.int32))
            continue
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        # one entry more, so that a missing value's -1 finds a missing value
        found = np.append(vocabulary.number(coded.dictionary.to_pylist()), np.int32(MISSING))
        indices = coded.indices
        if indices.null_count:
            indices = indices.fill_null(-1)
        parts.append(found[indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts) if len(parts) > 2 else parts[-1]


def _named(codes: Codes, vocabulary: Vocabulary, group: RowGroup) -> None:
    unnamed = codes == MISSING
    if "" in vocabulary.values:
        unnamed |= codes == vocabulary.number([""])[0]
    if unnamed.any():
        msg = "a launch has no kernel name"
        raise TableError(
            msg,
            where=f"{group.file}, row group {group.index}, row {int(np.flatnonzero(unnamed)[0])}",
            cure="Ingest the profile again; every row of a Kernels table names its kernel.",
        )


def _array(column: Any) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy())


def floats(column: Any) -> Floats:
    """Return a column's numbers; a missing one is NaN."""
    if column.num_chunks == 1 and not column.null_count and column.type == pa.float64():
        return np.asarray(column.chunk(0).to_numpy())
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _outside(run: Codes, inside: npt.NDArray[np.bool_], time: Floats) -> list[Outside]:
    """Add up what ran inside and outside layers, by run, NaN where no launch has a time."""
    runs, first, which = distinct(run)
    count = len(runs)
    timed = ~np.isnan(time)
    known = np.where(timed, time, 0.0)
    # as pandas adds up: missing times are left out, and only a run without any has none
    total = np.bincount(which, known, count)
    total[np.bincount(which, timed, count) == 0] = np.nan
    launches = np.bincount(which, ~inside, count).astype(int)
    away = np.bincount(which, np.where(inside, 0.0, known), count)
    away[np.bincount(which, timed | inside, count) == 0] = np.nan
    columns = (runs, np.bincount(which), launches, away, total)
    order = np.argsort(first)
    return list(zip(*(column[order].tolist() for column in columns), strict=True))
