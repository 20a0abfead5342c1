"""Merge kernels on disk into layers on disk, in memory that does not grow with the table.

The rule is `perfml.merge`'s and the numbers are the same. A profile lists the launches of a layer
one after another, so a row group can be added up by itself; only its first and last layer may go
on in a neighbour. A file whose layers lie in pieces is found out by a key that comes twice, and
its rows are then brought together by number, one column in memory at a time.

Here to change: the order of the two passes and what is kept between row groups. What a sum is
stands in `rows`, and a change of the rule itself belongs in `perfml.merge` first.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from perfml.errors import PerfmlError
from perfml.merge import Weights, no_layer, unusable_time
from perfml.metrics import load_catalogue
from perfml.partitioned.files import KernelFiles, kernel_files
from perfml.partitioned.read import ALL, Outside, Piece, RowGroup, in_order, read_piece, row_groups
from perfml.partitioned.rows import (
    KEY,
    MISSING,
    Codes,
    Edge,
    Floats,
    MeanTimes,
    Reduction,
    Rows,
    Vocabularies,
    distinct,
    one_layer,
    same_layer,
    sequences,
    starts_of,
)
from perfml.partitioned.write import Layers, Merged, Tally, Writer
from perfml.tables import replacing

Progress = Callable[[int, int, str], None]


Part = TypeVar("Part", Rows, Layers)


@dataclass(frozen=True)
class _Parts(Generic[Part]):
    """What became of a row group: layers in order, and what ran outside them."""

    unit: int
    outside: list[Outside]
    parts: list[Rows | Part]


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
            for _, rows in self._whole(self._keys, (), scattered):
                means.add(rows)
            self.means = means
        tally, seen = Tally(), _Seen()
        with Writer(path, self.files, self.text, list(self.rules)) as writer:
            for unit, part in self._whole(self._reduce, list(self.rules), scattered, tally):
                layers = self._reduced(part) if isinstance(part, Rows) else part
                seen.add(unit, layers.codes)
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
        seen = _Seen(note=True)
        for unit, rows in self._whole(self._keys, (), frozenset()):
            seen.add(unit, {name: rows.codes[name][rows.starts] for name in KEY})
        seen.check()
        return frozenset(seen.scattered)

    def _whole(
        self,
        function: Callable[[RowGroup], _Parts[Part]],
        names: Sequence[str],
        scattered: frozenset[int],
        tally: Tally | None = None,
    ) -> Iterator[tuple[int, Rows | Part]]:
        """Yield whole layers and their unit, in order of first launch.

        `function` makes the parts of a row group on some thread; the rows of a layer that goes on
        in the next row group are put together here, with the columns `names`.
        """
        pending: list[Rows] = []
        last = 0
        for found in in_order(function, self._row_groups(scattered)):
            if tally is not None:
                tally.outside(found.outside)
                if self.progress is not None:
                    self.progress(tally.kernels, self.files.rows, "kernels")
            for part in found.parts:
                if pending and not (
                    isinstance(part, Edge) and last == found.unit and same_layer(pending[-1], part)
                ):
                    yield last, one_layer(pending, names)
                    pending = []
                last = found.unit
                if isinstance(part, Edge):
                    pending.append(part)
                else:
                    yield last, part
        if pending:
            yield last, one_layer(pending, names)

    def _row_groups(self, scattered: frozenset[int]) -> Iterator[RowGroup]:
        for number, unit in enumerate(self.files.units):
            if number in scattered:
                yield RowGroup(unit[0], ALL, number)
            else:
                yield from row_groups(self.files, number)

    def _piece(self, group: RowGroup) -> Piece:
        piece = read_piece(group, self.text, self.keep)
        _check_times(piece, self.text)
        return piece

    def _gathered(self, unit: int) -> _Parts[Any]:
        """Return a unit whose layers lie in pieces: its columns are read when they are needed."""
        pieces = [self._piece(group) for group in row_groups(self.files, unit)]
        outside = [row for piece in pieces for row in piece.outside]
        pieces = [piece for piece in pieces if len(piece.time)]
        return _Parts(unit, outside, [_together(pieces)] if pieces else [])

    def _keys(self, group: RowGroup) -> _Parts[Rows]:
        """Return the layers of a row group without their metrics."""
        if group.index == ALL:
            return self._gathered(group.unit)
        piece = self._piece(group)
        return _Parts(group.unit, piece.outside, list(_split(piece, group)))

    def _reduce(self, group: RowGroup) -> _Parts[Layers]:
        """Add up the layers of a row group, save those that may go on in its neighbours."""
        if group.index == ALL:
            return self._gathered(group.unit)
        piece = self._piece(group)
        parts = _split(piece, group)
        columns: list[dict[str, Floats]] = [{} for _ in parts]
        sums = [None if isinstance(part, Edge) else self._reduction(part) for part in parts]
        for name, values in piece.numbers(list(self.rules) if parts else []):
            begin = 0
            for part, column, reduction in zip(parts, columns, sums, strict=True):
                some = values[begin : begin + len(part)]
                begin += len(part)
                column[name] = (
                    some.copy() if reduction is None else reduction.apply(self.rules[name], some)
                )
        return _Parts(
            group.unit,
            piece.outside,
            [
                part.having(column) if isinstance(part, Edge) else self._layers(part, column)
                for part, column in zip(parts, columns, strict=True)
            ],
        )

    def _reduction(self, rows: Rows) -> Reduction:
        return Reduction(rows, rows.time if self.means is None else self.means.weights(rows))

    def _reduced(self, rows: Rows) -> Layers:
        reduction = self._reduction(rows)
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


def _no_numbers(name: str) -> Floats:
    raise KeyError(name)


def _split(piece: Piece, group: RowGroup) -> list[Rows]:
    """Take the first and the last layer, which may go on elsewhere, apart from those between."""
    if not len(piece.time):
        return []
    rows = Rows(piece.codes, piece.index, piece.time, starts_of(piece.codes), _no_numbers)
    head = 0 if group.first else int(rows.starts[1]) if len(rows.starts) > 1 else len(rows)
    tail = len(rows) if group.last else int(rows.starts[-1])
    bounds = sorted({0, head, max(head, tail), len(rows)})
    return [
        rows.part(begin, end, Edge if begin < head or begin >= tail else Rows)
        for begin, end in itertools.pairwise(bounds)
    ]


def _together(pieces: Sequence[Piece]) -> Rows:
    """Bring the rows of each layer together, layers in order of their first launch."""
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
    """Finds out whether a layer occurrence comes twice in a unit.

    Parameters
    ----------
    note
        Note the unit and go on, instead of raising `_Scattered`.
    """

    def __init__(self, note: bool = False) -> None:
        self.scattered: set[int] = set()
        self._note = note
        self._unit = 0
        self._keys: list[dict[str, Codes]] = []

    def add(self, unit: int, codes: dict[str, Codes]) -> None:
        if unit != self._unit:
            self.check()
            self._unit = unit
        keys = {name: codes[name] for name in KEY}
        self._look(keys)
        self._keys.append(keys)

    def check(self) -> None:
        """Look at all of the unit."""
        if len(self._keys) > 1:
            names = self._keys[0]
            self._look(
                {name: np.concatenate([keys[name] for keys in self._keys]) for name in names}
            )
        self._keys = []

    def _look(self, keys: dict[str, Codes]) -> None:
        mixed = np.sort(_mixed(keys))
        if (mixed[1:] == mixed[:-1]).any():
            if not self._note:
                raise _Scattered
            self.scattered.add(self._unit)


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
