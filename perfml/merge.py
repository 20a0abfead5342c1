"""Merge the kernels of a layer into one row, weighting each metric by the kernels' running time.

The rule is the published study's: a metric of a layer is sum(metric_k * t_k) / sum(t_k) over the
kernels k that have the metric, so 1 ms of im2col and 4 ms of sgemm weigh 0.2 and 0.8. Counts and
bytes add up; the catalogue says which rule a metric follows.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError, TableError
from perfml.metrics import load_catalogue
from perfml.tables import RUN_COLUMNS, metric_columns, validate_kernels, validate_layers

Weights = Literal["own", "layer-mean"]

_CONDITION = tuple(name for name in RUN_COLUMNS if name != "run_id")
"""What repeats of one measurement share, whichever process they ran in."""

_IDENTITY = ("run_id", "iteration", "layer", "kernel_index")
"""What decides which row of the Layers table a launch belongs to, and where in it."""


def merge(kernels: pd.DataFrame, *, weights: Weights = "own") -> pd.DataFrame:
    """Merge kernels into layers.

    Parameters
    ----------
    kernels
        A Kernels table; launches outside every layer are left out (see `unattributed`).
    weights
        ``"own"``: each row's metrics are weighted by that row's kernel times, as published. The
        layer's time is the sum of the same numbers, so a part of it enters the features.
        ``"layer-mean"``: weighted by each kernel's mean time over the repeats of its layer, which
        keeps a row's own time out of its metrics.

    Returns
    -------
    DataFrame
        A Layers table, one row a (run, iteration, layer) in order of first launch. A metric that
        no kernel of a layer has is NaN.

    Raises
    ------
    TableError
        If `kernels` is no Kernels table, or a launch in a layer has a time that is missing, zero
        or negative; the message names the kernel.
    PerfmlError
        If no launch belongs to a layer.
    """
    kernels = validate_kernels(kernels)
    attributed = kernels["layer"].notna().to_numpy(dtype=bool)
    places = np.flatnonzero(attributed)
    if not len(places):
        raise no_layer(len(kernels))

    def column(name: str) -> npt.NDArray[np.float64]:
        values = kernels[name].to_numpy(dtype=float)
        return values if len(places) == len(values) else values[places]

    # of the columns of text only those that decide: taking rows of all costs more than summing
    identity = list(_IDENTITY if weights == "own" else (*_IDENTITY, "kernel", *_CONDITION))
    inside = kernels[identity]
    if len(places) < len(kernels):
        inside = inside.iloc[places]
    time = column("time_us")
    _check_times(kernels, places, time)
    row, first = _groups(inside)
    count = len(first)
    order = _launch_order(row, inside)
    weight = time if weights == "own" else _mean_times(inside, time, row, order)
    same = [*RUN_COLUMNS, "iteration", "layer"]
    layers = kernels[same].iloc[places[first]].reset_index(drop=True)
    layers["kernels"] = np.bincount(row, minlength=count)
    layers["kernel_names"] = _joined_names(kernels["kernel"], places, order, row, count)
    layers["time_us"] = np.bincount(row, weights=time, minlength=count)
    if "ncu_time_us" in kernels.columns:
        layers["ncu_time_us"] = _sum(column("ncu_time_us"), row, count)
    catalogue = load_catalogue()
    merged = {}
    total = np.asarray(np.bincount(row, weights=weight, minlength=count), dtype=float)
    for name in metric_columns(kernels):
        values = column(name)
        rule = catalogue[name].merge
        if rule == "sum":
            merged[name] = _sum(values, row, count)
        elif rule == "max":
            merged[name] = _max(values, row, count)
        else:
            merged[name] = _weighted(values, weight, row, total)
    return validate_layers(pd.concat([layers, pd.DataFrame(merged)], axis=1))


def unattributed(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return what ran outside every layer: one row a run.

    Returns
    -------
    DataFrame
        ``run_id``, ``launches`` and ``time_us`` outside layers, and their ``share`` of the run's
        time (NaN where the run has no times).
    """
    outside = kernels["layer"].isna()
    time = kernels["time_us"]
    by_run = pd.DataFrame(
        {
            "run_id": kernels["run_id"],
            "launches": outside.astype("int64"),
            "time_us": time.where(outside, 0.0),
            "total": time,
        }
    )
    found = by_run.groupby("run_id", dropna=False, sort=False).sum(min_count=1).reset_index()
    found["share"] = found["time_us"] / found["total"]
    return found[["run_id", "launches", "time_us", "share"]]


def _check_times(
    kernels: pd.DataFrame, places: npt.NDArray[np.intp], time: npt.NDArray[np.float64]
) -> None:
    bad = np.flatnonzero(~((time > 0) & np.isfinite(time)))
    if not len(bad):
        return
    row = int(bad[0])
    launch = kernels.iloc[int(places[row])]
    raise unusable_time(
        len(bad),
        len(time),
        kernel=str(launch["kernel"]),
        layer=launch["layer"],
        iteration=launch["iteration"],
        time=float(time[row]),
    )


def no_layer(kernels: int) -> PerfmlError:
    """Return the error that no launch of a table lies in a layer."""
    msg = "no launch belongs to a layer"
    return PerfmlError(
        msg,
        found=f"{kernels} launches outside every NVTX range",
        cure="Profile with NVTX ranges around the layers (ncu --nvtx), or give a --layer-map.",
    )


def unusable_time(
    bad: int, launches: int, *, kernel: str, layer: Any, iteration: Any, time: float
) -> TableError:
    """Return the error that launches have a time that is missing, zero or negative.

    Parameters
    ----------
    bad, launches
        How many of how many.
    kernel, layer, iteration, time
        The first of them.
    """
    missing = bool(np.isnan(time))
    msg = f"{bad} of {launches} launches have no usable time; the first is {kernel[:120]}"
    return TableError(
        msg,
        where=f"layer {layer}, iteration {iteration}",
        found="no time" if missing else f"{time} us",
        cure=(
            "Ingest the metrics together with a timing run (nvprof summary or trace, timing.csv)."
            if missing
            else "Running times must be positive; profile again."
        ),
    )


def _codes(frame: pd.DataFrame, columns: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Number the distinct rows of some columns; missing values are values of their own."""
    codes = np.zeros(len(frame), dtype=np.int64)
    for name in columns:
        part, values = pd.factorize(frame[name], use_na_sentinel=False)
        # renumber after every column, so that the product of cardinalities cannot overflow
        codes = np.asarray(pd.factorize(codes * (len(values) + 1) + part)[0], dtype=np.int64)
    return codes


def _groups(inside: pd.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return each launch's output row, and each output row's first launch."""
    row = _codes(inside, ("run_id", "iteration", "layer"))
    # codes are numbered as they come, so a new one is larger than all before it
    return row, np.flatnonzero(np.diff(np.maximum.accumulate(row), prepend=-1))


def _position(row: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each launch's place among its layer's launches, by launch order."""
    place = np.empty(len(row), dtype=np.int64)
    ranked = row[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    lengths = np.diff(np.r_[starts, len(ranked)])
    place[order] = np.arange(len(ranked)) - np.repeat(starts, lengths)
    return place


def _mean_times(
    inside: pd.DataFrame,
    time: npt.NDArray[np.float64],
    row: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Return each launch's time averaged over the repeats of the same launch of its layer."""
    keyed = inside[[*_CONDITION, "layer", "kernel"]].assign(place=_position(row, order))
    same = _codes(keyed, (*_CONDITION, "layer", "kernel", "place"))
    means: npt.NDArray[np.float64] = np.bincount(same, weights=time) / np.bincount(same)
    return means[same]


def _launch_order(row: npt.NDArray[np.int64], inside: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the launches by output row, and by launch order within it."""
    index = inside["kernel_index"].to_numpy()
    step = np.diff(row)
    if ((step > 0) | ((step == 0) & (index[1:] >= index[:-1]))).all():
        return np.arange(len(row))  # as a profiler gives them
    return np.lexsort((index, row))


def _joined_names(
    kernels: pd.Series[Any],
    places: npt.NDArray[np.intp],
    order: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
    count: int,
) -> Any:
    """Return each output row's kernel names, one a line: the few distinct ones are joined once."""
    codes, names = pd.factorize(kernels)
    texts = names.to_numpy(dtype=object)
    ordered = codes[places[order]].astype(np.int64)
    coded, size = ordered.tobytes(), ordered.itemsize
    ends = (np.cumsum(np.bincount(row, minlength=count)) * size).tolist()
    distinct: dict[bytes, int] = {}
    start, found = 0, []
    for end in ends:
        found.append(distinct.setdefault(coded[start:end], len(distinct)))
        start = end
    joined = ["\n".join(texts[np.frombuffer(each, dtype=np.int64)]) for each in distinct]
    return pd.Series(joined).array.take(np.array(found))


def _weighted(
    values: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    row: npt.NDArray[np.int64],
    total: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return weighted means; `total` is the weight of all launches of each output row."""
    count = len(total)
    has = ~np.isnan(values)
    if not has.all():
        values, weight, row = values[has], weight[has], row[has]
        total = np.asarray(np.bincount(row, weights=weight, minlength=count), dtype=float)
    with np.errstate(invalid="ignore"):
        product = np.bincount(row, weights=values * weight, minlength=count)
        mean: npt.NDArray[np.float64] = product / total
    return mean


def _sum(
    values: npt.NDArray[np.float64], row: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    has = ~np.isnan(values)
    total = np.bincount(row[has], weights=values[has], minlength=count)
    return np.where(np.bincount(row[has], minlength=count) > 0, total, np.nan)


def _max(
    values: npt.NDArray[np.float64], row: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    largest = np.full(count, np.nan)
    np.fmax.at(largest, row, values)
    return largest
