"""From what a user names to a Layers table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfml.datasets.registry import DATASETS, fetch
from perfml.errors import InputError
from perfml.tables import Table, read_table, require_file


def load(dataset: str | Path) -> Table:
    """Load a Layers table.

    Parameters
    ----------
    dataset
        A Parquet table of ``perfml merge``; a CSV in the published schema (``type``, the 19
        metrics, ``time``); or a dataset's name. Raw recordings are ingested and merged.

    Returns
    -------
    Table
        Of kind ``layers``.

    Raises
    ------
    PerfmlError
        If it is none of these.
    """
    path = Path(dataset)
    if str(dataset) in DATASETS and not path.exists():
        path = fetch(str(dataset))
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        msg = "no such file or dataset"
        cure = f"Give a table, a dataset.csv, or one of: {', '.join(DATASETS)}."
        raise InputError(msg, where=str(dataset), cure=cure)
    require_file(path)
    with path.open("rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    if parquet or path.suffix == ".parquet":
        return _shaped(read_table(path, kind="layers"))
    from perfml.datasets.published import from_published

    return Table(from_published(path), "layers", {"source": path.name})


def _from_folder(path: Path) -> Table:
    tables = sorted(path.glob("*layers*.parquet"))
    if len(tables) == 1:
        return _shaped(read_table(tables[0], kind="layers"))
    from perfml.ingest.profiles import ingest
    from perfml.merge.rule import merge

    kernels = ingest([path])
    return _shaped(Table(merge(kernels.frame), "layers", kernels.provenance))


def _shaped(table: Table) -> Table:
    """Add what the provenance knows of the layers' shapes: operations and bytes of each."""
    from perfml.modeling import shapes_of_runs, with_shapes

    shapes = shapes_of_runs(table.provenance)
    if shapes is None or "flops" in table.frame.columns:
        return table
    known = set(shapes["layer"]) & set(table.frame["layer"].dropna())
    return replace(table, frame=with_shapes(table.frame, shapes)) if known else table
