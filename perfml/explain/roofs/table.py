"""The roofline of a table's usual rows: repeats of a layer or launch taken together."""

from __future__ import annotations

import pandas as pd

from perfml.explain.roofs.by_layer import roofline
from perfml.explain.roofs.peaks import Peaks

_KEYS = ("backend", "precision", "batch", "layer", "kernel")


def usual_roofline(table: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    """Return one row a layer (or kernel of a layer) and condition: means over its repeats.

    There are ``layer``, conditions, and the columns of `perfml.explain.roofline`; ``bound`` is the
    one that most repeats have. Sorted by condition, in the table's order of layers.
    """
    found = roofline(table, peaks)
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
