"""Rows of kernels in whole layers, as numbers: what merging past memory adds up.

Text becomes numbers once (`Vocabulary`), the rows of one layer lie together, and each metric is
one pass over one column, so that a piece of a table of any size costs the same memory.

Here to change: how a column is summed up (`Reduction`), how kernel sequences are named, and the
mean times that weigh launches. Nothing here knows of files or Parquet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.tables import RUN_COLUMNS

Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

KEY = ("run_id", "iteration", "layer")
"""What tells one layer of one iteration of one run from all others."""

CODED = (*RUN_COLUMNS, "iteration", "layer", "kernel")
"""Columns that are numbered: few distinct values in any stretch of rows."""

CONDITION = tuple(name for name in RUN_COLUMNS if name != "run_id")

MISSING = -1
"""The number of a missing value."""


class Vocabulary:
    """Numbers the distinct values of a column in order of appearance, across files and threads.

    Attributes
    ----------
    values
        The values; the number of each is its place. `MISSING` stands for a missing value.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {None: MISSING}
        self._lock = threading.Lock()

    def number(self, values: Iterable[Any]) -> Codes:
        """Return the numbers of some values, new ones included."""
        with self._lock:
            return np.fromiter((self._one(value) for value in values), dtype=np.int32)

    def _one(self, value: Any) -> int:
        code = self._codes.get(value)
        if code is None:
            if value != value:
                return MISSING
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code


class Vocabularies:
    """One vocabulary a coded column, and one of the kernel names of a layer."""

    def __init__(self) -> None:
        self.columns = {name: Vocabulary() for name in CODED}
        self.sequences = Vocabulary()
        """Kernel numbers of a layer in launch order, as tuples."""

    def joined(self, code: int) -> str:
        """Return the kernel names of a sequence, one a line."""
        names = self.columns["kernel"].values
        return "\n".join(names[kernel] for kernel in self.sequences.values[code])


@dataclass(frozen=True)
class Rows:
    """Launches inside layers, the launches of a layer one after another.

    Attributes
    ----------
    codes
        The number of each row's value, a coded column each.
    index
        ``kernel_index``, the order of launch.
    time
        ``time_us``.
    starts
        The first row of each layer occurrence.
    numbers
        Gives any other numeric column, NaN where missing.
    """

    codes: Mapping[str, Codes]
    index: npt.NDArray[Any]
    time: Floats
    starts: Places
    numbers: Callable[[str], Floats]

    def __len__(self) -> int:
        return len(self.time)

    @property
    def lengths(self) -> Places:
        """Rows of each layer occurrence."""
        return np.diff(np.append(self.starts, len(self)))

    def key(self, row: int) -> tuple[int, ...]:
        """Return what identifies the layer occurrence of a row."""
        return tuple(int(self.codes[name][row]) for name in KEY)

    def part(self, begin: int, end: int, kind: type[Rows]) -> Rows:
        """Return the rows of some whole layers, their other columns left out."""
        low, high = np.searchsorted(self.starts, (begin, end))
        return kind(
            {name: codes[begin:end] for name, codes in self.codes.items()},
            self.index[begin:end],
            self.time[begin:end],
            self.starts[low:high] - begin,
            self.numbers,
        )


class Edge(Rows):
    """One layer at the edge of a piece of a table: it may go on in the next piece."""

    def having(self, columns: Mapping[str, Floats]) -> Edge:
        """Return the same rows with their other columns."""
        return replace(self, numbers=columns.__getitem__)


def same_layer(left: Rows, right: Rows) -> bool:
    """Return whether the last row of one is of the layer of the first row of another."""
    return left.key(-1) == right.key(0)


def one_layer(parts: Sequence[Rows], names: Iterable[str]) -> Rows:
    """Put the rows of one layer occurrence together that lay in several pieces of a table."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.numbers(name) for part in parts]) for name in names}
    return Rows(
        {name: np.concatenate([part.codes[name] for part in parts]) for name in parts[0].codes},
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.zeros(1, dtype=np.int64),
        columns.__getitem__,
    )


def distinct(values: npt.NDArray[Any]) -> tuple[Places, Places, Places]:
    """Return the distinct numbers, where each comes first, and which one every row has.

    As `numpy.unique`, which sorts; numbers of a vocabulary lie close together, and a table of
    those that occur takes a tenth of the time.
    """
    low = int(values.min(initial=0))
    span = int(values.max(initial=0)) - low + 1
    if span > 4 * len(values) + (1 << 16):
        found, first, which = np.unique(values, return_index=True, return_inverse=True)
        return found, first, which
    shifted = values - low
    present = np.zeros(span, dtype=bool)
    present[shifted] = True
    found = np.flatnonzero(present)
    rank = np.empty(span, dtype=np.int64)
    rank[found] = np.arange(len(found))
    which = rank[shifted]
    first = np.empty(len(found), dtype=np.int64)
    first[which[::-1]] = np.arange(len(values) - 1, -1, -1)
    return found + low, first, which


def starts_of(codes: Mapping[str, Codes]) -> Places:
    """Return the rows at which another layer occurrence begins."""
    change = np.zeros(len(codes["layer"]), dtype=bool)
    change[:1] = True
    for name in KEY:
        change[1:] |= codes[name][1:] != codes[name][:-1]
    return np.flatnonzero(change)


def launch_order(rows: Rows) -> Places | None:
    """Return the rows in launch order within each layer, or None where they lie so already."""
    index = rows.index
    later = index[1:] >= index[:-1]
    later[rows.starts[1:] - 1] = True
    if later.all():
        return None
    layer = np.repeat(np.arange(len(rows.starts)), rows.lengths)
    return np.lexsort((index, layer))


def places(rows: Rows) -> Places:
    """Return each row's place among its layer's launches, by launch order."""
    lying = np.arange(len(rows)) - np.repeat(rows.starts, rows.lengths)
    order = launch_order(rows)
    if order is None:
        return lying
    place = np.empty_like(lying)
    place[order] = lying
    return place


def sequences(rows: Rows, vocabulary: Vocabulary) -> Codes:
    """Number the kernel sequence of each layer.

    A sequence is hashed (a sum of random 64-bit numbers, one a kernel, times a power of an odd
    number, one a place); rows that share a hash are then compared kernel by kernel, so that a
    collision costs another round and never a wrong name.
    """
    kernel = rows.codes["kernel"]
    order = launch_order(rows)
    if order is not None:
        kernel = kernel[order]
    lengths = rows.lengths
    place = np.arange(len(rows)) - np.repeat(rows.starts, lengths)
    longest = int(lengths.max(initial=1))
    seed = 0
    while True:
        random = np.random.default_rng(seed)
        salt = random.integers(1, 2**63, int(kernel.max(initial=0)) + 1, dtype=np.uint64)
        power = np.cumprod(np.full(longest, 0x9E3779B97F4A7C15 + 2 * seed, dtype=np.uint64))
        hashes = np.add.reduceat(salt[kernel] * power[place], rows.starts)
        _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
        same = first[which]
        model = np.repeat(rows.starts[same], lengths) + place
        if (lengths == lengths[same]).all() and (kernel == kernel[model]).all():
            break
        seed += 1
    ends = rows.starts + lengths
    found = vocabulary.number(
        tuple(kernel[rows.starts[layer] : ends[layer]].tolist()) for layer in first
    )
    return found[which]


class Reduction:
    """Adds up the rows of each layer, one column at a time.

    Parameters
    ----------
    rows
        Launches in whole layers.
    weight
        The weight of each launch, positive.
    """

    def __init__(self, rows: Rows, weight: Floats) -> None:
        self._starts = rows.starts
        self._weight = weight
        self._whole = np.add.reduceat(weight, rows.starts)
        self._lacking: npt.NDArray[np.bool_] | None = None
        self._known = self._whole

    def weighted(self, values: Floats) -> Floats:
        """Return the weighted mean over the launches that have a value; NaN if none has."""
        lacking = np.isnan(values)
        product = values * self._weight
        if not lacking.any():
            return np.asarray(np.add.reduceat(product, self._starts) / self._whole)
        product[lacking] = 0.0
        # metrics of one profile are missing together, so most columns share one total
        if self._lacking is None or not np.array_equal(self._lacking, lacking):
            self._lacking = lacking
            self._known = np.add.reduceat(np.where(lacking, 0.0, self._weight), self._starts)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.add.reduceat(product, self._starts) / self._known)

    def sum(self, values: Floats) -> Floats:
        """Return the sum over the launches that have a value; NaN if none has."""
        lacking = np.isnan(values)
        if not lacking.any():
            return np.asarray(np.add.reduceat(values, self._starts))
        total = np.add.reduceat(np.where(lacking, 0.0, values), self._starts)
        return np.where(np.logical_and.reduceat(lacking, self._starts), np.nan, total)

    def max(self, values: Floats) -> Floats:
        """Return the largest value of each layer; NaN if no launch has one."""
        return np.asarray(np.fmax.reduceat(values, self._starts))

    def apply(self, rule: str, values: Floats) -> Floats:
        """Merge a column by a rule of the metric catalogue."""
        if rule == "sum":
            return self.sum(values)
        return self.max(values) if rule == "max" else self.weighted(values)


class MeanTimes:
    """Mean times of a launch over the repeats of its layer, whichever run they are in."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, ...], list[float]] = {}

    def add(self, rows: Rows) -> None:
        """Count some rows in."""
        keys, which = self._keys(rows)
        total = np.bincount(which, weights=rows.time, minlength=len(keys))
        count = np.bincount(which, minlength=len(keys))
        for key, time, number in zip(keys, total.tolist(), count.tolist(), strict=True):
            entry = self._sums.setdefault(key, [0.0, 0.0])
            entry[0] += time
            entry[1] += number

    def weights(self, rows: Rows) -> Floats:
        """Return the mean time of each row's launch."""
        keys, which = self._keys(rows)
        means = np.array([self._sums[key][0] / self._sums[key][1] for key in keys])
        return np.asarray(means[which])

    @staticmethod
    def _keys(rows: Rows) -> tuple[list[tuple[int, ...]], Places]:
        """Return the distinct (condition, layer, kernel, place), and which one each row has."""
        # by row, not by layer: launches of one layer may tell different devices, or none
        which = np.zeros(len(rows), dtype=np.int64)
        for name in (*CONDITION, "layer"):
            codes = rows.codes[name].astype(np.int64) + 1
            # renumber after every column, so that the product cannot overflow
            which = distinct(which * (int(codes.max(initial=0)) + 1) + codes)[2]
        place = places(rows)
        kernel = rows.codes["kernel"].astype(np.int64)
        deep, wide = int(place.max(initial=0)) + 1, int(kernel.max(initial=0)) + 1
        mixed = (which * wide + kernel) * deep + place
        _, first, which = distinct(mixed)
        columns = [rows.codes[name][first].tolist() for name in (*CONDITION, "layer")]
        columns += [kernel[first].tolist(), place[first].tolist()]
        return list(zip(*columns, strict=True)), which
