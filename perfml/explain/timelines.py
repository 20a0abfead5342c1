"""From a Kernels table to what the clock shows: of an iteration, and of its layers.

Here to change: what counts as a repeat, and which of them is the usual one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from perfml.explain.gaps import SHOWN, Gaps, Timeline
from perfml.explain.moved import are_known, moved_by
from perfml.tables import MOVED_COLUMNS
from perfml.util.words import micros

_TOLD = 1.2
"""Layers are named from this factor on."""
MOST_LAYERS = 3
"""So many layers are named of a whole run."""
_REPEAT = ("run_id", "device", "process", "iteration")


def timeline(kernels: pd.DataFrame | None, name: str = "") -> Timeline | None:
    """Return what the clock shows of a Kernels table; None for one that is not from a trace.

    Parameters
    ----------
    kernels
        With the columns ``start_us`` and ``gap_us``, or with what is copied and filled.
    name
        What its side is called.
    """
    rows = _placed(kernels)
    if rows is None:
        return None
    keys = [key for key in _REPEAT if key in rows.columns]
    found = [
        each
        for _, part in rows.groupby(keys, dropna=False, sort=False)
        if (each := _of_iteration(part, name)) is not None
    ]
    if not found:
        return None
    usual = sorted(found, key=lambda each: each.wall_us)[(len(found) - 1) // 2]
    clock = kernels is not None and "gap_us" in kernels
    return replace(usual, iterations=len(found), clock=clock)


def compare_gaps(
    baseline: pd.DataFrame | None, target: pd.DataFrame | None, names: tuple[str, str]
) -> Gaps | None:
    """Return two sides on the clock; None unless it shows something of both."""
    sides = [timeline(table, name) for table, name in zip((baseline, target), names, strict=True)]
    return _both(*sides)


def layers_on_the_clock(
    baseline: pd.DataFrame | None,
    target: pd.DataFrame | None,
    names: tuple[str, str],
    pairs: Sequence[tuple[str, str]],
) -> dict[str, Gaps]:
    """Say of which layers the clock shows something else than their kernels' times.

    Parameters
    ----------
    baseline, target
        Kernels tables.
    names
        What the sides are called.
    pairs
        Names of each layer on both sides.

    Returns
    -------
    dict
        The layers of the baseline whose gaps, copies and fills make a factor of `_TOLD` or more
        between the sides (without the longest gap, of one iteration), the one with the largest
        difference in microseconds first.
    """
    sides = [
        {} if table is None else _layers_of(table, {pair[side] for pair in pairs}, name)
        for side, (table, name) in enumerate(zip((baseline, target), names, strict=True))
    ]
    found = []
    for layer, partner in pairs:
        gaps = _both(sides[0].get(layer), sides[1].get(partner))
        if gaps is not None and abs(gaps.proven) >= math.log(_TOLD):
            between = [side.idle_us + side.moved.total_us for side in (gaps.baseline, gaps.target)]
            found.append((abs(between[1] - between[0]), layer, gaps))
    return {layer: gaps for _, layer, gaps in sorted(found, key=lambda each: -each[0])}


def idle_layers(kernels: pd.DataFrame | None, asked: Collection[str] | None = None) -> str | None:
    """Say in which layers, of those asked for, a device is idle longest.

    None where it is said of the whole at best.
    """
    found = [
        (each.idle_us, f"{layer} (idle {micros(each.idle_us)} of {micros(each.wall_us)})")
        for layer, each in _several(kernels, asked).items()
        if each.idle_us >= SHOWN * each.wall_us
    ]
    if not found:
        return None
    most = sorted(found, key=lambda each: -each[0])[:MOST_LAYERS]
    return f"Within layers it is idle longest in {', '.join(said for _, said in most)}."


def moving_layers(
    kernels: pd.DataFrame | None, asked: Collection[str] | None = None
) -> tuple[str, ...]:
    """Say what the layers, of those asked for, copy and fill that do so longest."""
    if kernels is None or not are_known(kernels):
        return ()
    moving = [replace(each, name=layer) for layer, each in _several(kernels, asked).items()]
    most = sorted(moving, key=lambda each: -each.moved.total_us)[:MOST_LAYERS]
    return tuple(said for each in most if (said := each.moved_sentence()) is not None)


def _both(before: Timeline | None, after: Timeline | None) -> Gaps | None:
    """Return two sides of which the same is known."""
    if before is None or after is None or before.clock != after.clock:
        return None
    return Gaps(before, after)


def _several(
    kernels: pd.DataFrame | None, asked: Collection[str] | None = None
) -> dict[str, Timeline]:
    """Return the layers of a table that has several, of those asked for."""
    if kernels is None or "layer" not in kernels:
        return {}
    layers = set(kernels["layer"].dropna().astype(str))
    if len(layers) < 2:
        return {}
    found = _layers_of(kernels, layers, "")
    return {name: each for name, each in found.items() if asked is None or name in asked}


def _placed(kernels: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return launches with start and gap; None where nothing is known beside their times.

    What runs a built-in workload waits between its layers, so that its gaps are not known: there
    kernels follow one another.
    """
    if kernels is None or {"start_us", "gap_us"} <= set(kernels.columns):
        return kernels
    if not are_known(kernels):
        return None
    over = kernels["time_us"].cumsum()
    return kernels.assign(start_us=over - kernels["time_us"], gap_us=0.0)


def _layers_of(kernels: pd.DataFrame, layers: set[str], name: str) -> dict[str, Timeline]:
    """Return the usual repeat of some layers: their kernels, and what was idle before each.

    Of the first kernel of an iteration nobody knows what it waited for, so that counts as nothing.
    """
    placed = _placed(kernels)
    if placed is None or "layer" not in placed:
        return {}
    keys = [key for key in _REPEAT if key in placed.columns]
    rows = placed.dropna(subset=["start_us", "time_us"]).sort_values("start_us", kind="stable")
    repeats = rows.groupby(keys, dropna=False, sort=False)
    end = rows["start_us"] + rows["time_us"]
    over = end.groupby([rows[key] for key in keys], dropna=False).cummax()
    over = over.groupby([rows[key] for key in keys], dropna=False).shift()
    # of kernels beside each other only what the ones before do not hide
    busy = (end - np.maximum(over.fillna(-np.inf), rows["start_us"])).clip(lower=0.0)
    idle = rows["gap_us"].where(repeats.cumcount() > 0, 0.0).fillna(0.0)
    parts = rows.assign(busy=busy, idle=idle)
    parts = parts[parts["layer"].isin(layers)]
    groups = parts.groupby(["layer", *keys], dropna=False, sort=False, observed=True)
    sums = groups.agg(
        kernels=("idle", "size"),
        idle=("idle", "sum"),
        busy=("busy", "sum"),
        gap=("idle", "median"),
        longest=("idle", "max"),
    )
    sums["wall"] = sums["idle"] + sums["busy"]
    if are_known(parts):
        # a sum of which a part is unknown is unknown
        moving = groups[list(MOVED_COLUMNS)]
        moved = moving.sum().where(moving.count().eq(sums["kernels"], axis=0))
        sums = sums.join(moved)
        sums["wall"] += moved.filter(regex="_us$").sum(axis=1, skipna=False).fillna(0.0)
    found = {}
    for layer, repeated in sums[sums["busy"] > 0].groupby(level="layer", sort=False):
        place = int(np.argsort(repeated["wall"].to_numpy())[(len(repeated) - 1) // 2])
        usual = repeated.iloc[[place]]
        wall, idle, gap, longest = usual[["wall", "idle", "gap", "longest"]].iloc[0].tolist()
        found[str(layer)] = Timeline(
            name,
            int(usual["kernels"].iloc[0]),
            *(wall, idle, gap, longest, len(repeated)),
            moved_by(usual),
            "gap_us" in kernels,
        )
    return found


def _of_iteration(part: pd.DataFrame, name: str) -> Timeline | None:
    rows = part[["start_us", "time_us", "gap_us"]].astype(float).dropna(subset=["start_us"])
    rows = rows.sort_values("start_us")
    moved = moved_by(part)
    if len(rows) < (1 if moved.total_us else 2) or rows["time_us"].isna().any():
        return None
    over = (rows["start_us"] + rows["time_us"]).cummax()
    wall = float(over.max() - rows["start_us"].iloc[0])
    # what was before the first kernel is no part of the iteration
    gaps = rows["gap_us"].iloc[1:].dropna().to_numpy()
    idle = float(gaps.sum())
    if not 0 <= idle < wall:
        return None
    if moved.total_us:
        # but what is copied before it and after the last one is
        hidden = np.maximum(rows["start_us"], over.shift().fillna(-np.inf))
        wall = idle + float((over - hidden).clip(lower=0.0).sum()) + moved.total_us
    each, longest = (float(np.median(gaps)), float(gaps.max())) if len(gaps) else (0.0, 0.0)
    return Timeline(name, len(rows), wall, idle, each, longest, moved=moved)
