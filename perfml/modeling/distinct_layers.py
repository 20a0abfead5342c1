"""Which layers are one piece of evidence: copies of a layer under several names count once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.modeling.features import CONFIGURATION_COLUMNS, SHAPE_AMOUNTS, group_codes
from perfml.tables import metric_columns
from perfml.util.typing import Ints

ENOUGH_LAYERS = 5
"""Distinct layers that a ranking needs: fewer can be resampled in too few ways to say anything.

Of 4 layers drawn with replacement, one draw in four leaves two or fewer to learn from."""

SAME_METRIC = 0.05
"""Copies differ by at most this in each metric, as a share of the metric's range in the table."""

SAME_TIME = 0.05
"""Copies differ by at most this in time, as a share of it."""


def distinct_layers(layers: pd.DataFrame) -> Ints:
    """Number the distinct layers of a table from 0, in order of appearance; a number a row.

    `layers` has one row a condition, as `average_repeats` returns it. Two layers are copies of each
    other, and get one number, if

    - they compute the same: the same operations and the same bytes of weights, input and output
      at the same batch and precision (where the table says so, see `with_shapes`); or
    - nothing measured tells them apart: in every configuration (workload, device, backend,
      precision, batch) that has both, they launch the same kernels, every metric agrees within
      `SAME_METRIC` of its range and the time within `SAME_TIME`.

    What is a copy of a copy is a copy.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    layer = group_codes(layers, ("workload", "layer"))
    count = int(layer.max()) + 1
    pairs = np.vstack([_same_shape(layers, layer), _same_measurements(layers, layer)])
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    piece = connected_components(joined, directed=False)[1][layer]
    return np.asarray(pd.factorize(piece)[0], dtype=np.int64)


def _same_shape(layers: pd.DataFrame, layer: Ints) -> Ints:
    """Return pairs of layers with the same amounts of work, shape (pairs, 2)."""
    amounts = [name for name in SHAPE_AMOUNTS if name in layers.columns]
    if len(amounts) < len(SHAPE_AMOUNTS):
        return np.empty((0, 2), dtype=np.int64)
    known = layers[amounts].notna().all(axis=1).to_numpy()
    shape = group_codes(layers, ("batch", "precision", *amounts))
    # every layer is paired with the first layer of its shape
    first = pd.Series(layer[known]).groupby(shape[known]).transform("first").to_numpy()
    return np.column_stack([first, layer[known]]).astype(np.int64)


def _same_measurements(layers: pd.DataFrame, layer: Ints) -> Ints:
    """Return pairs of layers that no measurement tells apart, shape (pairs, 2)."""
    metrics = metric_columns(layers)
    if not metrics:
        # the time alone is too little to call two layers the same
        return np.empty((0, 2), dtype=np.int64)
    values = layers[metrics].to_numpy(dtype=float, na_value=np.nan)
    configuration = group_codes(layers, CONFIGURATION_COLUMNS)
    kernels = group_codes(layers, ("kernel_names",))
    log_time = np.log(layers["time_us"].to_numpy(dtype=float))
    limits = SAME_METRIC * _ranges(values)
    agreeing: Counter[tuple[int, int]] = Counter()
    for code in range(int(configuration.max()) + 1):
        rows = np.flatnonzero(configuration == code)
        rows = rows[np.argsort(log_time[rows], kind="stable")]
        # only rows that follow within the allowed difference of time need to be looked at
        ends = np.searchsorted(log_time[rows], log_time[rows] + np.log1p(SAME_TIME), side="right")
        for start, end in enumerate(ends):
            one, others = rows[start], rows[start + 1 : end]
            alike = others[
                (kernels[others] == kernels[one]) & _close(values[others], values[one], limits)
            ]
            agreeing.update(
                (min(a, b), max(a, b))
                for a, b in ((int(layer[one]), int(layer[other])) for other in alike)
            )
    has = np.zeros((int(layer.max()) + 1, int(configuration.max()) + 1), dtype=bool)
    has[layer, configuration] = True
    pairs = [
        pair for pair, times in agreeing.items() if times == (has[pair[0]] & has[pair[1]]).sum()
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _ranges(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the range of each column; 0 for one without a defined cell."""
    lowest = np.where(np.isnan(values), np.inf, values).min(axis=0)
    highest = np.where(np.isnan(values), -np.inf, values).max(axis=0)
    return np.where(np.isfinite(lowest), highest - lowest, 0.0)


def _close(
    others: npt.NDArray[np.float64], one: npt.NDArray[np.float64], limits: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return which rows agree with one row in every column; undefined agrees with undefined."""
    undefined = np.isnan(others) & np.isnan(one)
    with np.errstate(invalid="ignore"):
        near = np.abs(others - one) <= limits
    return np.asarray((near | undefined).all(axis=1))
