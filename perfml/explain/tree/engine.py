"""The engine: one pair of launches, where the additional time is, and what grew there.

Level one (`account`) says which limits of the slow side hold the additional time; level two
(`opened`) which causes grew there. A cause counts only under a limit that holds time. The parts of
all causes add up to the logarithm of the ratio of times; what no limit holds is the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfml.explain.launches import Launch
from perfml.explain.tree.account import Held, account
from perfml.explain.tree.ambiguity import is_proven
from perfml.explain.tree.causes import TERMS, Contribution, Kind
from perfml.explain.tree.limits import Instead, load_limits
from perfml.explain.tree.opened import of_warps, open_limit
from perfml.explain.tree.pair import Pair
from perfml.explain.tree.parts import Parts, add
from perfml.explain.tree.thresholds import SMALL
from perfml.metrics import load_catalogue

REST = "throughput"
"""Id of what no limit holds."""


@dataclass(frozen=True)
class Decomposed:
    """What a pair of launches was taken apart into.

    Attributes
    ----------
    contributions
        Causes, whose parts add up to the logarithm of the ratio of times; the rest last.
    held
        What each limit holds of the additional time, the most first.
    by_limit
        The parts of a cause by the limit that they stand under.
    """

    contributions: tuple[Contribution, ...]
    held: tuple[Held, ...] = ()
    by_limit: dict[str, Parts] | None = None

    @property
    def limiter(self) -> str | None:
        """What people read of the limit that holds the most; None where none does."""
        return self.held[0].limit.label if self.held else None


def decompose_pair(before: Launch, after: Launch, *, single: bool) -> Decomposed:
    """Return the causes of the difference between two launches.

    Parameters
    ----------
    before, after
        Of the baseline and of the target (or merged layers, as if they were single launches).
    single
        Whether they are single launches.
    """
    first: list[Contribution] = []
    counts = before["kernels"], after["kernels"]
    if not single and min(counts) > 0 and counts[0] != counts[1]:
        more = math.log(counts[1] / counts[0])
        first.append(Contribution(TERMS["launch_count"], counts[0], counts[1], more))
        before, after = _one_of(before), _one_of(after)
    ratio = math.log(after.time_us / before.time_us)
    if _measured_otherwise(before, after):
        outside = [one.time_us / one.duration_us for one in (before, after)]
        cause = Contribution(TERMS["unprofiled_time"], outside[0], outside[1], ratio)
        return Decomposed((*first, cause))
    pair = Pair(before, after, single=single)
    held = account(pair) if ratio != 0 else []
    by_limit = _causes_of(pair, held)
    shares = {cause: sum(limits.values()) for cause, limits in by_limit.items()}
    # whatever else warps did took longer as far as fewer of them did it (Little's law)
    warps = {cause: part for cause, part in of_warps(pair, ratio).items() if _holds(pair, cause)}
    shares = add(shares, warps, 1 - sum(shares.values()))
    order = sorted(shares, key=lambda cause: -shares[cause])
    named = [Contribution(TERMS[c], *_levels(pair, c), shares[c] * ratio) for c in order]
    left = ratio * (1 - sum(shares.values()))
    rest = Contribution(TERMS[REST], math.nan, math.nan, left)
    return Decomposed((*first, *named, rest), tuple(held), by_limit)


def _causes_of(pair: Pair, held: Sequence[Held]) -> dict[str, Parts]:
    """Return the parts of each cause by limit; of those that counters prove and do not deny."""
    by_limit: dict[str, Parts] = {}
    for each in held:
        for cause, part in _replaced(pair, open_limit(pair, each.limit)).items():
            mine = by_limit.setdefault(cause, {})
            mine[each.limit.id] = mine.get(each.limit.id, 0.0) + part * each.share
    return {cause: limits for cause, limits in by_limit.items() if _holds(pair, cause)}


def _holds(pair: Pair, cause: str) -> bool:
    """Return whether a cause's counters were collected, and do not speak against it."""
    proven = is_proven(TERMS[cause], pair.slow.launch, pair.fast.launch)
    return proven and not _contradicts(pair, cause)


def _measured_otherwise(before: Launch, after: Launch) -> bool:
    """Return whether the profiler, whose counters tell, saw the other side take longer."""
    if not (before.profiled and after.profiled):
        return False
    profiled = math.log(after.duration_us / before.duration_us)
    return abs(profiled) > SMALL and profiled * (after.time_us - before.time_us) < 0


def _levels(pair: Pair, cause: str) -> tuple[float, float]:
    level = TERMS[cause].level
    if level is None:
        return math.nan, math.nan
    return pair.before.value(level), pair.after.value(level)


def _contradicts(pair: Pair, cause: str) -> bool:
    """Return whether a cause's own level is better on the slow side: the rest has its part.

    Stalls are exempt: their levels are shares of a time that changed too.
    """
    term = TERMS[cause]
    if term.level is None or term.kind is Kind.STALL:
        return False
    slow, fast = pair.slow.value(term.level), pair.fast.value(term.level)
    return slow > fast if term.falls else slow < fast


def _replaced(pair: Pair, parts: Parts) -> Parts:
    """Return parts, with those that only come along with another cause given to it."""
    for row in load_limits()[2]:
        taken = {cause: parts[cause] for cause in row.of if cause in parts}
        if taken and _stands(pair, row):
            rest = {cause: part for cause, part in parts.items() if cause not in taken}
            parts = add(rest, {row.cause: sum(taken.values())}, 1.0)
    return parts


def _stands(pair: Pair, row: Instead) -> bool:
    """Return whether what tells a cause that stands in the place of others is there."""
    slow, fast = pair.slow, pair.fast
    return (
        all(slow[name] > 0 and slow[name] >= most * fast[name] for name, most in row.grew.items())
        and all(
            fast[name] > 0 and most * slow[name] <= fast[name] for name, most in row.fell.items()
        )
        and all(fast[name] >= least for name, least in row.fast.items())
    )


def _one_of(launch: Launch) -> Launch:
    """Return one launch of a merged row: counts are divided by how many launches it has."""
    catalogue, count = load_catalogue(), launch["kernels"]
    counters = {
        name: value / count
        if name == "ncu_time_us" or (name in catalogue and catalogue[name].merge == "sum")
        else value
        for name, value in launch.counters.items()
    }
    return replace(launch, time_us=launch.time_us / count, counters=counters)
