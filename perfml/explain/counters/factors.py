"""One pair of launches: the logarithm of its time ratio as a sum of terms.

A launch's time is work x cost, and cost is split along the machine: how many warps fit, how full
the waves are, how many of those warps were resident; what is left is the throughput of a resident
warp. Each factor is a level that was counted, so the logarithms add up to that of the times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from perfml.explain.counters.resources import BUSY, MemoryLevel, Resource, wave_fill
from perfml.explain.counters.terms import PER_LAUNCH, TERMS, Contribution, Term
from perfml.explain.counters.traffic import SMALL, is_of_atomics, others_share, unseen_traffic
from perfml.explain.launches import Launch, known

ISSUE_RATE = "issue_rate"

NEARLY_NONE = 1e-4
"""Work of a side that does not use a unit, as a fraction of the other side's."""


@dataclass(frozen=True)
class Pair:
    """Two launches (or merged layers) that answer to each other.

    Attributes
    ----------
    before, after
        Of the baseline and of the target.
    resource
        The unit whose work the time is counted in; None where no work was counted on both sides.
    single
        Whether both are single launches; a mean of waves over kernels has no last wave.
    """

    before: Launch
    after: Launch
    resource: Resource | None
    single: bool

    @property
    def both(self) -> tuple[Launch, Launch]:
        """Both launches."""
        return self.before, self.after

    def levels(self, name: str) -> tuple[float, float]:
        """Return a counter of both."""
        return self.before[name], self.after[name]


class Decomposition:
    """The terms of one logarithm: whatever is moved between them, their sum stays the same.

    Parameters
    ----------
    log_ratio
        The logarithm; at first all of it is the rest.
    """

    def __init__(self, log_ratio: float) -> None:
        self._rest = Contribution(TERMS["throughput"], math.nan, math.nan, log_ratio)
        self._named: dict[str, Contribution] = {}

    def __contains__(self, term: str) -> bool:
        return term in self._named

    def log_ratio(self, term: str | None) -> float:
        """Return what a term contributes so far; None is the rest."""
        return (self._rest if term is None else self._named[term]).log_ratio

    def name(
        self,
        term: str | Term,
        baseline: float,
        target: float,
        log_ratio: float | None = None,
        *,
        of: str | None = None,
        waits: bool = False,
    ) -> None:
        """Name a cause, and take what it contributes out of another term.

        Parameters
        ----------
        term
            The cause, or its id.
        baseline, target
            Its levels.
        log_ratio
            What it contributes (beside what it does already); the logarithm of the levels' ratio
            by default.
        of
            The term that it was a part of; the rest by default.
        waits
            Whether its levels are shares of the warps' time.
        """
        known = TERMS[term] if isinstance(term, str) else term
        value = math.log(target / baseline) if log_ratio is None else log_ratio
        if known.id in self._named:
            self._add(known.id, value)
        else:
            self._named[known.id] = Contribution(known, baseline, target, value, waits)
        self._add(of, -value)

    def move(self, value: float, source: str | None, to: str | None) -> None:
        """Move a part of one term to another; None is the rest."""
        self._add(source, -value)
        self._add(to, value)

    def raise_level(self, term: str, factor: float, *, baseline: bool) -> None:
        """Multiply a term's level on one side, whose logarithm another term gave to it."""
        one = self._named[term]
        levels = (
            (one.baseline * factor, one.target) if baseline else (one.baseline, one.target * factor)
        )
        self._named[term] = replace(one, baseline=levels[0], target=levels[1])

    def take_from(
        self, sources: Iterable[str], term: str, levels: Sequence[float], more: float
    ) -> None:
        """Name a term in place of sources that work its way, in all no more than `more` of them."""
        room = abs(more)
        for source in sources:
            if source in self and self.log_ratio(source) * more > 0:
                value = self.log_ratio(source)
                value = math.copysign(min(abs(value), room), value)
                room -= abs(value)
                self.name(term, levels[0], levels[1], value, of=source)

    def take_share(self, term: str, baseline: float, target: float, share: float) -> None:
        """Name a cause that holds a share of the whole, taken from all other terms in proportion.

        For a cause that shows in every counter, so that none of the other terms is another cause.
        """
        whole = sum(one.log_ratio for one in self.contributions())
        for name, one in self._named.items():
            self._named[name] = one.with_part((1 - share) * one.log_ratio)
        self._rest = self._rest.with_part((1 - share) * self._rest.log_ratio)
        self._named[term] = Contribution(TERMS[term], baseline, target, share * whole)

    def rest_is(self, term: str, baseline: float, target: float) -> None:
        """Say what the rest is called, and its levels."""
        self._rest = Contribution(TERMS[term], baseline, target, self._rest.log_ratio)

    def named(self) -> tuple[Contribution, ...]:
        """Return all terms but the rest."""
        return tuple(self._named.values())

    def contributions(self) -> tuple[Contribution, ...]:
        """Return all terms, the rest last."""
        return (*self._named.values(), self._rest)

    def _add(self, term: str | None, value: float) -> None:
        if term is None:
            self._rest = self._rest.with_part(self._rest.log_ratio + value)
        else:
            known = self._named[term]
            self._named[term] = known.with_part(known.log_ratio + value)


@dataclass(frozen=True)
class Factor:
    """A divisor of the work.

    Attributes
    ----------
    term
        Its id.
    level
        Its level for a launch.
    absolute
        Whether the level includes the levels before it (achieved occupancy includes the limit).
    rest
        What is left, once the levels up to this one are taken out.
    most
        The largest step that says something of its own.
    """

    term: str
    level: Callable[[Launch], float]
    absolute: bool
    rest: str
    most: float = math.inf


def _filled_waves(launch: Launch) -> float:
    """Return how full the waves of a launch are on average, by time; NaN where nobody knows.

    Its last blocks may take less time than a wave, since they have a multiprocessor to fewer: the
    warps that are resident on average, idle multiprocessors included, tell how long the full waves
    took. That can only be more of the time than as many equal waves would give them.
    """
    waves, whole = launch["waves_per_sm"], math.floor(known(launch["waves_per_sm"]))
    plain = wave_fill(waves)
    resident = launch["achieved_occupancy"] * launch["sm_efficiency"]
    last = waves - whole
    if whole < 1 or last == 0 or not resident > 0 or not launch["theoretical_occupancy"] > 0:
        return plain
    full = (resident / launch["theoretical_occupancy"] - last) / (1 - last)
    return min(max(plain, full * waves / whole), 1.0)


_LAUNCHED = (
    Factor(
        "theoretical_occupancy",
        lambda launch: launch["theoretical_occupancy"],
        True,
        "throughput_at_occupancy",
    ),
    Factor(
        "wave_quantization",
        _filled_waves,
        False,
        "throughput_at_waves",
    ),
)
_RESIDENT = Factor(
    "achieved_of_theoretical",
    lambda launch: launch["achieved_occupancy"],
    True,
    "throughput_per_warp",
    # more warps than blocks on all multiprocessors would give: some of these are idle, and that is
    # said already
    most=1.0,
)
_ISSUED = Factor(ISSUE_RATE, lambda launch: launch["ipc"], True, "clock_and_idle_sms")


def factorise_time(pair: Pair) -> Decomposition:
    """Split the logarithm of a pair's time ratio into work, occupancy, waves and a rest."""
    decomposition = Decomposition(math.log(pair.after.time_us / pair.before.time_us))
    _name_unprofiled_time(decomposition, pair)
    resource = pair.resource
    if resource is None:
        decomposition.rest_is("no_work_counters", pair.before.duration_us, pair.after.duration_us)
        return decomposition
    amounts = [resource.amount(launch) for launch in pair.both]
    # a side that does not use the unit: the logarithm needs a little, and `net_work` takes it back
    amounts = [max(amount, NEARLY_NONE * max(amounts)) for amount in amounts]
    _name_work(decomposition, pair, resource, amounts)
    rest, taken = _name_factors(decomposition, pair, _factors(resource, pair.single))
    rates = [
        amount / launch.duration_us / level
        for amount, launch, level in zip(amounts, pair.both, taken, strict=True)
    ]
    decomposition.rest_is(rest, rates[0], rates[1])
    return decomposition


def _name_unprofiled_time(decomposition: Decomposition, pair: Pair) -> None:
    """Name what the time without the profiler has beyond its duration: caches, clocks, overlap."""
    if not all(launch.profiled for launch in pair.both):
        return
    ratios = [launch.time_us / launch.duration_us for launch in pair.both]
    if any(launch.time_us != launch.duration_us for launch in pair.both):
        decomposition.name("unprofiled_time", ratios[0], ratios[1])


def _name_work(
    decomposition: Decomposition, pair: Pair, resource: Resource, amounts: Sequence[float]
) -> None:
    counts = pair.levels("kernels")
    if not pair.single and all(count > 0 for count in counts) and counts[0] != counts[1]:
        # a merged row: more launches of as much work each are more work
        decomposition.name("launch_count", *counts)
        work = [amount / count for amount, count in zip(amounts, counts, strict=True)]
        decomposition.name(f"{resource.work.id}{PER_LAUNCH}", work[0], work[1])
    elif not _name_product(decomposition, pair, resource, amounts):
        decomposition.name(resource.work, amounts[0], amounts[1])


def _name_product(
    decomposition: Decomposition, pair: Pair, resource: Resource, amounts: Sequence[float]
) -> bool:
    """Name requests, their parts and the cost of a part; return False where they are not known."""
    product = resource.product
    if product is None:
        return False
    requests = [launch.total(product.request_counters) for launch in pair.both]
    parts = [launch.total(product.part_counters) for launch in pair.both]
    if product.cost is None and min(requests) == 0 < max(requests):
        # the other side moves its bytes without a request of L1 (bulk copies)
        least = NEARLY_NONE * max(requests)
        more = math.log(amounts[1] / amounts[0])
        decomposition.name(product.requests, max(requests[0], least), max(requests[1], least), more)
        return True
    if not all(value > 0 for value in (*requests, *parts)):
        return False
    if (
        resource.memory is not None
        and resource.memory.is_global
        and (max(map(others_share, pair.both)) > SMALL or any(map(unseen_traffic, pair.both)))
    ):
        # sectors of local memory, atomics and bulk copies are none of the parts that were counted
        return False
    if resource.memory is MemoryLevel.SHARED and is_of_atomics(*pair.both):
        return False
    costs = [amount / part for amount, part in zip(amounts, parts, strict=True)]
    step, more = math.log(costs[1] / costs[0]), math.log(amounts[1] / amounts[0])
    # what others do there makes the parts look dearer on the side with more work; where they look
    # cheaper, and the side with less was not limited there, the parts hold all that was added
    apart = abs(step) > product.largest_cost_change
    less = pair.before if more > 0 else pair.after
    if apart and (step * more > 0 or resource.level_of(less) >= BUSY):
        return False
    decomposition.name(product.requests, requests[0], requests[1])
    decomposition.name(product.parts, parts[0] / requests[0], parts[1] / requests[1])
    if apart:
        decomposition.move(step, None, product.parts.id)
    elif product.cost is not None:
        decomposition.name(product.cost, costs[0], costs[1])
    return True


def _factors(resource: Resource, single: bool) -> tuple[Factor, ...]:
    """Return the divisors of the work, from the launch inwards."""
    launched = _LAUNCHED if single else ()
    issued = (_ISSUED,) if resource.issued else ()
    return (*launched, _RESIDENT, *issued)


def _name_factors(
    decomposition: Decomposition, pair: Pair, factors: Sequence[Factor]
) -> tuple[str, list[float]]:
    """Name each factor that was counted; return what is left, and the product of the levels."""
    rest, reached, taken = "throughput", [1.0, 1.0], [1.0, 1.0]
    for factor in factors:
        levels = [factor.level(launch) for launch in pair.both]
        if not all(level > 0 for level in levels):
            continue
        # an absolute level is measured against what the levels before it would give
        steps = [
            level / before if factor.absolute else level
            for level, before in zip(levels, reached, strict=True)
        ]
        reached = [level * step for level, step in zip(reached, steps, strict=True)]
        steps = [min(step, factor.most) for step in steps]
        decomposition.name(factor.term, steps[0], steps[1], -math.log(steps[1] / steps[0]))
        taken = [level * step for level, step in zip(taken, steps, strict=True)]
        rest = factor.rest
    return rest, taken


def cost_term(decomposition: Decomposition) -> str | None:
    """Return the term that holds the cost of a unit of work.

    Where instructions were counted, the cost of one is known apart from clocks and idle SMs.
    """
    return ISSUE_RATE if ISSUE_RATE in decomposition else None
