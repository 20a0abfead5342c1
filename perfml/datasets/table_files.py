"""Tables in files: in parts of one folder, or saved as CSV with ``to_csv`` or from a spreadsheet.

A repository takes no large files, so a large data set lies in parts, ``layers-00.parquet``,
``layers-01.parquet``, ...: whole runs each, with the manifests of these runs. Read together they
are one table.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.errors import InputError
from perfml.readers import Source
from perfml.tables import (
    KERNEL_COLUMNS,
    LAYER_COLUMNS,
    Table,
    document_in,
    readable,
    require_ours,
    validate_kernels,
    validate_layers,
)

_NUMBERS = {"batch", "iteration", "kernel_index", "kernels", "time_us"}
_TEXTS = (set(KERNEL_COLUMNS) | set(LAYER_COLUMNS) | {"time_source"}) - _NUMBERS
_MISSING = ["", "nan", "NaN", "<NA>"]


def read_csv_table(source: Source) -> Table | None:
    """Read a table that was saved as CSV; None if it has not the columns of one.

    The provenance was lost with the Parquet file: only the file's name is known. Cells are parted
    by commas, semicolons (with decimal commas) or tabs. Raises `InputError` if it is no whole
    table, `TableError` if it breaks the rules of its kind.
    """
    header, separator = _header(source)
    try:
        names = set(next(csv.reader([header], delimiter=separator), []))
    except csv.Error:  # no text: a carriage return or a null byte within the line
        return None
    kinds = {"layers": LAYER_COLUMNS, "kernels": KERNEL_COLUMNS}
    kind = next((each for each, columns in kinds.items() if names >= set(columns)), None)
    if kind is None:
        return None
    where = str(source.path)
    frame = _parsed(source, separator, dict.fromkeys(sorted(_TEXTS & names), "string"))
    frame["batch"] = frame["batch"].astype("Int64")
    whole = validate_layers if kind == "layers" else validate_kernels
    return Table(whole(frame, where=where), kind, {"source": source.path.name})


def read_own_table(path: Path) -> pd.DataFrame:
    """Read a table with columns of the user's own, CSV or Parquet.

    Raises `InputError` if it is neither, or no whole table.
    """
    source = Source(path)
    if source.head.startswith(b"PAR1"):
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise _damaged(str(path), found=str(error).splitlines()[0][:120]) from error
    if b"\x00" in source.head[:1024] and not source.head.startswith((b"\xff\xfe", b"\xfe\xff")):
        msg = "neither CSV nor Parquet"
        cure = "A profile needs no --target: perfml rank FILE. Else save the table as CSV."
        raise InputError(msg, where=str(path), cure=cure)
    return _parsed(source, _header(source)[1])


def _header(source: Source) -> tuple[str, str]:
    """Return the first line of a CSV, and what parts its cells."""
    header = source.head_text().removeprefix("\ufeff").partition("\n")[0].strip()
    return header, max(",;\t", key=header.count)


def _parsed(source: Source, separator: str, types: dict[str, Any] | None = None) -> pd.DataFrame:
    """Return the rows of a CSV; semicolons come with decimal commas."""
    where = str(source.path)
    text = source.text().removeprefix("\ufeff")
    names = whole_rows(text, separator, where)[0]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _damaged(where, found=f"two columns are called {twice!r}")
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal="," if separator == ";" else ".",
            dtype=types,
            keep_default_na=False,
            na_values=_MISSING,
        )
    except (ValueError, pd.errors.ParserError) as error:
        raise _damaged(where, found=str(error).splitlines()[0][:120]) from error
    return frame.drop(columns=[name for name in frame.columns if name.startswith("Unnamed: ")])


def whole_rows(text: str, separator: str, where: str) -> list[list[str]]:
    """Return the rows that hold anything, the header first.

    Raises `InputError` if one is shorter or longer than the header: pandas would fill or shift it.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    found: list[list[str]] = []
    try:
        for row in filter(None, rows):
            found.append(row)
            if len(row) != len(found[0]):
                place = f"{where}:{rows.line_num}"
                raise _damaged(place, found=f"{len(row)} of {len(found[0])} cells")
    except csv.Error as error:
        place = f"{where}:{rows.line_num}"
        raise _damaged(place, found=str(error)[:120]) from error
    return found


def _damaged(where: str, *, found: str) -> InputError:
    msg = "this CSV is no whole table"
    cure = "Save it again, or keep tables as Parquet, which perfml merge writes."
    return InputError(msg, where=where, found=found, cure=cure)


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
