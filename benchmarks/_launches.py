"""Steps between the same kernels in more launches, or in launches that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfml.explain.results import LayerDiff

OVERLAP = 0.02
"""Kernels whose times add up to so much more than the GPU was busy overlap."""


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
