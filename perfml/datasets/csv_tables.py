"""Kernels and Layers tables that somebody saved as CSV, with ``to_csv`` or from a spreadsheet."""

from __future__ import annotations

import csv
import io

import pandas as pd

from perfml.errors import InputError
from perfml.readers import Source
from perfml.tables import (
    KERNEL_COLUMNS,
    LAYER_COLUMNS,
    Table,
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
    header = source.head_text().removeprefix("\ufeff").partition("\n")[0].strip()
    separator = max(",;\t", key=header.count)
    try:
        names = set(next(csv.reader([header], delimiter=separator), []))
    except csv.Error:  # no text: a carriage return or a null byte within the line
        return None
    kinds = {"layers": LAYER_COLUMNS, "kernels": KERNEL_COLUMNS}
    kind = next((each for each, columns in kinds.items() if names >= set(columns)), None)
    if kind is None:
        return None
    where = str(source.path)
    text = source.text().removeprefix("\ufeff")
    whole_rows(text, separator, where)
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal="," if separator == ";" else ".",
            dtype=dict.fromkeys(sorted(_TEXTS & names), "string"),
            keep_default_na=False,
            na_values=_MISSING,
        )
    except (ValueError, pd.errors.ParserError) as error:
        raise _damaged(where, found=str(error).splitlines()[0][:120]) from error
    frame = frame.drop(columns=[name for name in frame.columns if name.startswith("Unnamed: ")])
    frame["batch"] = frame["batch"].astype("Int64")
    whole = validate_layers if kind == "layers" else validate_kernels
    return Table(whole(frame, where=where), kind, {"source": source.path.name})


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
