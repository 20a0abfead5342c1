"""How many blocks of a launch fit on a multiprocessor, by what each resource allows."""

from __future__ import annotations

import functools
import math
import re

import numpy as np
import pandas as pd

from perfml.chips import Chip, of_rows
from perfml.metrics.expressions import Array

REGISTER_UNIT = 256
"""Registers are allocated to a warp in units of this many."""
WARP = 32

SHAPE = ("registers_per_thread", "shared_memory_per_block", "block", "compute_capability")
"""Columns of launches that say how many blocks fit."""

_PRINTED = 0.005
"""Waves below which two digits are zeros."""

LIMITS = ("registers", "shared_memory", "warps", "slots")
_TRIPLE = re.compile(r"\((\d+), *(\d+), *(\d+)\)")
COLUMN = "resident_blocks_limit_"
"""Beginning of the counters by which Nsight Compute says the same."""


def product(texts: pd.Series) -> Array:
    """Return the product of a grid or block written as ``(x, y, z)``; NaN where there is none."""
    codes, names = pd.factorize(texts)
    products = [_product(str(name)) for name in names]
    return np.array([*products, math.nan])[codes]


@functools.cache
def _product(text: str) -> float:
    found = _TRIPLE.search(text)
    return math.nan if found is None else float(math.prod(map(int, found.groups())))


def resident_blocks(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the blocks that fit by registers, shared memory, warps and places for blocks.

    The launches have the columns of `SHAPE`. Returned are the columns `LIMITS`, a row a launch; NaN
    where the shape or the device is not known.
    """
    sizes = [launches[name].to_numpy(dtype=float, na_value=np.nan).tolist() for name in SHAPE[:2]]
    rows = zip(*sizes, product(launches["block"]).tolist(), of_rows(launches), strict=True)
    found = np.array([_fit(*row) for row in rows], dtype=float)
    return pd.DataFrame(found.reshape(-1, len(LIMITS)), columns=list(LIMITS), index=launches.index)


def with_limits(launches: pd.DataFrame) -> pd.DataFrame:
    """Return launches with these limits as counters, where a profiler did not say them."""
    known = any(f"{COLUMN}{name}" in launches.columns for name in LIMITS)
    if known or not set(SHAPE) <= set(launches.columns):
        return launches
    fit = resident_blocks(launches).add_prefix(COLUMN)
    return launches if fit.isna().all(axis=None) else launches.join(fit)


def with_waves(launches: pd.DataFrame) -> pd.DataFrame:
    """Return launches with the waves of grids so small that Nsight Compute prints 0.00 of them.

    Fewer blocks than multiprocessors keep as many of these busy: the mean of their busy time, over
    that of the busiest one, is blocks a multiprocessor, and a wave is as many as fit.
    """
    wanted = ("waves_per_sm", "sm_active_cycles_mean", "sm_active_cycles_max")
    limits = [f"{COLUMN}{name}" for name in LIMITS]
    if not {*wanted, *limits} <= set(launches.columns):
        return launches
    waves, mean, most = (launches[name].astype(float) for name in wanted)
    rounded = (waves == 0) & (most > 0) & (mean > 0)
    small = (mean / most / launches[limits].astype(float).min(axis=1)).clip(upper=_PRINTED)
    return launches.assign(waves_per_sm=waves.mask(rounded & small.notna(), small))


def _fit(registers: float, shared: float, threads: float, chip: Chip) -> tuple[float, ...]:
    if math.isnan(chip.warps) or not threads > 0:
        return (math.nan,) * len(LIMITS)
    warps = math.ceil(threads / WARP)
    by_registers = by_shared = math.nan
    if registers > 0:
        unit = math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        by_registers = chip.registers // (unit * warps)
    if not math.isnan(shared):
        by_shared = chip.shared_bytes // max(shared + chip.reserved_shared_bytes, 1)
    return by_registers, by_shared, chip.warps // warps, chip.blocks
