"""`perfml.roofline`: the rows of the verb roofline, repeats of a layer or launch taken together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from perfml.datasets.loading import DEVICE_FACTS
from perfml.datasets.opening import read_input
from perfml.explain.roofs import by_layer
from perfml.explain.roofs.by_layer import with_described_flops
from perfml.explain.roofs.peaks import Peaks, peaks_of

_KEYS = ("backend", "precision", "batch", "layer", "kernel")


def usual_roofline(table: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    """Return one row a layer (or kernel of a layer) and condition: means over its repeats."""
    # There are ``layer``, conditions, and the columns of `perfml.explain.roofline`; ``bound`` is
    # the one that most repeats have. Sorted by condition, in the table's order of layers.
    found = by_layer.roofline(table, peaks)
    keys = [name for name in _KEYS if name in found.columns]
    numbers = [
        name for name in found.columns if name not in (*keys, "bound", "flops_source", "iteration")
    ]
    groups = found.groupby(keys, dropna=False, sort=False)
    means = groups[numbers].mean()
    for name in ("flops_source", "bound"):
        means[name] = groups[name].agg(_usual)
    means = means.reset_index()
    order = ["layer", *(name for name in keys if name != "layer"), *numbers[:-1], "bound"]
    return means[[*order, "fraction", "flops_source"]]


def _usual(values: pd.Series) -> object:
    counts = values.dropna().value_counts()
    return counts.index[0] if len(counts) else pd.NA


def roofline(
    data: pd.DataFrame | str | Path, *, peaks: Mapping[str, float] | Peaks | None = None
) -> pd.DataFrame:
    """Place layers or kernels under the roofs of their device.

    Parameters
    ----------
    data
        A Layers or Kernels table, or the name of a profile, a run's folder, a table or a data set
        (then its layers).
    peaks
        FLOP/s by precision and byte/s by memory (``dram``, ``l2``, ``l1``); what is known of the
        device without.

    Returns
    -------
    DataFrame
        A row a layer or kernel: ``time_us``, ``flop_rate`` (FLOP/s), intensities (FLOP/byte),
        ``bound`` (what limits it) and ``fraction`` of that roof.

    Raises
    ------
    PerfmlError
        If the data cannot be read, or nothing was counted that a roofline needs.

    Examples
    --------
    >>> import perfml
    >>> rows = perfml.roofline("profile.ncu-rep")  # doctest: +SKIP
    >>> rows.nsmallest(5, "fraction")  # doctest: +SKIP
    """
    if isinstance(data, pd.DataFrame):
        table = data
    else:
        given = read_input(data).in_layers
        table = with_described_flops(given.layers, given.provenance)
    devices = sorted(map(str, table["device"].dropna().unique()))
    return usual_roofline(table, peaks_of(devices, peaks, table.attrs.get(DEVICE_FACTS)))
