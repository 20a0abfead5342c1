"""The weights of ``--weights layer-mean``: a launch's time averaged over the repeats of its layer.

Repeats are launches of the same condition, layer, kernel and place in the layer, whichever run and
iteration they are in. Parts of a table give their sums, so that no part needs to know the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

_SUMS = ["time_us", "launches"]


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
