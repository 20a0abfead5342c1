"""Peaks of the devices of some rows, as an input of rules (``peak_fp32``, ``peak_precision``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perfml.datasets.loading import DEVICE_FACTS
from perfml.errors import PerfmlError
from perfml.explain.roofs.peaks import Peaks, peaks_of
from perfml.metrics.expressions import Array


def peak_of_rows(frame: pd.DataFrame, name: str, peaks: Peaks | None) -> Array | str:
    """Return each row's peak of a precision, FLOP/s, or what is not known."""
    devices = frame["device"].astype("string").fillna("") if "device" in frame.columns else None
    if peaks is None and devices is None:
        return f"peak {name} of the device"
    facts = frame.attrs.get(DEVICE_FACTS, {})
    known = {} if devices is None else {each: _known(each, facts) for each in devices.unique()}
    precisions = [name] * len(frame)
    if name == "precision":
        measured = "precision" in frame.columns
        precisions = [str(each) for each in frame["precision"]] if measured else [""] * len(frame)
    tables: list[Mapping[str, float]] = [] if devices is None else [known[each] for each in devices]
    if peaks is not None:
        tables = [peaks.values] * len(frame)
    found = [
        table.get(precision, math.nan) for table, precision in zip(tables, precisions, strict=True)
    ]
    values = np.array(found, dtype=float)
    return f"peak {name} of the device" if np.isnan(values).all() else values


def _known(device: str, facts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
    try:
        return peaks_of([device], None, facts).values
    except PerfmlError:
        return {}
