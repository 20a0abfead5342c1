"""Merge kernels on disk into layers on disk, in memory that does not grow with the table.

The rule is `perfml.merge`'s and the numbers are the same. A profile lists the launches of a layer
one after another, so a row group can be added up by itself; only its first and last layer may go
on in a neighbour. A file whose layers lie in pieces is found out by a key that comes twice, and
its rows are then brought together by number, one column in memory at a time.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfml._version import __version__
from perfml.errors import PerfmlError
from perfml.merge import Weights, no_layer, unusable_time
from perfml.metrics import load_catalogue
from perfml.partitioned_read import (
    KernelFiles,
    Piece,
    RowGroup,
    in_order,
    kernel_files,
    read_piece,
    row_groups,
)
from perfml.partitioned_rows import (
    KEY,
    MISSING,
    Codes,
    Floats,
    MeanTimes,
    Reduction,
    Rows,
    Vocabularies,
    one_layer,
    sequences,
    starts_of,
)
from perfml.tables import LAYER_COLUMNS, METADATA_KEY, RUN_COLUMNS, replacing

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


class _Scattered(Exception):  # noqa: N818 - control flow, never an error that is shown
    """The rows of a layer do not lie together."""


@dataclass(frozen=True)
class _Layers:
    """Finished layers: numbered text, and numbers."""

    codes: dict[str, Codes]
    numbers: dict[str, Any]

    def __len__(self) -> int:
        return len(self.codes["layer"])


def merge_files(
    source: str | Path,
    out: str | Path,
    *,
    weights: Weights = "own",
    keep: Callable[[str], bool] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Merged:
    """Merge a Kernels table on disk into a Layers table on disk.

    Parameters
    ----------
    source
        A Parquet file, or a folder of them.
    out
        The Parquet file to write, with the provenance of all sources.
    weights
        As `perfml.merge.merge` has them.
    keep
        Says of a layer's name whether it is kept; all are without.
    progress
        Called as ``progress(done, total, what)`` with launches read.

    Raises
    ------
    InputError
        If a file is missing, damaged, or no Kernels table.
    TableError
        If a column is missing, or a launch in a layer has no positive time.
    PerfmlError
        If no launch belongs to a layer.
    """
    files = kernel_files(source)
    job = _Job(files, weights, keep, progress)
    scattered: frozenset[int] = frozenset()
    while True:
        try:
            with replacing(out) as temporary:
                return job.write(temporary, scattered)
        except _Scattered:
            # once is enough: every unit is looked at before the second attempt
            scattered = job.scattered()


class _Job:
    """One merge: its source, its rules, and what it has numbered so far."""

    def __init__(
        self,
        files: KernelFiles,
        weights: Weights,
        keep: Callable[[str], bool] | None,
        progress: Callable[[int, int, str], None] | None,
    ) -> None:
        catalogue = load_catalogue()
        self.files = files
        self.weights = weights
        self.keep = keep
        self.progress = progress
        self.text = Vocabularies()
        self.rules = {name: catalogue[name].merge for name in files.metrics}
        if "ncu_time_us" in files.types:
            self.rules = {"ncu_time_us": "sum", **self.rules}
        self.means: MeanTimes | None = None

    def write(self, path: Path, scattered: frozenset[int]) -> Merged:
        """Merge all units into one file."""
        if self.weights == "layer-mean":
            means = MeanTimes()
            for number, unit in enumerate(self.files.units):
                for rows in self._rows(unit, number in scattered):
                    means.add(rows)
            self.means = means
        tally = _Tally()
        with _Writer(path, self) as writer:
            for number, unit in enumerate(self.files.units):
                seen = _Seen()
                for layers in self._merged(unit, number in scattered, tally):
                    seen.add(layers.codes)
                    tally.add(layers)
                    writer.add(layers)
                seen.check()
            merged = tally.summary(self)
            writer.note(
                {
                    **self.files.provenance,
                    "weights": self.weights,
                    "unattributed": [
                        {name: _plain(value) for name, value in row.items()}
                        for row in merged.unattributed
                    ],
                    "kind": "layers",
                    "perfml": __version__,
                }
            )
        return merged

    def scattered(self) -> frozenset[int]:
        """Return the units in which the rows of a layer do not lie together."""
        found = set()
        for number, unit in enumerate(self.files.units):
            seen = _Seen()
            try:
                for rows in self._rows(unit, False):
                    seen.add({name: rows.codes[name][rows.starts] for name in KEY})
                seen.check()
            except _Scattered:
                found.add(number)
        return frozenset(found)

    def _rows(self, unit: Sequence[Path], scattered: bool) -> Iterator[Rows]:
        """Yield the rows of a unit in whole layers, without their metrics."""
        if scattered:
            yield _gathered(self._pieces(unit))
            return
        pending: list[Rows] = []
        for piece in self._pieces(unit):
            if not len(piece.time):
                continue
            rows = _as_rows(piece)
            for part in _split(rows):
                if pending and pending[-1].key(-1) != part.key(0):
                    yield one_layer(pending, ())
                    pending = []
                if len(part.starts) == 1:
                    pending.append(part)
                else:
                    yield part
        if pending:
            yield one_layer(pending, ())

    def _pieces(self, unit: Sequence[Path]) -> Iterator[Piece]:
        def read(group: RowGroup) -> Piece:
            piece = read_piece(group, self.text, self.keep)
            _check_times(piece, self.text)
            return piece

        return in_order(read, row_groups(unit))

    def _merged(self, unit: Sequence[Path], scattered: bool, tally: _Tally) -> Iterator[_Layers]:
        """Yield the layers of a unit, in order of first launch."""
        if scattered:
            pieces = list(self._pieces(unit))
            for piece in pieces:
                tally.outside(piece.outside)
            yield from self._regrouped(pieces)
            return
        pending: list[Rows] = []
        for outside, parts in in_order(self._part, row_groups(unit)):
            tally.outside(outside)
            for part in parts:
                first = part.codes
                key = tuple(int(first[name][0]) for name in KEY)
                if pending and pending[-1].key(-1) != key:
                    yield self._reduced(one_layer(pending, self.rules))
                    pending = []
                if isinstance(part, Rows):
                    pending.append(part)
                else:
                    yield part
        if pending:
            yield self._reduced(one_layer(pending, self.rules))

    def _part(
        self, group: RowGroup
    ) -> tuple[list[tuple[int, int, int, float, float]], list[Rows | _Layers]]:
        """Add up the inner layers of a row group; leave its first and last as they are."""
        piece = read_piece(group, self.text, self.keep)
        _check_times(piece, self.text)
        if not len(piece.time):
            return piece.outside, []
        rows = _as_rows(piece)
        parts = _split(rows)
        edges: list[dict[str, Floats]] = [{} for _ in parts]
        inner = next((part for part in parts if len(part.starts) > 1), None)
        reduction = Reduction(inner, self._weight(inner)) if inner is not None else None
        merged: dict[str, Floats] = {}
        for name, values in piece.numbers(list(self.rules)):
            begin = 0
            for part, kept in zip(parts, edges, strict=True):
                some = values[begin : begin + len(part)]
                begin += len(part)
                if part is inner and reduction is not None:
                    merged[name] = reduction.apply(self.rules[name], some)
                else:
                    kept[name] = some.copy()
        done: list[Rows | _Layers] = []
        for part, kept in zip(parts, edges, strict=True):
            if part is inner:
                done.append(self._layers(part, merged))
            else:
                done.append(part.part(0, len(part), kept.__getitem__))
        return piece.outside, done

    def _regrouped(self, pieces: Sequence[Piece]) -> Iterator[_Layers]:
        """Yield the layers of a unit whose rows lie apart: one column in memory at a time."""
        if not any(len(piece.time) for piece in pieces):
            return
        rows = _gathered(pieces)
        reduction = Reduction(rows, self._weight(rows))
        merged = {
            name: reduction.apply(rule, rows.numbers(name)) for name, rule in self.rules.items()
        }
        yield self._layers(rows, merged)

    def _weight(self, rows: Rows) -> Floats:
        return rows.time if self.means is None else self.means.weights(rows)

    def _reduced(self, rows: Rows) -> _Layers:
        reduction = Reduction(rows, self._weight(rows))
        merged = {
            name: reduction.apply(rule, rows.numbers(name)) for name, rule in self.rules.items()
        }
        return self._layers(rows, merged)

    def _layers(self, rows: Rows, merged: dict[str, Floats]) -> _Layers:
        codes = {name: values[rows.starts] for name, values in rows.codes.items()}
        codes["kernel_names"] = sequences(rows, self.text.sequences)
        del codes["kernel"]
        numbers = {"kernels": rows.lengths, "time_us": np.add.reduceat(rows.time, rows.starts)}
        return _Layers(codes, {**numbers, **merged})


def _as_rows(piece: Piece) -> Rows:
    return Rows(piece.codes, piece.index, piece.time, starts_of(piece.codes), _no_numbers)


def _no_numbers(name: str) -> Floats:
    raise KeyError(name)


def _split(rows: Rows) -> list[Rows]:
    """Take the first and the last layer, which may go on elsewhere, apart from those between."""
    cuts = rows.starts[[1, -1]].tolist() if len(rows.starts) > 1 else []
    bounds = sorted({0, *cuts, len(rows)})
    return [
        rows.part(begin, end, _no_numbers)
        for begin, end in itertools.pairwise(bounds)
    ]


def _gathered(pieces: Iterator[Piece] | Sequence[Piece]) -> Rows:
    """Bring the rows of each layer together, layers in order of their first launch."""
    pieces = list(pieces)
    codes = {
        name: np.concatenate([piece.codes[name] for piece in pieces]) for name in pieces[0].codes
    }
    _, first, which = np.unique(_mixed(codes), return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    layer = rank[which]
    order = np.argsort(layer, kind="stable")
    counts = np.bincount(layer, minlength=len(first))

    def numbers(name: str) -> Floats:
        return np.concatenate([dict(piece.numbers([name]))[name] for piece in pieces])[order]

    return Rows(
        {name: values[order] for name, values in codes.items()},
        np.concatenate([piece.index for piece in pieces])[order],
        np.concatenate([piece.time for piece in pieces])[order],
        np.cumsum(counts) - counts,
        numbers,
    )


def _mixed(codes: dict[str, Codes]) -> Any:
    """Return one number a row that only the rows of one layer occurrence share."""
    wide = [int(codes[name].max(initial=0)) + 2 for name in KEY]
    kind: Any = np.int64 if math.prod(wide) < 2**63 else object
    mixed = np.zeros(len(codes["layer"]), dtype=kind)
    for name, width in zip(KEY, wide, strict=True):
        mixed = mixed * width + (codes[name].astype(kind) + 1)
    return mixed


class _Seen:
    """Finds out whether a layer occurrence comes twice."""

    def __init__(self) -> None:
        self._keys: list[dict[str, Codes]] = []

    def add(self, codes: dict[str, Codes]) -> None:
        keys = {name: codes[name] for name in KEY}
        if len(np.unique(_mixed(keys))) < len(keys["layer"]):
            raise _Scattered
        self._keys.append(keys)

    def check(self) -> None:
        if not self._keys:
            return
        whole = {name: np.concatenate([keys[name] for keys in self._keys]) for name in KEY}
        mixed = np.sort(_mixed(whole))
        if (mixed[1:] == mixed[:-1]).any():
            raise _Scattered


def _check_times(piece: Piece, text: Vocabularies) -> None:
    bad = np.flatnonzero(~((piece.time > 0) & np.isfinite(piece.time)))
    if not len(bad):
        return
    row = int(bad[0])

    def value(name: str) -> Any:
        code = piece.codes[name][row]
        return None if code == MISSING else text.columns[name].values[code]

    raise unusable_time(
        len(bad),
        len(piece.time),
        kernel=str(value("kernel")),
        layer=value("layer"),
        iteration=value("iteration"),
        time=float(piece.time[row]),
    )


class _Tally:
    """What a merge tells of its runs, counted while it goes."""

    def __init__(self) -> None:
        self.kernels = 0
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

    def add(self, layers: _Layers) -> None:
        """Count finished layers."""
        run = layers.codes["run_id"].astype(np.int64)
        runs, first, which = np.unique(run, return_index=True, return_inverse=True)
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

    def summary(self, job: _Job) -> Merged:
        """Return what was counted.

        Raises
        ------
        PerfmlError
            If there was no launch in any layer.
        """
        text = job.text.columns
        if not self._runs:
            _nothing(job, self.kernels)

        def value(name: str, code: int) -> Any:
            return None if code == MISSING else text[name].values[code]

        pairs = {name: np.unique(np.concatenate(found)) for name, found in self._pairs.items()}
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
        rows = sum(run["rows"] for run in runs)
        return Merged(rows, names, self.kernels, runs, unattributed)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _plus(left: float, right: float) -> float:
    if math.isnan(left):
        return right
    return left if math.isnan(right) else left + right


def _nothing(job: _Job, kernels: int) -> NoReturn:
    names = job.text.columns["layer"].values
    if job.keep is None or not names:
        raise no_layer(kernels)
    msg = "no layer's name is kept"
    raise PerfmlError(msg, found=", ".join(map(str, names[:5])), cure="Keep more layers.")


class _Writer:
    """Writes finished layers to one Parquet file, in row groups of `ROW_GROUP` and more."""

    def __init__(self, path: Path, job: _Job) -> None:
        self._job = job
        self._text = {
            name: job.files.types[name] if name != "kernel_names" else pa.string()
            for name in (*RUN_COLUMNS, "iteration", "layer", "kernel_names")
        }
        numbers = {"time_us": pa.float64(), **dict.fromkeys(job.rules, pa.float64())}
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
        self._waiting: list[_Layers] = []
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

    def note(self, document: dict[str, Any]) -> None:
        """Store the provenance, and the column types that pandas noted of the kernels."""
        notes = [
            self._job.files.pandas[name]
            for name in self._schema.names
            if name in self._job.files.pandas
        ]
        pandas = {"index_columns": [], "column_indexes": [], "columns": notes}
        self._file.add_key_value_metadata(
            {METADATA_KEY: json.dumps(document).encode(), b"pandas": json.dumps(pandas).encode()}
        )

    def add(self, layers: _Layers) -> None:
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
        found, which = np.unique(codes, return_inverse=True)
        values: list[Any]
        if name == "kernel_names":
            values = [self._job.text.joined(code) for code in found]
        else:
            known = self._job.text.columns[name].values
            values = [None if code == MISSING else known[code] for code in found]
        lacking = (found == MISSING)[which]
        indices = pa.array(which.astype(np.int32), mask=lacking if lacking.any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array(values, self._text[name]))
