"""The tables that walk through perfml: what their columns mean, and how they lie on disk.

*Kernels* holds one row a kernel launch, *Layers* one row a layer of one iteration of one run.
Both are plain pandas frames. Identity columns are listed here; every other numeric column that
the metric catalogue knows is a metric. On disk a table is Parquet with its provenance in the
file's metadata, so that a table never gets separated from where it came from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml import __version__
from perfml.errors import InputError, TableError
from perfml.util.files import parse_json
from perfml.util.files import replacing as replacing
from perfml.util.files import require_file as require_file
from perfml.util.words import count

METADATA_KEY = b"perfml"
"""Key of the provenance document in a Parquet file's schema metadata."""

RUN_COLUMNS = (
    "run_id",
    "workload",
    "backend",
    "precision",
    "batch",
    "device",
    "compute_capability",
)
"""What identifies a run: one process of one workload under one backend."""

KERNEL_COLUMNS = (
    *RUN_COLUMNS,
    "iteration",
    "layer",
    "kernel",
    "kernel_index",
    "grid",
    "block",
    "time_us",
)
"""Columns every Kernels table has, in this order, before the optional ones and the metrics.

``layer`` is missing for a launch outside every range. ``kernel_index`` is the launch order within
(run, iteration). ``time_us`` is missing when the source has no durations.
"""

MOVED_COLUMNS = (
    *("to_device_us", "to_device_bytes", "to_host_us", "to_host_bytes"),
    *("copied_us", "copied_bytes", "filled_us", "filled_bytes"),
)
"""What a layer copies from and to the host, copies on the device, and fills, before a kernel.

Microseconds in which no kernel runs, and bytes (`perfml.readers.timeline`).
"""

PRODUCT_COLUMNS = ("product_m", "product_n", "product_k", "product_bytes", "product_flops")
"""Of the largest product of matrices of a launch's layer its sizes and the bytes of an element.

``product_flops`` are those of all products of the layer, a multiply-add as two. Of a convolution
``product_n`` and ``product_k`` are the channels of a group, out and in
(`collectors.workloads.torch_models.work`).
"""

CLOCK = "sm_clock_mhz"
"""Column with the clock of the multiprocessors while a run was timed, MHz."""

KERNEL_OPTIONAL = (
    *("ncu_time_us", "time_source", "process", "metrics_iteration", "launches"),
    CLOCK,
    *(
        "device_id",
        "stream",
        "start_us",
        "gap_us",
        "replay",
        "phase",
        *MOVED_COLUMNS,
        *PRODUCT_COLUMNS,
    ),
)
"""Columns a Kernels table may have.

``ncu_time_us`` is the duration under the profiler (serialised, and with Nsight Compute the caches
flushed) where ``time_us`` comes from a pass without counters. ``time_source`` says which:
``timing``, ``apportioned``, ``ncu``, ``cupti``, ``nvprof``, ``nsys``, ``torch``, ``jax``,
``rocprofv3`` or ``trtexec``
(`perfml.account.time_sources` has them in words). ``process`` numbers the processes of a run that
was timed in several, from 1; iterations are numbered on through them. Of ranks, each of which is a
run, it is the rank, from 0.
`CLOCK` is what `perfml collect` measured beside the times, NaN where it did not.
``metrics_iteration`` is the profiled iteration whose counters the row carries. ``launches`` is how
many launches the row stands for (averages, deduplicated launches). A trace also has ``device_id``
(which of the devices in the file), ``stream``, ``start_us`` (since the first kernel) and ``gap_us``
(how long the device was idle since its kernel before; missing for its first operation). ``replay``
numbers the replay of a CUDA graph that the kernel is part of; missing outside one. ``phase`` says
what a step of a program that decodes token by token is for (`perfml.account.phases`). A program
that `perfml collect` timed has ``start_us``, ``gap_us``, and what it copies and fills
(`MOVED_COLUMNS`) where it does. A PyTorch model that `perfml collect` ran has the sizes of its
layers' products (`PRODUCT_COLUMNS`).
"""

LAYER_COLUMNS = (*RUN_COLUMNS, "iteration", "layer", "kernels", "kernel_names", "time_us")
"""Columns every Layers table has.

``kernels`` is how many launches; ``kernel_names`` the names of their rows, one a line, in launch
order. ``time_us`` is how long the device was busy with the layer (`perfml.account`): where the
starts of its launches are known the length of their union, else the sum of their times. Of several
devices it is the one that was busy longest.
"""

CLOCK_COLUMNS = ("kernels_us", "wall_us", "device_id", "streams")
"""What the starts of its launches tell of a layer.

``kernels_us`` is the sum of the launches' times, which is more than ``time_us`` where they run side
by side; ``wall_us`` goes from the first start to the last end and is missing where a start is not
known; ``device_id`` is the device that was busy longest; ``streams`` is how many the layer is on.
"""

LAYER_OPTIONAL = ("process", "time_source", CLOCK, *CLOCK_COLUMNS)
"""Columns that a Layers table has where its kernels tell them.

``time_source`` is that of the layer's launches, or several of them as ``apportioned+timing``.
"""

BY_KERNEL = (
    "The profile names no layers, so each kernel stands as a layer, and its launches as repeats."
)
"""Among the warnings of a Layers table whose launches lie in no range."""


@dataclass(frozen=True, repr=False)
class Kernels:
    """What a reader returns: one row a kernel launch, where it came from, what went wrong.

    Attributes
    ----------
    frame
        The Kernels table (see `KERNEL_COLUMNS`).
    provenance
        Facts about the source, one flat mapping of JSON values: ``path``, ``sha256``, ``format``,
        ``tool``, ``tool_version``, ``device``, ...
    warnings
        Sentences that the user has to see; nothing is dropped without one.
    """

    frame: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _screen(self.frame, "launches", self.warnings)

    def _repr_html_(self) -> str:
        return _html(self.frame, "launches", self.warnings)


@dataclass(frozen=True, repr=False)
class Table:
    """A table read back from disk, with its provenance document."""

    frame: pd.DataFrame
    kind: str
    provenance: dict[str, Any]

    def __repr__(self) -> str:
        rows = "launches" if self.kind == "kernels" else "rows"
        return _screen(self.frame, rows, self.provenance.get("warnings", ()))

    def _repr_html_(self) -> str:
        rows = "launches" if self.kind == "kernels" else "rows"
        return _html(self.frame, rows, self.provenance.get("warnings", ()))


def _sizes(frame: pd.DataFrame, rows: str) -> str:
    sizes = count(len(frame), "launch" if rows == "launches" else "row", rows)
    if rows != "launches":
        sizes += f" of {count(frame['layer'].nunique(), 'layer')}"
    return f"{sizes}, {count(len(metric_columns(frame)), 'metric')}"


def _screen(frame: pd.DataFrame, rows: str, warnings: Iterable[str]) -> str:
    from perfml.util.shown import runs, screen

    found = runs(frame, rows)
    told = [rows, "µs an iteration", "iterations", "device"]
    order = ["workload", "backend", "precision", "batch", *told]
    title = _sizes(frame, rows)
    return screen(title, warnings, found[order], rest=".frame")


def _html(frame: pd.DataFrame, rows: str, warnings: Iterable[str]) -> str:
    from perfml.util.shown import runs, section

    return section(_sizes(frame, rows), warnings, runs(frame, rows))


def metric_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of `frame` that the metric catalogue knows, in the catalogue's order."""
    from perfml.metrics import load_catalogue

    held = set(frame.columns)
    return [name for name in load_catalogue().names if name in held]


def validate_kernels(frame: pd.DataFrame, *, where: str = "kernels table") -> pd.DataFrame:
    """Check a Kernels table and return it with its columns in the standard order.

    Raises
    ------
    TableError
        If a column is missing, a launch has no name, or a column that must be numeric is not.
    """
    _require(frame, KERNEL_COLUMNS, where, "perfml ingest")
    unnamed = _unnamed(frame["kernel"])
    if unnamed.any():
        msg = "a launch has no kernel name"
        raise TableError(
            msg,
            where=f"{where}, row {int(np.flatnonzero(unnamed)[0])}",
            cure="Ingest the profile again; every row of a Kernels table names its kernel.",
        )
    _require_numeric(frame, ("kernel_index", "time_us", *metric_columns(frame)), where)
    return _ordered(frame, (*KERNEL_COLUMNS, *KERNEL_OPTIONAL))


def validate_layers(frame: pd.DataFrame, *, where: str = "layers table") -> pd.DataFrame:
    """Check a Layers table and return it with its columns in the standard order.

    Raises
    ------
    TableError
        If a column is missing, a numeric column is not numeric, or a time is not positive.
    """
    _require(frame, LAYER_COLUMNS, where, "perfml merge")
    _require_numeric(frame, ("time_us", "kernels", *metric_columns(frame)), where)
    bad = ~(frame["time_us"].to_numpy(dtype=float) > 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = "a layer has no positive time"
        raise TableError(
            msg,
            where=f"{where}, row {row} (layer {frame['layer'].iloc[row]})",
            found=str(frame["time_us"].iloc[row]),
            cure="Merge again from kernels that have times.",
        )
    return _ordered(frame, (*LAYER_COLUMNS, *LAYER_OPTIONAL))


def write_table(
    frame: pd.DataFrame, path: str | Path, *, kind: str, provenance: dict[str, Any]
) -> None:
    """Write a table as Parquet with its provenance, whole or not at all.

    Parameters
    ----------
    frame
        A Kernels or Layers table.
    path
        Where it goes; an existing file is replaced only when the new one is complete.
    kind
        ``"kernels"`` or ``"layers"``.
    provenance
        JSON values; stored under the key `METADATA_KEY` beside the perfml version.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    document = {**provenance, "kind": kind, "perfml": __version__}
    # attrs travel into pandas' own metadata, where they would be a second, unchecked provenance.
    plain = frame.copy(deep=False)
    plain.attrs = {}
    table = pa.Table.from_pandas(plain, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps(document).encode()}
    levels = [column.name for column in table.schema if pa.types.is_floating(column.type)]
    counted = [name for name in table.column_names if name not in set(levels)]
    bare = table.replace_schema_metadata(None)
    # Levels by bytes of like weight: a third less than by dictionaries. With Arrow's own schema
    # inside, the provenance would be there twice.
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(
            temporary,
            bare.schema,
            compression="zstd",
            compression_level=9,
            use_dictionary=counted,
            use_byte_stream_split=levels,
            store_schema=False,
        ) as file,
    ):
        file.write_table(bare)
        file.add_key_value_metadata(metadata)


def read_table(path: str | Path, *, kind: str | None = None) -> Table:
    """Read a table that `write_table` wrote, and validate it.

    Parameters
    ----------
    path
        A Parquet file.
    kind
        ``"kernels"`` or ``"layers"`` when only that will do.

    Raises
    ------
    InputError
        If the file is missing, is no Parquet file, or is not the table that was asked for.
    TableError
        If the table in it breaks the rules of its kind.
    """
    import pyarrow.parquet as pq

    path = Path(path)
    require_file(path)
    with readable(path):
        table = pq.read_table(path)
    document = document_in(table.schema.metadata or {}, path)
    frame = table.to_pandas()
    require_ours(list(map(str, frame.columns)), document, path)
    found = document.get("kind") or ("layers" if "kernel_names" in frame.columns else "kernels")
    if kind is not None and found != kind:
        cure = "perfml merge" if kind == "layers" else "perfml ingest"
        msg = f"this command needs a {kind} table"
        raise InputError(
            msg,
            where=str(path),
            found=f"a {found} table",
            cure=f"Make one with: {cure}",
        )
    check = validate_layers if found == "layers" else validate_kernels
    return Table(check(frame, where=str(path)), found, document)


def require_ours(columns: Sequence[str], document: Mapping[str, Any], path: Path) -> None:
    """Raise `InputError` for a Parquet file that another program wrote for another purpose.

    A table without perfml's provenance is taken where it has the columns of one of perfml's.
    """
    if "kind" in document or any(set(names) <= set(columns) for names in _TABLES):
        return
    msg = "not a table of perfml"
    found = ", ".join(columns[:8]) or "none"
    cure = "Profiler exports become tables with: perfml ingest FILE... --out kernels.parquet"
    raise InputError(msg, where=str(path), found=f"columns {found}", cure=cure)


_TABLES = (KERNEL_COLUMNS, LAYER_COLUMNS)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of a damaged file into an `InputError`."""
    import pyarrow as pa

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


def document_in(metadata: dict[bytes, bytes], path: Path) -> dict[str, Any]:
    """Return the provenance in a Parquet file's metadata; empty where it has none.

    Raises `InputError` if there is something else in its place.
    """
    try:
        document = parse_json(metadata.get(METADATA_KEY, b"{}"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        msg = "the provenance in this file is damaged"
        raise InputError(msg, where=str(path), cure="Ingest it again.")
    return document


def _require(frame: pd.DataFrame, columns: Sequence[str], where: str, maker: str) -> None:
    if not isinstance(frame, pd.DataFrame):
        msg = "a pandas table is needed"
        cure = "perfml.read(FILE) makes one of a profile; of another library's table, .to_pandas()."
        raise TableError(msg, where=where, found=f"a {type(frame).__name__}", cure=cure)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        msg = f"columns are missing: {', '.join(missing)}"
        raise TableError(
            msg,
            where=where,
            found=", ".join(map(str, frame.columns[:8]))
            + (", ..." if len(frame.columns) > 8 else ""),
            cure=f"Such a table is made with: {maker}",
        )


def _unnamed(kernels: pd.Series[Any]) -> npt.NDArray[np.bool_]:
    """Tell which launches have no name."""
    if isinstance(kernels.dtype, pd.CategoricalDtype):
        nameless = np.flatnonzero(kernels.cat.categories == "")
        codes = kernels.cat.codes.to_numpy()
        return (codes < 0) | np.isin(codes, nameless)
    empty = (kernels if kernels.dtype == pd.StringDtype() else kernels.astype("string")) == ""
    return np.asarray(empty.fillna(value=True), dtype=bool)


def _require_numeric(frame: pd.DataFrame, columns: Sequence[str], where: str) -> None:
    kinds = dict(zip(frame.columns, frame.dtypes, strict=True))
    for name in columns:
        if not pd.api.types.is_numeric_dtype(kinds[name]):
            sample = frame[name].dropna()
            msg = f"column {name} must hold numbers"
            raise TableError(
                msg,
                where=where,
                found=repr(sample.iloc[0])[:80] if len(sample) else str(frame[name].dtype),
                cure="Ingest the profile again, or fix the column.",
            )


def _ordered(frame: pd.DataFrame, first: Sequence[str]) -> pd.DataFrame:
    metrics = metric_columns(frame)
    known = [name for name in first if name in frame.columns]
    rest = [name for name in frame.columns if name not in known and name not in metrics]
    order = [*known, *rest, *metrics]
    return frame.copy(deep=False) if order == list(frame.columns) else frame[order]
