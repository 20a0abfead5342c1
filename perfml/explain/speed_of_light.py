"""How near each kernel is to what compute and memory can do, and what is left to gain.

What JSON has of `KernelLevels` is what agents who tune kernels ask for: a category, the efficiency
(how busy the busiest unit is), the headroom and whether the kernel is at its roofline.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from perfml.ingest.merge.groups import (
    KernelUnit,
    kernel_units,
    launch_shape,
    launches_behind_rows,
)
from perfml.metrics.expressions import Array
from perfml.readers.ncu.findings import LONGEST, unit_means
from perfml.util.words import micros, percent

LOW = 0.6
"""Fraction of the peak below which latency is the limit: that of Nsight Compute's rule
``SOLBottleneck``, which names it in its message."""

_MEMORY = ("dram_utilization", "l2_utilization", "l1_utilization")
"""Of which the busiest stands for memory where ncu's own total was not recorded."""

_COMPUTE = (
    *("single_precision_fu_utilization", "double_precision_fu_utilization"),
    *("half_precision_fu_utilization", "tensor_cycles_utilization", "tensor_utilization"),
    *("alu_utilization", "special_fu_utilization", "issue_slot_utilization"),
)
"""The same of compute. They are of the cycles that a multiprocessor is active, so they are scaled
by `_ACTIVE` to the elapsed time."""

_ACTIVE = "sm_efficiency"


AT_ROOF = 0.8
"""Fraction of the peak from which a kernel is at its roofline: Nsight Compute's rule
``SOLBottleneck`` calls a launch above 80 % well utilised, and says that only other work helps."""

ALL_AT_ROOF = 0.8
"""Part of the kernels' time that has to be at a roofline before perfml says stop (our choice)."""

SMALL_GAIN = 0.05  # of the kernels' time: what saves less is not worth another round (our choice)


@dataclass(frozen=True)
class KernelLevels:
    """A kernel in one shape: how busy it kept the GPU, and how far it is from its limit."""

    kernel: Annotated[str, "its label"]
    launches: Annotated[int, "how many"]
    time_us: Annotated[float, "mean of one, in microseconds"]
    share: Annotated[float, "of the time of all kernels"]
    compute: Annotated[float, "of the busiest compute unit's peak, over the elapsed time"]
    memory: Annotated[float, "of the busiest part of memory's peak"]
    issue: Annotated[float, "of the issue slots"]
    first_launch: Annotated[int, "place in the profile, from 0: FILE@3 names the fourth"] = 0

    @property
    def total_us(self) -> float:
        """Time of all launches, in microseconds."""
        return self.launches * self.time_us

    @property
    def limit(self) -> str:
        """What limits it, in a word: compute, memory, latency, or not measured."""
        known = {"compute": self.compute, "memory": self.memory}
        known = {name: level for name, level in known.items() if not math.isnan(level)}
        if not known:
            return "not measured"
        most = max(known, key=lambda name: known[name])
        if known[most] < LOW:
            # an unmeasured unit may be the busy one
            return "latency" if len(known) == 2 else "not measured"
        return most

    @property
    def limits(self) -> str:
        """The same, with both where compute and memory are busy: either then limits it."""
        return "compute and memory" if min(self.compute, self.memory) >= LOW else self.limit

    @property
    def category(self) -> Annotated[str, "memory, compute, underutilized or not measured"]:
        """The same in the word that agents ask for."""
        return "underutilized" if self.limit == "latency" else self.limit

    @property
    def efficiency(self) -> Annotated[float, "of the busiest unit's peak"]:
        """How busy the busiest unit is, of its peak; NaN where that may be another one."""
        if self.limit == "not measured":
            return math.nan
        return float(np.fmax(self.compute, self.memory))

    @property
    def headroom_us(self) -> Annotated[float, "above the time at its busiest unit's peak"]:
        """The time less what its busiest unit would need at its peak."""
        return self.total_us * (1 - min(self.efficiency, 1.0))

    @property
    def at_roofline(self) -> Annotated[bool, "whether `efficiency` is 80 % or more"]:
        """Whether only other work makes it faster."""
        return self.efficiency >= AT_ROOF

    def sentence(self) -> str:
        """Say what limits it, with the numbers."""
        levels = (("compute", self.compute), ("memory", self.memory))
        said = [f"{name} {100 * level:.0f} %" for name, level in levels if not math.isnan(level)]
        return f"limit: {self.limits} ({', '.join(said) or 'no level'} of peak)"

    JSON: ClassVar = (
        *("kernel", ("launch", "first_launch"), "launches", ("time_us", "total_us"), "share"),
        *("category", "efficiency", "headroom_us", "at_roofline"),
    )


def is_ordinary(sources: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether files are ordinary reports of ncu: with that section, or results of rules."""
    return any(each.get("speed_of_light") or each.get("rules") for each in sources)


def kernel_levels(
    kernels: pd.DataFrame, sources: Iterable[Mapping[str, Any]]
) -> tuple[KernelLevels, ...]:
    """Return the kernels of a table, the one that takes most time first.

    `sources` are the provenance of the table's files (``speed_of_light``: see
    `perfml.readers.ncu.findings`).
    """
    units, codes = kernel_units(kernels, by_workload=True)
    facts = {fact_key(each): each for one in sources for each in one.get("speed_of_light", ())}
    launches = launches_behind_rows(kernels, codes)
    times = kernels["time_us"].to_numpy(dtype=float) * launches
    spent = np.bincount(codes, np.nan_to_num(times), len(units))
    count = np.bincount(codes, launches, len(units))
    unknown = pd.Series(np.nan, index=kernels.index)

    def level(*names: str) -> Array:
        columns = (kernels.get(name, unknown).to_numpy(dtype=float) for name in names)
        return np.asarray(np.fmax.reduce([unit_means(each, times, codes) for each in columns]))

    memory, issue = level(*_MEMORY), level("issue_slot_utilization")
    compute = level(*_COMPUTE) * level(_ACTIVE)
    whole = float(spent.sum())
    _, first = np.unique(codes, return_index=True)
    found = []
    for place, key in enumerate(unit_keys(units)):
        fact = facts.get(key, {})
        levels = KernelLevels(
            units[place].label,
            round(count[place]),
            float(spent[place] / count[place]),
            share=float(spent[place]) / whole if whole else math.nan,
            compute=float(fact.get("compute", compute[place])),
            memory=float(fact.get("memory", memory[place])),
            issue=float(issue[place]),
            first_launch=int(first[place]),
        )
        found.append(levels)
    return tuple(sorted(found, key=lambda each: -each.share))


def unit_keys(units: Sequence[KernelUnit]) -> list[tuple[str, str]]:
    """Return what tells each kernel in one shape from others in a reader's facts."""
    return [(unit.kernel[:LONGEST], unit.shape) for unit in units]


def fact_key(fact: Mapping[str, Any]) -> tuple[str, str]:
    """Return the same of a reader's fact about a kernel in one shape."""
    return str(fact["kernel"])[:LONGEST], launch_shape(str(fact["grid"]), str(fact["block"]))


@dataclass(frozen=True)
class LimitHeadroom:
    """What is left at one limit, over all kernels that stand there: microseconds, and the part."""

    category: str
    headroom_us: float
    share: float


@dataclass(frozen=True)
class Headroom:
    """What is left to gain in all."""

    stop: Annotated[bool, "whether nothing is left to gain here"]
    reason: Annotated[str, "why, in a sentence with numbers"]
    limits: Annotated[tuple[LimitHeadroom, ...], "by limit, the largest headroom first"]
    kernels: Annotated[tuple[KernelLevels, ...], "the kernels, the one that takes most time first"]


def headroom(
    levels: Sequence[KernelLevels], savings: Sequence[tuple[float, float]]
) -> Headroom | None:
    """Return what is left to gain, or None where no kernel is known.

    `levels` say how busy each kernel keeps the GPU; `savings` are the likely ones of advice,
    microseconds, NaN where nobody knows it, and what each is of: the clock's time, or NaN for that
    of the kernels.
    """
    whole = sum(each.total_us for each in levels)
    if not whole > 0:
        return None
    measured = [each for each in levels if not math.isnan(each.efficiency)]
    left: dict[str, float] = defaultdict(float)
    for each in measured:
        left[each.category] += each.headroom_us
    limits = sorted(
        (LimitHeadroom(name, us, us / whole) for name, us in left.items()),
        key=lambda limit: -limit.headroom_us,
    )
    at_roof = sum(each.total_us for each in levels if each.at_roofline) / whole
    known_us = [(us, whole if math.isnan(of) else of) for us, of in savings if us >= 0]
    unknown = len(savings) - len(known_us)
    saved, of = max(known_us, key=lambda saving: saving[0] / saving[1], default=(0.0, whole))
    stop = at_roof >= ALL_AT_ROOF and saved < SMALL_GAIN * of and not unknown
    known = sum(each.total_us for each in measured) / whole
    roof = f"{percent(at_roof, 3)} of the kernels' time is at a roofline"
    saving = f"the largest known saving is {micros(saved)} of {micros(of)}."
    reason = f"{roof}, and {saving if known_us else 'no saving is known.'}"
    reason = f"Stop: nothing left to gain here; {reason}" if stop else f"Go on: {reason}"
    if known < ALL_AT_ROOF:
        reason += f" How busy the GPU was is known for {percent(known, 3)} of it."
    return Headroom(stop, reason, tuple(limits), tuple(levels))
