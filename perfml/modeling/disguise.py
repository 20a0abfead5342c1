"""Columns that give the answer away: times, names and row numbers, and the target once more."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, MOVED_COLUMNS, RUN_COLUMNS
from perfml.util.typing import Floats, Ints

TIME_COLUMNS = (
    *("time_us", "ncu_time_us", "start_us", "gap_us"),
    *(name for name in MOVED_COLUMNS if name.endswith("_us")),
)
"""Columns of perfml's tables that hold times."""

_IDENTITY = {
    *(set(RUN_COLUMNS) - {"batch"}),
    *("iteration", "kernel_index", "process", "metrics_iteration", "launches"),
    *("stream", "index", "row", "id"),
}
"""Columns that say which row it is; ``batch`` is a setting, and may explain a time."""

A_CLOCK = "a clock by its name, like the target"

A_TIME, AN_IDENTITY, A_NUMBER = (
    "a time, like the target",
    "says which row it is, not what it is like",
    "numbers the rows in their order",
)

SAME = 0.999
"""Correlation with the target from which on a column is taken for the target itself."""

FOLLOWS = 0.9
"""Rank correlation within repeats from which on a column follows even the target's noise."""

SAME_SUM = 0.99
"""Share of the variance of the target's logarithm, over groups, from which on a column, or a sum of
columns, is taken for a second measurement of it: repeats of one program differ by more."""

MOST_PARTS = 4
"""Columns that are tried as parts of one sum."""

ENOUGH_ROWS = 8
"""Of fewer rows one column in some thousands is in the target's order by chance."""


def no_feature(name: str, values: pd.Series, is_table: bool) -> str | None:
    """Return why a column cannot be a feature by what it is called or counts; None if it can.

    `is_table`: the column is of one of perfml's tables, whose columns of times and names are known.
    """
    if is_table and name in (*KERNEL_COLUMNS, *KERNEL_OPTIONAL):
        if name in TIME_COLUMNS:
            return A_TIME
        if name in _IDENTITY:
            return AN_IDENTITY
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    if len(numbers) >= ENOUGH_ROWS and bool(np.all(np.diff(numbers) == 1)):
        return A_NUMBER
    return None


@functools.cache
def _words() -> dict[str, frozenset[str]]:
    """Return what parts of names mean: ``clocks.toml``."""
    text = Path(__file__).with_name("clocks.toml").read_text(encoding="utf-8")
    return {kind: frozenset(words) for kind, words in tomllib.loads(text).items()}


def _parts(name: str) -> list[str]:
    """Return the words of a name, in small letters."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name[:200])
    return re.findall(r"[a-zµ]+/s|[a-zµ]+|p\d+|%", apart.lower())


def is_clock(name: str) -> bool:
    """Return whether a column holds a time, cycles or a rate by its name.

    Examples
    --------
    >>> [is_clock(name) for name in ("gpu__time_duration.sum", "cycles_elapsed.max", "Time (%)")]
    [True, True, True]
    >>> [is_clock(name) for name in ("dram__bytes.sum.per_second", "latency_ms", "kernelDuration")]
    [True, True, True]
    >>> [is_clock(name) for name in ("time_steps", "dram__throughput.avg.pct_of_peak", "bytes")]
    [False, False, False]
    """
    known, parts = _words(), _parts(name)
    if known["shares"] & set(parts):
        return False
    if {"per", "second"} <= set(parts) or (known["cycles"] | known["rates"]) & set(parts):
        return True
    while parts and parts[-1] in known["statistics"]:
        parts.pop()
    # a single letter is a unit only behind a word that says time
    if len(parts) > 1 and parts[-1] in known["units"]:
        return parts[-1] != "s" or bool(known["times"] & set(parts))
    return bool(parts) and parts[-1] in known["times"]


def is_work(name: str) -> bool:
    """Return whether a column is an amount of work by its name, which may be the cause itself."""
    return bool(_words()["work"] & set(_parts(name)))


def same_sum(columns: Sequence[Floats], target: Floats, groups: Ints) -> tuple[int, ...]:
    """Return the fewest columns whose sum is the target over groups, but for its unit; or none.

    Only positive columns are parts. One after the other is added that brings the sum nearest to the
    target, up to `MOST_PARTS`.
    """
    frame = pd.DataFrame(dict(enumerate(columns)))
    usable = [at for at in range(len(columns)) if bool((frame[at] > 0).all())]
    means = frame[usable].assign(target=target).groupby(groups).mean()
    log = np.log(means.pop("target").to_numpy())
    total = float(((log - log.mean()) ** 2).sum())
    if len(means) < ENOUGH_ROWS or total == 0:
        return ()
    chosen: list[int] = []
    reached = np.zeros(len(means))
    while len(chosen) < min(MOST_PARTS, len(usable)):
        left = [at for at in usable if at not in chosen]
        behind = np.log(reached[:, None] + means[left].to_numpy()) - log[:, None]
        shares = 1.0 - ((behind - behind.mean(axis=0)) ** 2).sum(axis=0) / total
        best = int(shares.argmax())
        chosen.append(left[best])
        reached = reached + means[left[best]].to_numpy()
        if shares[best] >= SAME_SUM:
            return tuple(chosen)
    return ()


def disguised(values: Floats, target: Floats, groups: Ints) -> bool:
    """Return whether a column is the target in disguise: another unit, a copy, a function of it.

    A metric may explain a target perfectly; it does not repeat the target's noise. So where a group
    has several rows, a column is the target only if it follows the differences between these as
    well. Where none has, it must be in the target's order throughout, or proportional to it.

    Undefined values are left out; `groups` are numbers a row, and the rows of a group repeat one
    measurement.
    """
    known = np.isfinite(values) & np.isfinite(target)
    values, target, groups = values[known], target[known], groups[known]
    if len(values) < ENOUGH_ROWS or values.min() == values.max() or target.min() == target.max():
        return False
    ordered = abs(_correlation(_ranks(values), _ranks(target)))
    linear = abs(_correlation(values, target))
    if max(ordered, linear) <= SAME:
        return False
    inside = _repeats_differ(target, groups)
    if not inside.any():
        return ordered > 1 - 1e-9 or linear > SAME
    frame = pd.DataFrame({"values": values, "target": target})[inside]
    ranked = frame.groupby(groups[inside]).rank()
    middle = ranked - ranked.groupby(groups[inside]).transform("mean")
    return abs(_correlation(*(middle[name].to_numpy() for name in frame))) > FOLLOWS


def _repeats_differ(target: Floats, groups: Ints) -> Ints:
    """Return which rows are in a group that has several targets."""
    different = pd.Series(target).groupby(groups).transform("nunique")
    return np.asarray(different > 1)


def _ranks(values: Floats) -> Floats:
    return np.asarray(pd.Series(values).rank(), dtype=np.float64)


def _correlation(left: Floats, right: Floats) -> float:
    """Return the correlation; 0 where one of them is constant."""
    left, right = left - left.mean(), right - right.mean()
    size = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / size if size > 0 else 0.0
