"""A Layers table merged again from its launches, under other weights than it has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.ingest.merge.rule import Weights, merge
from perfml.tables import metric_columns

SAME_TIME = 1e-3
"""Relative difference of a row's time beyond which the kernels are of another recording."""

_KEYS = ("run_id", "workload", "backend", "precision", "batch", "iteration", "layer")


def under_both_weights(
    layers: pd.DataFrame, kernels: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a Layers table under own and under layer-mean weights, see `remerged`."""
    return remerged(layers, kernels, "own"), remerged(layers, kernels, "layer-mean")


def remerged(layers: pd.DataFrame, kernels: pd.DataFrame, weights: Weights) -> pd.DataFrame:
    """Return a Layers table with the metrics that its launches give under some weights.

    Rows, their order and columns without a metric stay as they are, so that two results differ by
    the weights only. Raises `PerfmlError` if a row has no launches, or its launches take another
    time.
    """
    inside = kernels[kernels["layer"].isin(layers["layer"].dropna().unique())]
    if inside.empty:
        msg = "no launch of the kernels belongs to a layer of the dataset"
        raise PerfmlError(msg, cure="Give the Kernels table that the dataset was merged from.")
    merged = merge(inside, weights=weights)
    place = _rows(layers, merged)
    wrong = np.flatnonzero(place < 0)
    if len(wrong):
        msg = f"{len(wrong)} of {len(layers)} rows of the dataset have no launches in the kernels"
        raise PerfmlError(
            msg,
            where=_row(layers, int(wrong[0])),
            cure="Give the Kernels table that the dataset was merged from.",
        )
    time, theirs = (
        layers["time_us"].to_numpy(dtype=float),
        merged["time_us"].to_numpy(dtype=float)[place],
    )
    wrong = np.flatnonzero(np.abs(theirs - time) > SAME_TIME * time)
    if len(wrong):
        msg = f"{len(wrong)} of {len(layers)} rows take another time than their launches"
        raise PerfmlError(
            msg,
            where=_row(layers, int(wrong[0])),
            found=f"{time[wrong[0]]:.4g} µs in the dataset, {theirs[wrong[0]]:.4g} µs in launches",
            cure="Give the Kernels table that the dataset was merged from.",
        )
    result = layers.copy()
    for name in metric_columns(layers):
        if name in merged.columns:
            result[name] = merged[name].to_numpy(dtype=float)[place]
    return result


def _rows(layers: pd.DataFrame, merged: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the row of `merged` that each row of `layers` is; -1 where there is none."""
    keys = [name for name in _KEYS if name in layers.columns and layers[name].notna().any()]
    left, right = _texts(layers, keys), _texts(merged, keys)
    if right.has_duplicates or left.has_duplicates:
        msg = "several rows of the dataset have the same keys"
        raise PerfmlError(
            msg,
            where=f"columns {', '.join(keys)}",
            cure="Use the Layers table of perfml merge, which names run and iteration.",
        )
    return np.asarray(right.get_indexer(left), dtype=np.int64)


def _texts(table: pd.DataFrame, keys: list[str]) -> pd.MultiIndex:
    return pd.MultiIndex.from_arrays(
        [table[name].astype("string").fillna("").to_numpy(dtype=object) for name in keys]
    )


def _row(layers: pd.DataFrame, row: int) -> str:
    one = layers.iloc[row]
    return f"layer {one['layer']}, backend {one['backend']}, iteration {one['iteration']}"
