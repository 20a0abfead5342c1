"""Write finished layers to Parquet as they come, and count what they hold.

Here to change: columns, types and row groups of the result, its provenance, and the counts that
the command line prints (`MergeResult`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from perfml import __version__
from perfml.account.time_sources import counted_note
from perfml.ingest.merge.files import TEXT, KernelFiles
from perfml.ingest.merge.groups import Coverage, clock_columns, coverage_sentences, joined
from perfml.ingest.merge.rule import Outside, unattributed_time
from perfml.tables import LAYER_OPTIONAL, METADATA_KEY, RUN_COLUMNS
from perfml.util.json_values import json_object

ROW_GROUP = 1 << 16
"""Layers in a row group of the result, at least."""


class Run(TypedDict):
    """One run of a table."""

    run_id: str | None
    workload: str | None
    backend: str | None
    precision: str | None
    batch: int | None
    device: str | None
    rows: int
    layers: int
    iterations: int
    us_per_iteration: float


@dataclass
class MergeResult:
    """What a merge on disk did.

    Attributes
    ----------
    rows
        Rows written: layers of iterations of runs.
    layers
        Distinct names of layers.
    kernels
        Launches read, those outside layers included.
    runs
        One `Run` each.
    unattributed
        One `Outside` a run.
    coverage
        The metrics of which some launches were not measured.
    sources
        Rows by where their time comes from, as the column ``time_source`` has it.
    """

    rows: int = 0
    layers: int = 0
    kernels: int = 0
    runs: list[Run] = field(default_factory=list)
    unattributed: list[Outside] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)

    JSON: ClassVar = (
        *("kernels", "rows", "layers", "runs", "unattributed", "coverage", "time_notes"),
    )

    @property
    def warnings(self) -> list[str]:
        """What a user has to know of launches that were not measured."""
        return coverage_sentences(self.coverage, self.rows)

    @property
    def time_notes(self) -> list[str]:
        """What a user has to know of times that come from under a profiler."""
        note = counted_note(self.sources, self.rows)
        return [] if note is None else [note]


class Tally:
    """What a merge tells of its runs, counted while it goes; a batch has whole runs."""

    def __init__(self) -> None:
        self.kernels = 0
        self._names: set[str] = set()
        self._runs: list[Run] = []
        self._outside: list[Outside] = []
        self._coverage: list[Coverage] = []
        self._sources: Counter[str] = Counter()

    @property
    def rows(self) -> int:
        """Layers of iterations of runs so far."""
        return sum(run["rows"] for run in self._runs)

    def add_launches(self, launches: pd.DataFrame) -> None:
        """Count launches in and outside layers."""
        self.kernels += len(launches)
        outside: Any = _plain(unattributed_time(launches)).to_dict("records")
        self._outside += outside

    def add_layers(self, layers: pd.DataFrame, coverage: list[Coverage]) -> None:
        """Count finished layers."""
        self._coverage += coverage
        if "time_source" in layers.columns:
            of_source = layers["time_source"].value_counts()
            self._sources.update(
                {str(source): int(rows) for source, rows in of_source.items() if rows}
            )
        by_run = layers.groupby("run_id", sort=False, observed=True, dropna=False)
        counts = by_run.agg(
            rows=("time_us", "size"),
            layers=("layer", "nunique"),
            iterations=("iteration", lambda numbers: numbers.nunique(dropna=False)),
            time_us=("time_us", "sum"),
        )
        identity = _plain(layers[list(RUN_COLUMNS)].drop_duplicates("run_id"))
        for run, row in zip(identity.to_dict("records"), counts.to_dict("records"), strict=True):
            each = row.pop("time_us") / max(row["iterations"], 1)
            found: Any = {name: run[name] for name in Run.__annotations__ if name in run}
            self._runs.append(found | row | {"us_per_iteration": round(each, 2)})
        self._names.update(layers["layer"].unique())

    def summary(self) -> MergeResult:
        """Return what was counted."""
        return MergeResult(
            self.rows,
            len(self._names),
            self.kernels,
            self._runs,
            self._outside,
            joined(self._coverage),
            self._sources,
        )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return text as plain objects, None where missing: categories differ between parts."""
    texts = [name for name in frame.columns if not pd.api.types.is_float_dtype(frame[name])]
    return frame.assign(
        **{name: frame[name].astype(object).where(frame[name].notna(), None) for name in texts}
    )


class Writer:
    """Writes finished layers to one Parquet file, in row groups of `ROW_GROUP` and more."""

    def __init__(self, path: Path, files: KernelFiles) -> None:
        self._files = files
        same = (*RUN_COLUMNS, "iteration", "layer")
        types = {name: files.types[name] for name in same}
        types |= {"kernels": pa.int64(), "kernel_names": pa.string(), "time_us": pa.float64()}
        own = {name: files.types[name] for name in LAYER_OPTIONAL if name in files.types}
        types |= own | dict.fromkeys(clock_columns(files.types), pa.float64())
        types |= dict.fromkeys(files.merged, pa.float64())
        text = [name for name, kind in types.items() if kind == pa.string()]
        self._schema = pa.schema(
            [(name, TEXT if name in text else kind) for name, kind in types.items()]
        )
        self._waiting: list[Any] = []
        self._count = 0
        # text is written from dictionaries but reads back as plain text: no Arrow schema inside
        self._file = pq.ParquetWriter(
            path, self._schema, compression="zstd", use_dictionary=text, store_schema=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.close()

    def note(self, merged: MergeResult) -> None:
        """Store the provenance, and the column types that pandas noted of the kernels."""
        document = {
            **self._files.provenance,
            "weights": "own",
            "unattributed": [
                {name: _without_nan(value) for name, value in row.items()}
                for row in merged.unattributed
            ],
            "warnings": [*self._files.provenance.get("warnings", []), *merged.warnings],
            "coverage": [json_object(metric) for metric in merged.coverage],
            "kind": "layers",
            "perfml": __version__,
        }
        notes = [
            self._files.pandas[name] for name in self._schema.names if name in self._files.pandas
        ]
        pandas = {"index_columns": [], "column_indexes": [], "columns": notes}
        self._file.add_key_value_metadata(
            {METADATA_KEY: json.dumps(document).encode(), b"pandas": json.dumps(pandas).encode()}
        )

    def add(self, layers: pd.DataFrame) -> None:
        """Write some layers, or keep them until there are enough."""
        arrays = [_array(layers[field.name], field.type) for field in self._schema]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._count += len(layers)
        if self._count >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._count:
            return
        # one dictionary for all: Parquet writes text in full after the first that differs
        table = pa.concat_tables(self._waiting).unify_dictionaries()
        self._file.write_table(table, row_group_size=self._count)
        self._waiting, self._count = [], 0


def _array(column: pd.Series[Any], kind: Any) -> Any:
    if kind != TEXT:
        return pa.array(column, type=kind, from_pandas=True)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype("category")
    codes = column.cat.codes.to_numpy().astype(np.int32)
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(column.cat.categories, pa.string()))


def _without_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
