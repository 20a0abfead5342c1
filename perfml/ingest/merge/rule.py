"""Merge the kernels of a layer into one row, weighting each metric by the kernels' running time.

The rule is the published study's: a metric of a layer is sum(metric_k * t_k) / sum(t_k) over the
kernels k that have the metric, so 1 ms of im2col and 4 ms of sgemm weigh 0.2 and 0.8, side by side
or not. Counts and bytes add up; the catalogue says which rule a metric follows. A row that stands
for many launches (``launches``: the averages of a summary) counts and weighs as many. What was not
measured is not passed over in silence. The time of a layer is how long its device was busy with it
(`groups`).

Here to change: the rule itself. Tables larger than memory go through the same `LaunchGroups`, a
batch of whole layers at a time (`batches`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfml.account.device_time import on_busiest_device
from perfml.account.time_sources import joined_sources
from perfml.errors import PerfmlError, TableError
from perfml.ingest.merge.groups import (
    LAUNCH_CLOCK,
    LEAST_SHARE,
    Codes,
    Coverage,
    combined,
    coverage_of,
    kernel_layers,
    kernels_as_layers,
    launch_numbers,
    layer_clock,
    numbered,
)
from perfml.metrics import load_catalogue
from perfml.tables import (
    BY_KERNEL,
    CLOCK,
    RUN_COLUMNS,
    metric_columns,
    validate_kernels,
    validate_layers,
)
from perfml.util.json_values import json_object
from perfml.util.typing import Floats, SharedList

KEY = ("run_id", "iteration", "layer")
"""What tells one row of the Layers table from all others."""


def merge(kernels: pd.DataFrame) -> pd.DataFrame:
    """Merge kernels into layers; without any layer, each kernel is one and its launches repeats.

    Parameters
    ----------
    kernels
        A Kernels table; launches outside every layer are left out (see `unattributed_time`).

    Returns
    -------
    DataFrame
        A Layers table, one row a (run, iteration, layer) in order of first launch. A metric that
        no kernel of a layer has is NaN; so is a sum of which a part was not measured, and a mean
        that covers less than `perfml.ingest.merge.groups.LEAST_SHARE` of the layer's time.
        ``attrs["coverage"]`` lists the metrics of which some launches were not measured
        (`Coverage.as_dict`); ``attrs["warnings"]`` has `BY_KERNEL` where no launch is in a layer.

    Raises
    ------
    TableError
        If `kernels` is no Kernels table, or a launch in a layer has a time that is missing, zero
        or negative, or stands for no launch; the message names the kernel.
    PerfmlError
        If there is no launch.

    Examples
    --------
    >>> import perfml
    >>> layers = perfml.merge(perfml.read("profile.ncu-rep"))  # doctest: +SKIP
    """
    kernels = validate_kernels(kernels)
    by_kernel = not kernels["layer"].notna().any()
    if by_kernel:
        timed = kernels["time_us"].notna()
        # a program that fails while it is profiled leaves its last launch without values
        kernels = kernels_as_layers(kernels[timed] if timed.any() else kernels)
    attributed = np.flatnonzero(kernels["layer"].notna().to_numpy(dtype=bool))
    if not len(attributed):
        raise no_layer(len(kernels))
    groups = LaunchGroups(kernels, attributed)

    def values(name: str) -> Floats:
        return kernels[name].to_numpy(dtype=float)[attributed]

    layers, coverage = merged_layers(groups, merged_columns(kernels), values)
    layers = validate_layers(layers)
    layers.attrs["coverage"] = SharedList(json_object(metric) for metric in coverage)
    if by_kernel:
        layers.attrs["warnings"] = [BY_KERNEL]
    return layers


def merged_columns(kernels: pd.DataFrame) -> list[str]:
    """Return the columns of a Kernels table that are merged, besides time and names."""
    profiled = ["ncu_time_us"] if "ncu_time_us" in kernels.columns else []
    return [*profiled, *metric_columns(kernels)]


def merged_layers(
    groups: LaunchGroups, columns: Iterable[str], values: Callable[[str], Floats]
) -> tuple[pd.DataFrame, list[Coverage]]:
    """Return the Layers table of grouped launches, and which metrics cover a part of it.

    `columns` are merged, by name; `values` gives a column's numbers, one a launch, NaN where
    missing, and is asked for one at a time.
    """
    with ThreadPoolExecutor(1) as pool:
        # most of both is spent in NumPy and Arrow, which let the other one run
        named = pool.submit(groups.layers)
        merged = {name: groups.reduce(name, values(name)) for name in columns}
    coverage = []
    for name, share in groups.shares():
        if groups.rule(name) == "time_weighted":
            # sums of times in another order differ in the last digits: a half stays a half
            enough = share >= LEAST_SHARE * (1 - 1e-9)
            merged[name] = np.where(enough, merged[name], np.nan)
        found = coverage_of(name, share, np.isnan(merged[name]))
        if found is not None:
            coverage.append(found)
    return pd.concat([named.result(), pd.DataFrame(merged)], axis=1), coverage


class Outside(TypedDict):
    """What of a run lies outside every layer; `share` is of the run's time."""

    run_id: str | None
    launches: int
    time_us: float
    share: float


def unattributed_time(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return what ran outside every layer: one row a run.

    Returns
    -------
    DataFrame
        One `Outside` a run; NaN where the run has no times.
    """
    outside = kernels["layer"].isna()
    launches = launch_numbers(kernels)
    time = kernels["time_us"] * launches
    by_run = pd.DataFrame(
        {
            "run_id": kernels["run_id"],
            "launches": np.where(outside, launches, 0).astype("int64"),
            "time_us": time.where(outside, 0.0),
            "total_us": time,
        }
    )
    groups = by_run.groupby("run_id", dropna=False, sort=False, observed=True)
    sums = groups.sum(min_count=1).reset_index()
    sums["share"] = sums["time_us"] / sums["total_us"]
    return sums[list(Outside.__annotations__)]


def layers_of_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return a Layers table in which every kernel is a layer, with all its launches in a repeat.

    Their times are added up: launches of one kernel are no layer that somebody waits for. Of
    several devices it is the one whose kernels take longest, since devices work side by side.
    """
    layers = merge(on_busiest_device(kernels.assign(layer=kernel_layers(kernels))))
    if "kernels_us" in layers.columns:
        layers["time_us"] = layers["kernels_us"]
    return layers


def launch_totals(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return a Kernels table with times and counts of all launches of a row, in place of one.

    For whoever divides counts by times row by row; ``launches`` is 1 afterwards.
    """
    number = launch_numbers(kernels)
    if (number == 1).all():
        return kernels
    columns = [name for name in merged_columns(kernels) if LaunchGroups.rule(name) == "sum"]
    totals = {name: kernels[name] * number for name in ["time_us", *columns]}
    return kernels.assign(**totals, launches=1)


class LaunchGroups:
    """Launches inside layers, grouped by the row of the Layers table that each goes to.

    `attributed` are the rows of `kernels` in layers, at least one; text may be categorical. Raises
    `TableError` if a launch has no positive time; the message names the first.
    """

    def __init__(self, kernels: pd.DataFrame, attributed: npt.NDArray[np.intp]) -> None:
        self._kernels = kernels
        self._attributed = attributed
        time = kernels["time_us"].to_numpy(dtype=float)[attributed]
        number = launch_numbers(kernels)[attributed]
        _check_launches(kernels, attributed, time, number)
        row, self._first = _layer_rows(self._codes(KEY))
        self._order = _launch_order(row, kernels["kernel_index"].to_numpy()[attributed])
        self._lengths = np.bincount(row)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._number = self._ordered(number)
        self._time = self._ordered(time) * self._number
        self._measured = np.zeros(len(time), dtype=bool)
        self._known: dict[str, Floats] = {}
        self._total = self._sums(self._time)

    def __len__(self) -> int:
        return len(self._lengths)

    def _codes(self, columns: Iterable[str]) -> list[Codes]:
        return [numbered(self._kernels[name])[self._attributed] for name in columns]

    def _ordered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bring values into order: by output row, and by launch order within it."""
        return values if self._order is None else values[self._order]

    def _sums(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self._starts))

    def layers(self) -> pd.DataFrame:
        """Return the columns of the Layers table that are no metrics."""
        same = [*RUN_COLUMNS, "iteration", "layer"]
        rows = self._attributed[self._first]
        layers = self._kernels[same].iloc[rows].reset_index(drop=True)
        layers["kernels"] = self._sums(self._number).astype(np.int64)
        layers["kernel_names"] = self._joined_names()
        layers["time_us"] = self._sums(self._time)
        layers = layers.assign(**self._clock())
        if CLOCK in self._kernels.columns:  # one a run
            layers[CLOCK] = self._kernels[CLOCK].to_numpy(dtype=float)[rows]
        if "process" in self._kernels.columns:
            layers["process"] = self._processes()
        if "time_source" in self._kernels.columns:
            layers["time_source"] = self._time_sources()
        return layers

    def _clock(self) -> dict[str, Floats]:
        """Return what starts, devices and streams of the launches tell of their layers."""
        held = [name for name in LAUNCH_CLOCK if name in self._kernels.columns]
        known = {
            name: self._ordered(self._kernels[name].to_numpy(dtype=float)[self._attributed])
            for name in held
        }
        return layer_clock(self._lengths, self._time, self._number, known)

    def _processes(self) -> pd.Series[Any]:
        """Return the process of each row; missing where its launches ran in several."""
        column = self._kernels["process"].iloc[self._attributed]
        codes = self._ordered(numbered(column))
        low, high = (bound.reduceat(codes, self._starts) for bound in (np.minimum, np.maximum))
        return column.iloc[self._first].reset_index(drop=True).where(low == high)

    def _time_sources(self) -> pd.Series[Any]:
        """Return where each row's time comes from: the sources of its launches."""
        column = self._kernels["time_source"]
        numbers, names = pd.factorize(column)
        codes = self._ordered(numbers[self._attributed])
        held = np.stack(
            [np.logical_or.reduceat(codes == code, self._starts) for code in range(len(names))]
            or [np.zeros(len(self), dtype=bool)]
        )
        # few distinct sets of sources, so that each is written out once
        which = combined(list(held))
        rows = np.unique(which, return_index=True)[1]
        texts = [joined_sources(map(str, names[held[:, row]])) for row in rows]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes, known = pd.factorize(np.array([text or None for text in texts], dtype=object))
            return pd.Series(pd.Categorical.from_codes(codes[which], categories=pd.Index(known)))
        sources = pd.Series([text or None for text in texts], dtype=column.dtype)
        return sources.take(which).reset_index(drop=True)

    def _joined_names(self) -> Any:
        """Return each row's kernel names, one a line: the few distinct ones are joined once."""
        kernels = self._kernels["kernel"]
        is_category = isinstance(kernels.dtype, pd.CategoricalDtype)
        numbers, distinct_names = pd.factorize(kernels)
        names = np.asarray(distinct_names, dtype=object)
        codes = self._ordered(numbers[self._attributed].astype(np.int32))
        # each row's numbers are the bytes of one binary value, and Arrow numbers those
        ends = np.append(self._starts, len(codes)).astype(np.int64) * codes.itemsize
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(codes))]
        rows = pa.Array.from_buffers(pa.large_binary(), len(self), buffers).dictionary_encode()
        sequence, distinct = np.asarray(rows.indices), rows.dictionary.to_pylist()
        texts = ["\n".join(names[np.frombuffer(key, dtype=np.int32)]) for key in distinct]
        which, joined = pd.factorize(np.array(texts, dtype=object))
        if is_category:
            return pd.Categorical.from_codes(which[sequence], categories=pd.Index(joined))
        return pd.Series(joined).array.take(which[sequence])

    @staticmethod
    def rule(name: str) -> str:
        """Return how a column is merged: ``time_weighted``, ``sum`` or ``max``."""
        return "sum" if name == "ncu_time_us" else load_catalogue()[name].merge

    def reduce(self, name: str, values: Floats) -> Floats:
        """Merge one column, one number a launch, by the catalogue's rule for it."""
        values = self._ordered(values)
        missing = np.isnan(values)
        if _is_counter(name):
            self._measured |= ~missing
        rule = self.rule(name)
        if rule == "max":
            return np.asarray(np.fmax.reduceat(values, self._starts))
        if missing.any():
            self._known[name] = self._sums(np.where(missing, 0.0, self._time))
        if rule == "sum":
            return self._sums(values * self._number)
        product = values * self._time
        if name not in self._known:
            return self._sums(product) / self._total
        product[missing] = 0.0
        with np.errstate(invalid="ignore"):
            return self._sums(product) / self._known[name]

    def shares(self) -> Iterator[tuple[str, Floats]]:
        """Yield the metrics that some launches lack, and the share of each row's time they cover.

        To be asked when all columns are reduced: a launch was measured if it has any counter.
        """
        unmeasured = self._sums(np.where(self._measured, 0.0, self._time))
        for name, known in self._known.items():
            whole = known + unmeasured if _may_be_undefined(name) else self._total
            # where nothing was measured nothing is covered
            yield name, np.divide(known, whole, out=np.zeros(len(self)), where=known > 0)


def _is_counter(name: str) -> bool:
    """Tell whether a column is read by a profiler's counters, and not a fact of the launch."""
    return name != "ncu_time_us" and load_catalogue()[name].family != "launch"


def _may_be_undefined(name: str) -> bool:
    """Tell whether a measured launch may lack a metric: a share of what it does not do at all."""
    if name == "ncu_time_us":
        return False
    metric = load_catalogue()[name]
    is_quotient = metric.ncu is not None and "/" in metric.ncu.text
    return metric.guard is not None or metric.zero_undefined or is_quotient


def _layer_rows(parts: list[Codes]) -> tuple[Codes, npt.NDArray[np.intp]]:
    """Return each launch's output row, and each output row's first launch."""
    starts = stretches(parts)
    # launches of a layer lie together nearly always, so only each stretch's first is looked at
    heads = combined([part[starts] for part in parts])
    row = np.repeat(heads, np.diff(starts, append=len(parts[0])))
    # numbered as they come, so a new one is larger than all before it
    new = np.diff(np.maximum.accumulate(heads), prepend=-1) > 0
    return row, starts[new]


def stretches(parts: list[Codes]) -> npt.NDArray[np.intp]:
    """Return the rows at which another combination of numbers begins."""
    change = np.zeros(len(parts[0]), dtype=bool)
    change[:1] = True
    for part in parts:
        change[1:] |= part[1:] != part[:-1]
    return np.flatnonzero(change)


def _launch_order(row: Codes, index: npt.NDArray[Any]) -> npt.NDArray[np.intp] | None:
    """Return the launches by output row and launch order, or None where they lie so already."""
    step = np.diff(row)
    if ((step > 0) | ((step == 0) & (index[1:] >= index[:-1]))).all():
        return None
    return np.lexsort((index, row))


def _check_launches(
    kernels: pd.DataFrame, attributed: npt.NDArray[np.intp], time: Floats, number: Floats
) -> None:
    none = np.flatnonzero(~(number >= 1))
    if len(none):
        launch = kernels.iloc[int(attributed[none[0]])]
        msg = f"a row stands for no launch: {str(launch['kernel'])[:120]}"
        where = f"layer {launch['layer']}, iteration {launch['iteration']}"
        found = f"launches {number[none[0]]:g}"
        cure = "Ingest the profile again; a row stands for one launch or more."
        raise TableError(msg, where=where, found=found, cure=cure)
    bad = np.flatnonzero(~((time > 0) & np.isfinite(time)))
    if not len(bad):
        return
    row = int(bad[0])
    launch = kernels.iloc[int(attributed[row])]
    missing = bool(np.isnan(time[row]))
    kernel = str(launch["kernel"])[:120]
    msg = f"{len(bad)} of {len(time)} launches have no usable time; the first is {kernel}"
    raise TableError(
        msg,
        where=f"layer {launch['layer']}, iteration {launch['iteration']}",
        found="no time" if missing else f"{float(time[row])} µs",
        cure=(
            "Ingest the metrics together with a timing run (nvprof summary or trace, timing.csv)."
            if missing
            else "Running times must be positive; profile again."
        ),
    )


def no_layer(kernels: int) -> PerfmlError:
    """Return the error that no launch of a table lies in a layer."""
    msg = "no launch belongs to a layer"
    return PerfmlError(
        msg,
        found=f"{kernels} launches outside every NVTX range",
        cure="Profile with NVTX ranges around the layers (ncu --nvtx), or give a --layer-map. "
        "Without either, explain, advise, report and rank of the profile take each kernel as one.",
    )
