"""What Python users start from: a data set or a profile as a pandas table, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from perfml.datasets.loading import read_given


def read(source: str | Path, *, where: Sequence[str] = ()) -> pd.DataFrame:
    """Read a profile, a folder of profiles or a Kernels table: one row a kernel launch.

    Parameters
    ----------
    source
        Recognised by content; ``FILE@3`` is the fourth launch of a file. A recorded data set's
        name will do, too.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.

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
    given = read_given(source, where=where)
    frame = given.untimed
    frame.attrs["warnings"] = list(given.warnings)
    return frame


def load_dataset(name: str | Path, *, where: Sequence[str] = ()) -> pd.DataFrame:
    """Load a data set as layers: one row a layer, run and repeat.

    Parameters
    ----------
    name
        Of a recorded data set (``perfml datasets list`` names them), or what `read` takes, or a
        Layers table.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.

    Returns
    -------
    DataFrame
        A Layers table: what `rank`, `evaluate`, `advise`, `report` and `plot` take.

    Raises
    ------
    PerfmlError
        If it is no such thing, or no launch lies in a range.

    Examples
    --------
    >>> import perfml
    >>> layers = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    >>> sorted(layers["backend"].unique())
    ['cublas', 'cudnn', 'inductor']
    """
    given = read_given(name, where=where)
    frame = given.layers
    frame.attrs["warnings"] = list(given.warnings)
    return frame
