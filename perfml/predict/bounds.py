"""The least time of a layer by what it computes: operations and bytes over the machine's peaks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.explain.roofs.peaks import DATA_SHEET, Peaks, known_peaks
from perfml.modeling.features import BOUND
from perfml.util.typing import Floats

LEAST_BYTES = 32.0
"""Bytes of one sector: what a layer moves at least, so that no bound is 0."""


def with_bounds(layers: pd.DataFrame, peaks: Mapping[str, Peaks] | None = None) -> pd.DataFrame:
    """Add the time that the peaks of each row's GPU allow at least, in microseconds.

    `layers` have the amounts of work (`perfml.modeling.with_layer_facts`). `peaks`, by device, are
    for those that are not tabulated. The vendor's are taken for all others, measured ones only
    where these are missing: bounds of two GPUs have to be comparable. ``bound_us`` is the larger of
    ``compute_us`` and ``memory_us`` (S. Williams et al., "Roofline", CACM 52, 2009); missing where
    the work, the GPU's peaks or the peak of the precision are not known.
    """
    given = dict(peaks or {})
    devices = layers["device"].astype(object).where(layers["device"].notna(), None)
    roofs = {each: given.get(str(each)) or _tabulated(each) for each in set(devices)}
    precisions = layers["precision"].astype(object)
    pairs = list(zip(devices, precisions, strict=True))
    known = {pair: _rates(roofs[pair[0]], pair[1]) for pair in set(pairs)}
    rates = np.array([known[pair] for pair in pairs], dtype=float).reshape(-1, 2)
    moved = _column(layers, "input_bytes", "weight_bytes", "output_bytes")
    found = layers.copy()
    found["compute_us"] = _column(layers, "flops") / rates[:, 0] * 1e6
    found["memory_us"] = np.maximum(moved, LEAST_BYTES) / rates[:, 1] * 1e6
    # operations that nobody counts leave the bytes as the bound
    memory, compute = (found[name].to_numpy(dtype=float) for name in ("memory_us", "compute_us"))
    found[BOUND] = np.where(np.isnan(memory), np.nan, np.fmax(memory, compute))
    return found


def _rates(peaks: Peaks | None, precision: object) -> tuple[float, float]:
    if peaks is None:
        return (np.nan, np.nan)
    return (peaks.values.get(str(precision), np.nan), peaks.values.get("dram", np.nan))


def _tabulated(device: object) -> Peaks | None:
    """Return a device's peaks by its data sheet, else whatever is known of it."""
    for kind in (DATA_SHEET, None):
        try:
            return known_peaks(str(device), kind)
        except PerfmlError:
            continue
    return None


def _column(layers: pd.DataFrame, *names: str) -> Floats:
    total = np.zeros(len(layers))
    for name in names:
        total = total + layers[name].to_numpy(dtype=float, na_value=np.nan)
    return total
