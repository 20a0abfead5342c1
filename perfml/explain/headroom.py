"""What is left to gain: how far each kernel is from the limit it stands at, and when to stop.

The fields are those that agents who tune kernels ask for: a category, the efficiency (how busy the
busiest unit is), the headroom and whether the kernel is at its roofline.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfml.explain.speed_of_light import KernelLevels
from perfml.util.words import micros, percentage

AT_ROOF = 0.8
"""Fraction of the peak from which a kernel is at its roofline: Nsight Compute's rule
``SOLBottleneck`` calls a launch above 80 % well utilised, and says that only other work helps."""

ALL_AT_ROOF = 0.8
"""Part of the kernels' time that has to be at a roofline before perfml says stop (our choice)."""

SMALL_GAIN = 0.05
"""Of the kernels' time: what saves less is not worth another round (our choice)."""


@dataclass(frozen=True)
class KernelHeadroom:
    """How far a kernel is from its limit.

    Attributes
    ----------
    kernel
        Its label.
    launch
        Place of its first launch in the profile, from 0: ``FILE@launch`` names it to every verb.
    launches
        How many.
    time_us
        Of all launches, in microseconds.
    share
        Of the time of all kernels.
    category
        ``memory``, ``compute``, ``underutilized`` (no unit reaches 60 % of its peak) or
        ``not measured``.
    efficiency
        How busy the busiest unit is, as a fraction of its peak; NaN where not measured.
    headroom_us
        The time less what its busiest unit would need at its peak; NaN where not measured.
    at_roofline
        Whether `efficiency` is 80 % or more.
    """

    kernel: str
    launch: int
    launches: int
    time_us: float
    share: float
    category: str
    efficiency: float
    headroom_us: float
    at_roofline: bool


@dataclass(frozen=True)
class LimitHeadroom:
    """What is left at one limit, over all kernels that stand there: microseconds, and the part."""

    category: str
    headroom_us: float
    share: float


@dataclass(frozen=True)
class Headroom:
    """What is left to gain in all.

    Attributes
    ----------
    stop
        Whether nothing is left to gain here.
    reason
        Why, in a sentence with numbers.
    limits
        By limit, the largest headroom first.
    kernels
        The kernels, the one that takes most time first.
    """

    stop: bool
    reason: str
    limits: tuple[LimitHeadroom, ...]
    kernels: tuple[KernelHeadroom, ...]


def headroom(levels: Sequence[KernelLevels], saving_us: float) -> Headroom | None:
    """Return what is left to gain, or None where no kernel is known.

    `levels` say how busy each kernel keeps the GPU; `saving_us` is the largest likely saving that
    advice knows, in microseconds.
    """
    kernels = tuple(map(_of_kernel, levels))
    whole = sum(each.time_us for each in kernels)
    if not whole > 0:
        return None
    measured = [each for each in kernels if not math.isnan(each.efficiency)]
    left: dict[str, float] = defaultdict(float)
    for each in measured:
        left[each.category] += each.headroom_us
    limits = sorted(
        (LimitHeadroom(name, us, us / whole) for name, us in left.items()),
        key=lambda limit: -limit.headroom_us,
    )
    at_roof = sum(each.time_us for each in kernels if each.at_roofline) / whole
    stop = at_roof >= ALL_AT_ROOF and saving_us < SMALL_GAIN * whole
    known = sum(each.time_us for each in measured) / whole
    reason = _reason(stop, at_roof, saving_us, whole)
    if known < ALL_AT_ROOF:
        reason += f" How busy the GPU was is known for {percentage(known)} of it."
    return Headroom(stop, reason, tuple(limits), kernels)


def _of_kernel(levels: KernelLevels) -> KernelHeadroom:
    limit = levels.limit
    known = limit != "not measured"
    level = float(np.fmax(levels.compute, levels.memory)) if known else math.nan
    return KernelHeadroom(
        kernel=levels.kernel,
        launch=levels.first_launch,
        launches=levels.launches,
        time_us=levels.total_us,
        share=levels.share,
        category="underutilized" if limit == "latency" else limit,
        efficiency=level,
        headroom_us=levels.total_us * (1 - min(level, 1.0)) if known else math.nan,
        at_roofline=level >= AT_ROOF,
    )


def _reason(stop: bool, at_roof: float, saving_us: float, whole: float) -> str:
    roof = f"{percentage(at_roof)} of the kernels' time is at a roofline"
    saving = f"the largest known saving is {micros(saving_us)} of {micros(whole)}"
    if stop:
        return f"Stop: nothing left to gain here; {roof}, and {saving}."
    return f"Go on: {roof}, and {saving}."
