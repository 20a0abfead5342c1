"""The roofline of every kernel or layer: how much time the machine's peaks alone would take.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52 (2009), with one roof a level of the memory hierarchy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perfml.datasets.loading import DERIVED, DEVICE_FACTS
from perfml.errors import PerfmlError
from perfml.explain.roofs.peaks import Peaks, peaks_of
from perfml.modeling.layer_shapes import described_layers

SECTOR_BYTES = 32

_BYTES: dict[str, tuple[tuple[str, ...], float]] = {
    "dram": (("dram_read_bytes", "dram_write_bytes"), 1.0),
    "l2": (("l2_read_transactions", "l2_write_transactions"), SECTOR_BYTES),
    "l1": (("gld_transactions", "gst_transactions"), SECTOR_BYTES),
}
"""Counters of the bytes that cross each level: device memory, L2, and L1 (global accesses)."""

_FLOPS = ("flop_count_sp", "flop_count_dp", "flop_count_hp")
_TENSOR = ("tensor_cycles_utilization", "tensor_utilization", "tensor_precision_fu_utilization")
_IDLE = 0.01  # busy fraction below which tensor cores did nothing that counts

PIPE = "tensor pipe"
"""The source where operations are not known, and the busy cycles of tensor cores are."""

UNKNOWN = "unknown"  # the bound where operations, or the bytes of every level, are not known

_CARRIED = ("backend", "precision", "batch", "iteration", "layer", "kernel")


def roofline(table: pd.DataFrame, peaks: Mapping[str, float] | Peaks | None = None) -> pd.DataFrame:
    """Place kernels or layers under the roofs of their device.

    Parameters
    ----------
    table
        Kernels or Layers table with the metrics of ``--metrics roofline``; a column ``flops``
        (see `perfml.modeling.with_shapes`) counts instead of the operation counters.
    peaks
        FLOP/s by precision (``fp32``, ``tf32``, ...) and byte/s by level (``dram``, ``l2``,
        ``l1``); by default the device's own from `perfml.explain.known_peaks`: measured ones where
        there are any, else the vendor's, else those that follow from what its profile says of
        it. A level without a peak bounds nothing, one without counters is left out.

    Returns
    -------
    DataFrame
        One row a row of `table`: what identifies it; ``time_us``; ``ncu_time_us`` where it is
        known: rates are over this duration, because the bytes were counted then; ``flops`` and
        ``flops_source`` (``shape``, ``counted``, ``derived``, ``tensor pipe`` or missing); a
        level's ``L_bytes``,
        ``L_intensity`` (FLOP/byte) and ``L_rate`` (byte/s); ``flop_rate``; ``bound``
        (``compute``, or the level whose roof is the lowest; ``unknown`` where operations or the
        bytes of every level are not known, because the missing roof could be lower); and
        ``fraction`` of that roof achieved. Operations on tensor cores have no counter in the
        catalogue: without shapes, rows of ``tf32``, ``fp16``, ... have no ``flops``. Their
        compute roof is then the tensor pipe's own cycles (`tensor_level`).

    Raises
    ------
    PerfmlError
        If the device has no tabulated peaks and none are given, a peak is not positive, or the
        table has no counter that a roof needs.

    Examples
    --------
    >>> import pandas as pd
    >>> from perfml.explain import roofline
    >>> row = {"time_us": [10.0], "precision": ["fp32"], "flop_count_sp": [3.35e8],
    ...        "dram_read_bytes": [1e6], "dram_write_bytes": [0.0]}
    >>> roofline(pd.DataFrame(row), {"fp32": 67e12, "dram": 4.8e12})[["bound", "fraction"]]
         bound  fraction
    0  compute       0.5
    """
    devices = sorted(set(table["device"].dropna())) if "device" in table.columns else []
    roofs = peaks_of(list(map(str, devices)), peaks, table.attrs.get(DEVICE_FACTS)).values
    found = table[[name for name in _CARRIED if name in table.columns]].copy()
    seconds = _seconds(table)
    found["time_us"] = _numbers(table, "time_us")
    if "ncu_time_us" in table.columns:
        found["ncu_time_us"] = _numbers(table, "ncu_time_us")
    noted = table.attrs.get(DERIVED, ())
    flops, source = _flops(table, noted)
    found["flops"] = flops
    found["flops_source"] = pd.array(source, dtype="string")
    found["flop_rate"] = flops / seconds
    busy = tensor_level(table)
    of_pipe = np.isnan(flops) & ~np.isnan(busy)
    found["flops_source"] = found["flops_source"].mask(of_pipe, PIPE)
    peak = _precisions(table).map(roofs).to_numpy(dtype=float)
    least = {"compute": np.where(of_pipe, busy * seconds, flops / peak)}
    for level, (columns, size) in _BYTES.items():
        if not all(name in table.columns for name in columns):
            continue
        moved = table[list(columns)].astype(float).sum(axis=1, skipna=False).to_numpy() * size
        found[f"{level}_bytes"] = moved
        with np.errstate(divide="ignore", invalid="ignore"):
            found[f"{level}_intensity"] = np.where(moved > 0, flops / moved, np.nan)
        found[f"{level}_rate"] = moved / seconds
        if level in roofs:
            least[level] = moved / roofs[level]
    bounds = pd.DataFrame(least, index=table.index)
    if bounds.isna().all(axis=None):
        msg = "the table has neither operations nor bytes under a given roof"
        raise PerfmlError(
            msg,
            found=f"roofs {', '.join(roofs)}",
            cure="Collect with --metrics roofline (for ncu --metrics: perfml metrics roofline "
            "--request), or add shapes (perfml.modeling.with_shapes).",
        )
    found["bound"] = _lowest(bounds)
    known = (found["bound"] != UNKNOWN).to_numpy(dtype=bool)
    found["fraction"] = np.where(known, bounds.max(axis=1) / seconds, np.nan)
    return found


def tensor_level(table: pd.DataFrame) -> np.ndarray:
    """Return the part of the time for which tensor cores are busy; NaN where that is not known.

    ``tensor_cycles_utilization`` (busy cycles of the pipe, over those of active multiprocessors)
    times ``sm_efficiency`` (active ones, of all). A level of instructions
    (``tensor_utilization``) does not tell it: one of a warpgroup counts once and takes many cycles.
    """
    busy = _numbers(table, "tensor_cycles_utilization")
    return np.where(busy >= _IDLE, busy * _numbers(table, "sm_efficiency"), np.nan)


def with_described_flops(layers: pd.DataFrame, provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Return layers with the operations that their runs say they take, where they are known."""
    # Every run in a data set's provenance says what its layers are (``run.json``); layers that have
    # the column ``flops`` stay as they are.
    if "flops" in layers.columns or "run_id" not in layers.columns:
        return layers
    known = {
        (row.get("run_id"), row["layer"]): float(row["flops"])
        for row in described_layers(provenance)
        if isinstance(row.get("flops"), (int, float))
    }
    keys = zip(layers["run_id"], layers["layer"], strict=True)
    flops = np.array([known.get(key, np.nan) for key in keys], dtype=float)
    return layers if np.isnan(flops).all() else layers.assign(flops=flops)


def _lowest(least: pd.DataFrame) -> pd.Series[str]:
    """Return the name of the lowest roof of each row, where both kinds of roof are known."""
    levels = least.drop(columns="compute")
    known = least["compute"].notna() & levels.notna().any(axis=1)
    lowest = least.fillna(-np.inf).idxmax(axis=1).astype("string")
    return lowest.where(known, UNKNOWN)


def _seconds(table: pd.DataFrame) -> np.ndarray:
    under, time = _numbers(table, "ncu_time_us"), _numbers(table, "time_us")
    time = np.where(under > 0, under, time)
    return np.asarray(np.where(time > 0, time, np.nan) * 1e-6)


def _precisions(table: pd.DataFrame) -> pd.Series[str]:
    """Return the precision whose peak holds; without a label, the one that CUDA cores counted."""
    # That takes tensor cores known to be idle: what they do has no counter.
    if "precision" not in table.columns:
        return pd.Series("fp32", index=table.index, dtype="string")
    precision = table["precision"].astype("string").fillna("fp32")
    levels = [_numbers(table, name) for name in _TENSOR if name in table.columns]
    if not levels:
        return precision
    idle = np.fmax.reduce(levels) < _IDLE
    single, double = _numbers(table, "flop_count_sp"), _numbers(table, "flop_count_dp")
    counted = np.where(np.nan_to_num(double) > np.nan_to_num(single), "fp64", "fp32")
    guess = (precision == "unknown").to_numpy(dtype=bool) & idle
    return precision.where(~guess, pd.Series(counted, index=table.index, dtype="string"))


def _flops(table: pd.DataFrame, derived: Collection[str]) -> tuple[np.ndarray, list[str | None]]:
    """Return the operations of each row, from its shape or else counted, and which of them."""
    shape = _numbers(table, "flops")
    # an operation counter of CUDA cores says nothing of a tensor core's work
    counted = np.where(_precisions(table).isin(["fp32", "fp64"]), 0.0, np.nan)
    have = [name for name in _FLOPS if name in table.columns]
    counts = table[have].astype(float).sum(axis=1, min_count=1) if have else None
    counted = counted + (np.nan if counts is None else counts.to_numpy())
    flops = np.where(np.isnan(shape), counted, shape)
    how = "derived" if set(have) & set(derived) else "counted"
    source: list[str | None] = [
        "shape" if not np.isnan(a) else how if not np.isnan(b) else None
        for a, b in zip(shape, counted, strict=True)
    ]
    return flops, source


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    if name not in table.columns:
        return np.full(len(table), np.nan)
    return np.asarray(table[name].to_numpy(dtype=float, na_value=np.nan))
