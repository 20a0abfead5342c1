"""What verbs on a dataset share: their options, and the table they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli._complete import conditions, datasets
from perfml.cli._output import Output
from perfml.errors import PerfmlError

if TYPE_CHECKING:
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
    from perfml.tables import Table

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = (load or load_layers)(dataset)
    for each in caught:
        out_.warn(str(each.message))
    frame = table.frame
    for condition in where or []:
        column, equals, value = condition.partition("=")
        if not equals or column not in frame.columns:
            msg = f"--where needs COLUMN=VALUE with a column of the table, not {condition!r}"
            raise PerfmlError(msg, cure=f"Columns are: {', '.join(map(str, frame.columns[:12]))}.")
        kept = frame[frame[column].astype("string") == value]
        if kept.empty:
            values: list[Any] = sorted(map(str, frame[column].dropna().unique()))[:8]
            msg = f"no row has {column}={value}"
            raise PerfmlError(msg, found=", ".join(values), cure="Choose one of these values.")
        frame = kept.reset_index(drop=True)
    return Table(frame, table.kind, {**table.provenance, **({"where": where} if where else {})})
