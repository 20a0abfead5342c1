"""A table in several files: ``layers-00.parquet``, ``layers-01.parquet``, ... of one folder.

A repository takes no large files, so a large data set lies in parts: whole runs each, with the
manifests of these runs. Read together they are one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.errors import InputError
from perfml.tables import (
    Table,
    document_in,
    readable,
    require_ours,
    validate_kernels,
    validate_layers,
    write_table,
)

LARGEST = 4 << 20
"""Bytes that a part has at most."""


def part_files(folder: Path, kind: str) -> list[Path]:
    """Return the parts of a folder's Kernels or Layers table, in order; there may be none."""
    return sorted(folder.glob(f"{kind}-[0-9][0-9].parquet"))


def read_parts(folder: Path, kind: str) -> Table:
    """Read a table that lies in parts.

    Parameters
    ----------
    folder
        Where they are.
    kind
        ``kernels`` or ``layers``.

    Returns
    -------
    Table
        All rows. The provenance is that of the first part, with the runs of all.

    Raises
    ------
    InputError
        If there are none, or one is damaged.
    TableError
        If the table breaks the rules of its kind.
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


def write_parts(
    frame: pd.DataFrame,
    folder: Path,
    *,
    kind: str,
    provenance: Mapping[str, Any],
    largest: int = LARGEST,
) -> list[Path]:
    """Write a table in parts of whole runs, none larger than `largest` bytes.

    Parts of an older table in the folder are removed once all new ones are written.

    Raises
    ------
    InputError
        If a single run is larger, or there would be more than a hundred parts.
    """
    old = set(part_files(folder, kind))
    runs = list(dict.fromkeys(frame["run_id"]))
    manifests = {run.get("run_id"): run for run in provenance.get("runs", [])}
    shared = {name: value for name, value in provenance.items() if name != "runs"}
    written: list[Path] = []
    while runs:
        path = folder / f"{kind}-{len(written):02d}.parquet"
        fitting = len(runs)
        while True:
            chosen = runs[:fitting]
            told = {**shared, "runs": [manifests[run] for run in chosen if run in manifests]}
            rows = frame[frame["run_id"].isin(chosen)].reset_index(drop=True)
            write_table(rows, path, kind=kind, provenance=told)
            size = path.stat().st_size
            if size <= largest:
                break
            if fitting == 1 or len(written) > 98:
                path.unlink()
                msg = "a part would be too large"
                found = f"{size / 2**20:.1f} MiB for {fitting} runs"
                raise InputError(msg, where=str(path), found=found, cure="Keep fewer columns.")
            # a little below what the measured size promises, so that one try more is enough
            fitting = max(1, min(fitting - 1, int(fitting * largest / size * 0.95)))
        written.append(path)
        runs = runs[fitting:]
    for path in old - set(written):
        path.unlink()
    return written
