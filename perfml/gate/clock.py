"""What times tell: of one layer, and of all layers together in one iteration.

Times confirm what counters say. They have a verdict of their own where the counted work is equal,
and their ratio stands in every headline. Sides are compared under one condition: the same kind of
GPU and batch, at the same clock. Another kind of GPU executes other code for the same program.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.time_sources import not_comparable
from perfml.errors import PerfmlError, plain
from perfml.explain.compared import WHOLE
from perfml.explain.times import (
    OVERLAP,
    Ratio,
    compare_times,
    may_overlap,
    processes_of,
    without_verdict,
)
from perfml.gate.policy import Policy
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


def _clock(side: pd.DataFrame) -> float:
    if CLOCK not in side.columns:
        return float("nan")
    return float(side[CLOCK].astype(float).median())


def _known(table: pd.DataFrame, column: str) -> list[str]:
    if column not in table.columns:
        return []
    values: Any = table[column].dropna().astype(str).unique()
    return sorted(value for value in values if value not in _UNKNOWN)


LAYER_SLOWER = 0.5
"""A layer that did the same work in one process a side is called slower beyond this. Of 18,413
layers in two processes each (``datasets/atlas/times.parquet``, an H200) 2 differed by more."""

NETWORK_LAYERS = 3
"""So many layers that all ran in both sides are a network, whose whole time is steadier than a
layer's: of 221 networks in two processes each none differed by more than 3.8 %, so that it is
called slower beyond `perfml.explain.times.SAME_WORK`."""

USUAL = 0.5
"""Share of a side's iterations that a layer has to be in for its time to be part of an iteration's:
launches that set a program up are in one."""


def layer_doubtful(layers: int) -> float:
    """Return by how much one of `layers` layers may be slower in another process of the program.

    In one of twenty pairs of processes the slowest of 1, 3, 10, 30 and 100 layers of the atlas'
    times is slower by 3.3, 6.1, 9.7, 15.6 and 24.4 %; the power law is fitted to these.

    Examples
    --------
    >>> [round(layer_doubtful(layers), 3) for layers in (1, 3, 10, 30, 100)]
    [0.035, 0.056, 0.094, 0.151, 0.254]
    """
    return float(0.035 * layers**0.43)


@dataclass(frozen=True)
class Clock:
    """What a ratio of times tells."""

    ratio: Ratio | None

    @property
    def repeated(self) -> bool:
        """Whether there is an interval."""
        return self.ratio is not None and self.ratio.log_low is not None

    def moved(self, verdict: str, least: float = 0.0) -> bool:
        """Return whether the time rose or fell clearly; of one process a side, by so much more."""
        if self.ratio is None or not self.repeated or self.ratio.verdict != verdict:
            return False
        # several processes a side show by themselves how much they differ
        across = min(self.ratio.processes) > 1
        return across or bool(abs(self.ratio.log_ratio) > np.log1p(least))

    @property
    def single(self) -> bool:
        """Whether there are times, of which nothing but a repeat more would make an interval."""
        return self.ratio is not None and not self.repeated and not self.ratio.unclaimed

    def single_beyond(self, share: float, verdict: str = "slower") -> bool:
        """Return whether times without repeats on both sides rose or fell by more than a share."""
        if self.ratio is None or not self.single:
            return False
        moved = self.ratio.log_ratio if verdict == "slower" else -self.ratio.log_ratio
        return bool(moved > np.log1p(share))


def layer_ratio(before: pd.DataFrame, after: pd.DataFrame, policy: Policy) -> Ratio | None:
    """Return the ratio of a layer's times; None where a side has none or they do not compare."""
    timed = [rows[rows["time_us"].notna()] for rows in (before, after)]
    if any(rows.empty for rows in timed) or not_comparable(*(("", rows) for rows in timed)):
        return None
    ratio = compare_times(
        *(rows["time_us"] for rows in timed),
        baseline_process=processes_of(timed[0]),
        target_process=processes_of(timed[1]),
        tolerance=policy.time,
    )
    return without_verdict(ratio, OVERLAP) if any(map(may_overlap, timed)) else ratio


def whole_ratio(before: pd.DataFrame, after: pd.DataFrame, policy: Policy) -> Ratio | None:
    """Return the ratio of the times of all layers of an iteration.

    None where a side has no times, they do not compare, or the SM clocks are others.
    """
    timed = [rows[rows["time_us"].notna()] for rows in (before, after)]
    if (
        any(rows.empty for rows in timed)
        or not_comparable(*(("", rows) for rows in timed))
        or other_clock(*timed)
    ):
        return None
    sums = [_iterations(rows) for rows in timed]
    if any(rows.empty for rows in sums):
        # no iteration has all layers, as where every layer was profiled by itself
        sums = [_mean_layers(rows) for rows in timed]
    ratio = layer_ratio(sums[0], sums[1], policy)
    if ratio is not None and any(map(may_overlap, timed)):
        return without_verdict(ratio, OVERLAP)
    return ratio


def _iterations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each iteration that has all usual layers, as rows of a table."""
    keys = [name for name in ("run_id", "process", "iteration") if name in rows]
    places = rows.groupby(keys, dropna=False, observed=True).ngroup()
    held = places.groupby(rows["layer"].astype(object)).nunique()
    usual = held.index[held >= USUAL * places.nunique()]
    inside = rows[rows["layer"].isin(usual)]
    groups = inside.groupby(keys, dropna=False, observed=True)
    sums = groups["time_us"].sum()
    return sums[groups["layer"].nunique() == len(usual)].reset_index()


def _mean_layers(rows: pd.DataFrame) -> pd.DataFrame:
    logs = np.log(rows["time_us"].where(rows["time_us"] > 0))
    means = np.exp(logs.groupby(rows["layer"].astype(object)).mean())
    return pd.DataFrame({"time_us": [float(means.sum())]})
