"""Groups of launches that become a row: their numbers, their time, and how much was measured.

A profile made without ranges does not tell which launches belong together. What it does tell is
which launches are of one kernel with one shape: every kernel is a layer then, and every launch of
it a repeat.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.device_time import OFTEN, RECORDED, group_times, repeat_keys
from perfml.kernel_names import kernel_label
from perfml.metrics import load_catalogue
from perfml.util.typing import Floats
from perfml.util.words import Readable, first_few

LAUNCH_CLOCK = ("start_us", "device_id", "stream")
"""Columns of a Kernels table that say when and where a launch ran."""


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
    covered, wall = group_times(part, start, time)
    # a row that stands for many launches has the start of one of them
    single = np.bincount(part, weights=number > 1) == 0
    busy = np.where(single & ~np.isnan(covered), covered, summed)
    order = np.lexsort((-busy, row[first]))
    longest = order[np.unique(row[first][order], return_index=True)[1]]
    found["time_us"], found["kernels_us"] = busy[longest], summed[longest]
    found["wall_us"] = np.where(single, wall, np.nan)[longest]
    if "device_id" in columns:
        found["device_id"] = device[first][longest]
    return found


def _numbered(values: Floats) -> npt.NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


LEAST_SHARE = 0.5
"""Share of a layer's time that a mean has to cover, or it is missing.

A fraction that was measured over the share s of the time leaves the layer's own mean open by
1 - s. Below a half, what is not known weighs more than what is.
"""


@dataclass(frozen=True)
class Coverage:
    """Rows of a Layers table of which a metric covers a part.

    Attributes
    ----------
    metric
        Its name.
    rows
        Rows in which some launches were not measured, and some were.
    least
        The smallest share of such a row's time that was measured.
    left_out
        Rows in which the metric is missing for it.
    """

    metric: str
    rows: int
    least: float
    left_out: int


def coverage_of(
    metric: str, share: npt.NDArray[np.float64], missing: npt.NDArray[np.bool_]
) -> Coverage | None:
    """Say how much of each row a metric covers; None where it covers all or nothing of each.

    `share` of each row's time is from 0 to 1; `missing` rows have no value of the metric.
    """
    part = (share > 0) & (share < 1)
    if not part.any():
        return None
    return Coverage(metric, int(part.sum()), float(share[part].min()), int((part & missing).sum()))


def joined(parts: Iterable[Coverage]) -> list[Coverage]:
    """Join what several parts of a table say of each metric."""
    by_metric: defaultdict[str, list[Coverage]] = defaultdict(list)
    for part in parts:
        by_metric[part.metric].append(part)
    return [
        Coverage(
            metric,
            sum(each.rows for each in same),
            min(each.least for each in same),
            sum(each.left_out for each in same),
        )
        for metric, same in by_metric.items()
    ]


def coverage_sentences(coverage: Sequence[Coverage], rows: int) -> list[str]:
    """Return what a user has to know: metrics of the same coverage in one sentence."""
    catalogue = load_catalogue()
    alike: defaultdict[tuple[int, float, int, bool], list[str]] = defaultdict(list)
    for part in coverage:
        is_sum = part.metric not in catalogue or catalogue[part.metric].merge == "sum"
        alike[part.rows, part.least, part.left_out, is_sum].append(part.metric)
    sentences = []
    for (few, least, left_out, is_sum), names in alike.items():
        start = f"{few} of {rows} rows have launches that were not measured"
        if is_sum:
            told = f"their {first_few(names, 3)} cannot be added up and are missing"
        else:
            told = f"the means cover at least {Readable(least):.0%} of the time"
            told += f" ({first_few(names, 3)})"
            if left_out:
                told += f"; below {Readable(LEAST_SHARE):.0%}, in {left_out} rows, they are missing"
        sentences.append(f"{start}: {told}.")
    return sentences


Codes = npt.NDArray[np.int64]


def numbered(column: pd.Series[Any]) -> Codes:
    """Number the distinct values of a column from -1; missing values share one number."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64)
    return np.asarray(pd.factorize(column)[0], dtype=np.int64)


def combined(parts: Sequence[Codes]) -> Codes:
    """Number the distinct combinations of columns' numbers (from -1), in order of appearance."""
    codes = np.zeros(len(parts[0]), dtype=np.int64)
    for part in parts:
        width = int(part.max(initial=0)) + 2
        # renumber after every column, so that the product of cardinalities cannot overflow
        codes = np.asarray(pd.factorize(codes * width + part + 1)[0], dtype=np.int64)
    return codes


def launch_numbers(kernels: pd.DataFrame) -> Floats:
    """Return how many launches each row of a Kernels table stands for."""
    if "launches" not in kernels.columns:
        return np.ones(len(kernels))
    return kernels["launches"].fillna(1).to_numpy(dtype=float)


_WHOLE = 1000


@dataclass(frozen=True)
class KernelUnit:
    """A kernel in one shape."""

    kernel: str  # its full name
    shape: str  # grid and block, as text
    label: str  # what it is called, different from every other of the table

    @property
    def purpose(self) -> str:
        """Its function, whatever its template arguments."""
        return kernel_label(self.kernel, _WHOLE)


def kernel_units(
    kernels: pd.DataFrame, *, by_workload: bool = False
) -> tuple[list[KernelUnit], npt.NDArray[np.intp]]:
    """Return the kernels of a table, each shape apart, and the unit of every row.

    Units are in order of their first launch; their positions are one a row. A mean over programs is
    of none of them: with `by_workload` those of several workloads are apart.
    """
    if kernels.empty:  # pandas 2 makes no index of no rows
        return [], np.empty(0, dtype=np.intp)
    parts = [kernels[name].astype("string").fillna("") for name in ("kernel", "grid", "block")]
    workload = kernels["workload"].astype("string").fillna("")
    several = by_workload and bool((workload != workload.iloc[0]).any())
    parts.append(workload if several else workload.str.slice(0, 0))
    keys = pd.MultiIndex.from_arrays(parts)
    codes, known = pd.factorize(keys)
    names = [str(kernel) for kernel, *_ in known]
    shapes = [launch_shape(str(grid), str(block)) for _, grid, block, _ in known]
    labels = [f"{kernel_label(name)} {of}".rstrip() for name, _, _, of in known]
    shaped = [
        f"{label} {shape}" if Counter(labels)[label] > 1 and shape else label
        for label, shape in zip(labels, shapes, strict=True)
    ]
    told: Counter[str] = Counter()
    units = []
    for name, shape, label in zip(names, shapes, shaped, strict=True):
        told[label] += 1
        units.append(
            KernelUnit(name, shape, f"{label} #{told[label]}" if told[label] > 1 else label)
        )
    return units, np.asarray(codes)


def kernels_as_layers(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return a Kernels table in which every kernel is a layer, and every launch a repeat of it.

    A row that stands for many launches becomes one launch with their means.
    """
    units, codes = kernel_units(kernels)
    labels = np.array([unit.label for unit in units], dtype=object)[codes]
    return with_layers(kernels, labels, occurrences(kernels, codes))


def kernel_layers(kernels: pd.DataFrame) -> pd.Series:
    """Return the label of each row's kernel, as a layer's name."""
    units, codes = kernel_units(kernels)
    labels = np.array([unit.label for unit in units], dtype=object)[codes]
    return pd.Series(labels, index=kernels.index, dtype="string")


def launches_behind_rows(
    kernels: pd.DataFrame, codes: npt.NDArray[np.intp]
) -> npt.NDArray[np.float64]:
    """Return how many launches each row stands for, also of `kernels_as_layers`."""
    if OFTEN not in kernels.columns:
        return np.asarray(launch_numbers(kernels), dtype=float)
    iterations = max(kernels.groupby(repeat_keys(kernels), dropna=False).ngroups, 1)
    return np.asarray(kernels[OFTEN] * iterations / np.bincount(codes)[codes], dtype=float)


def occurrences(kernels: pd.DataFrame, codes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return which launch of its unit in its run a row is, from 0."""
    groups = [kernels["run_id"].astype("string").fillna("").to_numpy(), codes]
    # a copy: pandas gives out its own numbers, which cannot be written to
    return np.array(kernels.groupby(groups, sort=False).cumcount(), dtype=np.intp)


def with_layers(
    kernels: pd.DataFrame, layers: npt.NDArray[np.object_], repeats: npt.NDArray[np.intp]
) -> pd.DataFrame:
    """Return launches with their layers and repeats, each row as one launch.

    How often a layer is launched in a repeat of the program is kept beside it.
    """
    codes, _ = pd.factorize(layers)
    iterations = max(kernels.groupby(repeat_keys(kernels), dropna=False).ngroups, 1)
    often = np.bincount(codes, launch_numbers(kernels)) / iterations
    named = kernels.assign(
        layer=pd.array(layers, dtype="string"),
        iteration=repeats,
        kernel_index=np.arange(len(kernels)),
    )
    named[RECORDED], named[OFTEN] = kernels["iteration"], often[codes]
    return named.drop(columns=[name for name in ("launches", "process") if name in named.columns])


def launch_shape(grid: str, block: str) -> str:
    """Return grid and block as one text, as `KernelUnit.shape` has them."""
    return f"{grid}x{block}".replace(" ", "") if grid and block else ""
