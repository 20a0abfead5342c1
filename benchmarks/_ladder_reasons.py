"""Why a step of a ladder took longer or less: the launches, else what `perfml.explain` says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfml.explain.results import LayerDiff
    from perfml.explain.sides import Side

REST = "an unexplained rest"
RATES = ("rate", "achieved rate", "clock", "issue rate", "outside")
"""How terms begin that are what is left, not what was counted."""
LEAST = 0.1
"""Smallest logarithm of a factor that another account is asked for."""
NAMED = 0.5
"""Idle multiprocessors name a rest if they are at least this share of it."""
OVERLAP = 0.02
"""Kernels whose times add up to so much more than the GPU was busy overlap."""


def because(detail: LayerDiff, sides: Sequence[Side], busy: Sequence[float]) -> str:
    """Return the reason of a step on one layer.

    Parameters
    ----------
    detail
        The step, from `perfml.explain.explain`.
    sides
        Before and after.
    busy
        Microseconds in which a kernel ran, before and after; NaN if not known.
    """
    return said_of_launches(detail, busy) or _largest(detail, sides)


def said_of_launches(detail: LayerDiff, busy: Sequence[float]) -> str | None:
    """Return what a step did to the launches; None if both sides launch one kernel after another.

    A comparison of launches one by one takes the parts of a divided kernel for new ones.

    Parameters
    ----------
    detail
        The step on one layer.
    busy
        Microseconds in which a kernel ran, before and after; NaN if not known.
    """
    sums = (detail.time.baseline_us, detail.time.target_us)
    shares = [whole / some - 1 for whole, some in zip(sums, busy, strict=True)]
    if any(share > OVERLAP for share in shares):
        return (
            f"launches overlap: the GPU is busy x{busy[1] / busy[0]:.3g} as long, the times of "
            f"the kernels add up to {sums[1] / busy[1]:.2f} times that"
        )
    if detail.time.verdict not in ("faster", "slower") or "kernel" not in detail.launches:
        return None
    sides = ["baseline_us", "target_us"]
    kernels = detail.launches.groupby("kernel", sort=False)[sides].agg(["sum", "count"])
    counts = kernels.xs("count", axis=1, level=1)
    before, after = (int(counts[side].sum()) for side in sides)
    if before == after or (counts == 0).any(axis=None):
        return None
    parts = [
        f"{name} {row[sides[0]]:.3g} -> {row[sides[1]]:.3g} us"
        for name, row in kernels.xs("sum", axis=1, level=1).iterrows()
    ]
    return f"the same kernels in {after} launches, not {before}: {', '.join(parts)}"


def _largest(detail: LayerDiff, sides: Sequence[Side]) -> str:
    """Return the largest reason that points the way the time went.

    Where that is a rest which no counter explains, the largest term of another account of the same
    time follows: what changed most among what was counted. Idle multiprocessors are counted.
    """
    if detail.time.verdict not in ("faster", "slower"):
        return detail.time.verdict
    heading = f"makes it {detail.time.verdict}"
    told = [
        rest
        for said in detail.reasons
        for head, _, rest in [said.partition(": ")]
        if head == heading
    ]
    first = told[0].split("; ")[0] if told else "no counter collected here explains it"
    if told and REST not in first:
        return first
    sign = 1.0 if detail.time.log_ratio > 0 else -1.0
    first = first.replace(REST, _rest(detail, sides))
    if REST not in first:
        return first
    others = detail.physical.accounts
    counted = others[~others["term"].str.startswith(RATES)]
    counted = counted.assign(towards=counted["log_ratio"] * sign)
    counted = counted[counted["towards"] > LEAST]
    if counted.empty:
        return first
    best = counted.loc[counted["towards"].idxmax()]
    return f"{first}; by {best['account']}: {best['term']} x{math.exp(best['log_ratio']):.2f}"


def _rest(detail: LayerDiff, sides: Sequence[Side]) -> str:
    """Return what the rest of the physical attribution is: idle multiprocessors, or not known."""
    terms = detail.physical.terms
    name, rest = max(
        zip(terms["term"], terms["log_ratio"], terms["residual"], strict=True),
        key=lambda each: (bool(each[2]), abs(each[1])),
    )[:2]
    if name == "clock and idle SMs":
        before, after = (_of_longest(side, detail.layer, "sm_efficiency") for side in sides)
        idle = math.log(before / after) if before > 0 and after > 0 else 0.0
        if idle * rest > 0 and abs(idle) >= NAMED * abs(rest):
            return f"multiprocessors busy {after:.0%} of the time, {before:.0%} in the step before"
    return REST


def _of_longest(side: Side, layer: str, metric: str) -> float:
    """Return a metric of the launch that takes longest; of the layer if launches are not known."""
    rows = side.layers if side.kernels is None else side.kernels
    if metric not in rows.columns:
        return math.nan
    rows = rows[rows["layer"] == layer]
    if side.kernels is None:
        return float(rows[metric].mean())
    launches = rows.groupby("kernel_index")[["time_us", metric]].mean()
    return float(launches.loc[launches["time_us"].idxmax(), metric])
