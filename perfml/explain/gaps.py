"""Gaps between kernels: how long a device waits for the host, which no kernel's time shows.

A trace (Nsight Systems, torch.profiler) says when kernels began, and so does the timing of a
program by ``perfml collect``, which does not see copies of memory: they count as gaps. From the
first kernel of an iteration to the last the clock shows what the kernels take and what the device
is idle, so

    wall ratio = ratio of what the kernels take x ratio of (wall / what the kernels take)

and the second factor is the cause ``launch_gaps``. Both add up in logarithms.

One gap is one event of the host. In one recorded iteration of blocks of PyTorch on an H200 gaps of
6 ms (an allocation, most likely) stood before kernels that wait for nothing without a profiler. So
of a side of which one iteration is known, its longest gap proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.explain.counters.terms import TERMS, Contribution
from perfml.util.words import Readable, micros

GRAPH_GAP_US = 0.3
"""From one kernel's end to the next one's start in a CUDA graph: 0.26 to 0.29 us in the median on
an H200 (``tests/data/torch_trace/gaps``)."""
_SHOWN = 0.1
"""Smaller savings are not spoken of, and factors nearer to 1."""
_TOLD = 1.2
"""Layers are named from this factor on."""
MOST_LAYERS = 3
"""So many layers are named of a whole run."""
UNSEEN = (
    "the kernels alone show no difference: if the program is slower, its time lies between them "
    "(copies from and to the host, memsets, waiting for the host, kernels one after another in one "
    "stream), of which a profiler of counters records nothing; look there with perfml collect, or "
    "record both sides by nsys profile --trace cuda,nvtx and give the traces to perfml explain"
)
"""What cannot be told of sides whose kernels, timed one at a time, are as fast."""
_REPEAT = ("run_id", "device", "process", "iteration")
_TERM = TERMS["launch_gaps"]


@dataclass(frozen=True)
class Timeline:
    """What the clock shows of an iteration: the usual one, by its wall time.

    Attributes
    ----------
    name
        What the side is called; empty where there is one.
    kernels
        Launches.
    wall_us
        From the start of the first kernel to the end of the last.
    idle_us
        Of it the device had nothing to do: no kernel, no copy.
    gap_us
        Median of the gaps.
    longest_us
        The longest of them.
    iterations
        How many are known, of which this is the usual one.
    """

    name: str
    kernels: int
    wall_us: float
    idle_us: float
    gap_us: float
    longest_us: float = 0.0
    iterations: int = 1

    @property
    def busy_us(self) -> float:
        """What kernels and copies take."""
        return self.wall_us - self.idle_us

    @property
    def idle_share(self) -> float:
        """The part of the wall time that is idle."""
        return self.idle_us / self.wall_us

    @property
    def stretch(self) -> float:
        """How much longer it takes than its kernels."""
        return self.wall_us / self.busy_us

    @property
    def proven_stretch(self) -> float:
        """The same without what may be one event of the host: the longest gap of one iteration."""
        chance = self.longest_us if self.iterations == 1 else 0.0
        return (self.wall_us - chance) / self.busy_us

    @property
    def as_graph_us(self) -> float:
        """What it would take as one CUDA graph, from its first kernel to its last."""
        return min(self.wall_us, self.busy_us + (self.kernels - 1) * GRAPH_GAP_US)

    def sentence(self) -> str | None:
        """Say how much is idle and what to do; None where that would save little."""
        if self.as_graph_us > (1 - _SHOWN) * self.wall_us:
            return None
        whose = f"{self.name}: " if self.name else ""
        return (
            f"{whose}between its kernels the device is idle {micros(self.idle_us)} of "
            f"{micros(self.wall_us)} ({Readable(self.idle_share):.0%}), {micros(self.gap_us)} "
            f"at a launch in the median, which times of kernels do not show. {_TERM.action} "
            f"As one CUDA graph it would take about {micros(self.as_graph_us)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "kernels": self.kernels,
            "wall_us": self.wall_us,
            "idle_us": self.idle_us,
            "gap_us": self.gap_us,
            "as_graph_us": self.as_graph_us,
        }


@dataclass(frozen=True)
class Gaps:
    """Two sides on the clock, and what gaps between kernels account for."""

    baseline: Timeline
    target: Timeline

    @property
    def wall_ratio(self) -> float:
        """Time of the target over that of the baseline, on the clock."""
        return self.target.wall_us / self.baseline.wall_us

    @property
    def contribution(self) -> Contribution:
        """The cause: idle shares of both sides, and the logarithm of its factor."""
        shares = (self.baseline.idle_share, self.target.idle_share)
        return Contribution(_TERM, *shares, math.log(self.target.stretch / self.baseline.stretch))

    @property
    def proven(self) -> float:
        """The logarithm of the factor of gaps that is no chance of one gap; 0 if that is none."""
        proven = math.log(self.target.proven_stretch / self.baseline.proven_stretch)
        whole = self.contribution.log_ratio
        return math.copysign(min(abs(proven), abs(whole)), whole) if proven * whole > 0 else 0.0

    def sentence(self) -> str | None:
        """Say what gaps account for; None where that is little, or may be chance."""
        if abs(self.proven) < _SHOWN:
            return None
        return self.in_words("from the first kernel to the last")

    @property
    def hidden(self) -> bool:
        """Whether times of kernels hide more than a third of what happened."""
        return abs(self.proven) > abs(self._kernels) / 2

    @property
    def dominate(self) -> bool:
        """Whether gaps make more of what happened than the kernels do."""
        return abs(self.proven) > abs(self._kernels)

    @property
    def _kernels(self) -> float:
        return math.log(self.wall_ratio) - self.contribution.log_ratio

    def action(self) -> str:
        """Say what to do on the side that waits longer."""
        waiting = self.target if self.contribution.log_ratio > 0 else self.baseline
        return f"do in {waiting.name}: {_TERM.action}"

    def points(self) -> tuple[str, str]:
        """Say it of a layer, and what to do."""
        return self.of_layer(), self.action()

    def of_layer(self) -> str:
        """Say it of a layer."""
        return self.in_words("with what was idle before each of its kernels")

    def in_words(self, span: str) -> str:
        """Say how both sides differ on the clock, over a span in words."""
        factor = math.exp(self.contribution.log_ratio)
        return (
            f"on the clock, {span}, {self.target.name} takes "
            f"{micros(self.target.wall_us)} and {self.baseline.name} "
            f"{micros(self.baseline.wall_us)} "
            f"(×{self.wall_ratio:.2f}): {_TERM.label} ×{factor:.2f}, the kernels themselves "
            f"×{self.wall_ratio / factor:.2f}"
        )

    def sentences(self) -> tuple[str, ...]:
        """Say it of both sides and of each."""
        said = (self.sentence(), self.baseline.sentence(), self.target.sentence())
        return tuple(each for each in said if each is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "baseline": self.baseline.to_dict(),
            "target": self.target.to_dict(),
            "wall_ratio": self.wall_ratio,
            "term": _TERM.id,
            "log_ratio": self.contribution.log_ratio,
        }


def timeline(kernels: pd.DataFrame | None, name: str = "") -> Timeline | None:
    """Return what the clock shows of a Kernels table; None for one that is not from a trace.

    Parameters
    ----------
    kernels
        With the columns ``start_us`` and ``gap_us``.
    name
        What its side is called.
    """
    if kernels is None or not {"start_us", "gap_us"} <= set(kernels.columns):
        return None
    keys = [key for key in _REPEAT if key in kernels.columns]
    found = [
        each
        for _, part in kernels.groupby(keys, dropna=False, sort=False)
        if (each := _of_iteration(part, name)) is not None
    ]
    if not found:
        return None
    usual = sorted(found, key=lambda each: each.wall_us)[(len(found) - 1) // 2]
    return replace(usual, iterations=len(found))


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
        The layers of the baseline whose gaps make a factor of `_TOLD` or more between the sides
        (without the longest gap, of one iteration), the one with the largest difference in
        microseconds first.
    """
    sides = [
        {} if table is None else _layers_of(table, {pair[side] for pair in pairs}, name)
        for side, (table, name) in enumerate(zip((baseline, target), names, strict=True))
    ]
    found = []
    for layer, partner in pairs:
        before, after = sides[0].get(layer), sides[1].get(partner)
        if before is None or after is None:
            continue
        gaps = Gaps(before, after)
        if abs(gaps.proven) >= math.log(_TOLD):
            found.append((abs(after.idle_us - before.idle_us), layer, gaps))
    return {layer: gaps for _, layer, gaps in sorted(found, key=lambda each: -each[0])}


def idle_layers(kernels: pd.DataFrame | None, asked: Collection[str] | None = None) -> str | None:
    """Say in which layers, of those asked for, a device is idle longest.

    None where it is said of the whole at best.
    """
    if kernels is None or "layer" not in kernels:
        return None
    layers = set(kernels["layer"].dropna().astype(str))
    if len(layers) < 2:
        return None
    found = [
        (each.idle_us, f"{layer} (idle {micros(each.idle_us)} of {micros(each.wall_us)})")
        for layer, each in _layers_of(kernels, layers, "").items()
        if each.idle_us >= _SHOWN * each.wall_us and (asked is None or layer in asked)
    ]
    if not found:
        return None
    most = sorted(found, key=lambda each: -each[0])[:MOST_LAYERS]
    return f"Within layers it is idle longest in {', '.join(said for _, said in most)}."


def _layers_of(kernels: pd.DataFrame, layers: set[str], name: str) -> dict[str, Timeline]:
    """Return the usual repeat of some layers: their kernels, and what was idle before each.

    Of the first kernel of an iteration nobody knows what it waited for, so that counts as nothing.
    """
    if not {"start_us", "gap_us", "layer"} <= set(kernels.columns):
        return {}
    keys = [key for key in _REPEAT if key in kernels.columns]
    rows = kernels.dropna(subset=["start_us", "time_us"]).sort_values("start_us", kind="stable")
    repeats = rows.groupby(keys, dropna=False, sort=False)
    end = rows["start_us"] + rows["time_us"]
    over = end.groupby([rows[key] for key in keys], dropna=False).cummax()
    over = over.groupby([rows[key] for key in keys], dropna=False).shift()
    # of kernels beside each other only what the ones before do not hide
    busy = (end - np.maximum(over.fillna(-np.inf), rows["start_us"])).clip(lower=0.0)
    idle = rows["gap_us"].where(repeats.cumcount() > 0, 0.0).fillna(0.0)
    parts = rows.assign(busy=busy, idle=idle)
    parts = parts[parts["layer"].isin(layers)]
    sums = parts.groupby(["layer", *keys], dropna=False, sort=False, observed=True).agg(
        kernels=("idle", "size"),
        idle=("idle", "sum"),
        busy=("busy", "sum"),
        gap=("idle", "median"),
        longest=("idle", "max"),
    )
    sums["wall"] = sums["idle"] + sums["busy"]
    found = {}
    for layer, repeated in sums[sums["busy"] > 0].groupby(level="layer", sort=False):
        usual = repeated.sort_values("wall").iloc[(len(repeated) - 1) // 2]
        wall, idle, gap, longest = usual[["wall", "idle", "gap", "longest"]].tolist()
        found[str(layer)] = Timeline(
            name, int(usual["kernels"]), wall, idle, gap, longest, len(repeated)
        )
    return found


def _of_iteration(part: pd.DataFrame, name: str) -> Timeline | None:
    rows = part[["start_us", "time_us", "gap_us"]].astype(float).dropna(subset=["start_us"])
    rows = rows.sort_values("start_us")
    if len(rows) < 2 or rows["time_us"].isna().any():
        return None
    wall = float((rows["start_us"] + rows["time_us"]).max() - rows["start_us"].iloc[0])
    # what was before the first kernel is no part of the iteration
    gaps = rows["gap_us"].to_numpy()[1:]
    idle = float(np.nansum(gaps))
    if not 0 <= idle < wall:
        return None
    return Timeline(name, len(rows), wall, idle, float(np.nanmedian(gaps)), float(np.nanmax(gaps)))


def compare_gaps(
    baseline: pd.DataFrame | None, target: pd.DataFrame | None, names: tuple[str, str]
) -> Gaps | None:
    """Return two sides on the clock; None unless both are from traces."""
    sides = [timeline(table, name) for table, name in zip((baseline, target), names, strict=True)]
    if sides[0] is None or sides[1] is None:
        return None
    return Gaps(sides[0], sides[1])
