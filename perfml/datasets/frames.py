"""What Python users start from: a data set or a profile as a pandas table, in one call."""

from __future__ import annotations

import pandas as pd

from perfml.datasets.opening import Where, read_input
from perfml.datasets.selection import Source
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
    frame.attrs["warnings"] = list(found.warnings)
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
    frame.attrs["warnings"] = [*found.warnings, *([] if found.ranged else [BY_KERNEL])]
    return frame
