"""The published ``dataset.csv``: ``type``, the 19 metrics, ``time`` in microseconds."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.datasets.table_files import whole_rows
from perfml.errors import InputError, TableError
from perfml.metrics import PUBLISHED
from perfml.tables import RUN_COLUMNS, require_file, validate_layers
from perfml.util.files import sha256_of

COLUMNS: tuple[str, ...] = ("type", *PUBLISHED, "time")
"""Columns of the published schema, in its order."""

NAZIR2024_SHA256 = "205d2fcbf0df74f1b7c88dcdb356b5859f7d6800f328a7817bc89a4c4a80acbb"
"""The file of the study: 261 rows, a GeForce GTX 1050 Ti, two layers of YOLOv4-Tiny."""

_NAZIR2024_FIRST_LAYER_ROWS = 135
"""Rows 1-135 end in LF and the rest in CRLF; times fall into the same two blocks (layer 3, 20)."""


def from_published(path: str | Path) -> pd.DataFrame:
    """Read a CSV in the published schema into a Layers table.

    Parameters
    ----------
    path
        The file. Columns may come in any order; an empty metric cell is an undefined metric.

    Returns
    -------
    DataFrame
        A Layers table: ``backend`` is the file's ``type``, ``time_us`` its ``time``. A script run
        (each type at most once, in the file's order of types) becomes one ``run_id`` and one
        ``iteration``. ``layer`` is known for the study's own file, by its sha256; for any other
        it is missing, with a `UserWarning`.

    Raises
    ------
    InputError
        If a column is missing, unknown or there twice, a row has too few or too many cells, or a
        cell is no number; the message names the line and the column.
    """
    path = Path(path)
    require_file(path)
    content = path.read_bytes()
    header, lines = _rows(content, path)
    frame = pd.DataFrame(lines, columns=header)
    numbers = {
        name: _numbers(frame[name], name, path, required=name == "time") for name in COLUMNS[1:]
    }
    backend = frame["type"].str.strip()
    blank = np.flatnonzero((backend == "").to_numpy())
    if len(blank):
        msg = "a row has no type"
        raise InputError(
            msg, where=_where(path, blank[0], "type"), cure="Name its library, such as cublas."
        )
    known = sha256_of(content) == NAZIR2024_SHA256
    layers = _identity(backend, known)
    if not known:
        warnings.warn(
            f"the layers of {path.name} are unknown, so models are tested on random splits alone. "
            "It has no layer column and is not the published file",
            stacklevel=2,
        )
    layers["kernels"] = pd.array([pd.NA] * len(layers), dtype="Int64")
    layers["kernel_names"] = pd.array([pd.NA] * len(layers), dtype="string")
    layers["time_us"] = numbers["time"]
    metrics = pd.DataFrame({name: numbers[name] for name in PUBLISHED})
    return validate_layers(pd.concat([layers, metrics], axis=1), where=path.name)


def to_published(layers: pd.DataFrame) -> pd.DataFrame:
    """Return a Layers table in the published schema.

    Parameters
    ----------
    layers
        A Layers table. A metric it does not have becomes an empty column.

    Returns
    -------
    DataFrame
        The 21 columns of the schema, one row a layer, time in microseconds.

    Raises
    ------
    TableError
        If a row has no backend, which the schema needs as ``type``.
    """
    layers = validate_layers(layers)
    nameless = layers["backend"].isna()
    if nameless.any():
        msg = "a layer has no backend, which the published schema needs as its type"
        raise TableError(
            msg,
            where=f"row {int(np.flatnonzero(nameless.to_numpy())[0])}",
            cure="Ingest with --label backend=NAME.",
        )
    published = layers.reindex(columns=list(PUBLISHED)).astype(float)
    published.insert(0, "type", layers["backend"].astype(str))
    published["time"] = layers["time_us"].astype(float)
    return published


def _rows(content: bytes, path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = "not UTF-8 text"
        raise InputError(
            msg, where=str(path), found=f"byte {error.start}", cure="Save it as UTF-8."
        ) from error
    first, *body = whole_rows(text, ",", str(path)) or [[]]
    header = [name.strip() for name in first]
    _check_header(header, path)
    if not body:
        msg = "the file has a header and no rows"
        raise InputError(msg, where=str(path), cure="Give a file with at least one row.")
    return header, body


def _check_header(header: list[str], path: Path) -> None:
    missing = [name for name in COLUMNS if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    twice = sorted({name for name in header if header.count(name) > 1})
    if not (missing or unknown or twice):
        return
    faults = [
        f"{what} {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
        for what, names in (("missing:", missing), ("unknown:", unknown), ("twice:", twice))
        if names
    ]
    msg = "not the published schema (type, the 19 metrics, time)"
    raise InputError(
        msg,
        where=f"{path}:1",
        found="; ".join(faults)[:400],
        cure="Profiler exports become tables with: perfml ingest FILE... --out kernels.parquet",
    )


def _numbers(
    cells: pd.Series[str], name: str, path: Path, *, required: bool
) -> npt.NDArray[np.float64]:
    text = cells.str.strip()
    values = pd.to_numeric(text, errors="coerce").to_numpy(dtype=float, copy=True)
    finite = np.isfinite(values)
    # pandas before 3 is off by a unit in the last place of one number in five
    values[finite] = [float(each) for each in text[finite]]
    empty = (text == "").to_numpy()
    bad = ~np.isfinite(values) & ~empty
    if required:
        bad |= empty | ~(values > 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = "a time must be a positive number" if required else "a metric must be a number"
        raise InputError(
            msg,
            where=_where(path, row, name),
            found=repr(cells.iloc[row])[:60],
            cure="Correct the cell" + ("." if required else ", or leave it empty."),
        )
    return np.asarray(values, dtype=np.float64)


def _where(path: Path, row: int, column: str) -> str:
    return f"{path}:{int(row) + 2}, column {column}"


def _identity(backend: pd.Series[str], known: bool) -> pd.DataFrame:
    """Return the run columns; repeats are counted as script runs, types in order of appearance."""
    order, _ = pd.factorize(backend)
    # the script writes its types in a fixed order, so an order that does not rise starts a new run
    starts = np.concatenate([[True], order[1:] <= order[:-1]])
    run = np.cumsum(starts) - 1
    facts: dict[str, object] = dict.fromkeys(RUN_COLUMNS, pd.NA)
    if known:
        facts |= {
            "workload": "yolov4_tiny",
            "precision": "fp32",
            "batch": 1,
            "device": "GeForce GTX 1050 Ti",
            "compute_capability": "6.1",
        }
    frame = pd.DataFrame({name: [value] * len(backend) for name, value in facts.items()})
    for name in frame.columns:
        frame[name] = frame[name].astype("Int64" if name == "batch" else "string")
    frame["run_id"] = pd.array([f"run_{number:03d}" for number in run], dtype="string")
    frame["backend"] = backend.astype("string")
    frame["iteration"] = run
    rows = np.arange(len(backend))
    names = np.where(rows < _NAZIR2024_FIRST_LAYER_ROWS, "conv_03", "conv_20")
    frame["layer"] = pd.Series(names if known else [pd.NA] * len(backend), dtype="string")
    return frame
