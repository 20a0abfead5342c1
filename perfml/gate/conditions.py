"""Whether two sides were measured under one condition: the same GPU and batch, at the same clock.

Another kind of GPU executes other code and other counts for the same program, and another batch is
another amount of work, so nothing of it is compared. Another clock changes times alone.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.time_sources import only_kernels
from perfml.errors import PerfmlError, plain
from perfml.explain.compared import WHOLE
from perfml.gate.work import COUNTED
from perfml.tables import CLOCK

CLOCKS = 0.03
"""Relative difference of two SM clocks that is another clock. A time that depends on the clock
moves by no more than it, and up to 3 % of one process a side is no difference of times either
(`perfml.explain.times.SINGLE`)."""

_SAME = {"device": "GPU", "compute_capability": "compute capability", "batch": "batch"}
"""Columns that are the same on both sides, or no work is: another batch is other work."""

_UNKNOWN = {"", "unknown", "nan", "<NA>", "None"}


def require_one_condition(name: str, table: pd.DataFrame) -> None:
    """Refuse a side that holds several conditions.

    Raises `PerfmlError` if it has several backends, precisions, batches or devices.
    """
    for column in ("backend", "precision", "batch", "device"):
        values = _known(table, column)
        if len(values) > 1:
            msg = f"the {name} side holds several values of {column}"
            raise PerfmlError(
                msg,
                found=", ".join(values[:6]),
                cure=f"Keep one, such as: --where '{column}={values[0]}'",
            )


def require_counts(name: str, table: pd.DataFrame) -> None:
    """Refuse a side of which a count is negative.

    Raises `PerfmlError` with the first of them: a counter that overflowed counts nothing.
    """
    for counter in COUNTED:
        if counter not in table.columns:
            continue
        values = table[counter].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = np.flatnonzero(values < 0)
        if len(bad):
            msg = f"a count of the {name} side is negative"
            raise PerfmlError(
                msg,
                where=f"layer {table['layer'].iloc[bad[0]]}",
                found=f"{counter} {values[bad[0]]:,.0f}",
                cure="The counter overflowed or its table is damaged: profile again.",
            )


def other_conditions(baseline: pd.DataFrame, new: pd.DataFrame) -> str:
    """Return that the sides ran on two kinds of GPU or two batches, as a clause; else empty.

    A side that does not say its device or batch is not another one.
    """
    for column, what in _SAME.items():
        before, after = (_known(side, column) for side in (baseline, new))
        if before and after and before != after:
            left, right = (plain(", ".join(side)) for side in (before, after))
            return f"another {what}: {right} against {left}"
    return ""


def other_clock(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """Return that a layer's sides ran at other SM clocks, as a clause; empty where not known."""
    clocks = [_clock(side) for side in (before, after)]
    if not all(clock > 0 for clock in clocks):
        return ""
    if abs(np.log(clocks[1] / clocks[0])) <= np.log1p(CLOCKS):
        return ""
    return f"another SM clock: {clocks[1]:,.0f} MHz against {clocks[0]:,.0f} MHz"


def recorded_longer(before: pd.DataFrame, after: pd.DataFrame) -> float:
    """Return the factor by which all kernels of a run without ranges are launched more often.

    Nothing marks the repeats of such a run, and the new version's recording may be that much
    longer; 1 where layers are known, or some kernels are launched by another factor.
    """
    sides = (before, after)
    if any(set(side["layer"]) != {WHOLE} for side in sides):
        return 1.0
    names = [side["kernel_names"].astype("string").fillna("") for side in sides]
    first, second = (Counter("\n".join(side).split("\n")) for side in names)
    if first.keys() != second.keys():
        return 1.0
    rows = Fraction(len(before), len(after))
    factors = {rows * Fraction(second[name], times) for name, times in first.items()}
    return float(factors.pop()) if len(factors) == 1 else 1.0


def times_go_together(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Return whether both sides' times were taken in the same way: under a profiler, or not."""
    under = [only_kernels(side) for side in (before, after)]
    unknown = any(
        "time_source" not in side or side["time_source"].isna().all() for side in (before, after)
    )
    return unknown or under[0] == under[1]


def _clock(side: pd.DataFrame) -> float:
    if CLOCK not in side.columns:
        return float("nan")
    return float(side[CLOCK].astype(float).median())


def _known(table: pd.DataFrame, column: str) -> list[str]:
    if column not in table.columns:
        return []
    values: Any = table[column].dropna().astype(str).unique()
    return sorted(value for value in values if value not in _UNKNOWN)
