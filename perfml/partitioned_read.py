"""Read kernels piece by piece from a Parquet file or a folder of them, on several threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from perfml.errors import InputError, TableError
from perfml.metrics import load_catalogue
from perfml.partitioned_rows import CODED, MISSING, Codes, Floats, Vocabularies, Vocabulary
from perfml.tables import KERNEL_COLUMNS, METADATA_KEY, require_file

CELLS = 1 << 22
"""Numbers of metric columns that a thread holds at once: 32 MiB."""

THREADS = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))

Result = TypeVar("Result")
Task = TypeVar("Task")


@dataclass(frozen=True)
class KernelFiles:
    """A Kernels table on disk: one Parquet file, or all those of a folder.

    Attributes
    ----------
    path
        What the user named.
    files
        The Parquet files, by name.
    types
        Every column that some file has, and its Arrow type.
    rows
        Launches in all files.
    provenance
        Of one file, its document; of several, their sources, runs and warnings one after another.
    pandas
        The column types that pandas noted, by column.
    units
        Files that may hold rows of the same run, together; no run is in two units.
    """

    path: Path
    files: tuple[Path, ...]
    types: dict[str, Any]
    rows: int
    provenance: dict[str, Any]
    pandas: dict[str, Any]
    units: tuple[tuple[Path, ...], ...]

    @property
    def metrics(self) -> list[str]:
        """The metric columns, in the catalogue's order."""
        return [name for name in load_catalogue().names if name in self.types]


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file: what a thread reads."""

    file: Path
    index: int


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
    outside: list[tuple[int, int, int, float, float]] = field(default_factory=list)


def kernel_files(path: str | Path) -> KernelFiles:
    """Look at a Kernels table on disk without reading its rows.

    Raises
    ------
    InputError
        If it is missing, holds no Parquet, or is a table of layers.
    TableError
        If a column that every Kernels table has is missing, or has no numbers where it must.
    """
    path = Path(path)
    if path.is_dir():
        found = (each for each in path.rglob("*.parquet") if _visible(each.relative_to(path)))
        files = tuple(sorted(each for each in found if each.is_file()))
        if not files:
            msg = "no Parquet file in this folder"
            cure = "Make one with: perfml ingest RUN... --partition --out FOLDER"
            raise InputError(msg, where=str(path), cure=cure)
    else:
        require_file(path)
        files = (path,)
    types: dict[str, Any] = {}
    rows = 0
    documents: list[dict[str, Any]] = []
    pandas: dict[str, Any] = {}
    spans: list[tuple[str, str] | None] = []
    for each in files:
        with readable(each):
            footer = pq.read_metadata(each)
            schema = footer.schema.to_arrow_schema()
        _check(schema, each)
        for kind in schema:
            types[kind.name] = _common(types.get(kind.name), kind, each)
        rows += footer.num_rows
        documents.append(_provenance(footer.metadata or {}, each))
        for note in _pandas(footer.metadata or {}):
            pandas.setdefault(note["name"], note)
        spans.append(_runs(footer))
    provenance = documents[0] if len(files) == 1 else _joined(documents)
    return KernelFiles(path, files, types, rows, provenance, pandas, _units(files, spans))


def _visible(path: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.parts)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of a damaged file into an `InputError`."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = "not a readable Parquet file"
        raise InputError(
            msg,
            where=str(path),
            found=str(error).splitlines()[0][:200],
            cure="Profiler exports become tables with: perfml ingest FILE... --out kernels.parquet",
        ) from error


def _check(schema: Any, path: Path) -> None:
    """Refuse a file that is no Kernels table, as `perfml.tables.read_table` does."""
    if "kernel_names" in schema.names:
        msg = "this command needs a kernels table"
        cure = "Make one with: perfml ingest"
        raise InputError(msg, where=str(path), found="a layers table", cure=cure)
    missing = [name for name in KERNEL_COLUMNS if name not in schema.names]
    if missing:
        msg = f"columns are missing: {', '.join(missing)}"
        found = ", ".join(schema.names[:8])
        cure = "Such a table is made with: perfml ingest"
        raise TableError(msg, where=str(path), found=found, cure=cure)
    types = pa.types
    for name in ("kernel_index", "time_us", *load_catalogue().names):
        if name in schema.names:
            kind = schema.field(name).type
            if not any(
                test(kind)
                for test in (types.is_integer, types.is_floating, types.is_null, types.is_boolean)
            ):
                msg = f"column {name} must hold numbers"
                cure = "Ingest the profile again, or fix the column."
                raise TableError(msg, where=str(path), found=str(kind), cure=cure)


def _common(known: Any, field: Any, path: Path) -> Any:
    """Return the type that holds a column of this file and of those before it."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    if known is None or kind == known:
        return kind
    numeric = [pa.types.is_integer(each) or pa.types.is_floating(each) for each in (known, kind)]
    if all(numeric):
        both_whole = pa.types.is_integer(known) and pa.types.is_integer(kind)
        return pa.int64() if both_whole else pa.float64()
    if field.name in CODED:
        msg = f"column {field.name} has another type than in the files before"
        cure = "Ingest the profiles again into one folder."
        raise TableError(msg, where=str(path), found=f"{kind}, not {known}", cure=cure)
    return known


def _provenance(metadata: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    import json

    try:
        document = json.loads(metadata.get(METADATA_KEY, b"{}"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        msg = "the provenance in this file is damaged"
        raise InputError(msg, where=str(path), cure="Ingest it again.")
    if document.get("kind", "kernels") != "kernels":
        msg = "this command needs a kernels table"
        found, cure = f"a {document['kind']} table", "Make one with: perfml ingest"
        raise InputError(msg, where=str(path), found=found, cure=cure)
    return document


def _pandas(metadata: dict[bytes, bytes]) -> list[dict[str, Any]]:
    import json

    try:
        notes = json.loads(metadata.get(b"pandas", b"{}")).get("columns", [])
    except (ValueError, AttributeError):
        return []
    return [note for note in notes if isinstance(note, dict) and "name" in note]


def _joined(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join provenance: lists one after another, single facts where all files agree."""
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for document in documents for name in document):
        values = [document[name] for document in documents if name in document]
        if all(isinstance(value, list) for value in values):
            joined[name] = [each for value in values for each in value]
        elif name == "created":
            joined[name] = max(map(str, values))
        elif all(value == values[0] for value in values):
            joined[name] = values[0]
    return joined


def _runs(footer: Any) -> tuple[str, str] | None:
    """Return the first and last run_id of a file by name, from its statistics."""
    place = next(
        number
        for number in range(footer.num_columns)
        if footer.schema.column(number).path == "run_id"
    )
    low: list[str] = []
    high: list[str] = []
    for number in range(footer.num_row_groups):
        found = footer.row_group(number).column(place).statistics
        if found is None or not found.has_min_max or found.null_count:
            return None
        low.append(str(found.min))
        high.append(str(found.max))
    return (min(low), max(high)) if low else ("", "")


def _units(
    files: Sequence[Path], spans: Sequence[tuple[str, str] | None]
) -> tuple[tuple[Path, ...], ...]:
    """Put files together whose ranges of run_id overlap; without statistics, all of them."""
    known = [span for span in spans if span is not None]
    if len(known) < len(files):
        return (tuple(files),)
    units: list[list[int]] = []
    last = ""
    for place in sorted(range(len(files)), key=lambda place: known[place]):
        low, high = known[place]
        if units and low <= last:
            units[-1].append(place)
        else:
            units.append([place])
        last = max(last, high)
    ordered = sorted(sorted(unit) for unit in units)
    return tuple(tuple(files[place] for place in unit) for unit in ordered)


def row_groups(files: Iterable[Path]) -> Iterator[RowGroup]:
    """Yield the row groups of some files that hold rows."""
    for file in files:
        with readable(file):
            footer = pq.read_metadata(file)
        for index in range(footer.num_row_groups):
            if footer.row_group(index).num_rows:
                yield RowGroup(file, index)


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
            group.file, read_dictionary=[*CODED], memory_map=True, pre_buffer=False
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


def _outside(
    run: Codes, inside: npt.NDArray[np.bool_], time: Floats
) -> list[tuple[int, int, int, float, float]]:
    """Add up what ran inside and outside layers, by run, NaN where no launch has a time."""
    runs, first, which = np.unique(run, return_index=True, return_inverse=True)
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
