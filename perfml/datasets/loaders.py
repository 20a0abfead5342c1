"""Loaders in the manner of scikit-learn: ``load_*()`` returns a `sklearn.utils.Bunch`.

Parameters, result and errors of all are those of `load_h200_yolov4_tiny`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.opening import load
from perfml.datasets.registry import find, get
from perfml.datasets.table_files import part_files, read_parts
from perfml.metrics import PUBLISHED


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
