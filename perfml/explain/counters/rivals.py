"""Two readings of one difference: another unit's work explains as much, and nothing decides.

Time is counted in the work of one unit (`perfml.explain.counters.resources`). A unit that is busy
limits the launch, and its work is proven. Where no unit is, the time is waiting, and which work the
waiting belongs to is a guess: if counting in another unit, about as busy, names another cause for
most of the difference, the first line says so instead of claiming either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfml.explain.counters import refine
from perfml.explain.counters.evidence import Reason, Told, Untold, sections_of
from perfml.explain.counters.factors import Pair, factorise_time
from perfml.explain.counters.resources import BUSY, LONGER, Resource, candidate_resources
from perfml.explain.counters.terms import TERMS, Contribution, Kind, Term
from perfml.explain.counters.waiting import may_be_behind
from perfml.explain.launches import Launch

MOST = 0.5
"""A cause of less than this part of the difference is not claimed."""

_AS_BUSY = 0.5
"""A unit that is less than half as busy as another is no rival to it."""

_GUESSED = (Kind.WORK, Kind.MEMORY, Kind.STALL)
"""Kinds of causes that depend on whose work the time was counted in."""

WHY = "no unit is busy enough to be the limit"
QUEUES = "warps wait longer for a unit that has more to do and is not busy all the time"
CHECK = (
    "stall samples of single instructions would tell (section SourceCounters; "
    "ncu --section SourceCounters)"
)


def count_in(
    resource: Resource | None, before: Launch, after: Launch, *, single: bool
) -> tuple[Contribution, ...]:
    """Return the terms of two launches whose time is counted in the work of a unit."""
    pair = Pair(before, after, resource, single)
    decomposition = factorise_time(pair)
    for name_parts in refine.REFINEMENTS:
        name_parts(decomposition, pair)
    return decomposition.contributions()


def comparably_busy(resources: Sequence[Resource], slower: Launch) -> Iterator[Resource]:
    """Yield the units after the first that are about as busy as it on the slower side."""
    chosen, *others = resources
    least = max(LONGER, _AS_BUSY * chosen.level_of(slower))
    yield from (resource for resource in others if resource.level_of(slower) >= least)


def find_rival(pairs: Sequence[Told], log_ratio: float, *, single: bool) -> Untold | None:
    """Return the causes that explain as much as the first one, if no counter decides.

    Parameters
    ----------
    pairs
        The launches of a layer that answer to each other, with their terms.
    log_ratio
        Of the layer.
    single
        Whether rows are single launches.
    """
    sign = math.copysign(1.0, log_ratio)
    if not pairs or log_ratio == 0:
        return None
    main = max(pairs, key=lambda pair: sign * sum(one.log_ratio for one in pair.contributions))
    first = max(main.contributions, key=lambda one: sign * one.log_ratio)
    share = first.log_ratio / log_ratio
    if share < MOST or first.term.kind not in _GUESSED:
        return None
    behind = may_be_behind(first.term, Pair(main.before, main.after, None, single))
    if behind is not None:
        return _unsettled((behind,), first.term, share, QUEUES)
    resources = candidate_resources(main.before, main.after, same_device=True)
    if resources and resources[0].lacking and first.term.kind is not Kind.STALL:
        return _work_alone(first.term, share, resources[0].lacking)
    slower = main.after if main.after.time_us > main.before.time_us else main.before
    if not resources or not resources[0].level_of(slower) < BUSY:
        return None
    rivals = dict.fromkeys(
        one.term
        for one in _first_terms(main, resources, slower, single)
        if one.term != first.term and one.term.kind in (Kind.WORK, Kind.MEMORY)
    )
    if not rivals:
        return None
    return _unsettled(tuple(rivals), first.term, share, WHY)


def _work_alone(first: Term, share: float, lacking: tuple[str, ...]) -> Untold:
    """Say that work of a unit that nobody knows to be busy may come along with other waits."""
    waits = (TERMS["stall_memory_dependency"],)
    sections = tuple(dict.fromkeys(sections_of(lacking)))
    return Untold(waits, first, lacking, sections, "default", share)


def _unsettled(causes: tuple[Term, ...], first: Term, share: float, why: str) -> Untold:
    sections = ("SourceCounters",)
    return Untold(causes, first, (), sections, "", share, why, Reason.READING, CHECK)


def _first_terms(
    pair: Told, resources: Sequence[Resource], slower: Launch, single: bool
) -> Iterator[Contribution]:
    """Yield what is first, and most of the pair's difference, counted in other units.

    The levels of global memory see the same accesses: they are no rivals of each other.
    """
    chosen = resources[0]
    step = math.log(pair.after.time_us / pair.before.time_us)
    for resource in comparably_busy(resources, slower):
        if resource.is_global == chosen.is_global:
            continue
        terms = count_in(resource, pair.before, pair.after, single=single)
        first = max(terms, key=lambda one: one.log_ratio / step)
        if first.log_ratio / step >= MOST:
            yield first
