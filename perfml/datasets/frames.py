"""What Python users start from: a data set or a profile as a pandas table, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.loading import Given, read_given
from perfml.errors import PerfmlError
from perfml.merge.rule import BY_KERNEL

Where = str | Sequence[str] | Mapping[str, Any]
"""Conditions on columns: ``"batch=1"``, several of them, or ``{"batch": 1}``."""


def read(source: str | Path, *, where: Where = ()) -> pd.DataFrame:
    """Read a profile, a folder of profiles or a Kernels table: one row a kernel launch.

    Parameters
    ----------
    source
        Recognised by content; ``FILE@3`` is the fourth launch of a file. A recorded data set's
        name will do, too.
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
    given = _given(source, where)
    frame = given.untimed
    frame.attrs["warnings"] = list(given.warnings)
    return frame


def load_dataset(name: str | Path, *, where: Where = ()) -> pd.DataFrame:
    """Load a data set as layers: one row a layer, run and repeat.

    Parameters
    ----------
    name
        Of a recorded data set (``perfml datasets list`` names them), or what `read` takes, or a
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
    given = _given(name, where)
    frame = given.layers
    by_kernel = [] if given.ranged else [BY_KERNEL]
    frame.attrs["warnings"] = [*given.warnings, *by_kernel]
    return frame


def _given(source: Any, where: Where) -> Given:
    if not isinstance(source, str | Path):
        msg = "a profile, a table or a data set is named by a path or a name"
        cure = "Give one file's path, or a folder of profiles; tables go to merge, rank, advise ..."
        raise PerfmlError(msg, found=f"a {type(source).__name__}", cure=cure)
    if isinstance(where, str):
        where = [where]
    elif isinstance(where, Mapping):
        where = [f"{column}={value}" for column, value in where.items()]
    return read_given(source, where=where)
