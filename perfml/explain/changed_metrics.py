"""Which metrics changed by more than their own noise over the repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns

FACTOR = 3.0
"""A metric changed if the means differ by more than this many standard deviations of a repeat."""

ROUNDING = 1e-4
"""Profilers write percentages with two decimals; a fraction's noise is never less."""


def compare_metrics(baseline: pd.DataFrame, target: pd.DataFrame) -> pd.DataFrame:
    """Compare the metrics of one layer.

    Parameters
    ----------
    baseline, target
        Rows of one layer of a Layers table, one a repeat.

    Returns
    -------
    DataFrame
        ``metric, baseline, target, difference, noise, changed``, the clearest first. ``noise`` is
        the larger standard deviation of a repeat on either side. ``changed`` is True where the
        means differ by more than `FACTOR` times the noise and the repeats do not overlap, or
        where only one side has the metric; missing where either side has no two repeats to tell.
    """
    catalogue = load_catalogue()
    rows = []
    names = [*metric_columns(baseline)]
    names += [name for name in metric_columns(target) if name not in names]
    before, after = _known_values(baseline, names), _known_values(target, names)
    for name in names:
        left, right = before[name], after[name]
        if not len(left) and not len(right):
            continue
        difference = _mean(right) - _mean(left)
        noise: float = np.nan
        changed: bool | None = None
        if not len(left) or not len(right):
            changed = True
        elif len(left) > 1 and len(right) > 1:
            floor = ROUNDING if catalogue[name].kind in ("fraction", "level") else 0.0
            noise = max(float(left.std(ddof=1)), float(right.std(ddof=1)), floor)
            apart = left.max() < right.min() or right.max() < left.min()
            changed = bool(apart and abs(difference) > FACTOR * noise)
        rows.append((name, _mean(left), _mean(right), difference, noise, changed))
    frame = pd.DataFrame(
        rows, columns=["metric", "baseline", "target", "difference", "noise", "changed"]
    )
    frame["changed"] = frame["changed"].astype("boolean")
    return sort_metrics(frame, None)


def sort_metrics(frame: pd.DataFrame, attributed: dict[str, float] | None) -> pd.DataFrame:
    """Sort changed metrics first: by what a model attributes to them, or by relative change."""
    scale = frame[["baseline", "target"]].abs().max(axis=1)
    size = frame["difference"].abs() / scale.where(scale > 0)
    # a side that lacks the metric is the largest change; 0 on both sides is none
    size = size.mask(scale == 0, 0.0).fillna(1.0)
    key = pd.DataFrame({"changed": frame["changed"].fillna(False).astype(int), "size": size})
    order = ["changed", "size"]
    if attributed is not None:
        key["model"] = frame["metric"].map(attributed).abs().fillna(0.0).round(12)
        order = ["changed", "model", "size"]
    places = key.sort_values(order, ascending=False, kind="stable").index
    return frame.loc[places].reset_index(drop=True)


def _known_values(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Array]:
    """Return what was collected of every metric; nothing for one that the table lacks."""
    held = [name for name in names if name in rows.columns]
    table = rows[held].to_numpy(dtype=float, na_value=np.nan)
    known = ~np.isnan(table)
    values = dict.fromkeys(names, np.empty(0))
    return values | {name: table[known[:, at], at] for at, name in enumerate(held)}


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
