"""How many passes a set of metrics costs: measured sets, and an estimate for the others.

Nsight Compute replays a launch until all counters of a request are read; how counters share a pass
is known to the profiler alone. ``passes.csv`` holds what it answered for single metrics, the named
sets and random sets (`studies/plan/passes.py` of bcf8007a). They look so: a pass holds about
five counters of the multiprocessors, counters of L2 and DRAM come along, instrumented code
(``smsp__sass``) takes one pass however many metrics need it, and what does not fit into one pass
takes one more than it fills: no set took two. So passes come from ``ceil(base + sum of shares +
share of instrumentation if any)``, plus one from two on, and the shares are fitted.

CUPTI with the program's iterations as replay takes that one pass less. ``passes_cupti.csv`` has
what it plans for the same sets, by chip.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from perfml.metrics.catalogue import load_catalogue

CHIP, NCU = "H200", "2025.3.1"
"""What the counts hold for; other chips and versions group counters in other ways."""

SOURCE = f"measured on {CHIP}, ncu {NCU}"

ESTIMATES = "Of 40 random sets the estimate is right for 36, and wrong by 1 at most."
"""The random sets of ``passes.csv`` in ten parts, each estimated from all other sets."""

SECONDS = {1: 0.009, 3: 0.089, 4: 0.098, 7: 0.139, 8: 0.140}
"""Passes to seconds a launch, of a small CUDA program with 1 MiB on an H200 (40 launches each).

A 1,024 MiB program took 0.010 s in one pass and 0.113 s in three: what was written is restored
before every further pass.
"""

CUPTI_SECONDS = 0.00104
"""A pass of the hardware's counters of a launch through CUPTI, in seconds.

On an H200, YOLOv4-Tiny, in an open session: 0.98 ms each of the published set's five, 1.07 of the
default set's seven (``benchmarks/results/collect-h200-once.json``).
"""

CUPTI_CODE_SECONDS = (0.00066, 0.00014)
"""The pass of instrumented code: its seconds without a counter, and a counter's.

A line through the published set's six counters (1.49 ms) and the default set's 21 (3.57 ms), there.
"""

CUPTI_CHIP = "GH100"
"""The chip of the H100 and the H200, as CUPTI names it."""

_MARGIN = 0.1
"""Fitted sums keep this far from a full pass: half of one counter among five."""


@dataclass(frozen=True)
class PassEstimate:
    """Passes of one set: the best estimate, and `low` to `high`, where the number lies.

    These are the measured number, or one beside the estimate, narrowed by measured sets that the
    set holds or is held by. `measured` says whether Nsight Compute was asked for this very set.
    """

    passes: int
    low: int
    high: int
    measured: bool


class PassCounts:
    """Measured sets of metrics with their passes, and the additive model of the others."""

    def __init__(self, measured: Iterable[tuple[frozenset[str], int]]) -> None:
        self.measured: dict[frozenset[str], int] = dict(measured)
        alone = sorted(name for names in self.measured if len(names) == 1 for name in names)
        self.names: tuple[str, ...] = tuple(alone)
        """Metrics that were measured alone: the ones that sets may hold."""
        self._place = {name: index for index, name in enumerate(self.names)}

    def known(self, name: str) -> bool:
        """Return whether a metric was measured, or costs no pass."""
        return name in self._place or is_free(name)

    def estimate(self, names: Iterable[str]) -> PassEstimate:
        """Return the passes of a set; metrics that need no counter count for nothing.

        Raises `KeyError` if a metric is not `known`.
        """
        asked = frozenset(name for name in names if not is_free(name))
        if asked in self.measured:
            found = self.measured[asked]
            return PassEstimate(found, found, found, True)
        low = max((p for s, p in self.measured.items() if s <= asked), default=1)
        above = [p for s, p in self.measured.items() if s >= asked]
        filled = math.ceil(float(self._terms(asked) @ self.shares) - 1e-9)
        limit = min(above, default=_more(_taken(filled)))
        passes = min(max(_taken(filled), low), limit)
        fewer = 1 if passes <= 3 else passes - 1
        return PassEstimate(passes, max(low, fewer), min(limit, _more(passes)), False)

    def _terms(self, names: frozenset[str]) -> npt.NDArray[np.float64]:
        terms = np.zeros(len(self.names) + 2)
        terms[[self._place[name] for name in names]] = 1.0
        terms[-2] = float(any(is_instrumented(name) for name in names))
        terms[-1] = 1.0
        return terms

    @functools.cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """One share of a pass a metric, then the instrumentation's, then the base.

        Fitted when a set that was not measured is asked for: the least total distance from
        ``filled - 1 < sum <= filled``.
        """
        from scipy.optimize import linprog

        rows = [(s, p) for s, p in self.measured.items() if all(n in self._place for n in s)]
        terms = np.array([self._terms(names) for names, _ in rows])
        filled = np.array([max(1, found - 1) for _, found in rows], dtype=float)
        slack = -np.eye(len(rows))
        # one pass is the least there is, so its sum has no lower limit
        several = filled > 1
        solved = linprog(
            np.r_[np.full(terms.shape[1], 1e-3), np.ones(len(rows))],
            A_ub=np.r_[np.c_[terms, slack], np.c_[-terms, slack][several]],
            b_ub=np.r_[filled - _MARGIN, (1 - filled - _MARGIN)[several]],
            bounds=(0, None),
        )
        shares = np.zeros(terms.shape[1]) if solved.x is None else solved.x[: terms.shape[1]]
        return np.asarray(shares, dtype=np.float64)


def _taken(filled: int) -> int:
    """Return the replay passes of a request that fills `filled` of them."""
    return 1 if filled <= 1 else filled + 1


def _more(passes: int) -> int:
    return 3 if passes == 1 else passes + 1


def is_instrumented(name: str) -> bool:
    """Return whether a metric is counted by instrumented code instead of hardware counters."""
    return any("__sass_" in counter for counter in _request(name))


def is_free(name: str) -> bool:
    """Return whether a feature needs no counter: a launch attribute, or no profiler metric."""
    catalogue = load_catalogue()
    if name not in catalogue:
        return True
    return catalogue[name].ncu is not None and not _request(name)


@functools.cache
def _request(name: str) -> tuple[str, ...]:
    catalogue = load_catalogue()
    if name not in catalogue or catalogue[name].ncu is None:
        return ()
    alone = set(catalogue.ncu_request(()))
    return tuple(counter for counter in catalogue.ncu_request((name,)) if counter not in alone)


@functools.cache
def load_passes() -> PassCounts:
    """Return the pass counts that ship with perfml (read once a process)."""
    return PassCounts((frozenset(names), passes) for _, passes, names in read_sets())


def read_sets() -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """Return the measured sets in the file's order: kind, passes, metrics."""
    return tuple(
        (row["kind"], int(row["passes"]), tuple(row["metrics"].split()))
        for row in csv.DictReader(_lines("passes.csv"))
    )


def seconds_per_launch(passes: int) -> float:
    """Return the seconds a launch takes, on a line between the measured `SECONDS`."""
    counts = sorted(SECONDS)
    return float(np.interp(passes, counts, [SECONDS[count] for count in counts]))


def cupti_passes(names: Iterable[str], ncu: int) -> int:
    """Return the passes of a set through CUPTI on an H100 or H200.

    `ncu` is what the set takes under Nsight Compute, for sets that CUPTI was not asked about: one
    less from three on, which is right for most of those it was asked about.
    """
    asked = frozenset(name for name in names if not is_free(name))
    return _planned().get(asked, {}).get(CUPTI_CHIP, ncu if ncu <= 1 else ncu - 1)


def cupti_seconds(names: Iterable[str], passes: int) -> float:
    """Return the seconds that one measurement of a launch takes through CUPTI in `passes`."""
    counters = {counter for name in names for counter in _request(name) if "__sass_" in counter}
    if not counters or not passes:
        return passes * CUPTI_SECONDS
    without, each = CUPTI_CODE_SECONDS
    return (passes - 1) * CUPTI_SECONDS + without + len(counters) * each


@functools.cache
def _planned() -> dict[frozenset[str], dict[str, int]]:
    """Return passes by chip of every set of ``passes_cupti.csv``."""
    return {
        frozenset(row["metrics"].split()): {
            chip: int(text) for chip, text in row.items() if chip.isupper() and text
        }
        for row in csv.DictReader(_lines("passes_cupti.csv"))
    }


def _lines(name: str) -> list[str]:
    text = resources.files("perfml.metrics").joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]
