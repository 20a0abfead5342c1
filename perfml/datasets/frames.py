"""What Python users start from: a data set or a profile as a pandas table, in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pandas as pd

from perfml.datasets.loading import PROVENANCE, noted
from perfml.datasets.opening import Where, read_input
from perfml.datasets.selection import Source
from perfml.ingest.merge.rule import merge
from perfml.modeling.own_data import as_pandas
from perfml.modeling.ranking import rank as ranking
from perfml.modeling.scoring import evaluate as scoring
from perfml.tables import BY_KERNEL


def read(source: Source, *, where: Where = ()) -> pd.DataFrame:
    """Read a profile, a folder of profiles or a Kernels table: one row a kernel launch.

    Parameters
    ----------
    source
        Recognised by content; ``FILE@3`` is the fourth launch of a file. A recorded data set's
        name will do, too, or a `perfml.datasets.Selection`.
    where
        Conditions that rows must meet: ``COLUMN=VALUE``, several of them, or a mapping.

    Returns
    -------
    DataFrame
        A Kernels table: run, layer, kernel, ``time_us`` (microseconds) and a column a metric.
        What the reader noticed stands in ``.attrs["warnings"]``.

    Raises
    ------
    PerfmlError
        If it is no such thing, is damaged, or only merged layers are known.
    """
    found = read_input(source, where=where)
    frame = found.untimed
    frame.attrs |= {"warnings": list(found.warnings), PROVENANCE: noted(found, frame)}
    return frame


def load_dataset(name: Source, *, where: Where = ()) -> pd.DataFrame:
    """Load a data set as layers: one row a layer, run and repeat.

    Parameters
    ----------
    name
        Of a recorded data set (``perfml datasets`` names them), or what `read` takes, or a
        Layers table.
    where
        Conditions that rows must meet: ``COLUMN=VALUE``, several of them, or a mapping.

    Returns
    -------
    DataFrame
        A Layers table: what `rank`, `evaluate`, `advise`, `report` and `plot` take. Without
        ranges each kernel is a layer, and its launches are repeats.

    Raises
    ------
    PerfmlError
        If it is no such thing, or no launch has a time.

    Examples
    --------
    >>> import perfml
    >>> layers = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    >>> sorted(layers["backend"].unique())
    ['cublas', 'cudnn', 'inductor']
    """
    found = read_input(name, where=where)
    frame = found.layers
    notes = [*found.warnings, *([] if found.ranged else [BY_KERNEL])]
    frame.attrs |= {"warnings": notes, PROVENANCE: noted(found, frame)}
    return frame


Options = ParamSpec("Options")
Answer = TypeVar("Answer")


def _opened(
    function: Callable[Concatenate[Any, Options], Answer],
) -> Callable[Concatenate[Any, Options], Answer]:
    """Let a function of a Layers table take a path or a Kernels table as well."""

    @functools.wraps(function)
    def asked(X: Any, *given: Options.args, **options: Options.kwargs) -> Answer:
        X = as_pandas(X)
        own = bool(given) or options.get("y") is not None
        return function(_launches(X) if own else _layers(X), *given, **options)

    return cast("Callable[Concatenate[Any, Options], Answer]", asked)


def _launches(X: Any) -> Any:
    return read(X) if isinstance(X, Source) else X


def _layers(X: Any) -> Any:
    """Return the layers of a path or of a Kernels table; anything else as it is."""
    if isinstance(X, Source):
        return load_dataset(X)
    launches = isinstance(X, pd.DataFrame) and {"kernel", "run_id", "time_us"} <= set(X.columns)
    return merge(X) if launches else X


rank = _opened(ranking.rank)
evaluate = _opened(scoring.evaluate)
