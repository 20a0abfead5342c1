"""How much slower each layer of one side is than its counterpart, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfml.account.device_time import OFTEN, busy_on_one_device
from perfml.account.time_sources import not_comparable
from perfml.explain.align import Alignment
from perfml.explain.compared import Side
from perfml.explain.ratio import Ratio
from perfml.explain.times import (
    OVERLAP,
    compare_times,
    corrected_verdicts,
    did_the_same,
    may_overlap,
    of_totals,
    processes_of,
    without_verdict,
)


def layer_ratios(
    baseline: Side, target: Side, alignment: Alignment, tolerance: float
) -> list[Ratio]:
    """Return the ratio of every pair of layers; verdicts hold together."""
    ratios = []
    for at, (layer, partner) in enumerate(alignment.names):
        ratio = _compared(baseline.rows(layer), target.rows(partner), tolerance)
        if alignment.launched is not None:  # a row is one launch of several
            before, after = alignment.launched[at]
            unequal = before.launches != after.launches
            ratio = of_totals(ratio, (before.total_us, after.total_us), unequal=unequal)
        ratios.append(ratio)
    unlike = not_comparable((baseline.name, baseline.layers), (target.name, target.layers))
    return corrected_verdicts([without_verdict(r, unlike) if unlike else r for r in ratios])


def total_ratio(
    baseline: Side, target: Side, alignment: Alignment, ratios: Sequence[Ratio], tolerance: float
) -> Ratio:
    """Compare the sums over all aligned layers, of the iterations that have every one of them.

    Where a repeat is one launch, the sums of all launches are compared; kernels that are launched
    as often as each other give an interval.
    """
    pairs, whole = alignment.pairs, alignment.whole_us
    often = {each.launches for both in alignment.launched or () for each in both}
    if whole is not None and len(often) > 1:
        ratio = compare_times(whole[:1], whole[1:], tolerance=tolerance)
    else:
        before = _whole_iterations(baseline, pairs["layer"])
        after = _whole_iterations(target, pairs["target_layer"])
        ratio = _compared(before, after, tolerance)
        ratio = ratio if whole is None else of_totals(ratio, whole, unequal=False)
    why = next((each.unclaimed for each in ratios if each.unclaimed), "")
    if _layers_may_overlap(baseline) or _layers_may_overlap(target):
        why = why or OVERLAP
    return without_verdict(ratio, why) if why else ratio


def _compared(before: pd.DataFrame, after: pd.DataFrame, tolerance: float) -> Ratio:
    """Compare the times of some rows; what they were measured in says what their repeats are."""
    processes = processes_of(before), processes_of(after)
    # what several processes a side differ by is measured
    one_each = any(each is None or each.max() == 0 for each in processes)
    ratio = compare_times(
        before["time_us"].to_numpy(dtype=float),
        after["time_us"].to_numpy(dtype=float),
        baseline_process=processes[0],
        target_process=processes[1],
        tolerance=tolerance,
        same_work=one_each and did_the_same(before, after),
    )
    overlap = may_overlap(before) or may_overlap(after)
    return without_verdict(ratio, OVERLAP) if overlap else ratio


def _layers_may_overlap(side: Side) -> bool:
    """Return whether layers may have run side by side: on streams, when nobody knows."""
    kernels = side.kernels
    if kernels is None or "stream" not in kernels.columns or kernels["stream"].nunique() < 2:
        return False
    return "start_us" not in kernels.columns or bool(kernels["start_us"].isna().any())


def _whole_iterations(side: Side, layers: pd.Series) -> pd.DataFrame:
    """Return the time of each iteration that has all of some layers.

    Layers that run side by side, as on two streams or devices, are no sum: there it is the time in
    which the device that worked longest was busy with any of them.
    """
    names = set(layers)
    rows = side.layers[side.layers["layer"].isin(names)]
    keys = [name for name in ("run_id", "process", "iteration") if name in rows.columns]
    groups = rows.groupby(keys, dropna=False, sort=False)["time_us"]
    whole = groups.sum()[groups.size() == len(names)]
    if whole.empty:
        # layers that were never measured together: the sum of their geometric means
        means = [np.exp(np.log(side.rows(name)["time_us"].astype(float)).mean()) for name in names]
        return pd.DataFrame({"time_us": [float(np.sum(means))]})
    kernels = side.kernels
    if kernels is not None and "start_us" in kernels.columns and OFTEN not in kernels.columns:
        launches = kernels[kernels["layer"].isin(names)]
        busy = busy_on_one_device(launches, [key for key in keys if key in launches.columns])
        if busy.index.names == whole.index.names:
            whole = busy.reindex(whole.index).fillna(whole)
    return whole.reset_index()
