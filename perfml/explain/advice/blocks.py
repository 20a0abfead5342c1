"""How blocks fill multiprocessors, and how evenly: inputs of rules.

Each is made of the columns of all launches at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from perfml.explain.advice.accesses import is_present, numbers
from perfml.explain.limits.state import wave_fill
from perfml.explain.residency import SHAPE, resident_blocks
from perfml.metrics.expressions import Array

_HALF, _DIGITS = 0.5, 0.02
_EMPTY = 0.25
"""Of fewer multiprocessors without a block, idle time does not tell how long a wave takes."""


def filled_waves(frame: pd.DataFrame) -> Array:
    """Return how full the waves of blocks are in the mean."""
    return np.array([wave_fill(value) for value in numbers(frame, "waves_per_sm")])


def tail_share(frame: pd.DataFrame) -> Array:
    """Return the part of the time that the last wave of blocks takes, at most what it lacks.

    While it runs, multiprocessors without a block are idle, and how long they are was counted. One
    with few blocks is not idle, and works them faster than a full one.
    """
    waves = numbers(frame, "waves_per_sm")
    lacks = 1 - filled_waves(frame)
    if not set(SHAPE) <= set(frame.columns):
        return lacks
    fit = resident_blocks(frame).min(axis=1).to_numpy(dtype=float)
    empty = 1 - (waves - np.floor(waves)) * fit
    with np.errstate(invalid="ignore", divide="ignore"):
        takes = (1 - sm_balance(frame)) / np.where(empty > _EMPTY, empty, np.nan)
    return np.where(np.isnan(takes), lacks, np.fmin(lacks, takes))


def missing_blocks(frame: pd.DataFrame) -> Array:
    """Return what more blocks can gain: idle multiprocessors work, or waiting is hidden.

    The same work on all multiprocessors takes as long as they are busy in the mean, of the busiest
    one; more warps hide as much of the waiting as there is room for.
    """
    lacks = 1 - numbers(frame, "waves_per_sm")
    stalls = [
        numbers(frame, name)
        for name in ("stall_memory_dependency", "stall_exec_dependency")
        if is_present(frame, name)
    ]
    if not stalls:
        return lacks
    hidden = lacks * np.minimum(np.sum(stalls, axis=0), 1.0)
    helped = np.fmin(np.fmax(1 - sm_balance(frame), hidden), lacks)
    return np.where(np.isnan(hidden) | np.isnan(sm_balance(frame)), lacks, helped)


def sm_balance(frame: pd.DataFrame) -> Array:
    """Return how long multiprocessors have a block, over the busiest one; NaN if not counted."""
    names = ("sm_active_cycles_mean", "sm_active_cycles_max")
    if not all(is_present(frame, name) for name in names):
        return np.full(len(frame), np.nan)
    return np.asarray(numbers(frame, names[0]) / numbers(frame, names[1]))


def even_blocks(frame: pd.DataFrame) -> Array:
    """Return how busy blocks of equal work would keep multiprocessors, over the busiest one.

    132 blocks are one for each of 132 multiprocessors, however many would fit; 140 are two for
    some of them, and two waves of time.
    """
    waves, fill = numbers(frame, "waves_per_sm"), filled_waves(frame)
    if not set(SHAPE) <= set(frame.columns):
        return np.where(waves > _HALF, fill, 0.0)
    each = waves * resident_blocks(frame).min(axis=1).to_numpy(dtype=float)
    # Nsight Compute says waves to two digits
    each = np.where(np.abs(each - np.round(each)) <= _DIGITS * each, np.round(each), each)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.where(each >= 1, each / np.ceil(each), 0.0)
    spread = np.where(np.isnan(each), np.where(waves > _HALF, fill, 0.0), spread)
    return np.where(waves > 1, fill, spread)


def limited_by(name: str) -> Callable[[pd.DataFrame], Array]:
    """Make the blocks that one resource allows, over those that all else allows."""

    def make(frame: pd.DataFrame) -> Array:
        fit = resident_blocks(frame)
        others = fit.drop(columns=name).min(axis=1, skipna=name == "slots").to_numpy(dtype=float)
        mine: Array = fit[name].to_numpy(dtype=float) / np.where(others > 0, others, np.nan)
        return mine

    return make
