"""Merge kernels on disk into layers on disk, in memory that does not grow with the table.

The rule is `perfml.merge`'s and the numbers are the same. A profile lists the launches of a layer
one after another, so a row group can be added up by itself; only its first and last layer may go
on in a neighbour. A file whose layers lie in pieces is found out by a key that comes twice, and
its rows are then brought together by number, one column in memory at a time.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfml.errors import PerfmlError
from perfml.merge import Weights, no_layer, unusable_time
from perfml.metrics import load_catalogue
from perfml.partitioned_files import KernelFiles, kernel_files
from perfml.partitioned_read import Piece, RowGroup, in_order, read_piece, row_groups
from perfml.partitioned_rows import (
    KEY,
    MISSING,
    Codes,
    Floats,
    MeanTimes,
    Reduction,
    Rows,
    Vocabularies,
    distinct,
    one_layer,
    sequences,
    starts_of,
)
from perfml.partitioned_write import Layers, Merged, Tally, Writer
from perfml.tables import replacing

Progress = Callable[[int, int, str], None]


class _Scattered(Exception):  # noqa: N818 - control flow, never an error that is shown
    """The rows of a layer do not lie together."""


def merge_files(
    source: str | Path,
    out: str | Path,
    *,
    weights: Weights = "own",
    layers: str | None = None,
    progress: Progress | None = None,
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
    layers
        A regular expression: keep layers whose whole name matches. All are kept without.
    progress
        Called as ``progress(done, total, what)`` with launches read.

    Raises
    ------
    InputError
        If a file is missing, damaged, or no Kernels table.
    TableError
        If a column is missing, or a launch in a layer has no positive time.
    PerfmlError
        If no launch belongs to a layer, or no layer's name matches.
    """
    files = kernel_files(source)
    job = _Job(files, weights, _pattern(layers), progress)
    scattered: frozenset[int] = frozenset()
    while True:
        try:
            with replacing(out) as temporary:
                return job.write(temporary, scattered)
        except _Scattered:
            # once is enough: every unit is looked at before the second attempt
            scattered = job.scattered()


def _pattern(layers: str | None) -> re.Pattern[str] | None:
    try:
        return None if layers is None else re.compile(layers)
    except re.error as error:
        msg = "not a regular expression"
        raise PerfmlError(msg, where="--layers", found=str(error)) from error


class _Job:
    """One merge: its source, its rules, and what it has numbered so far."""

    def __init__(
        self,
        files: KernelFiles,
        weights: Weights,
        layers: re.Pattern[str] | None,
        progress: Progress | None,
    ) -> None:
        catalogue = load_catalogue()
        self.files = files
        self.weights = weights
        self.layers = layers
        self.keep = None if layers is None else lambda name: bool(layers.fullmatch(name))
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
        tally = Tally()
        with Writer(path, self.files, self.text, list(self.rules)) as writer:
            for number, unit in enumerate(self.files.units):
                seen = _Seen()
                for layers in self._merged(unit, number in scattered, tally):
                    seen.add(layers.codes)
                    tally.add(layers)
                    writer.add(layers)
                seen.check()
            if not tally.rows:
                raise self._nothing(tally.kernels)
            merged = tally.summary(self.text)
            writer.note(self.weights, merged)
        return merged

    def _nothing(self, kernels: int) -> PerfmlError:
        names = self.text.columns["layer"].values
        if self.layers is None or not names:
            return no_layer(kernels)
        msg = f"no layer's name matches {self.layers.pattern!r}"
        found = ", ".join(map(str, names[:5]))
        return PerfmlError(msg, where="--layers", found=found, cure="Patterns match whole names.")

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

    def _merged(self, unit: Sequence[Path], scattered: bool, tally: Tally) -> Iterator[Layers]:
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
            if self.progress is not None:
                self.progress(tally.kernels, self.files.rows, "kernels")
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
    ) -> tuple[list[tuple[int, int, int, float, float]], list[Rows | Layers]]:
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
        done: list[Rows | Layers] = []
        for part, kept in zip(parts, edges, strict=True):
            if part is inner:
                done.append(self._layers(part, merged))
            else:
                done.append(part.part(0, len(part), kept.__getitem__))
        return piece.outside, done

    def _regrouped(self, pieces: Sequence[Piece]) -> Iterator[Layers]:
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

    def _reduced(self, rows: Rows) -> Layers:
        reduction = Reduction(rows, self._weight(rows))
        merged = {
            name: reduction.apply(rule, rows.numbers(name)) for name, rule in self.rules.items()
        }
        return self._layers(rows, merged)

    def _layers(self, rows: Rows, merged: dict[str, Floats]) -> Layers:
        codes = {name: values[rows.starts] for name, values in rows.codes.items()}
        codes["kernel_names"] = sequences(rows, self.text.sequences)
        del codes["kernel"]
        numbers = {"kernels": rows.lengths, "time_us": np.add.reduceat(rows.time, rows.starts)}
        return Layers(codes, {**numbers, **merged})


def _as_rows(piece: Piece) -> Rows:
    return Rows(piece.codes, piece.index, piece.time, starts_of(piece.codes), _no_numbers)


def _no_numbers(name: str) -> Floats:
    raise KeyError(name)


def _split(rows: Rows) -> list[Rows]:
    """Take the first and the last layer, which may go on elsewhere, apart from those between."""
    cuts = rows.starts[[1, -1]].tolist() if len(rows.starts) > 1 else []
    bounds = sorted({0, *cuts, len(rows)})
    return [rows.part(begin, end, _no_numbers) for begin, end in itertools.pairwise(bounds)]


def _gathered(pieces: Iterator[Piece] | Sequence[Piece]) -> Rows:
    """Bring the rows of each layer together, layers in order of their first launch."""
    pieces = list(pieces)
    codes = {
        name: np.concatenate([piece.codes[name] for piece in pieces]) for name in pieces[0].codes
    }
    _, first, which = distinct(_mixed(codes))
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
    # Python's own integers where 64 bits would not hold the product
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
        _all_differ(keys)
        self._keys.append(keys)

    def check(self) -> None:
        if not self._keys:
            return
        _all_differ({name: np.concatenate([keys[name] for keys in self._keys]) for name in KEY})


def _all_differ(keys: dict[str, Codes]) -> None:
    mixed = np.sort(_mixed(keys))
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
