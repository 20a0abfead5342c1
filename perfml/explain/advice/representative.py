"""The usual launches of every layer: repeats taken together, one row a launch or merged layer."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfml.account.device_time import OFTEN
from perfml.explain.launches import kernel_label
from perfml.tables import PRODUCT_COLUMNS, metric_columns

CONDITIONS = ("workload", "backend", "precision", "batch", "device", "compute_capability")
"""What repeats of a layer have in common; rows that share all of it are pooled."""

LABEL = 64
"""Characters of a kernel's name in the label of a launch."""


def condition_keys(frame: pd.DataFrame) -> list[str]:
    """Return the columns that tell layers and conditions apart."""
    return [*(name for name in CONDITIONS if name in frame.columns), "layer"]


def representative_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the usual launches of every layer: means of times, medians of metrics."""
    frame = kernels.copy()
    keys = condition_keys(frame)
    repeat = [*keys, *(name for name in ("run_id", "iteration") if name in frame.columns)]
    frame = frame.sort_values("kernel_index", kind="stable")
    frame["place"] = frame.groupby(repeat, dropna=False, sort=False).cumcount()
    frame["group"] = frame.groupby(keys, dropna=False, sort=False).ngroup()
    repeats = (
        frame.drop_duplicates(["group", *repeat[len(keys) :]]).groupby("group")["place"].size()
    )
    medians = dict.fromkeys(metric_columns(frame), "median")
    sizes = [name for name in PRODUCT_COLUMNS if name in frame.columns]
    firsts = dict.fromkeys([*keys, "grid", "block", *sizes], "first")
    groups = frame.groupby(["group", "place", "kernel"], sort=True)
    plan: dict[Any, Any] = {**firsts, "time_us": "mean", **medians}
    usual = groups.agg(plan).copy().assign(count=groups.size()).reset_index().copy()
    # what fewer than half of the repeats launch is not the layer's usual work
    kept = usual["count"] * 2 > usual["group"].map(repeats)
    usual = usual[kept].sort_values(["group", "place"], kind="stable").reset_index(drop=True)
    total = usual.groupby("group")["time_us"].transform("sum")
    labels = {name: kernel_label(str(name), LABEL) for name in usual["kernel"].unique()}
    often = frame.groupby("group")[OFTEN].first() if OFTEN in frame.columns else None
    added = {
        # of a row that is one launch of a kernel the layer are all of them
        "layer_us": total if often is None else total * usual["group"].map(often),
        "share": usual["time_us"] / total,
        "label": usual["kernel"].map(labels),
    }
    return pd.concat([usual, pd.DataFrame(added)], axis=1)


def merged_rows(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row a layer, as if it were one launch."""
    frame = layers.copy()
    keys = condition_keys(frame)
    frame["group"] = frame.groupby(keys, dropna=False, sort=False).ngroup()
    numbers = [name for name in ("kernels", "time_us") if name in frame.columns]
    plan: dict[Any, Any] = {
        **dict.fromkeys(keys, "first"),
        **dict.fromkeys([*numbers, *metric_columns(frame)], "mean"),
    }
    usual = frame.groupby("group", sort=True).agg(plan).reset_index()
    usual["layer_us"] = usual["time_us"]
    usual["share"] = 1.0
    usual["label"] = "whole layer"
    return usual


def part_of_all(rows: pd.DataFrame) -> pd.Series:
    """Return each layer's part of the time of all layers that ran alike, one value a row."""
    keys = [name for name in condition_keys(rows) if name != "layer"]
    groups = rows.drop_duplicates("group")
    alike = [rows[name].astype("string").fillna("") for name in keys]
    if not alike:
        return rows["layer_us"] / groups["layer_us"].sum()
    once = rows["layer_us"].where(rows.index.isin(groups.index), 0.0)
    return rows["layer_us"] / once.groupby(alike).transform("sum")
