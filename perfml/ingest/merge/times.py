"""The time of a layer, and the mean times of launches that repeat.

A layer takes as long as its device was busy with it, where starts of launches are known. Means over
repeats are the weights of ``--weights layer-mean``. Repeats are launches of the same condition,
layer, kernel and place in the layer, whichever run and iteration they are in. Parts of a table give
their sums, so that no part needs to know the others.

Here to change: what becomes of launches side by side, and of a layer on several devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.intervals import group_times
from perfml.ingest.merge.numbering import combined
from perfml.util.typing import Floats

LAUNCH_CLOCK = ("start_us", "device_id", "stream")
"""Columns of a Kernels table that say when and where a launch ran."""


_SUMS = ["time_us", "launches"]


def clock_columns(held: Collection[str]) -> tuple[str, ...]:
    """Return which of `perfml.tables.CLOCK_COLUMNS` layers have, by the columns of their kernels.

    Examples
    --------
    >>> clock_columns(["kernel", "stream"])
    ('streams',)
    """
    timed = ("kernels_us", "wall_us") if "start_us" in held or "device_id" in held else ()
    device = ("device_id",) if "device_id" in held else ()
    return (*timed, *device, *(("streams",) if "stream" in held else ()))


def layer_clock(
    lengths: npt.NDArray[np.int64], time: Floats, number: Floats, known: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Return `clock_columns` of a Layers table, and ``time_us`` where starts or devices are known.

    Rows of launches (m) lie together by layer, `lengths` (n) of them each; `time` is in
    microseconds, of all launches (`number`) that a row stands for; `known` are those of
    `LAUNCH_CLOCK` that the kernels have, NaN where missing. The time of a layer is, of the device
    that was busy longest, the length of the union of its launches; the sum of their times where a
    start is missing.
    """
    row = np.repeat(np.arange(len(lengths)), lengths)
    device = known.get("device_id", np.zeros(len(time)))
    start = known.get("start_us", np.full(len(time), np.nan))
    part = combined([row, _numbered(device)])
    found: dict[str, Floats] = {}
    columns = clock_columns(known)
    if "streams" in columns:
        streams = np.unique(combined([part, _numbered(known["stream"])]), return_index=True)[1]
        unknown = np.bincount(row, weights=np.isnan(known["stream"])) > 0
        found["streams"] = np.where(unknown, np.nan, np.bincount(row[streams]).astype(float))
    if "kernels_us" not in columns:
        return found
    first = np.unique(part, return_index=True)[1]
    summed: Floats = np.bincount(part, weights=time).astype(float)
    times = group_times(part, start, time)
    # a row that stands for many launches has the start of one of them
    single = np.bincount(part, weights=number > 1) == 0
    busy = np.where(single & ~np.isnan(times.busy_us), times.busy_us, summed)
    order = np.lexsort((-busy, row[first]))
    longest = order[np.unique(row[first][order], return_index=True)[1]]
    found["time_us"], found["kernels_us"] = busy[longest], summed[longest]
    found["wall_us"] = np.where(single, times.wall_us, np.nan)[longest]
    if "device_id" in columns:
        found["device_id"] = device[first][longest]
    return found


def _numbered(values: Floats) -> npt.NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def mean_times(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the mean time of every repeated launch.

    Parts have the columns that tell launches apart, and ``time_us`` and ``launches``: the
    microseconds and the number of the repeats. Returned are the former columns, and ``mean_us``.
    """
    whole = pd.concat(parts, ignore_index=True)
    keys = [name for name in whole.columns if name not in _SUMS]
    sums = whole.groupby(keys, dropna=False, sort=False)[_SUMS].sum().reset_index()
    means = sums["time_us"] / sums["launches"]
    # a column without any value would come out as numbers, and no longer match
    return sums[keys].astype(object).assign(mean_us=means)


def launch_weights(repeats: pd.DataFrame, means: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the mean time of each row of `repeats`, in microseconds; `means` has them all."""
    keys = [name for name in means.columns if name != "mean_us"]
    weights = repeats[keys].astype(object).merge(means, on=keys, how="left")["mean_us"]
    return weights.to_numpy(dtype=float)
