"""The kernels of every layer: their mean times, and the same packed for a page's chooser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfml.account.device_time import repeat_keys
from perfml.kernel_names import kernel_label, shortened
from perfml.report.conditions import UNNAMED, Condition
from perfml.report.document import KernelChooser
from perfml.report.labels import clean
from perfml.util.words import count

EVERYTHING = "All launches"
OUTSIDE = "(outside every layer)"

_SHORT = 64
_NAME_LIMIT = 2000
_ROW_LIMIT = 30_000
_NAMES_BYTES = 1_000_000
"""Bounds that keep the page under 3 MB; what they cut is said on the page."""


def kernel_times(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the mean time and launches a repeat of every kernel of every layer.

    The rows are of one condition. ``launches`` and ``time_us`` are of a repeat (run and iteration),
    ``share`` is of the layer's time; longest first within a layer, which is missing (None) for
    launches outside every layer.
    """
    frame = kernels[["backend", "layer", "kernel", "time_us"]].copy()
    frame["repeat"] = kernels.groupby(repeat_keys(kernels), dropna=False).ngroup()
    frame["amount"] = kernels["launches"].fillna(1) if "launches" in kernels.columns else 1
    frame["time_us"] *= frame["amount"]
    repeats = frame.groupby("backend", dropna=False)["repeat"].nunique()
    keys = ["backend", "layer", "kernel"]
    grouped = frame.groupby(keys, dropna=False, sort=False)
    times = grouped.agg(
        launches=("amount", "sum"), time_us=("time_us", lambda part: part.sum(min_count=1))
    ).reset_index()
    each = times["backend"].map(repeats).to_numpy(dtype=float)
    times["launches"] = times["launches"].to_numpy(dtype=float) / each
    times["time_us"] = times["time_us"].to_numpy(dtype=float) / each
    whole = times.groupby(["backend", "layer"], dropna=False)["time_us"].transform("sum")
    times["share"] = times["time_us"] / whole.where(whole > 0)
    times["place"] = times.groupby(["backend", "layer"], dropna=False, sort=False).ngroup()
    times = times.sort_values(["place", "time_us"], ascending=[True, False], kind="stable")
    return times.drop(columns="place").reset_index(drop=True)


def pack_kernels(
    kernels: pd.DataFrame, shown: Sequence[Condition], series: dict[str, int]
) -> KernelChooser | None:
    """Pack the kernels of conditions, names once; None where none of them has any.

    `series` is the number of each backend's colour. Of the packed, ``names`` are the short and
    full names of all kernels, and ``conditions`` are ``{label, backends, series, layers}`` each; a
    layer is ``{name, rows: {backend: [[name, launches, microseconds, share], ...]}}``, where names
    and backends are counted.
    """
    named = printable(kernels)
    packer = _Packer()
    conditions = []
    for condition in shown:
        rows = condition.select(named)
        if len(rows):
            conditions.append(
                {
                    "label": condition.label,
                    "backends": list(condition.backends),
                    "series": [series[name] for name in condition.backends],
                    "layers": packer.layers(rows, condition),
                }
            )
    if not any(condition["layers"] for condition in conditions):
        return None
    packed = {"names": packer.short_and_full, "conditions": conditions}
    return KernelChooser(packed, packer.cut)


_COLUMNS = ("layer", "kernel", "backend", "launches", "time_us", "share")


@dataclass
class _Packer:
    """Counts names as they come, and rows until the page is full."""

    names: dict[str, int] = field(default_factory=dict)
    budget: int = _ROW_LIMIT
    left_out: int = 0

    def layers(self, kernels: pd.DataFrame, condition: Condition) -> list[dict[str, Any]]:
        """Pack the layers of one condition, all launches first."""
        of_layer: dict[str, list[tuple[Any, ...]]] = {}
        for given in (EVERYTHING, kernels["layer"].fillna(OUTSIDE)):
            times = kernel_times(kernels.assign(layer=given))
            for name, *row in zip(*(times[column].tolist() for column in _COLUMNS), strict=True):
                of_layer.setdefault(name, []).append(tuple(row))
        packed = []
        for name in (EVERYTHING, *condition.layers, OUTSIDE):
            source = of_layer.get(name, [])
            if self.budget < len(source):
                self.left_out += 1
            elif len(source):
                self.budget -= len(source)
                packed.append({"name": name, "rows": self._rows(source, condition.backends)})
        return packed

    def _rows(
        self, source: Sequence[tuple[Any, ...]], backends: Sequence[str]
    ) -> dict[str, list[list[float | int | None]]]:
        packed: dict[str, list[list[float | int | None]]] = {}
        for kernel, backend, *numbers in source:
            entry = [self.names.setdefault(str(kernel), len(self.names)), *map(_rounded, numbers)]
            packed.setdefault(str(backends.index(str(backend))), []).append(entry)
        return packed

    @property
    def _longest(self) -> int:
        return max(80, min(_NAME_LIMIT, _NAMES_BYTES // max(len(self.names), 1)))

    @property
    def short_and_full(self) -> list[tuple[str, str]]:
        """Every name, printable and no longer than the page can hold."""
        full = [clean(name, self._longest) for name in self.names]
        labels = [kernel_label(name, _NAME_LIMIT) for name in full]
        return list(zip(shortened(labels, _SHORT), full, strict=True))

    @property
    def cut(self) -> str:
        """What was left out, in a sentence."""
        parts = []
        if self.left_out:
            parts.append(f"{count(self.left_out, 'layer')} left out to keep this page small.")
        if any(len(name) > self._longest for name in self.names):
            parts.append(f"Kernel names are cut at {self._longest:,} characters.")
        return " ".join(parts)


def printable(kernels: pd.DataFrame) -> pd.DataFrame:
    """Name backends and layers of a Kernels table as the Conditions do, so that they match."""
    return kernels.assign(
        backend=_printable(kernels["backend"]).replace(UNNAMED), layer=_printable(kernels["layer"])
    )


def _printable(values: pd.Series) -> pd.Series:
    kept = {name: clean(name, 200) for name in values.dropna().unique()}
    return values.map(kept).astype(object)


def _rounded(value: Any) -> float | int | None:
    number = float(value)
    if not math.isfinite(number):
        return None
    short = float(f"{number:.5g}")
    return int(short) if short.is_integer() else short
