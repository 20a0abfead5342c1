"""Write finished layers to Parquet as they come, and count what they hold.

Here to change: columns, types and row groups of the result, its provenance, and the counts that
the command line prints (`Merged`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfml._version import __version__
from perfml.partitioned.files import KernelFiles
from perfml.partitioned.rows import MISSING, Codes, Vocabularies, distinct
from perfml.tables import LAYER_COLUMNS, METADATA_KEY, RUN_COLUMNS

ROW_GROUP = 1 << 16
"""Layers in a row group of the result, at least."""


@dataclass
class Merged:
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
        One mapping a run: its identity, ``rows``, ``layers``, ``iterations``, ``time_us``.
    unattributed
        One mapping a run, as `perfml.merge.unattributed` has them.
    """

    rows: int = 0
    layers: int = 0
    kernels: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)
    unattributed: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Layers:
    """Finished layers: numbered text, and numbers."""

    codes: dict[str, Codes]
    numbers: dict[str, Any]

    def __len__(self) -> int:
        return len(self.codes["layer"])


class Tally:
    """What a merge tells of its runs, counted while it goes."""

    def __init__(self) -> None:
        self.kernels = 0
        self.rows = 0
        self._outside: dict[int, list[float]] = {}
        self._runs: dict[int, dict[str, Any]] = {}
        self._pairs: dict[str, list[Any]] = {"layer": [], "iteration": []}

    def outside(self, rows: Sequence[tuple[int, int, int, float, float]]) -> None:
        """Count launches in and outside layers."""
        for run, count, launches, away, total in rows:
            self.kernels += count
            entry = self._outside.setdefault(run, [0, math.nan, math.nan])
            entry[0] += launches
            entry[1] = _plus(entry[1], away)
            entry[2] = _plus(entry[2], total)

    def add(self, layers: Layers) -> None:
        """Count finished layers."""
        self.rows += len(layers)
        run = layers.codes["run_id"].astype(np.int64)
        runs, first, which = distinct(run)
        rows = np.bincount(which)
        time = np.bincount(which, layers.numbers["time_us"])
        for place in np.argsort(first):
            entry = self._runs.setdefault(
                int(runs[place]),
                {
                    "codes": {name: int(layers.codes[name][first[place]]) for name in RUN_COLUMNS},
                    "rows": 0,
                    "time_us": 0.0,
                },
            )
            entry["rows"] += int(rows[place])
            entry["time_us"] += float(time[place])
        for name, found in self._pairs.items():
            found.append(np.unique((run << 32) + layers.codes[name]))

    def summary(self, vocabularies: Vocabularies) -> Merged:
        """Return what was counted."""
        text = vocabularies.columns

        def value(name: str, code: int) -> Any:
            return None if code == MISSING else text[name].values[code]

        empty = [np.zeros(0, dtype=np.int64)]
        pairs = {
            name: np.unique(np.concatenate(empty + found)) for name, found in self._pairs.items()
        }
        counts = {
            name: dict(zip(*np.unique(found >> 32, return_counts=True), strict=True))
            for name, found in pairs.items()
        }
        runs = [
            {
                **{name: value(name, code) for name, code in entry["codes"].items()},
                "rows": entry["rows"],
                "layers": int(counts["layer"].get(run, 0)),
                "iterations": int(counts["iteration"].get(run, 0)),
                "time_us": entry["time_us"],
            }
            for run, entry in self._runs.items()
        ]
        unattributed = [
            {
                "run_id": value("run_id", run),
                "launches": int(launches),
                "time_us": away,
                "share": away / total if total else math.nan,
            }
            for run, (launches, away, total) in self._outside.items()
        ]
        names = len(np.unique(pairs["layer"] & 0xFFFFFFFF))
        return Merged(self.rows, names, self.kernels, runs, unattributed)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _plus(left: float, right: float) -> float:
    if math.isnan(left):
        return right
    return left if math.isnan(right) else left + right


class Writer:
    """Writes finished layers to one Parquet file, in row groups of `ROW_GROUP` and more."""

    def __init__(
        self, path: Path, files: KernelFiles, text: Vocabularies, columns: Sequence[str]
    ) -> None:
        self._files = files
        self._vocabularies = text
        self._text = {
            name: files.types[name] if name != "kernel_names" else pa.string()
            for name in (*RUN_COLUMNS, "iteration", "layer", "kernel_names")
        }
        numbers = {"time_us": pa.float64(), **dict.fromkeys(columns, pa.float64())}
        kinds = {**self._text, "kernels": pa.int64(), **numbers}
        first = [name for name in LAYER_COLUMNS if name in kinds]
        rest = [name for name in kinds if name not in first]
        self._schema = pa.schema(
            [
                pa.field(
                    name,
                    pa.dictionary(pa.int32(), kinds[name]) if name in self._text else kinds[name],
                )
                for name in (*first, *rest)
            ]
        )
        self._waiting: list[Layers] = []
        self._count = 0
        # text is written from dictionaries but reads back as plain text: no Arrow schema inside
        self._file = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=list(self._text),
            store_schema=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.close()

    def note(self, weights: str, merged: Merged) -> None:
        """Store the provenance, and the column types that pandas noted of the kernels."""
        document = {
            **self._files.provenance,
            "weights": weights,
            "unattributed": [
                {name: _plain(value) for name, value in row.items()} for row in merged.unattributed
            ],
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

    def add(self, layers: Layers) -> None:
        """Write some layers, or keep them until there are enough."""
        self._waiting.append(layers)
        self._count += len(layers)
        if self._count >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._count:
            return
        arrays = []
        for name in self._schema.names:
            kind = "codes" if name in self._text else "numbers"
            values = np.concatenate([getattr(each, kind)[name] for each in self._waiting])
            arrays.append(
                self._coded(name, values)
                if name in self._text
                else pa.array(values, type=self._schema.field(name).type, from_pandas=True)
            )
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._file.write_table(table, row_group_size=max(1, self._count))
        self._waiting, self._count = [], 0

    def _coded(self, name: str, codes: Codes) -> Any:
        found, _, which = distinct(codes)
        lacking = (found == MISSING)[which]
        values: list[Any]
        if name == "kernel_names":
            values = [self._vocabularies.joined(code) for code in found]
        else:
            # Parquet takes no missing value inside a dictionary, only rows that point nowhere
            known, there = self._vocabularies.columns[name].values, found != MISSING
            values = [known[code] for code in found[there]]
            which = np.maximum(np.cumsum(there) - 1, 0)[which]
        indices = pa.array(which.astype(np.int32), mask=lacking if lacking.any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array(values, self._text[name]))
