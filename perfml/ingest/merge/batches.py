"""Merge kernels on disk into layers on disk, in memory that does not grow with the table.

The rule is that of `rule`: launches are read a batch at a time, and every batch of whole
layers is grouped and merged as a table in memory is. A profile lists the launches of a layer one
after another, so only the last layer of a batch may go on, and is carried into the next. A run
that fills more than one batch is looked through first; if a layer of it lies in pieces, its
launches are grouped all at once, and its metrics are read one column at a time.

Here to change: what a batch is, and how pieces of a layer come together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfml.errors import PerfmlError
from perfml.ingest.merge.files import IDENTITY, OPTIONAL, KernelFiles, kernel_files
from perfml.ingest.merge.mean_times import mean_times
from perfml.ingest.merge.numbering import numbered
from perfml.ingest.merge.rule import KEY, LaunchGroups, Weights, merged_layers, no_layer, stretches
from perfml.ingest.merge.write import MergeResult, Tally, Writer
from perfml.tables import replacing
from perfml.util.typing import Floats, Progress

BATCH_ROWS = 1 << 17
"""Launches that are read at once, at most."""

BATCH_CELLS = 1 << 22
"""Numbers that are read at once, at most: 32 MiB. With many metrics a batch has fewer launches."""


def merge_files(
    source: str | Path,
    out: str | Path,
    *,
    weights: Weights = "own",
    layers: Sequence[str] = (),
    progress: Progress | None = None,
) -> MergeResult:
    """Merge a Kernels table on disk into a Layers table on disk.

    Parameters
    ----------
    source
        A Parquet file, or a folder of them.
    out
        The Parquet file to write, with the provenance of all sources.
    weights
        As `perfml.ingest.merge.merge` has them.
    layers
        Names, or patterns of whole names, of the layers that are kept; all without.
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
    choice = LayerChoice(layers)
    reader = WholeLayers(files)
    means = _mean_times(reader, choice) if weights == "layer-mean" else None
    tally = Tally()
    with replacing(out) as temporary, Writer(temporary, files) as writer:
        for batch in reader.batches(files.merged):
            tally.add_launches(batch.launches)
            rows = choice.rows(batch.launches)
            if len(rows):
                groups = LaunchGroups(batch.launches, rows)
                if means is not None:
                    groups.weigh(means)
                merged, coverage = merged_layers(groups, files.merged, batch.taking(rows))
                tally.add_layers(merged, coverage)
                writer.add(merged)
            if progress is not None:
                progress(tally.kernels, files.rows, "kernels")
        if not tally.rows:
            raise choice.nothing(tally.kernels)
        summary = tally.summary()
        writer.note(weights, summary)
    return summary


def _mean_times(reader: WholeLayers, choice: LayerChoice) -> pd.DataFrame:
    """Read identity and times once, for the mean time of each launch over its repeats."""
    batches = (batch.launches for batch in reader.batches(()))
    chosen = ((launches, choice.rows(launches)) for launches in batches)
    parts = [LaunchGroups(launches, rows).repeats() for launches, rows in chosen if len(rows)]
    return mean_times(parts) if parts else pd.DataFrame()


class LayerChoice:
    """Which layers are merged: those of some names, or that patterns match as a whole; or all."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = tuple(wanted)
        try:
            self._patterns = [re.compile(each) for each in wanted]
        except re.error as error:
            msg = "not a regular expression"
            raise PerfmlError(msg, where="--layer", found=str(error)) from error
        self._names: dict[str, bool] = {}

    def rows(self, launches: pd.DataFrame) -> npt.NDArray[np.intp]:
        """Return the rows of the launches that are merged."""
        layer = launches["layer"]
        if not self._wanted:
            return np.flatnonzero(layer.notna().to_numpy())
        for name in layer.dropna().unique():
            meant = name in self._wanted or any(each.fullmatch(name) for each in self._patterns)
            self._names.setdefault(name, meant)
        chosen = [name for name, matches in self._names.items() if matches]
        return np.flatnonzero(layer.isin(chosen).to_numpy())

    def nothing(self, kernels: int) -> PerfmlError:
        """Return the error that no launch of so many lies in a layer that is merged."""
        if not self._wanted or not self._names:
            return no_layer(kernels)
        msg = f"no layer's name matches {', '.join(map(repr, self._wanted))}"
        found = ", ".join([*self._names][:5])
        return PerfmlError(msg, where="--layer", found=found, cure="Patterns match whole names.")


@dataclass(frozen=True)
class Batch:
    """Launches of whole layers.

    Attributes
    ----------
    launches
        Their identity and times; text is categorical.
    values
        Gives any other numeric column, NaN where missing.
    """

    launches: pd.DataFrame
    values: Callable[[str], Floats]

    def first(self, rows: int) -> Batch:
        """Return the first so many launches."""
        return Batch(self.launches.iloc[:rows], lambda name: self.values(name)[:rows])

    def taking(self, rows: npt.NDArray[np.intp]) -> Callable[[str], Floats]:
        """Return what gives the columns of some of the launches."""
        if len(rows) == len(self.launches):
            return self.values
        return lambda name: self.values(name)[rows]


class WholeLayers:
    """Reads a Kernels table in batches that hold every launch of each of their layers."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files
        self._identity = [*IDENTITY, *(name for name in OPTIONAL if name in files.types)]
        columns = len(self._identity) + len(files.merged)
        self._size = max(1, min(BATCH_ROWS, BATCH_CELLS // columns))
        self._in_pieces = frozenset(
            unit for unit in files.units if files.rows_in(unit) > self._size and self._pieces(unit)
        )

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield batches in the order of the files, whose values are asked for by these columns."""
        names = [*self._identity, *columns]
        waiting: list[pa.Table] = []
        for unit in self._files.units:
            small = self._files.rows_in(unit) <= self._size
            if small:
                # never cut, because it was not asked whether its layers lie together
                waiting.extend(_read_ahead(self._files.read(unit, names, self._size)))
            if not small or sum(map(len, waiting)) >= self._size:
                yield from self._last(waiting)
                waiting = []
            if unit in self._in_pieces:
                yield self._gathered(unit)
            elif not small:
                yield from self._cut(unit, names)
        yield from self._last(waiting)

    def _cut(self, unit: tuple[Path, ...], names: Sequence[str]) -> Iterator[Batch]:
        """Yield a unit that is larger than a batch, cut where a layer begins."""
        waiting: list[pa.Table] = []
        for table in _read_ahead(self._files.read(unit, names, self._size)):
            waiting.append(table)
            if sum(map(len, waiting)) < self._size:
                continue
            whole = pa.concat_tables(waiting)
            batch = self._batch(whole)
            end = _last_layer(batch.launches)
            waiting = [whole.slice(end)]
            if end:
                yield batch.first(end)
        yield from self._last(waiting)

    def _last(self, waiting: list[pa.Table]) -> Iterator[Batch]:
        if sum(map(len, waiting)):
            yield self._batch(pa.concat_tables(waiting))

    def _batch(self, table: pa.Table) -> Batch:
        return Batch(_frame(table.select(self._identity)), lambda name: _floats(table, name))

    def _gathered(self, unit: tuple[Path, ...]) -> Batch:
        """Return all launches of a unit; its columns are read when they are asked for."""
        names = self._identity
        tables = pa.concat_tables(self._files.read(unit, names, self._size))

        def values(name: str) -> Floats:
            return _floats(pa.concat_tables(self._files.read(unit, [name], BATCH_CELLS)), name)

        return Batch(_frame(tables), values)

    def _pieces(self, unit: tuple[Path, ...]) -> bool:
        """Tell whether the launches of some layer of a unit do not lie together."""
        keys = []
        last = None
        for table in self._files.read(unit, KEY, BATCH_ROWS):
            key = _layer_keys(table.to_pandas())
            if len(key):
                keys.append(key[1:] if key[0] == last else key)
                last = key[-1]
        return bool(keys) and not pd.Index(np.concatenate(keys)).is_unique


def _read_ahead(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables while the next one is being read."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, tables, None)
        while (table := coming.result()) is not None:
            coming = pool.submit(next, tables, None)
            yield table


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.unify_dictionaries().to_pandas(split_blocks=True)
    return frame


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table.column(name).to_numpy(), dtype=np.float64)


def _layer_starts(launches: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Return the rows at which another layer begins; launches outside layers are passed over."""
    rows = np.flatnonzero(launches["layer"].notna().to_numpy())
    return rows[stretches([numbered(launches[name])[rows] for name in KEY])]


def _last_layer(launches: pd.DataFrame) -> int:
    """Return the row at which the last layer begins: it may go on in the next batch."""
    starts = _layer_starts(launches)
    return int(starts[-1]) if len(starts) else len(launches)


def _layer_keys(launches: pd.DataFrame) -> npt.NDArray[np.integer[Any]]:
    """Return one number a stretch of one layer, the same for the same layer in any batch.

    Two layers that share a number by chance make the merge slower, and never wrong.
    """
    heads = launches.iloc[_layer_starts(launches)]
    if pd.api.types.is_numeric_dtype(heads["iteration"]):
        heads = heads.assign(iteration=heads["iteration"].astype(float))
    return pd.util.hash_pandas_object(heads, index=False).to_numpy()
