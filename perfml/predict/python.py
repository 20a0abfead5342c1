"""`perfml.predict`: the answer of the verb predict, asked in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.opening import read_input
from perfml.predict.compare import predict as compare
from perfml.predict.reference import kept, reference
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
