"""From a Kernels table to what the clock shows: of an iteration, and of its layers.

Here to change: what counts as a repeat, and which of them is the usual one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.device_time import account_of, device_times, repeat_keys
from perfml.explain.gaps import NOTHING, SHOWN, WAYS, Move, Moved, Timeline, Waterfall
from perfml.tables import MOVED_COLUMNS
from perfml.util.words import micros

_TOLD = 0.2
"""Layers are named where what passes between their kernels differs by this part of their time."""
_NUMBER = "repeat"
MOST_LAYERS = 3  # layers that are named of a whole run, at most


def timeline(kernels: pd.DataFrame | None, name: str = "") -> Timeline | None:
    """Return what the clock shows of a Kernels table; None for one that is not from a trace.

    The table has the columns ``start_us`` and ``gap_us``, or what is copied and filled; `name` is
    what its side is called.
    """
    launches = _placed(kernels)
    return None if launches is None else launches.whole(name)


def compare_clocks(
    baseline: pd.DataFrame | None, target: pd.DataFrame | None, names: tuple[str, str]
) -> Waterfall | None:
    """Return two sides on the clock; None unless it shows something of both."""
    sides = [timeline(table, name) for table, name in zip((baseline, target), names, strict=True)]
    return _both(*sides)


def layers_on_the_clock(
    baseline: pd.DataFrame | None,
    target: pd.DataFrame | None,
    names: tuple[str, str],
    pairs: Sequence[tuple[str, str]],
) -> dict[str, Waterfall]:
    """Say of which layers the clock shows something else than their kernels' times.

    Returned are the layers of the baseline whose gaps, copies and fills differ by `_TOLD` of the
    shorter side's time or more (without the longest gap, of one iteration), the one with the
    largest difference in microseconds first.
    """
    placed = _placed(baseline), _placed(target)
    sides = [
        {} if launches is None else launches.by_layer(name)
        for launches, name in zip(placed, names, strict=True)
    ]
    found = {}
    for layer, partner in pairs:
        both = _both(sides[0].get(layer), sides[1].get(partner))
        if both is not None and both.between_share >= _TOLD:
            found[layer] = both
    return dict(sorted(found.items(), key=lambda each: -abs(each[1].between_us)))


def idle_layers(kernels: pd.DataFrame | None, asked: Collection[str] | None = None) -> str | None:
    """Say in which layers, of those asked for, a device is idle longest."""
    # None where it is said of the whole at best.
    found = [
        (each.idle_us, f"{layer} (idle {micros(each.idle_us)} of {micros(each.wall_us)})")
        for layer, each in _layers(kernels, asked).items()
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
    layers = _layers(kernels, asked) if kernels is not None and are_known(kernels) else {}
    most = sorted(layers.items(), key=lambda each: -each[1].moved.total_us)[:MOST_LAYERS]
    said = (each.moved_sentence(layer) for layer, each in most)
    return tuple(each for each in said if each is not None)


def _both(before: Timeline | None, after: Timeline | None) -> Waterfall | None:
    """Return two sides of which the same is known."""
    if before is None or after is None or before.clock != after.clock:
        return None
    return Waterfall(before, after)


def _layers(
    kernels: pd.DataFrame | None, asked: Collection[str] | None = None
) -> dict[str, Timeline]:
    """Return the layers of a table that has several, of those asked for."""
    launches = _placed(kernels)
    if launches is None or len(found := launches.by_layer("")) < 2:
        return {}
    return {name: each for name, each in found.items() if asked is None or name in asked}


def _placed(kernels: pd.DataFrame | None) -> _Launches | None:
    """Return launches with start and gap; None where nothing is known beside their times."""
    # What runs a built-in workload waits between its layers, so that its gaps are not known: there
    # kernels follow one another.
    if kernels is None:
        return None
    moves, clock = are_known(kernels), "gap_us" in kernels
    if not {"start_us", "gap_us"} <= set(kernels.columns):
        if not moves:
            return None
        over = kernels["time_us"].cumsum()
        kernels = kernels.assign(start_us=over - kernels["time_us"], gap_us=0.0)
    number = kernels.groupby(repeat_keys(kernels), dropna=False, sort=False).ngroup()
    rows = kernels.assign(**{_NUMBER: number})
    return _Launches(rows[rows["start_us"].notna()].reset_index(drop=True), moves, clock)


@dataclass(frozen=True)
class _Launches:
    """Launches with start, gap and the number of their repeat."""

    rows: pd.DataFrame  # a Kernels table
    moves: bool  # whether it is known what is copied and filled
    clock: bool  # whether it is known what is idle

    def whole(self, name: str) -> Timeline | None:
        """Return the usual repeat; None where nothing passes between its launches."""
        times = device_times(self.rows, [_NUMBER], moved_us(self.rows) if self.moves else None)
        # of one launch alone nothing does
        times = times[(times["launches"] > 1) | (times["copying_us"] > 0)]
        return None if times.empty else self._usual(times, self.rows, name)

    def by_layer(self, name: str) -> dict[str, Timeline]:
        """Return the usual repeat of every layer: its kernels, and what was idle before each."""
        if "layer" not in self.rows:
            return {}
        copied = moved_us(self.rows) if self.moves else np.zeros(len(self.rows))
        times = device_times(self.rows, ["layer", _NUMBER], copied)
        places = self.rows.groupby("layer", observed=True).indices
        return {
            str(layer): self._usual(part, self.rows.iloc[places[layer]], name)
            for layer, part in times.groupby("layer", observed=True)
        }

    def _usual(self, times: pd.DataFrame, rows: pd.DataFrame, name: str) -> Timeline:
        """Return the repeat of the median time on the clock of its busiest device."""
        busy = times["computing_us"] + times["copying_us"]
        longest = times.assign(busy=busy, wall=busy + times["idle_us"])
        longest = longest.sort_values("busy").drop_duplicates(_NUMBER, keep="last")
        ordered = longest.sort_values(["wall", _NUMBER], kind="stable")[_NUMBER]
        # of an even number the shorter one
        number = ordered.iloc[(len(ordered) - 1) // 2]
        devices = [account_of(row) for _, row in times[times[_NUMBER] == number].iterrows()]
        devices.sort(key=lambda each: -each.busy_us)
        moved = moved_by(rows[rows[_NUMBER] == number])
        return Timeline(name, tuple(devices), len(ordered), moved, self.clock)


def are_known(kernels: pd.DataFrame) -> bool:
    """Return whether a Kernels table says what is moved."""
    return set(MOVED_COLUMNS) <= set(kernels.columns)


def moved_us(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return how long each launch's layer copies and fills before it, NaN where not known."""
    times = [name for name in MOVED_COLUMNS if name.endswith("_us")]
    return np.asarray(rows[times].sum(axis=1, skipna=False), dtype=np.float64)


def moved_by(rows: pd.DataFrame) -> Moved:
    """Return what some launches move together; nothing where that is not known of one of them."""
    if not are_known(rows):
        return NOTHING
    sums = rows[list(MOVED_COLUMNS)].astype(float).sum(skipna=False).to_dict()
    if any(map(math.isnan, sums.values())):
        return NOTHING
    ways = {way: Move(sums[f"{way}_us"], sums[f"{way}_bytes"]) for way in WAYS}
    order = sorted(ways, key=lambda way: -ways[way].us)
    return Moved({way: ways[way] for way in order if ways[way].us > 0 or ways[way].bytes > 0})
