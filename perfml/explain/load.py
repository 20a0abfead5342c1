"""From what a user names to the layers, and where they can be had, the launches behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import DATASETS, fetch
from perfml.datasets import load as load_layers
from perfml.errors import InputError, PerfmlError
from perfml.tables import read_table


def load_tables(
    dataset: str | Path, where: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Load a Kernels or Layers table and the launches behind it.

    Parameters
    ----------
    dataset
        As for `perfml.datasets.load`, or a Kernels table, or a profile that `perfml ingest` reads.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.

    Returns
    -------
    tuple
        The table (Kernels where no launch has a layer, else Layers, with the shapes of its layers
        where they are known), and the launches, or None.

    Raises
    ------
    PerfmlError
        If it is no such thing, or no row meets a condition.
    """
    path = Path(dataset)
    if str(dataset) in DATASETS and not path.exists():
        path = fetch(str(dataset))
    if path.is_dir() and not list(path.glob("*layers*.parquet")):
        from perfml.ingest.profiles import ingest

        found = ingest([path])
        return _merged(only(found.frame, where), found.provenance)
    if path.is_file() and _is_parquet(path):
        table = read_table(path)
        rows = only(table.frame, where)
        if table.kind == "kernels":
            return _merged(rows, table.provenance)
        layers = with_known_shapes(rows, table.provenance)
        _mark_derived(layers, table.provenance)
        return layers, None
    if path.is_file() and _is_profile(path):
        from perfml.ingest.profiles import ingest

        found = ingest([path])
        return _merged(only(found.frame, where), found.provenance)
    table = load_layers(path if path.is_dir() else dataset)
    behind = None
    beside = sorted(path.glob("*kernels*.parquet")) if path.is_dir() else []
    if len(beside) == 1:
        behind = only(read_table(beside[0], kind="kernels").frame, where, strict=False)
    return with_known_shapes(only(table.frame, where), table.provenance), behind


def only(frame: pd.DataFrame, where: Sequence[str] | None, *, strict: bool = True) -> pd.DataFrame:
    """Keep the rows that meet every condition.

    Parameters
    ----------
    frame
        A table.
    where
        Conditions ``COLUMN=VALUE``.
    strict
        Whether a condition that no row meets is an error.

    Raises
    ------
    PerfmlError
        If a condition names no column, or (`strict`) no row meets it.
    """
    for condition in where or []:
        column, equals, value = condition.partition("=")
        if not equals or column not in frame.columns:
            msg = f"--where needs COLUMN=VALUE with a column of the table, not {condition!r}"
            raise PerfmlError(msg, cure=f"Columns are: {', '.join(map(str, frame.columns[:12]))}.")
        kept = frame[frame[column].astype("string") == value]
        if kept.empty and strict:
            values = sorted(map(str, frame[column].dropna().unique()))[:8]
            msg = f"no row has {column}={value}"
            raise PerfmlError(msg, found=", ".join(values), cure="Choose one of these values.")
        frame = kept
    return frame.reset_index(drop=True)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _is_profile(path: Path) -> bool:
    """Return whether a reader of profiles knows the file (a dataset.csv is none)."""
    from perfml.readers import Source, recognise

    try:
        recognise(Source(path))
    except InputError:
        return False
    return True


def _merged(
    launches: pd.DataFrame, provenance: dict[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    _mark_derived(launches, provenance)
    inside = launches[launches["layer"].notna()]
    if inside.empty:
        # without ranges the launches are the table; `make_side` makes one layer of them
        return launches, None
    from perfml.merge.rule import merge

    layers = with_known_shapes(merge(inside), provenance)
    _mark_derived(layers, provenance)
    return layers, launches


def _mark_derived(frame: pd.DataFrame, provenance: dict[str, Any]) -> None:
    """Note in a table which of its metrics another formula stood in for."""
    from perfml.explain.roofs.by_layer import DERIVED, derived_metrics

    frame.attrs[DERIVED] = sorted(derived_metrics(provenance))


def with_known_shapes(layers: pd.DataFrame, provenance: dict[str, Any]) -> pd.DataFrame:
    """Add the shapes that the provenance tells of these layers; return them as they are else."""
    from perfml.modeling.layer_shapes import AMOUNTS, shapes_of_runs, with_shapes

    shapes = shapes_of_runs(provenance)
    if shapes is None or all(name in layers.columns for name in AMOUNTS):
        return layers
    try:
        return with_shapes(layers, shapes)
    except PerfmlError:
        # shapes of other layers than these: names alone align them
        return layers


def load_ncu_rules(path: str | Path) -> pd.DataFrame:
    """Return the results of Nsight Compute's own rules in a report or a details page.

    Raises
    ------
    InputError
        If the file is neither, or is damaged.
    """
    from perfml.readers import Source
    from perfml.readers.ncu import csv_page as ncu_csv
    from perfml.readers.ncu import report as ncu_report

    source = Source(Path(path))
    if ncu_report.recognises(source):
        return ncu_report.rules(source)
    if ncu_csv.recognises(source):
        return ncu_csv.rules(source)
    msg = "neither a report nor a details page of Nsight Compute"
    cure = "Export one with: ncu --import FILE.ncu-rep --csv --page details --print-details all"
    raise InputError(msg, where=str(path), cure=cure)
