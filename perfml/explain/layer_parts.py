"""From the time of a layer to the times of its launches: how often, and how far side by side.

A layer's time is what its device was busy with it. Counters speak of single launches, so that

    layer = launches x time of one launch x (busy / sum of the kernels' times)

and the first and the last factor are causes of their own, ``launch_count`` and ``side_by_side``.

A library that marks its own work (CUB did, within PyTorch's sort) cuts a layer into pieces. Who
compares the piece that bears the layer's name compares less than was meant (`pieces_apart`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfml.explain.align import Launched
from perfml.explain.compared import Side
from perfml.explain.confidence import MOST
from perfml.explain.ratio import Ratio
from perfml.explain.times import compare_times
from perfml.explain.tree.ambiguity import Reason, Untold
from perfml.explain.tree.causes import TERMS, Contribution
from perfml.explain.tree.told import Causes, PairCauses
from perfml.util.words import micros

_NAMED = 2
"""Names of ranges in one sentence."""
_LEAST = 1e-3
"""A factor nearer to 1 is none."""


@dataclass(frozen=True)
class LayerParts:
    """What lies between a layer's time and its launches', on the baseline and on the target.

    Attributes
    ----------
    launches
        How often what is compared is launched; 1 for a layer.
    overlap
        The sum of the kernels' times over the time in which one of them ran; 1 for one after
        another.
    """

    launches: tuple[float, float]
    overlap: tuple[float, float]

    @classmethod
    def of(
        cls, before: pd.DataFrame, after: pd.DataFrame, launched: tuple[Launched, Launched] | None
    ) -> LayerParts:
        """Return what the rows of a layer and its counted launches tell."""
        often = (1.0, 1.0) if launched is None else (launched[0].launches, launched[1].launches)
        return cls(often, (_overlap(before), _overlap(after)))

    def kernels_us(self, time: Ratio) -> tuple[float, float]:
        """Return the sum of the kernels' times in one launch of what is compared, microseconds."""
        both = zip((time.baseline_us, time.target_us), self.overlap, self.launches, strict=True)
        before, after = (us * overlap / launches for us, overlap, launches in both)
        return before, after

    def joined(self, causes: Causes) -> Causes:
        """Return the causes of the kernels with those of the layer; they add up to its ratio."""
        parts = []
        if (count := math.log(self.launches[1] / self.launches[0])) != 0:
            term = Contribution(TERMS["launch_count"], *self.launches, count)
            names = dict.fromkeys(pair.kernels for pair in causes.pairs)
            parts.append(PairCauses(", ".join(names), None, (term,)))
        if abs(beside := math.log(self.overlap[0] / self.overlap[1])) > _LEAST:
            hidden, hides = (1 - 1 / each for each in self.overlap)
            term = Contribution(TERMS["side_by_side"], hidden, hides, beside)
            parts.append(PairCauses("all launches", None, (term,)))
        ratio = causes.log_ratio + sum(part.contributions[0].log_ratio for part in parts)
        return replace(causes, pairs=(*causes.pairs, *parts), log_ratio=ratio) if parts else causes


def _overlap(rows: pd.DataFrame) -> float:
    """Return the sum of a layer's kernels over its time, the mean over its repeats."""
    if "kernels_us" not in rows.columns:
        return 1.0
    share = rows["kernels_us"].to_numpy(dtype=float) / rows["time_us"].to_numpy(dtype=float)
    return float(np.exp(np.log(share).mean()))


def pieces_apart(
    layer: str, time: Ratio, causes: Causes, sides: tuple[Side, Side]
) -> Untold | None:
    """Return that a layer's causes cannot be told, where ranges within it hold most of it.

    It is told where ranges within it that the other side lacks take at least half as long as what
    differs between the sides; else None is returned. The layer has one name on both sides.
    """
    known = [side.names for side in sides]
    apart = [
        (_time(side, name), name)
        for side, mine, others in zip(sides, known, reversed(known), strict=True)
        for name in sorted(mine - others)
        if name.startswith(f"{layer}/")
    ]
    inside = sum(us for us, _ in apart)
    along = [each for each in causes.totals if each.log_ratio * time.log_ratio > 0]
    if not along or inside < MOST * abs(time.target_us - time.baseline_us):
        return None
    names = [name for _, name in sorted(apart, reverse=True)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    why = (
        f"{micros(inside)} lie in ranges within this one that the other side lacks "
        f"({', '.join(names[:_NAMED])}{more}), which are layers of their own; compare the sums, or "
        "record again with perfml collect, which lets ranges of libraries divide no layer"
    )
    first = along[0].term
    other = "kernels_appeared" if first.id != "kernels_appeared" else "kernels_vanished"
    return Untold((TERMS[other],), first, share=1.0, reason=Reason.PIECES, why=why)


def _time(side: Side, layer: str) -> float:
    times = side.rows(layer)["time_us"].to_numpy(dtype=float)
    return compare_times(times, times).baseline_us
