"""Launches without ranges: every kernel is a layer, and every launch of it a repeat.

A profile made without ranges does not tell which launches belong together. What it does tell is
which launches are of one kernel with one shape, and these are compared with each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.device_time import OFTEN, RECORDED, repeat_keys
from perfml.ingest.merge.groups import launch_numbers
from perfml.kernel_names import kernel_label

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
