"""`perfml.predict`: the answer of the verb predict, asked in Python; the table it compares with."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import find, read_input
from perfml.datasets.table_files import read_parts
from perfml.errors import PerfmlError
from perfml.predict.compare import predict as compare
from perfml.predict.describe import prepare_layers
from perfml.predict.learned import Kept, folders_of, kept_in
from perfml.predict.results import Prediction
from perfml.util.typing import Progress


def predict(
    data: pd.DataFrame | str | Path,
    *,
    model: str = "atlas",
    kernels: pd.DataFrame | None = None,
    top: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Prediction:
    """Say which layers are slower than layers like them in other networks, and why.

    Parameters
    ----------
    data
        A Layers table, or the name of a profile, a run's folder, a table or a data set.
    model
        What to compare with: ``atlas``, or a table or folder of runs of other networks.
    kernels
        The Kernels table behind a Layers table.
    top
        Slow layers to explain.
    seed
        Of the model, where one has to be fitted.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    Prediction
        Every layer with what is usual, ``slower`` the slow ones, the largest loss first.

    Raises
    ------
    PerfmlError
        If the data cannot be read, or have no layers that the reference knows.

    Examples
    --------
    >>> import perfml
    >>> found = perfml.predict("h200-yolov4-tiny")  # doctest: +SKIP
    >>> [layer.name for layer in found.slower]  # doctest: +SKIP
    """
    provenance: Mapping[str, Any] = {}
    if isinstance(data, pd.DataFrame):
        layers = data
    else:
        given = read_input(data)
        layers, provenance = given.layers, given.provenance
        kernels = given.kernels if kernels is None else kernels
    return compare(
        layers,
        reference(model),
        provenance=provenance,
        reference_name=model,
        kernels=kernels,
        top=top,
        seed=seed,
        progress=progress,
        kept=kept(model),
    )


ATLAS = "atlas"
"""The data set that comes with perfml."""


@functools.lru_cache(maxsize=1)
def reference(name: str = ATLAS) -> pd.DataFrame:
    """Return prepared rows to compare with (`perfml.predict.prepare_layers`).

    `name` is ``atlas``, or a Layers table, run or folder of runs of other networks. Raises
    `PerfmlError` if it is no such thing, or does not say what its layers compute.
    """
    folder = find(ATLAS) if name == ATLAS else None
    if folder is not None:
        # without the launches, which take longer to read than all else
        tables = [read_parts(part, "layers") for part in folders_of(folder)]
        parts = [prepare_layers(table.frame, table.provenance) for table in tables]
        if parts:
            return pd.concat(parts, ignore_index=True)
    given = read_input(name)
    rows = prepare_layers(given.layers, given.provenance)
    if rows["kind"].isna().all():
        msg = "this cannot be compared with: it does not say what its layers compute"
        cure = "Runs of perfml collect torch:... do, and tables that were made of them."
        raise PerfmlError(msg, where=name, cure=cure)
    return rows


@functools.lru_cache(maxsize=1)
def kept(name: str = ATLAS) -> Kept | None:
    """Return what was fitted on the whole atlas and is kept beside it; None for other tables.

    Raises `PerfmlError` if it is damaged.
    """
    folder = find(ATLAS) if name == ATLAS else None
    return None if folder is None else kept_in(folder)
