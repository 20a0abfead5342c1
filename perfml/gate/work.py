"""Counted work: what a layer does, apart from how long it takes.

Only counters that repeat are work. What reaches the L2 or the memory depends on what the caches
still hold, and issued instructions and wavefronts on how accesses happen to meet; so neither of
them decides.

Here to change: a counter more. It must be an exact count in the catalogue, merged by `sum`, and
the same for every repeat of the same code (`benchmarks/gate_repeats.py` measures that).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
import pandas as pd

from perfml.metrics import load_catalogue
from perfml.metrics.sets import INSTRUCTIONS
from perfml.util.typing import Floats
from perfml.util.words import Readable

LAUNCHES = "kernels"
"""Column of a Layers table with its number of launches."""

COUNTED = (
    LAUNCHES,
    INSTRUCTIONS,
    "global_load_requests",
    "global_store_requests",
    "global_atomic_requests",
    "global_reduction_requests",
    "local_load_requests",
    "local_store_requests",
    "gld_transactions",
    "gst_transactions",
    "inst_executed_shared_loads",
    "inst_executed_shared_stores",
    "inst_executed_shared_atomics",
    "flop_count_sp",
    "flop_count_dp",
    "flop_count_hp",
)
"""Columns that count work. Sectors of loads and stores are those that L1 is asked for: they follow
from the addresses alone."""

MOST = 0.75
"""Share of a side's repeats that have to agree. One odd repeat of four or five is an accident, such
as an iteration that tunes; two of five are a program that does now this and now that."""

ENOUGH = 0.5
"""Share of a side's repeats that must have a counter: below, most of the side is not known."""


FEW = 3
"""Repeats a side, from which on they show by themselves whether the counter repeats."""

FEW_TOLERANCE = 0.015
"""Growth that fewer repeats a side cannot tell from none. Programs that poll or retry count waiting
too: of 464 layers with three repeats (``h200-strangers*``, ``h*-planted-causes``) 12 differ by more
than 0.01 % between repeats, the most by 1.46 % (a scan that looks back)."""

NEGLIGIBLE = 1e-7
"""Change of another counter, as a share of the executed instructions, that is none: 4 sectors more
beside 41 million instructions are what a loop that asks for a flag adds."""


class Outcome(StrEnum):
    """What became of one counter."""

    SAME = "same"
    MORE = "more"
    LESS = "less"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Count:
    """One counter over the repeats of one side.

    Attributes
    ----------
    median
        Over the repeats that have it; NaN where none has.
    spread
        Relative distance from the median within which `MOST` of these repeats lie; infinite where
        they scatter around 0.
    measured, repeats
        Repeats that have the counter, and all.
    farthest
        Relative distance of the farthest repeat.
    """

    JSON_ID: ClassVar = "median"

    median: float
    spread: float
    measured: int
    repeats: int
    farthest: float

    @classmethod
    def of(cls, values: Floats, negligible: float = 0.0) -> Count:
        """Return the count of a side's repeats, NaN where one lacks the counter.

        Repeats no further from the median than `negligible` are at it.
        """
        known = values[np.isfinite(values)]
        if not len(known):
            return cls(math.nan, math.nan, 0, len(values), math.nan)
        median = float(np.median(known))
        distances = np.sort(np.abs(known - median))
        distances[distances <= negligible] = 0.0
        needed = math.ceil(MOST * len(known))
        spread, farthest = (_relative(float(distances[at]), median) for at in (needed - 1, -1))
        return cls(median, spread, len(known), len(values), farthest)


def _relative(distance: float, median: float) -> float:
    if distance == 0:
        return 0.0
    return distance / median if median else math.inf


@dataclass(frozen=True)
class WorkChange:
    """How one counter of a layer changed.

    Attributes
    ----------
    counter
        Column of the table.
    baseline, new
        The counter in the baseline and in the new version.
    tolerance
        Growth that passes, as a share.
    negligible
        Change of the count that is none.
    """

    counter: str
    baseline: Count
    new: Count
    tolerance: float
    negligible: float = 0.0

    JSON: ClassVar = ("counter", "baseline", "new", "growth")

    @property
    def growth(self) -> float:
        """Return new over baseline less 1; infinite where there was none before."""
        change = self.new.median - self.baseline.median
        if abs(change) <= self.negligible:
            return 0.0
        if self.baseline.median == 0:
            return math.inf
        return self.new.median / self.baseline.median - 1

    @property
    def unknown(self) -> str:
        """Why nobody can tell what became of it, as a clause; empty if one can.

        Repeats that do not agree never widen the tolerance. They hide a change, unless it is
        larger than twice their own spread.
        """
        for side, count in (("baseline", self.baseline), ("new version", self.new)):
            if count.measured < ENOUGH * count.repeats or not count.measured:
                lacking = count.repeats - count.measured
                return (
                    f"{self.counter} is missing in {lacking} of {count.repeats} repeats "
                    f"of the {side}"
                )
        for side, count in (("baseline", self.baseline), ("new version", self.new)):
            apart = count.spread > self.tolerance
            if apart and abs(self.growth) <= self.tolerance + 2 * count.spread:
                return f"the repeats of the {side} do not agree on {self.counter}"
        few = min(self.baseline.measured, self.new.measured) < FEW
        if few and self.tolerance < abs(self.growth) <= FEW_TOLERANCE:
            growth = Readable(self.growth)
            return f"{self.counter} {growth:+.1%} takes {FEW} repeats a side to tell"
        return ""

    @property
    def outcome(self) -> Outcome:
        """Return whether there is more or less of the work that it counts."""
        if self.unknown:
            return Outcome.UNKNOWN
        if abs(self.growth) <= self.tolerance:
            return Outcome.SAME
        grows = self.counter == LAUNCHES or load_catalogue()[self.counter].better != "higher"
        return Outcome.MORE if (self.growth > 0) == grows else Outcome.LESS

    @property
    def odd_repeats(self) -> bool:
        """Whether a repeat lies apart from the others, which decide."""
        return max(self.baseline.farthest, self.new.farthest) > self.tolerance


def work_changes(baseline: pd.DataFrame, new: pd.DataFrame, tolerance: float) -> list[WorkChange]:
    """Compare the counted work of one layer.

    Rows are of Layers tables, one a repeat; `tolerance` is the growth that passes, as a share.
    There is one entry a counter that the baseline has, in the order of `COUNTED`; what the new
    version lacks is `Outcome.UNKNOWN`.
    """
    sides = (baseline, new)
    instructions = [Count.of(_values(rows, INSTRUCTIONS)).median for rows in sides]
    least = NEGLIGIBLE * float(np.nan_to_num(instructions).max())
    changes = []
    for counter in COUNTED:
        negligible = 0.0 if counter in (LAUNCHES, INSTRUCTIONS) else least
        before, after = (Count.of(_values(rows, counter), negligible) for rows in sides)
        if before.measured:
            changes.append(WorkChange(counter, before, after, tolerance, negligible))
    return changes


def _values(rows: pd.DataFrame, counter: str) -> Floats:
    if counter not in rows.columns:
        return np.full(len(rows), np.nan)
    values = rows[counter].to_numpy(dtype=np.float64)
    # a launch executes an instruction at least: 0 of them were not counted
    return np.where(values == 0, np.nan, values) if counter == INSTRUCTIONS else values
