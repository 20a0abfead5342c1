"""From what a reader found to the Kernels table: ranges become iterations and layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfml.errors import InputError
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, validate_kernels
from perfml.util.ranges import Path, joined_names, split_range
from perfml.util.typing import Ints

MOST_NESTED = 500
"""Ranges within ranges; more are those of a program that begins ranges and never ends them."""


def kernels_frame(
    launches: pd.DataFrame | Mapping[str, Any],
    ranges: Sequence[Sequence[str]] | CodedRanges,
    *,
    instances: Sequence[int] | Ints | None = None,
) -> pd.DataFrame:
    """Make a Kernels table of launches in launch order.

    A layer is a range path and its occurrence, so the same path entered again is another
    occurrence: the n-th one within an iteration is called ``path#n`` (from the second on). Without
    iteration ranges the occurrences *are* the iterations.

    Parameters
    ----------
    launches
        One row a launch, in launch order: ``kernel`` and ``time_us`` at least, any other column of
        the Kernels table, and metrics. A table, or columns of one length.
    ranges
        Names of the ranges around each launch, outermost first; empty outside every range.
    instances
        Where the source tells them apart, a number for the range instance each launch ran in.
        Without it, consecutive launches in one path count as one occurrence.

    Returns
    -------
    DataFrame
        A valid Kernels table; run columns that are not in `launches` are missing values.

    Raises
    ------
    InputError
        If ranges are nested more than `MOST_NESTED` deep.
    """
    coded = ranges if isinstance(ranges, CodedRanges) else CodedRanges.of(ranges)
    iterations, layer, layers = coded.split()
    numbered = bool((iterations >= 0).any())
    iterations = np.maximum(iterations, 0)
    require_depth(
        max(map(len, layers), default=0),
        f"ranges around kernel {next(iter(launches['kernel']), None)}",
    )
    occurrence = occurrences(iterations, layer, layers, instances)
    iteration, again = (iterations, occurrence) if numbered else (occurrence, 0 * occurrence)
    # one frame of finished columns: setting them one by one costs more than reading a report
    cells: dict[str, Any] = {
        str(name): column.array if isinstance(column, pd.Series) else column
        for name, column in launches.items()
    }
    cells |= {
        "iteration": iteration,
        "layer": layer_column(layer, layers, again).array,
        "kernel_index": count_within(iteration),
    }
    return validate_kernels(pd.DataFrame(_known(_typed(cells, len(layer))), copy=False))


def require_depth(nested: int, where: str) -> None:
    """Raise `InputError` if ranges are nested more than `MOST_NESTED` deep."""
    if nested > MOST_NESTED:
        msg = f"the NVTX ranges are nested {nested} deep"
        cure = "Let the program end each range that it begins, and profile it again."
        raise InputError(msg, where=where, cure=cure)


_ZERO_SIZE = re.compile(r"\b0\b")
_ABOVE_ZERO = ("threads", "registers_per_thread")


def _known(cells: dict[str, Any]) -> dict[str, Any]:
    """Return columns in which sizes of launches that were not recorded are missing.

    Profilers write 0 for the sizes of kernels that a CUDA graph launched. No launch has a grid or
    block without threads, nor a thread without registers. Shared memory of 0 bytes is known only
    where the sizes are.
    """
    unknown = np.zeros(len(cells["kernel"]), dtype=bool)
    for name in ("grid", "block"):
        codes, texts = pd.factorize(cells[name])
        zero = np.array([bool(_ZERO_SIZE.search(str(text))) for text in texts], dtype=bool)
        if zero.any():
            rows = np.append(zero, False)[codes]
            cells[name] = pd.Series(cells[name]).mask(rows).array
            unknown |= rows
    for name in (*_ABOVE_ZERO, "shared_memory_per_block"):
        if name in cells:
            values = np.asarray(cells[name], dtype=float)
            rows = (values == 0) & (unknown | (name in _ABOVE_ZERO))
            if rows.any():
                cells[name] = np.where(rows, np.nan, values)
    return cells


_TEXTS = {*KERNEL_COLUMNS, "time_source", "phase"} - {
    "batch",
    "iteration",
    "kernel_index",
    "time_us",
}
_NUMBERS = ("time_us", *(name for name in KERNEL_OPTIONAL if name not in _TEXTS))


def _typed(cells: dict[str, Any], rows: int) -> dict[str, Any]:
    """Give columns the order and the types of a Kernels table; absent ones hold missing values."""
    text = pd.StringDtype()
    nothing = text_column(np.zeros(rows, dtype=np.int64), [None]).array
    typed: dict[str, Any] = {}
    for name in dict.fromkeys((*KERNEL_COLUMNS, *KERNEL_OPTIONAL, *cells)):
        column = cells.get(name)
        if column is None:
            if name in KERNEL_COLUMNS:
                typed[name] = nothing.copy()
                if name == "time_us":
                    typed[name] = np.full(rows, np.nan)
                elif name == "batch":
                    absent = np.ones(rows, dtype=bool)
                    typed[name] = pd.arrays.IntegerArray(absent.astype("int64"), absent)
        elif name in _TEXTS:
            typed[name] = column if column.dtype == text else pd.array(column, dtype=text)
        elif name == "batch":
            typed[name] = pd.to_numeric(column).astype("Int64")
        elif name in _NUMBERS:
            typed[name] = pd.to_numeric(column)
        else:
            typed[name] = column
    return typed


def occurrences(
    iterations: Ints,
    codes: Ints,
    layers: Sequence[tuple[str, ...]],
    instances: Sequence[int] | Ints | None,
) -> Ints:
    """Return each launch's occurrence of its layer within its iteration, from 0.

    A range stays open while launches run in it or in a range inside it, so coming back from
    ``block/conv`` to ``block`` is the same ``block``. Iteration and layer of each launch, and its
    range instance where that is known, have shape (n,); a code stands for range names, outermost
    first.
    """
    found = np.zeros(len(codes), dtype=np.int64)
    depths = np.array([len(layer) for layer in layers], dtype=np.int64)
    iteration = np.asarray(pd.factorize(iterations)[0], dtype=np.int64)
    if instances is not None:
        return _ranked(iteration, codes, np.asarray(instances))
    nodes = _nodes(layers)
    rows = np.arange(len(codes), dtype=np.int64)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        # the work is that of the names in the file: a deep path is looked at only where it is
        rows = rows[depths[codes[rows]] >= depth]
        node_of = np.array([path[depth - 1] if len(path) >= depth else -1 for path in nodes])
        before = np.maximum(rows - 1, 0)
        node = node_of[codes[rows]]
        entered = (node != node_of[codes[before]]) | (iteration[rows] != iteration[before])
        entered |= rows == 0
        deepest = depths[codes[rows]] == depth
        key = iteration[rows][entered] * (int(node_of.max()) + 1) + node[entered]
        count = count_within(key)
        found[rows[deepest]] = count[np.cumsum(entered) - 1][deepest]
    return found


def _ranked(iterations: Ints, codes: Ints, instances: Ints) -> Ints:
    """Return how many other instances of its path came before each launch's in its iteration.

    Launches of one instance need not follow each other: backward runs through a module with what
    others wait for in between.
    """
    keys = pd.DataFrame({"iteration": iterations, "code": codes, "instance": instances})
    first = keys.drop_duplicates()
    rank = first.groupby(["iteration", "code"], sort=False).cumcount()
    return np.asarray(
        keys.merge(first.assign(rank=rank), how="left")["rank"].to_numpy(), dtype=np.int64
    )


def count_within(keys: Ints) -> Ints:
    """Return how often each key came before, shape as `keys`."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(keys) else order
    lengths = np.diff(np.r_[starts, len(keys)])
    count = np.empty(len(keys), dtype=np.int64)
    count[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return count


def _nodes(layers: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Return paths as numbers: one for each range within the ranges around it."""
    numbers: dict[tuple[int, str], int] = {}
    paths = []
    for layer in layers:
        path: list[int] = []
        for name in layer:
            around = path[-1] if path else -1
            path.append(numbers.setdefault((around, name), len(numbers)))
        paths.append(path)
    return paths


def layer_column(
    codes: Ints, layers: Sequence[tuple[str, ...]], occurrence: Ints
) -> pd.Series[str]:
    """Return layer names, ``path#n`` from the second occurrence on; missing without a path."""
    most = int(occurrence.max(initial=0)) + 1
    places, pairs = pd.factorize(codes * most + occurrence)
    texts = []
    for pair in pairs.tolist():
        name = "/".join(layers[pair // most]) or None
        turn = pair % most
        texts.append(f"{name}#{turn + 1}" if name is not None and turn else name)
    return text_column(np.asarray(places, dtype=np.int64), texts)


def text_column(codes: npt.NDArray[np.integer[Any]], texts: Sequence[str | None]) -> pd.Series[str]:
    """Return a column of text from numbers and what they stand for."""
    cells = pa.array(texts, pa.large_string()).take(pa.array(codes))
    dtype: Any = pd.StringDtype()
    return pd.Series(dtype.__from_arrow__(cells))


@dataclass(frozen=True)
class CodedRanges:
    """The range path of each launch, in two parts: ``around[outer] + within[inner]``.

    A program of 1,000 iterations through 30 layers has 30,000 paths, but only 1,000 names around
    and 30 within, and each of those is taken apart once.

    Attributes
    ----------
    outer, inner
        A number for each part of a launch's path, shape (n,).
    around, within
        The range names that a number stands for.
    """

    outer: Ints
    around: list[Path]
    inner: Ints
    within: list[Path]

    @classmethod
    def none(cls, launches: int) -> CodedRanges:
        """Return launches that run in no range."""
        nowhere = np.zeros(launches, dtype=np.int64)
        return cls(nowhere, [()], nowhere, [()])

    @classmethod
    def of(cls, paths: Sequence[Sequence[str]]) -> CodedRanges:
        """Return the ranges of launches whose whole paths are known."""
        numbers: dict[Path, int] = {}
        codes = [numbers.setdefault(tuple(path), len(numbers)) for path in paths]
        outer = np.array(codes, dtype=np.int64)
        return cls(outer, list(numbers) or [()], np.zeros(len(codes), dtype=np.int64), [()])

    def joined(self) -> tuple[CodedRanges, list[str]]:
        """Return ranges without serial numbers in their names, and what was joined."""
        paths = chain(self.around, self.within)
        common, said = joined_names(name for path in paths for name in path)
        if not common:
            return self, said
        around, within = (
            [tuple(common.get(name, name) for name in path) for path in part]
            for part in (self.around, self.within)
        )
        return CodedRanges(self.outer, around, self.inner, within), said

    def path(self, launch: int) -> Path:
        """Return the names around one launch."""
        outer, inner = int(self.outer[launch]), int(self.inner[launch])
        return self.around[outer] + self.within[inner]

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> CodedRanges:
        """Return the ranges of these launches."""
        return CodedRanges(self.outer[rows], self.around, self.inner[rows], self.within)

    def inside(self, others: CodedRanges) -> CodedRanges:
        """Return these ranges with others around them."""
        if not any(others.around) and not any(others.within):
            return self
        if not any(self.around) and not any(self.within):
            return others
        whole, paths = _joined(others.outer, others.around, others.inner, others.within)
        outer, around = _joined(whole, paths, self.outer, self.around)
        return CodedRanges(outer, around, self.inner, self.within)

    def innermost(self) -> tuple[Ints, list[str]]:
        """Return a number for the innermost range of each launch, and the names; "" for none."""
        numbers: dict[str, int] = {}
        last_around, last_within = (
            np.array([numbers.setdefault(path[-1] if path else "", len(numbers)) for path in paths])
            for paths in (self.around, self.within)
        )
        nothing = np.array([not path for path in self.within])[self.inner]
        codes = np.where(nothing, last_around[self.outer], last_within[self.inner])
        return codes, list(numbers)

    def split(self) -> tuple[Ints, Ints, list[Path]]:
        """Take apart iterations and layers, as `split_range` does with one path.

        Returned are the iteration of each launch, -1 where no range numbers it, a number for its
        layer, and the range names that such a number stands for.
        """
        around, within = map(split_range, self.around), map(split_range, self.within)
        counts, rests = zip(*around, strict=True)
        counts_within, rests_within = zip(*within, strict=True)
        count = _counts(counts)[self.outer]
        later = count < 0  # the iteration may lie within
        iterations = np.where(later, _counts(counts_within)[self.inner], count)
        places, heads = _numbered(rests)
        # in an iteration, what looks like one more of them is a layer
        ends, tails = _numbered([*self.within, *rests_within])
        end = ends[self.inner + np.where(later, len(self.within), 0)]
        codes, layers = _joined(places[self.outer], heads, end, tails)
        return iterations, codes, layers


def _counts(numbers: Sequence[int | None]) -> Ints:
    return np.array([-1 if number is None else number for number in numbers], dtype=np.int64)


def _numbered(paths: Sequence[Path]) -> tuple[Ints, list[Path]]:
    """Return a number for each path, and the distinct paths."""
    numbers: dict[Path, int] = {}
    codes = [numbers.setdefault(path, len(numbers)) for path in paths]
    return np.array(codes, dtype=np.int64), list(numbers)


def _joined(
    outer: Ints, around: Sequence[Path], inner: Ints, within: Sequence[Path]
) -> tuple[Ints, list[Path]]:
    """Return a number for each launch's whole path, and the distinct paths."""
    places, pairs = pd.factorize(outer * len(within) + inner)
    paths = [around[pair // len(within)] + within[pair % len(within)] for pair in pairs.tolist()]
    codes, distinct = _numbered(paths)
    return codes[places], distinct
