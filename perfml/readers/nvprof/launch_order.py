"""Which launch of a metrics log is which launch of a timed profile, by their order.

The two are of two starts of one program. A kernel's launches come in one order in both, so its
n-th launch is the same work. The two may have run different numbers of iterations: then the n-th
launch within an iteration is.
"""

from __future__ import annotations

import pandas as pd

_SIZES = ("grid", "block")


def launch_places(
    metrics: pd.DataFrame, times: pd.DataFrame, launches: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """Return the place of each row of both sides among its kernel's launches, where order tells it.

    Rows are in launch order, with the kernel under one spelling in ``_key``; a row of `metrics`
    stands for so many `launches`. Rows of one ``_key`` and one place are the same launch of the
    program, maybe in several iterations. Missing for kernels whose order does not tell: those of a
    row for several launches, of launch counts that do not fit, or of grids or blocks that differ at
    one place.
    """
    counted = metrics.groupby("_key", sort=False).indices
    timed = times.groupby("_key", sort=False).indices
    places = [pd.Series(pd.NA, index=side.index, dtype="Int64") for side in (metrics, times)]
    single = (launches == 1).to_numpy()
    for key in counted.keys() & timed.keys():
        rows, others = counted[key], timed[key]
        if not single[rows].all():
            continue
        period = _period(len(rows), times["iteration"].iloc[others])
        if period is None:
            continue
        turns = [pd.RangeIndex(len(side)) % period for side in (rows, others)]
        if _same_sizes(metrics.iloc[rows], turns[0], times.iloc[others], turns[1]):
            places[0].iloc[rows] = turns[0]
            places[1].iloc[others] = turns[1]
    return places[0], places[1]


def _period(counted: int, iterations: pd.Series) -> int | None:
    """Return after how many launches of a kernel its work begins again; None if unknown."""
    if counted == len(iterations):
        return counted
    if iterations.isna().any() or not iterations.is_monotonic_increasing:
        return None
    launches = set(iterations.value_counts())
    if len(launches) != 1:
        return None
    period = int(launches.pop())
    return period if counted % period == 0 else None


def _same_sizes(
    metrics: pd.DataFrame, places: pd.Index, times: pd.DataFrame, other_places: pd.Index
) -> bool:
    """Tell whether the launches at each place have one grid and one block, where they are known."""
    for name in _SIZES:
        if name not in metrics.columns or name not in times.columns:
            continue
        sizes = pd.DataFrame(
            {
                "place": [*places, *other_places],
                "size": [*metrics[name].astype("object"), *times[name].astype("object")],
            }
        ).dropna()
        if sizes.drop_duplicates()["place"].duplicated().any():
            return False
    return True
