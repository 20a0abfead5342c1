"""Why a step of a ladder took longer or less: the launches, else what `perfml.explain` says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perfml.explain.confidence import NAMED
from perfml.explain.tree.layer_causes import sided_causes
from perfml.explain.words import levels_in_words
from perfml.util.words import factor_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfml.explain.compared import Side
    from perfml.explain.results import LayerDiff
    from perfml.explain.tree.causes import Contribution
    from perfml.explain.tree.layer_causes import Causes

NAMES_REST = 0.5
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
    sums = [float(detail.launches[side].sum()) for side in ("baseline_us", "target_us")]
    shares = [whole / some - 1 for whole, some in zip(sums, busy, strict=True)]
    if any(share > OVERLAP for share in shares):
        return (
            f"launches overlap: the GPU is busy ×{busy[1] / busy[0]:.3g} as long, the times of "
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
        f"{name} {row[sides[0]]:.3g} -> {row[sides[1]]:.3g} µs"
        for name, row in kernels.xs("sum", axis=1, level=1).iterrows()
    ]
    return f"the same kernels in {after} launches, not {before}: {', '.join(parts)}"


def causes_in_words(detail: LayerDiff) -> tuple[list[str], list[str]]:
    """Return the largest causes that point the way the time went, and those that do not."""
    speaking, against = sided_causes(detail.time, detail.causes)
    return (
        [cause_in_words(total, detail.causes) for total in speaking[:NAMED]],
        [cause_in_words(total, detail.causes) for total in against[:NAMED]],
    )


def cause_in_words(total: Contribution, causes: Causes) -> str:
    """Return a cause with its factor, and its levels in the kernel where it matters most."""
    levels = levels_in_words(total, causes)
    return f"{total.term.label} {factor_text(total.factor)}" + (f" ({levels})" if levels else "")


def _largest(detail: LayerDiff, sides: Sequence[Side]) -> str:
    """Return the largest cause that points the way the time went.

    Where that is a rest which no counter explains, multiprocessors that idle may be it: they are
    counted beside it.
    """
    if detail.time.verdict not in ("faster", "slower"):
        return detail.time.verdict
    speaking, _ = sided_causes(detail.time, detail.causes)
    if not speaking:
        return "no counter collected here explains it"
    first = speaking[0]
    idle = _idle_multiprocessors(first, detail, sides)
    if idle is None:
        return cause_in_words(first, detail.causes)
    return f"{first.term.label} ×{first.factor:.2f} ({idle})"


def _idle_multiprocessors(
    total: Contribution, detail: LayerDiff, sides: Sequence[Side]
) -> str | None:
    """Return how busy multiprocessors were, where that is most of a rest; else None."""
    if total.term.id != "clock_and_idle_sms":
        return None
    before, after = (_of_longest(side, detail.layer, "sm_efficiency") for side in sides)
    idle = math.log(before / after) if before > 0 and after > 0 else 0.0
    if idle * total.log_ratio > 0 and abs(idle) >= NAMES_REST * abs(total.log_ratio):
        return (
            f"multiprocessors busy {100 * after:.0f} % of the time, "
            f"{100 * before:.0f} % in the step before"
        )
    return None


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
