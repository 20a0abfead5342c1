"""What times tell: of one layer, and of all layers together in one iteration.

Times confirm what counters say. They have a verdict of their own where the counted work is equal,
and their ratio stands in every headline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.explain.times import (
    OVERLAP,
    Ratio,
    compare_times,
    may_overlap,
    processes_of,
    without_verdict,
)
from perfml.gate.conditions import other_clock, times_go_together
from perfml.gate.policy import Policy
from perfml.util.typing import Floats
from perfml.util.words import count, ratio_text

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

APART = 1.1
"""Ratio from which on two groups of repeats are two speeds. Two SM clocks that are not one differ
by 3 % (`perfml.gate.conditions.CLOCKS`), and single repeats scatter by 2 to 4 %."""

GAP, GROUP, FEWEST = 0.6, 0.2, 2
"""Two speeds have nothing between them: the widest gap between neighbouring repeats is at least
`GAP` of the distance of their means. The smaller group has `FEWEST` repeats and `GROUP` of them."""


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

    def single_beyond(self, share: float, *, faster: bool = False) -> bool:
        """Return whether times without repeats on both sides rose (fell) by more than a share."""
        if self.ratio is None or self.repeated or self.ratio.unclaimed:
            return False
        return bool((-1 if faster else 1) * self.ratio.log_ratio > np.log1p(share))


def layer_ratio(before: pd.DataFrame, after: pd.DataFrame, policy: Policy) -> Ratio | None:
    """Return the ratio of a layer's times; None where a side has none or they do not compare."""
    timed = [rows[rows["time_us"].notna()] for rows in (before, after)]
    if any(rows.empty for rows in timed) or not times_go_together(*timed):
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
    if any(rows.empty for rows in timed) or not times_go_together(*timed) or other_clock(*timed):
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


def two_speeds(layer: str, before: pd.DataFrame, after: pd.DataFrame) -> str:
    """Say that the repeats of one side of a layer have two speeds, and not those of the other."""
    slow = [_slow_repeats(rows["time_us"].dropna().to_numpy()) for rows in (before, after)]
    if all(slow) or not any(slow):
        return ""
    side, (number, others, by) = next(
        (side, of) for side, of in zip(("baseline", "new version"), slow, strict=True) if of
    )
    return (
        f"Of {layer} {count(number, 'repeat')} of the {side} took {ratio_text(by)} times as long "
        f"as the other {others}. Measure again, or look for what throttles the GPU."
    )


def _slow_repeats(times: Floats) -> tuple[int, int, float] | None:
    """Return how many repeats are slow, how many are not, and how much longer they take."""
    logs = np.sort(np.log(times[times > 0]))
    if len(logs) < 2 * FEWEST:
        return None
    gaps = np.diff(logs)
    fast = int(gaps.argmax()) + 1
    slow = len(logs) - fast
    apart = float(logs[fast:].mean() - logs[:fast].mean())
    groups = min(fast, slow) >= max(FEWEST, GROUP * len(logs))
    if not groups or apart < math.log(APART) or gaps.max() < GAP * apart:
        return None
    return slow, fast, math.exp(apart)
