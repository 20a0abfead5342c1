"""What verbs on a dataset share: their options, and the table they name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.complete import conditions, datasets
from perfml.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from perfml.explain.roofs.peaks import Peaks
    from perfml.tables import Table

Dataset = Annotated[
    str,
    typer.Argument(
        help="layers.parquet, dataset.csv, or a dataset's name.", autocompletion=datasets
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of splits, models and resamples.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable.",
        autocompletion=conditions,
    ),
]
PeaksFile = Annotated[
    str | None,
    typer.Option(
        "--peaks",
        help="File of perfml doctor --measure-peaks, or: measured, data-sheet. "
        "By default measured ones, completed by the vendor's.",
    ),
]


def load_dataset(
    dataset: str,
    where: list[str] | None,
    out_: Output,
    load: Callable[[str], Table] | None = None,
) -> Table:
    """Return the table that a verb was given, with the rows that ``--where`` keeps.

    It is loaded by `perfml.datasets.load`, or by `load`.
    """
    import warnings

    from perfml.datasets import load as load_layers
    from perfml.explain.load import only
    from perfml.tables import Table

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = (load or load_layers)(dataset)
    for each in caught:
        out_.warn(str(each.message))
    if not where:
        return Table(table.frame, table.kind, {**table.provenance})
    frame = only(table.frame, where)
    return Table(frame, table.kind, {**table.provenance, "where": where})


def provenance_of(dataset: str) -> dict[str, Any]:
    """Return where a dataset that a verb was given comes from."""
    from perfml.datasets import load
    from perfml.tables import read_table

    path = Path(dataset)
    if path.is_file() and path.suffix == ".parquet":
        return dict(read_table(path).provenance)
    return dict(load(dataset).provenance)


def peaks_given(given: str | None, table: pd.DataFrame) -> Peaks | None:
    """Return the peaks that --peaks names; None where the device's own are to be taken."""
    from perfml.explain.roofs.peaks import DATA_SHEET, MEASURED, known_peaks, load_peaks

    if given is None:
        return None
    if given not in ("measured", "data-sheet"):
        return load_peaks(given)
    devices = sorted(map(str, table["device"].dropna().unique()))
    return known_peaks(", ".join(devices), MEASURED if given == "measured" else DATA_SHEET)
