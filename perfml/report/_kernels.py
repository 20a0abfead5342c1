"""Kernels a layer and backend, packed for the page's chooser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfml.report._labels import clean, count, short_kernel
from perfml.report._times import Condition

EVERYTHING = "All launches"
OUTSIDE = "(outside every layer)"

_NAME_LIMIT = 2000
_ROW_LIMIT = 30_000
_NAMES_BYTES = 1_000_000
"""Bounds that keep the page under 3 MB; what they cut is said on the page."""


def kernel_times(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the mean time and launches a repeat of every kernel of every layer.

    Parameters
    ----------
    kernels
        Kernels rows of one condition.

    Returns
    -------
    DataFrame
        ``backend, layer, kernel, launches, time_us, share``: launches and microseconds a repeat
        (run and iteration), share of the layer's time; longest first within a layer. A layer is
        missing (None) for launches outside every layer.
    """
    frame = kernels[["backend", "layer", "kernel", "time_us"]].copy()
    frame["repeat"] = kernels.groupby(["run_id", "iteration"], dropna=False).ngroup()
    frame["amount"] = kernels["launches"].fillna(1) if "launches" in kernels.columns else 1
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


def chooser(kernels: pd.DataFrame | None, shown: Sequence[Condition]) -> dict[str, Any] | None:
    """Pack the kernels for the page: names once, rows as numbers.

    Parameters
    ----------
    kernels
        A Kernels table, or None.
    shown
        The conditions of the report; kernels of others are left out.

    Returns
    -------
    dict or None
        ``names`` ([short, full] each), ``conditions`` ([{label, backends, layers}], a layer is
        {name, rows: {backend: [[name, launches, microseconds, share], ...]}}) and ``cut`` (a
        sentence or None); None without kernels.
    """
    if kernels is None or kernels.empty:
        return None
    named = printable(kernels)
    names: dict[str, int] = {}
    packed = []
    budget, left_out = _ROW_LIMIT, 0
    for condition in shown:
        rows = condition.select(named)
        if rows.empty:
            continue
        times = kernel_times(rows.assign(layer=rows["layer"].fillna(OUTSIDE)))
        everything = kernel_times(rows.assign(layer=EVERYTHING))
        layers = []
        for name in (EVERYTHING, *condition.layers, OUTSIDE):
            source = everything if name == EVERYTHING else times[times["layer"] == name]
            if source.empty:
                continue
            if budget < len(source):
                left_out += 1
                continue
            budget -= len(source)
            layers.append({"name": name, "rows": _rows(source, condition.backends, names)})
        packed.append(
            {"label": condition.label, "backends": list(condition.backends), "layers": layers}
        )
    if not any(each["layers"] for each in packed):
        return None
    allowed = max(80, min(_NAME_LIMIT, _NAMES_BYTES // max(len(names), 1)))
    cut = []
    if left_out:
        cut.append(f"{count(left_out, 'layer')} left out to keep this page small.")
    if any(len(name) > allowed for name in names):
        cut.append(f"Kernel names are cut at {allowed:,} characters.")
    full = [clean(name, allowed) for name in names]
    return {
        "names": [[short_kernel(name), name] for name in full],
        "conditions": packed,
        "cut": " ".join(cut) or None,
    }


def printable(kernels: pd.DataFrame) -> pd.DataFrame:
    """Name backends and layers of a Kernels table as the Conditions do, so that they match."""
    return kernels.assign(
        backend=_printable(kernels["backend"]), layer=_printable(kernels["layer"])
    )


def _printable(values: pd.Series) -> pd.Series:
    kept = {name: clean(name, 200) for name in values.dropna().unique()}
    return values.map(kept).astype(object)


def _rows(
    source: pd.DataFrame, backends: Sequence[str], names: dict[str, int]
) -> dict[str, list[list[float | int | None]]]:
    packed: dict[str, list[list[float | int | None]]] = {}
    for row in source.itertuples(index=False):
        name = names.setdefault(str(row.kernel), len(names))
        entry = [name, _rounded(row.launches), _rounded(row.time_us), _rounded(row.share)]
        packed.setdefault(str(backends.index(str(row.backend))), []).append(entry)
    return packed


def _rounded(value: Any) -> float | int | None:
    number = float(value)
    if not math.isfinite(number):
        return None
    short = float(f"{number:.5g}")
    return int(short) if short.is_integer() else short
