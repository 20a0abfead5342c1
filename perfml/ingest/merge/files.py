"""What lies on disk of a Kernels table: files, columns, provenance, and which may share a run.

Here to change: what is refused before any row is read, which column types go together, how rows
are read, and how the provenance of several files becomes one document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfml.errors import InputError, TableError
from perfml.ingest.merge.groups import LAUNCH_CLOCK
from perfml.metrics import load_catalogue
from perfml.tables import (
    CLOCK,
    KERNEL_COLUMNS,
    RUN_COLUMNS,
    document_in,
    readable,
    require_file,
    require_ours,
)

IDENTITY = (*RUN_COLUMNS, "iteration", "layer", "kernel", "kernel_index", "time_us")
"""The columns that decide where a launch belongs and what it weighs."""

OPTIONAL = ("launches", "process", "time_source", CLOCK, *LAUNCH_CLOCK)
"""Columns that say more of a launch where a table has them."""

TEXT = pa.dictionary(pa.int32(), pa.string())
"""How text is read: few distinct values in any stretch of rows, each of them once."""


@dataclass(frozen=True)
class KernelFiles:
    """A Kernels table on disk: one Parquet file, or all those of a folder."""

    path: Path  # what the user named
    files: tuple[Path, ...]  # the Parquet files, by name
    types: dict[str, Any]  # every column that some file has, and its Arrow type
    rows: int  # launches in all files
    # of one file, its document; of several, their sources, runs and warnings one after another
    provenance: dict[str, Any]
    pandas: dict[str, Any]  # the column types that pandas noted, by column

    @property
    def merged(self) -> list[str]:
        """The columns that are merged besides time and names, metrics in the catalogue's order."""
        names = ["ncu_time_us", *load_catalogue().names]
        return [name for name in names if name in self.types]

    def read(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the launches of all files as Arrow tables of one schema, `rows` at most each.

        A file that lacks one of the columns has missing values in it; text is `TEXT`. The next
        rows are read meanwhile. Raises `InputError` if a file is damaged, `TableError` if a launch
        has no kernel name.
        """
        text = [name for name in columns if self.types[name] == pa.string()]
        kinds = {name: TEXT if name in text else self.types[name] for name in columns}
        for file in self.files:
            done = 0
            for batch in _batches_of(file, columns, text, rows):
                table = _typed(batch, kinds)
                if "kernel" in columns and len(table):
                    _require_names(table.column("kernel").chunk(0), file, done)
                done += len(table)
                yield table


def _batches_of(
    file: Path, columns: Sequence[str], text: Sequence[str], rows: int
) -> Iterator[Any]:
    """Yield the batches of a file; one is read while the one before it is merged.

    `pyarrow.dataset` reads further ahead, up to all of the file, where merging is slower.
    """
    with readable(file), ThreadPoolExecutor(1) as reader:
        held = set(pq.read_schema(file).names)
        coded = [name for name in text if name in held]
        opened = pq.ParquetFile(file, read_dictionary=coded, memory_map=False, pre_buffer=False)
        wanted = [name for name in columns if name in held]
        batches = opened.iter_batches(batch_size=rows, columns=wanted)
        ahead = reader.submit(next, batches, None)
        while (batch := ahead.result()) is not None:
            ahead = reader.submit(next, batches, None)
            yield batch


def _typed(batch: Any, kinds: Mapping[str, Any]) -> Any:
    """Bring a batch to columns of given types."""
    held = set(batch.schema.names)
    arrays = [
        _cast(batch.column(name), kind) if name in held else pa.nulls(len(batch), kind)
        for name, kind in kinds.items()
    ]
    return pa.Table.from_arrays(arrays, names=list(kinds))


def _cast(array: Any, kind: Any) -> Any:
    if array.type == kind:
        return array
    if kind != TEXT:
        return array.cast(kind)
    if not pa.types.is_dictionary(array.type):
        return array.cast(pa.string()).dictionary_encode()
    indices, values = array.indices.cast(pa.int32()), array.dictionary.cast(pa.string())
    return pa.DictionaryArray.from_arrays(indices, values)


def _require_names(kernels: Any, file: Path, done: int) -> None:
    """Refuse a column of kernels, as `TEXT`, in which a launch has no name."""
    nameless = pc.index(kernels.dictionary, value="").as_py()
    codes = kernels.indices
    row = pc.index(codes, value=nameless).as_py() if nameless >= 0 else -1
    if row < 0 and codes.null_count:
        row = pc.index(pc.is_null(codes), value=True).as_py()
    if row >= 0:
        msg = "a launch has no kernel name"
        raise TableError(
            msg,
            where=f"{file}, row {done + row}",
            cure="Ingest the profile again; every row of a Kernels table names its kernel.",
        )


def kernel_files(path: str | Path) -> KernelFiles:
    """Look at a Kernels table on disk without reading its rows.

    Raises `InputError` if it is missing, holds no Parquet, or is a table of layers; `TableError` if
    a column that every Kernels table has is missing, or has no numbers where it must.
    """
    path = Path(path)
    if path.is_dir():
        found = (each for each in path.rglob("*.parquet") if _visible(each.relative_to(path)))
        files = tuple(sorted(each for each in found if each.is_file()))
        if not files:
            msg = "no Parquet file in this folder"
            cure = "Make one for each run with: perfml ingest RUN --out FOLDER/RUN.parquet"
            raise InputError(msg, where=str(path), cure=cure)
    else:
        require_file(path)
        files = (path,)
    known = pa.schema([])
    rows = 0
    documents: list[dict[str, Any]] = []
    pandas: dict[str, Any] = {}
    for file in files:
        with readable(file):
            footer = pq.read_metadata(file)
            schema = footer.schema.to_arrow_schema()
        _check(schema, file)
        known = _common(known, schema, file)
        rows += footer.num_rows
        documents.append(_provenance(footer.metadata or {}, file))
        for note in _pandas(footer.metadata or {}):
            pandas.setdefault(note["name"], note)
    provenance = documents[0] if len(files) == 1 else _joined(documents)
    types = {column.name: column.type for column in known}
    return KernelFiles(path, files, types, rows, provenance, pandas)


def _visible(path: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.parts)


def _check(schema: Any, path: Path) -> None:
    """Refuse a file that is no Kernels table, as `perfml.tables.read_table` does."""
    names = set(schema.names)
    if "kernel_names" in names:
        msg = "this command needs a kernels table"
        cure = "Make one with: perfml ingest"
        raise InputError(msg, where=str(path), found="a layers table", cure=cure)
    require_ours(schema.names, document_in(schema.metadata or {}, path), path)
    missing = [name for name in KERNEL_COLUMNS if name not in names]
    if missing:
        msg = f"columns are missing: {', '.join(missing)}"
        found = ", ".join(schema.names[:8])
        cure = "Such a table is made with: perfml ingest"
        raise TableError(msg, where=str(path), found=found, cure=cure)
    numeric = {"kernel_index", "time_us", *load_catalogue().names}
    for field in schema:
        if field.name in numeric and not _is_numeric(field.type):
            msg = f"column {field.name} must hold numbers"
            cure = "Ingest the profile again, or fix the column."
            raise TableError(msg, where=str(path), found=str(field.type), cure=cure)


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    tests = (types.is_floating, types.is_integer, types.is_null, types.is_boolean)
    return any(test(kind) for test in tests)


def _common(known: Any, schema: Any, path: Path) -> Any:
    """Return the schema that holds the columns which are merged, of this file and those before."""
    used = {*IDENTITY, *OPTIONAL, "ncu_time_us", *load_catalogue().names}
    own = pa.schema([(column.name, _plain(column)) for column in schema if column.name in used])
    try:
        return pa.unify_schemas([known, own], promote_options="permissive")
    except pa.ArrowTypeError as error:
        msg = "a column has another type than in the files before"
        cure = "Ingest the profiles again into one folder."
        raise TableError(msg, where=str(path), found=str(error)[:200], cure=cure) from error


def _plain(column: Any) -> Any:
    """Return the type of a column as it is read: text is plain, and a bare column has a type."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return pa.int64() if column.name == "launches" else pa.string()
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.string() if is_text else kind


def _provenance(metadata: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    document = document_in(metadata, path)
    if document.get("kind", "kernels") != "kernels":
        msg = "this command needs a kernels table"
        found, cure = f"a {document['kind']} table", "Make one with: perfml ingest"
        raise InputError(msg, where=str(path), found=found, cure=cure)
    return document


def _pandas(metadata: dict[bytes, bytes]) -> list[dict[str, Any]]:
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
            # what the runs of one folder share, such as the shapes of layers, is kept once
            each = {json.dumps(item, sort_keys=True): item for value in values for item in value}
            joined[name] = list(each.values())
        elif name == "created":
            joined[name] = max(map(str, values))
        elif all(value == values[0] for value in values):
            joined[name] = values[0]
    return joined
