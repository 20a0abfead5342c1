"""Counted work: what a layer does, apart from how long it takes.

Only counters that repeat are work. What reaches the L2 or the memory depends on what the caches
still hold, and issued instructions and wavefronts on how accesses happen to meet; so neither of
them decides.

Here to change: a counter more. It must be an exact count in the catalogue, merged by `sum`, and
the same for every repeat of the same code (`benchmarks/gate_repeats.py` measures that).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LAUNCHES = "kernels"
"""Column of a Layers table with its number of launches."""

COUNTED = (
    LAUNCHES,
    "inst_executed",
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

FEW = 3
"""So many counters of work, launches apart, are enough to speak of equal work."""


@dataclass(frozen=True)
class WorkChange:
    """How one counter of a layer changed.

    Attributes
    ----------
    counter
        Column of the table.
    baseline, new
        Median over the repeats, counts.
    spread
        Largest relative distance of a repeat from its side's median.
    """

    counter: str
    baseline: float
    new: float
    spread: float

    @property
    def growth(self) -> float:
        """Return new over baseline less 1; infinite where there was none before."""
        if self.baseline == 0:
            return 0.0 if self.new == 0 else np.inf
        return self.new / self.baseline - 1

    def beyond(self, tolerance: float) -> bool:
        """Return whether it changed by more than a tolerance and the repeats' own spread."""
        return abs(self.growth) > max(tolerance, 2 * self.spread)


def work_changes(baseline: pd.DataFrame, new: pd.DataFrame) -> list[WorkChange]:
    """Compare the counted work of one layer.

    Parameters
    ----------
    baseline, new
        Rows of Layers tables; one a repeat.

    Returns
    -------
    list
        One entry a counter that both sides have in every repeat, in the order of `COUNTED`. A
        counter that some repeats lack is left out: a part of a count is no count.
    """
    changes = []
    for counter in COUNTED:
        sides = [_values(rows, counter) for rows in (baseline, new)]
        if all(len(values) and np.isfinite(values).all() for values in sides):
            before, after = (float(np.median(values)) for values in sides)
            spread = max(_spread(sides[0], before), _spread(sides[1], after))
            changes.append(WorkChange(counter, before, after, spread))
    return changes


def _values(rows: pd.DataFrame, counter: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if counter not in rows.columns:
        return np.empty(0)
    return rows[counter].to_numpy(dtype=np.float64)


def _spread(values: np.ndarray[tuple[int], np.dtype[np.float64]], middle: float) -> float:
    if middle == 0:
        return 0.0
    return float(np.abs(values - middle).max() / middle)
