"""Which metrics of a layer changed by more than their noise, and what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd

from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns
from perfml.util.json_values import Document, json_object

FACTOR = 3.0
"""A metric changed if the means differ by more than this many standard deviations of a repeat."""

ROUNDING = 1e-4  # profilers write percentages with two decimals; a fraction's noise is never less


ChangedMetric = Document(
    "ChangedMetric",
    {
        "metric": str,
        "baseline": float,
        "target": float,
        "difference": float,
        "noise": (float, "the larger standard deviation of a repeat on either side"),
        "changed": (bool | None, "beyond its noise; null without two repeats a side"),
    },
    words="A metric of both sides.",
)


ModelValue = Document(
    "ModelValue",
    {
        "metric": str,
        "family": str | None,
        "baseline": float,
        "target": float,
        "log_ratio": float,
    },
    words="A metric's part in a model's prediction.",
)


@dataclass(frozen=True)
class ModelAttribution:
    """How a fitted model gets from the baseline's prediction to the target's.

    Attributes
    ----------
    model
        Its name in the registry; it was fitted to the logarithm of the time.
    values
        One `ModelValue` a metric: exact Shapley values with the baseline as background, which add
        up to `predicted_log_ratio`.
    predicted_log_ratio
        Of the model fitted with this layer.
    held_out_log_ratio
        Predicted by the same model fitted without this layer; None if nothing is left to fit.
    held_out_errors
        Relative errors of that model on the baseline's and the target's time, or None.
    training_rows
        Rows the model was fitted to.
    """

    model: str
    values: Annotated[pd.DataFrame, ModelValue]
    predicted_log_ratio: float
    held_out_log_ratio: float | None
    held_out_errors: tuple[float, float] | None
    training_rows: int

    @property
    def by_metric(self) -> dict[str, float]:
        """The values alone, by metric."""
        return dict(zip(self.values["metric"], self.values["log_ratio"].tolist(), strict=True))

    @property
    def target(self) -> str:
        """What it was fitted to."""
        return "log-time"

    JSON: ClassVar = (
        *("model", "target", "values", "predicted_log_ratio", "held_out_log_ratio"),
        *("held_out_errors", "training_rows"),
    )
    to_dict = json_object


def compare_metrics(baseline: pd.DataFrame, target: pd.DataFrame) -> pd.DataFrame:
    """Compare the metrics of one layer."""
    # Both sides are rows of a Layers table, one a repeat; returned is one `ChangedMetric` a metric,
    # the clearest first.
    catalogue = load_catalogue()
    rows = []
    names = list(dict.fromkeys([*metric_columns(baseline), *metric_columns(target)]))
    before, after = _repeats(baseline, names), _repeats(target, names)
    for name in names:
        left, right = before.get(name), after.get(name)
        if left is None and right is None:
            continue
        noise: float = np.nan
        changed: bool | None = None
        means = [np.nan if each is None else each[1] for each in (left, right)]
        difference = means[1] - means[0]
        if left is None or right is None:
            changed = True
        elif left[0] > 1 and right[0] > 1:
            floor = ROUNDING if catalogue[name].kind in ("fraction", "level") else 0.0
            (_, _, std, least, most), (_, _, other_std, other_least, other_most) = left, right
            noise = max(std, other_std, floor)
            apart = most < other_least or other_most < least
            changed = apart and abs(difference) > FACTOR * noise
        rows.append((name, *means, difference, noise, changed))
    frame = pd.DataFrame(rows, columns=list(ChangedMetric.keys))
    return sort_metrics(frame.astype({"changed": "boolean"}), None)


def sort_metrics(frame: pd.DataFrame, attributed: dict[str, float] | None) -> pd.DataFrame:
    """Sort changed metrics first: by what a model attributes to them, or by relative change."""
    before, after, difference = (
        np.abs(frame[name].to_numpy(dtype=float)) for name in ("baseline", "target", "difference")
    )
    scale = np.fmax(before, after)
    # a side that lacks the metric is the largest change; 0 on both sides is none
    size = np.ones(len(frame))
    np.divide(difference, scale, out=size, where=scale > 0)
    size = np.where(scale == 0, 0.0, np.where(np.isnan(size), 1.0, size))
    changed = frame["changed"].to_numpy(dtype=bool, na_value=False)
    keys = [-size, ~changed]
    if attributed is not None:
        model = frame["metric"].map(attributed).abs().fillna(0.0).round(12)
        keys.insert(1, -model.to_numpy(dtype=float))
    return frame.iloc[np.lexsort(keys)].reset_index(drop=True)


_Repeats = tuple[int, float, float, float, float]
"""The repeats in which a metric was collected: their number, mean, scatter, least and most."""


def _repeats(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, _Repeats]:
    """Return the repeats of every metric; nothing of one that was never collected."""
    columns = set(rows.columns)
    held = [name for name in names if name in columns]
    # a row a metric: numpy adds up a row as it does an array of its own
    table = np.ascontiguousarray(rows[held].to_numpy(dtype=float, na_value=np.nan).T)
    known = ~np.isnan(table)
    whole = known.all(axis=1) if len(rows) else np.zeros(len(held), dtype=bool)
    found = dict(zip(compress(held, whole), _described(table[whole]), strict=True))
    for at in np.flatnonzero(known.any(axis=1) & ~whole):
        (found[held[at]],) = _described(table[at : at + 1, known[at]])
    return found


def _described(values: Array) -> list[_Repeats]:
    """Return what each row is like."""
    count = values.shape[1]
    stds = values.std(axis=1, ddof=1) if count > 1 else np.full(len(values), np.nan)
    columns = (values.mean(axis=1), stds, values.min(axis=1), values.max(axis=1))
    rows = zip(*(each.tolist() for each in columns), strict=True)
    return [(count, *each) for each in rows]
