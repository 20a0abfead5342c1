"""Merge kernels on disk into layers on disk, in memory that does not grow with the table.

The rule is that of `rule`: launches are read a batch at a time, and every batch of whole runs is
grouped and merged as a table in memory is. Launches of a run that may go on are carried into the
next batch, so at least one run has to fit into memory, as it did when it was ingested.

Here to change: what a batch is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfml.errors import PerfmlError
from perfml.ingest.merge.files import IDENTITY, OPTIONAL, KernelFiles, kernel_files
from perfml.ingest.merge.rule import LaunchGroups, merged_layers, no_layer
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
    reader = WholeRuns(files)
    tally = Tally()
    with replacing(out) as temporary, Writer(temporary, files) as writer:
        for launches, table in reader.batches(files.merged):
            tally.add_launches(launches)
            rows = choice.rows(launches)
            if len(rows):
                groups = LaunchGroups(launches, rows)
                merged, coverage = merged_layers(groups, files.merged, _taking(table, rows))
                tally.add_layers(merged, coverage)
                writer.add(merged)
            if progress is not None:
                progress(tally.kernels, files.rows, "kernels")
        if not tally.rows:
            raise choice.nothing(tally.kernels)
        summary = tally.summary()
        writer.note(summary)
    return summary


class LayerChoice:
    """Which layers are merged: those of some names, or that patterns match as a whole; or all."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = tuple(wanted)
        try:
            self._patterns = [re.compile(name) for name in wanted]
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
            meant = name in self._wanted or any(
                pattern.fullmatch(name) for pattern in self._patterns
            )
            self._names.setdefault(name, meant)
        chosen = [name for name, matches in self._names.items() if matches]
        return np.flatnonzero(layer.isin(chosen).to_numpy())

    def nothing(self, kernels: int) -> PerfmlError:
        """Return the error that none of the launches is in a selected layer."""
        if not self._wanted or not self._names:
            return no_layer(kernels)
        msg = f"no layer's name matches {', '.join(map(repr, self._wanted))}"
        found = ", ".join([*self._names][:5])
        return PerfmlError(msg, where="--layer", found=found, cure="Patterns match whole names.")


class WholeRuns:
    """Reads a Kernels table in batches that hold every launch of each of their runs."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files
        self._identity = [*IDENTITY, *(name for name in OPTIONAL if name in files.types)]
        columns = len(self._identity) + len(files.merged)
        self._size = max(1, min(BATCH_ROWS, BATCH_CELLS // columns))
        self._rows: Counter[str | None] = Counter()
        for table in files.read(["run_id"], BATCH_CELLS):
            self._rows.update(_rows_by_run(table))

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[pd.DataFrame, pa.Table]]:
        """Yield launches of whole runs, in the order of the files.

        A batch has identity and times, text as categories, and beside them all of these columns.
        """
        waiting: list[pa.Table] = []
        for table in self._files.read([*self._identity, *columns], self._size):
            waiting.append(table)
            if sum(map(len, waiting)) < self._size:
                continue
            whole = pa.concat_tables(waiting)
            found = _rows_by_run(whole)
            ended = [run for run, rows in found.items() if rows == self._rows[run]]
            if ended:
                inside = pc.is_in(whole.column("run_id"), pa.array(ended, pa.string()))
                rows = sum(found[run] for run in ended)
                if pc.all(inside.slice(0, rows)).as_py():  # they come first, as runs mostly do
                    waiting, ready = [whole.slice(rows)], whole.slice(0, rows)
                else:
                    waiting, ready = [whole.filter(pc.invert(inside))], whole.filter(inside)
                yield self._batch(ready)
        if sum(map(len, waiting)):
            yield self._batch(pa.concat_tables(waiting))

    def _batch(self, table: pa.Table) -> tuple[pd.DataFrame, pa.Table]:
        identity = table.select(self._identity).unify_dictionaries()
        return identity.to_pandas(split_blocks=True), table


def _taking(table: pa.Table, rows: npt.NDArray[np.intp]) -> Callable[[str], Floats]:
    """Return what gives a numeric column of some of the launches, NaN where missing."""

    def values(name: str) -> Floats:
        column = np.asarray(table.column(name).to_numpy(), dtype=np.float64)
        return column if len(rows) == len(column) else column[rows]

    return values


def _rows_by_run(table: pa.Table) -> dict[str | None, int]:
    counts = pc.value_counts(table.column("run_id").combine_chunks().cast(pa.string()))
    return dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
