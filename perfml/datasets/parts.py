"""A table in several files: ``layers-00.parquet``, ``layers-01.parquet``, ... of one folder.

A repository takes no large files, so a large data set lies in parts: whole runs each, with the
manifests of these runs. Read together they are one table.
"""

from __future__ import annotations

from pathlib import Path

from perfml.errors import InputError
from perfml.tables import (
    Table,
    document_in,
    readable,
    require_ours,
    validate_kernels,
    validate_layers,
)


def part_files(folder: Path, kind: str) -> list[Path]:
    """Return the parts of a folder's Kernels or Layers table, in order; there may be none."""
    return sorted(folder.glob(f"{kind}-[0-9][0-9].parquet"))


def read_parts(folder: Path, kind: str) -> Table:
    """Read a table that lies in parts.

    `kind` is ``kernels`` or ``layers``. The provenance is that of the first part, with the runs of
    all. Raises `InputError` if there are none, or one is damaged; `TableError` if the table breaks
    the rules of its kind.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = part_files(folder, kind)
    if not files:
        msg = f"there are no parts of a {kind} table"
        raise InputError(
            msg, where=str(folder), cure="Name another folder, or install perfml again."
        )
    tables, documents = [], []
    for path in files:
        with readable(path):
            table = pq.read_table(path)
        document = document_in(table.schema.metadata or {}, path)
        require_ours(table.column_names, document, path)
        tables.append(table.replace_schema_metadata(None))
        documents.append(document)
    with readable(files[0]):
        # permissive: text has another width in parts of before
        frame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    check = validate_layers if kind == "layers" else validate_kernels
    runs = [run for document in documents for run in document.get("runs", [])]
    provenance = {**documents[0], **({"runs": runs} if runs else {})}
    return Table(check(frame, where=str(folder)), kind, provenance)
