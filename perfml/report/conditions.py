"""Layers to what a reader compares: times a layer and backend, under one condition at a time.

A condition is what must be equal for two backends to be compared: workload, device, precision
and batch. Times of different conditions are never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import TableError
from perfml.explain.confidence import Confidence, is_worth_mixing, least_sure, of_lead
from perfml.kernel_names import kernel_label
from perfml.report.labels import clean, short_models
from perfml.util.words import listed

_CONDITION = ("workload", "device", "precision", "batch")
EVERY_RUN = "all runs"
_NO_LAYER = "(no layer)"
_NO_BACKEND = "(unnamed)"
UNNAMED = {"unknown": "this profile"}
"""What people read for the backend of a profile whose name and options tell none."""


@dataclass(frozen=True)
class Condition:
    """The times of every backend under one condition."""

    label: str  # what tells it from the other conditions, such as ``fp32, batch 8``
    key: dict[str, object]  # column to value: what its rows have in common
    rows: pd.DataFrame  # of the Layers table, with names

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """Names, in order of appearance."""
        return tuple(dict.fromkeys(self.rows["backend"]))

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names, in order of appearance."""
        return tuple(dict.fromkeys(self.rows["layer"]))

    @cached_property
    def noun(self) -> str:
        """What a layer is: ``kernel`` where all are named after kernels, as without ranges."""
        if "kernel_names" not in self.rows.columns:
            return "layer"
        pairs = self.rows[["layer", "kernel_names"]].dropna().drop_duplicates().to_numpy().tolist()
        labels = [(layer, kernel_label(names.partition("\n")[0])) for layer, names in pairs]
        named = all(layer.startswith(label) for layer, label in labels)
        return "kernel" if labels and named else "layer"

    @cached_property
    def times(self) -> pd.DataFrame:
        """``layer, backend, median, low, high, repeats, kernels``, in microseconds.

        ``low`` and ``high`` are the fastest and slowest repeat, NaN when there is only one.
        """
        return layer_stats(self.rows)

    @cached_property
    def totals(self) -> pd.DataFrame:
        """``backend, total, low, high, layers``, fastest first: of layers that all backends ran."""
        return _totals(self.rows)

    @cached_property
    def winners(self) -> pd.DataFrame:
        """``layer, fastest, runner_up, ratio, clear``: a row a layer of two or more backends.

        ``clear`` is 1 when no repeat of the fastest overlaps one of any other, 0 when one does, NaN
        when a spread is unknown.
        """
        return _winners(self.times)

    def select(self, kernels: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a Kernels table that belong to this condition's layers."""
        keep = kernels["backend"].isin(self.backends)
        keep &= kernels["layer"].isin(self.layers) | kernels["layer"].isna()
        for name, value in self.key.items():
            if name in kernels.columns:
                missing = bool(pd.isna(value))  # type: ignore[call-overload]
                keep &= kernels[name].isna() if missing else (kernels[name] == value).fillna(False)
        return kernels[keep.astype(bool)]

    @property
    def slowest(self) -> dict[str, Any] | None:
        """The row of `times` with the longest time, or None when no layer has one."""
        timed = self.times[self.times["median"].notna()]
        rows = timed.nlargest(1, "median").to_dict("records")
        return {str(name): value for name, value in rows[0].items()} if rows else None

    @property
    def fastest_us(self) -> float:
        """What the fastest backend takes for all layers."""
        return float(self.totals["total"].iloc[0])

    @property
    def common(self) -> int:
        """How many layers every backend ran."""
        return int(self.totals["layers"].iloc[0]) if len(self.totals) else 0


def named_layers(layers: pd.DataFrame) -> pd.DataFrame:
    """Return a Layers table with every backend and layer named, as printable text.

    Raises `TableError` if there are no rows, or a column that times need is missing.
    """
    missing = [name for name in ("backend", "time_us") if name not in layers.columns]
    if missing:
        msg = f"columns are missing: {', '.join(missing)}"
        raise TableError(msg, where="report", cure="Give a Layers table: perfml merge.")
    if layers.empty:
        msg = "there are no layers to report"
        raise TableError(msg, where="report", cure="Merge a Kernels table that has layers.")
    frame = layers.copy(deep=False)
    frame["backend"] = _texts(frame["backend"], _NO_BACKEND).replace(UNNAMED)
    names = frame["layer"] if "layer" in frame.columns else pd.Series(None, index=frame.index)
    frame["layer"] = _texts(names, _NO_LAYER)
    frame["time_us"] = pd.to_numeric(frame["time_us"], errors="coerce").astype(float)
    return frame.reset_index(drop=True)


def _texts(names: pd.Series, missing: str) -> pd.Series:
    kept = {name: clean(name, 200) for name in names.dropna().unique()}
    return names.map(kept).astype(object).where(names.notna(), missing)


def labelled(text: str, label: str) -> str:
    """Return a text with the condition that it holds under, where that tells anything.

    Examples
    --------
    >>> labelled("Time of every layer", "fp32, batch 1"), labelled("Time of every layer", EVERY_RUN)
    ('Time of every layer, fp32, batch 1', 'Time of every layer')
    """
    return text if label in ("", EVERY_RUN) else f"{text}, {label}"


def conditions(layers: pd.DataFrame | Sequence[Condition]) -> list[Condition]:
    """Split a Layers table into conditions, in order of appearance; those that are stay.

    Raises `TableError` if the table is empty or lacks the columns that times need.
    """
    if not isinstance(layers, pd.DataFrame):
        return list(layers)
    frame = named_layers(layers)
    keys = [name for name in _CONDITION if name in frame.columns and frame[name].notna().any()]
    if not keys:
        return [Condition(EVERY_RUN, {}, frame)]
    found = [
        (dict(zip(keys, key, strict=True)), part)
        for key, part in frame.groupby(keys, dropna=False, sort=False)
    ]
    varying = [name for name in keys if len(frame[name].unique()) > 1]
    shown = [name for name in keys if name in varying or name in ("precision", "batch")]
    names = short_models(
        str(key["workload"]) for key, _ in found if key.get("workload") is not None
    )
    return [
        Condition(_label(key, shown, names), key, part.reset_index(drop=True))
        for key, part in found
    ]


def settings(layers: pd.DataFrame) -> str:
    """Return the precisions and batch sizes of some rows, such as ``fp32, batch 1 and 8``.

    Examples
    --------
    >>> settings(pd.DataFrame({"precision": ["fp32", "fp32"], "batch": [8, 1]}))
    'fp32, batch 1 and 8'
    """
    told = []
    if "precision" in layers.columns:
        names = [clean(name, 40) for name in layers["precision"].dropna().unique()]
        told.append(listed([name for name in names if name != "unknown"], 6))
    if "batch" in layers.columns:
        sizes = sorted({int(float(str(size))) for size in layers["batch"].dropna().unique()})
        told.append(f"batch {listed([str(size) for size in sizes], 6)}" if sizes else "")
    return ", ".join(part for part in told if part)


def _label(values: dict[str, object], shown: Sequence[str], names: Mapping[str, str]) -> str:
    parts = []
    for name in shown:
        value = values[name]
        if pd.isna(value):  # type: ignore[call-overload]
            continue
        if name == "batch":
            parts.append(f"batch {int(float(str(value)))}")
        elif str(value) != "unknown":
            parts.append(clean(names.get(str(value), value), 80))
    return ", ".join(parts) or EVERY_RUN


def layer_stats(rows: pd.DataFrame) -> pd.DataFrame:
    """Return median and spread of every layer and backend of one condition.

    Rows have names (`named_layers`). Columns are ``layer, backend, median, low, high, repeats,
    kernels``, in order of appearance.
    """
    grouped = rows.groupby(["layer", "backend"], sort=False)
    stats = grouped["time_us"].agg(["median", "min", "max", "count"]).reset_index()
    stats.columns = ["layer", "backend", "median", "low", "high", "repeats"]
    single = stats["repeats"] < 2
    stats.loc[single, ["low", "high"]] = math.nan
    if "kernels" in rows.columns:
        stats["kernels"] = grouped["kernels"].median().to_numpy(dtype=float)
    else:
        stats["kernels"] = math.nan
    return stats


def _repeats(rows: pd.DataFrame) -> pd.Series:
    """Number the repeats: a run and iteration where they are known, else a row's own place."""
    keys = [name for name in ("run_id", "iteration") if name in rows.columns]
    keys = [name for name in keys if rows[name].notna().any()]
    if not keys:
        return rows.groupby(["backend", "layer"], sort=False).cumcount()
    return rows.groupby(keys, dropna=False, sort=False).ngroup()


def _totals(rows: pd.DataFrame) -> pd.DataFrame:
    measured = rows[rows["time_us"].notna()]
    backends = list(dict.fromkeys(measured["backend"]))
    layer_sets = [set(measured.loc[measured["backend"] == name, "layer"]) for name in backends]
    common = set.intersection(*layer_sets) if layer_sets else set()
    inside = measured[measured["layer"].isin(common)].assign(repeat=_repeats(measured))
    records = []
    for name in backends:
        mine = inside[inside["backend"] == name]
        # a repeat that lacks a layer has no total, and devices that work side by side no sum
        complete = mine.groupby("repeat")["layer"].nunique() == mine["layer"].nunique()
        whole = mine[mine["repeat"].map(complete).astype(bool)]
        devices = (
            whole["device_id"].fillna(0) if "device_id" in whole.columns else 0 * whole["time_us"]
        )
        each = whole["time_us"].groupby([whole["repeat"], devices]).sum()
        sums = each.groupby(level=0).max().to_numpy(dtype=float)
        if len(sums):
            total = float(np.median(sums))
        else:
            total = (
                float(mine.groupby("layer")["time_us"].median().sum()) if len(mine) else math.nan
            )
        spread = (sums.min(), sums.max()) if len(sums) > 1 else (math.nan, math.nan)
        records.append((name, total, *spread, len(common)))
    totals = pd.DataFrame(records, columns=["backend", "total", "low", "high", "layers"])
    return totals.sort_values("total", kind="stable", ignore_index=True)


def _winners(times: pd.DataFrame) -> pd.DataFrame:
    by_layer: dict[str, list[dict[Any, Any]]] = {}
    for row in times[times["median"].notna()].to_dict("records"):
        by_layer.setdefault(row["layer"], []).append(row)
    records = []
    for layer, rows in by_layer.items():
        if len(rows) < 2:
            continue
        first, *others = sorted(rows, key=itemgetter("median"))
        lows = [other["low"] for other in others]
        unknown = any(math.isnan(bound) for bound in (first["high"], *lows))
        clear = math.nan if unknown else float(first["high"] < min(lows))
        second = others[0]
        ratio = float(second["median"] / first["median"]) if first["median"] > 0 else math.nan
        records.append((layer, first["backend"], second["backend"], ratio, clear))
    return pd.DataFrame(records, columns=["layer", "fastest", "runner_up", "ratio", "clear"])


def wins(shown: Sequence[Condition]) -> list[tuple[str, list[str]]]:
    """Return the labels of the conditions in which each backend is fastest, most often first."""
    won: dict[str, list[str]] = {}
    for condition in shown:
        won.setdefault(str(condition.totals["backend"].iloc[0]), []).append(condition.label)
    return sorted(won.items(), key=lambda entry: -len(entry[1]))


def sure_of_totals(*shown: Condition) -> Confidence:
    """Return how surely the fastest backend is the fastest; of conditions the least sure one."""
    words = []
    for condition in shown:
        totals = condition.totals[condition.totals["total"].notna()]
        first, lows = totals.iloc[0], totals["low"].iloc[1:].min(skipna=False)
        words.append(of_lead(float(first["total"]), float(first["high"]), float(lows)))
    return least_sure(*words)


def mixed(shown: Sequence[Condition]) -> list[tuple[float, Condition, pd.Series[float]]]:
    """Return what the fastest backend of every layer would save, the largest share first.

    That is the share of the time, 0 where it is too small to be worth it, the condition, and the
    microseconds by layer, the largest first. Of one layer there is nothing to mix.
    """
    found = []
    for condition in shown:
        wide = condition.times.pivot_table(index="layer", columns="backend", values="median")
        wide, fastest = wide.dropna(), str(condition.totals["backend"].iloc[0])
        if len(wide) > 1 and fastest in wide.columns:
            saved = (wide[fastest] - wide.min(axis=1)).sort_values(ascending=False)
            share = float(saved.sum()) / condition.fastest_us
            found.append((share if is_worth_mixing(share) else 0.0, condition, saved))
    return sorted(found, key=lambda entry: -entry[0])
