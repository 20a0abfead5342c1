"""What Python users start from: a data set or a profile as a pandas table, in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pandas as pd

from perfml.datasets.loading import PROVENANCE, noted
from perfml.datasets.opening import Where, load, read_input
from perfml.datasets.registry import find, get
from perfml.datasets.selection import Source
from perfml.datasets.table_files import part_files, read_parts
from perfml.ingest.merge.rule import merge
from perfml.metrics import PUBLISHED
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


def load_h200_yolov4_tiny(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load YOLOv4-Tiny as recorded on an H200: layers x backends x precisions x batches x repeats.

    Parameters
    ----------
    as_frame
        Give ``data`` and ``target`` as pandas objects, and ``frame`` with the whole Layers table.
    return_X_y
        Return ``(data, target)`` alone.

    Returns
    -------
    Bunch or tuple
        ``data`` of shape (n, 19): the published metrics (NaN where undefined); ``target`` of
        shape (n,): the layer's time in microseconds; ``feature_names``; ``DESCR``: the data card;
        ``provenance``; ``frame``: the Layers table, or None unless `as_frame`.

    Raises
    ------
    PerfmlError
        If the recordings are not beside perfml.
    """
    return load_bunch("h200-yolov4-tiny", as_frame=as_frame, return_X_y=return_X_y)


def load_atlas(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the atlas: layers of many networks, with kinds, shapes, amounts of work and counters.

    ``frame`` has a row a layer and timed process, and the facts of each layer
    (`perfml.modeling.layer_shapes.FACTS`) as columns. Every single repeat is in ``times.parquet``
    beside it.
    """
    return load_bunch("atlas", as_frame=as_frame, return_X_y=return_X_y)


def load_nazir2024(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the published dataset (GTX 1050 Ti), downloading it where it is not here.

    ``frame`` has the inferred layer.
    """
    return load_bunch("nazir2024", as_frame=as_frame, return_X_y=return_X_y)


def load_bunch(name: str, *, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load any dataset by name as `load_h200_yolov4_tiny` does, the studies' too in a checkout."""
    folder = find(name)
    in_parts = folder is not None and part_files(folder, "layers")
    # the launches behind a table in parts are many, and nobody asked for them
    table = read_parts(folder, "layers") if folder is not None and in_parts else load(name)
    frame = table.frame
    features: pd.DataFrame = frame.reindex(columns=list(PUBLISHED))
    time = frame["time_us"]
    data = features if as_frame else features.to_numpy(dtype=float)
    target = time if as_frame else time.to_numpy(dtype=float)
    if return_X_y:
        return data, target
    from sklearn.utils import Bunch  # takes a second to import

    return Bunch(
        data=data,
        target=target,
        frame=frame if as_frame else None,
        feature_names=list(PUBLISHED),
        target_names=["time_us"],
        DESCR=_card(name),
        provenance=table.provenance,
    )


def _card(name: str) -> str:
    path = find(name)
    card = path / "README.md" if path is not None and path.is_dir() else Path()
    return card.read_text(encoding="utf-8") if card.is_file() else get(name).what
