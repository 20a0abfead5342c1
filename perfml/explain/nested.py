"""Layers with ranges inside that one side only has: what lies there is no part of their times.

A library that marks its own work (CUB did, within PyTorch's sort) cuts a layer into pieces. Who
compares the piece that bears the layer's name compares less than was meant.
"""

from __future__ import annotations

from perfml.explain.certainty import MOST
from perfml.explain.compared import Side
from perfml.explain.ratio import Ratio
from perfml.explain.times import compare_times
from perfml.explain.tree.ambiguity import Reason, Untold
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.told import Causes
from perfml.util.words import micros

_SHOWN = 2
"""Names of ranges in one sentence."""


def pieces_apart(
    layer: str, time: Ratio, causes: Causes, sides: tuple[Side, Side]
) -> Untold | None:
    """Return that a layer's causes cannot be told, where ranges within it hold most of it.

    Parameters
    ----------
    layer
        Its name on both sides.
    time, causes
        Of the layer.
    sides
        Both.

    Returns
    -------
    Untold or None
        None unless ranges within the layer that the other side lacks take at least half as long as
        what differs between the sides.
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
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    why = (
        f"{micros(inside)} lie in ranges within this one that the other side lacks "
        f"({', '.join(names[:_SHOWN])}{more}), which are layers of their own; compare the sums, or "
        "record again with perfml collect, which lets ranges of libraries divide no layer"
    )
    first = along[0].term
    other = "kernels_appeared" if first.id != "kernels_appeared" else "kernels_vanished"
    return Untold((TERMS[other],), first, share=1.0, reason=Reason.PIECES, why=why)


def _time(side: Side, layer: str) -> float:
    times = side.rows(layer)["time_us"].to_numpy(dtype=float)
    return compare_times(times, times).baseline_us
