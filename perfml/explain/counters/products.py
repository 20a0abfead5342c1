"""A memory's work as a product: which of its factors is a cause, and when the work in all is.

Work is requests x sectors of one x what a sector costs there. What a unit's work costs less takes
back from it, a memory that limits neither side cannot have cost more than it was busy or waited
for, and where no factor is what grew, the work is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfml.explain.counters.factors import Decomposition, Pair, cost_term
from perfml.explain.counters.requests import UNPROFILED
from perfml.explain.counters.resources import BUSY, Resource
from perfml.explain.counters.traffic import SMALL, load_latency

MOST = 0.5
"""A factor of less than this part of the growth is not most of it."""

_FACTORS = 3
"""Of a memory's work: requests, sectors of one, and what a sector costs."""


def net_work(decomposition: Decomposition, pair: Pair) -> None:
    """Take back from a unit's work what its cost takes back, and no more than all of it.

    A unit that was idle on the faster side did not limit it: its work may be a hundred times as
    much, and made nothing slower until the unit was full.
    """
    source = cost_term(decomposition)
    names = [name for name in _work_terms(pair) if name in decomposition]
    work = sum(decomposition.log_ratio(name) for name in names)
    cost = decomposition.log_ratio(source)
    if work * cost >= 0:
        return
    net = min(abs(work), abs(cost))
    if UNPROFILED in decomposition and decomposition.log_ratio(UNPROFILED) * work > 0:
        # the work explains first what the profiler, with its cold caches, hid of the difference
        hidden = min(net, abs(decomposition.log_ratio(UNPROFILED)))
        decomposition.move(math.copysign(hidden, work), UNPROFILED, source)
        net -= hidden
    net /= abs(work)
    for name in names:
        decomposition.move(net * decomposition.log_ratio(name), name, source)


def limit_memory_to_what_it_costs(decomposition: Decomposition, pair: Pair) -> None:
    """Take out of where sectors come from what a memory that limits neither side cannot have cost.

    That is the time for which it is busy longer, the longer wait of a load, or that of stores at
    the end of their warps, whichever is most: what is written back, say, costs nobody a wait, but
    for stores that the memory does not take as fast as they come (in random order each of them is
    a sector that is read, filled in and written alone).
    """
    resource = pair.resource
    cost = None if resource is None or resource.product is None else resource.product.cost
    if resource is None or cost is None or cost.id not in decomposition or not resource.is_global:
        return
    busy, times = pair.levels(resource.level), [launch.duration_us for launch in pair.both]
    value, step = decomposition.log_ratio(cost.id), math.log(times[1] / times[0])
    if not max(busy) < BUSY or value * step <= 0:
        return
    longer = (busy[1] * times[1] - busy[0] * times[0]) / (times[1] - times[0])
    waiting = [load_latency(launch) for launch in pair.both]
    later = math.log(waiting[1] / waiting[0]) / step if min(waiting) > 0 else math.inf
    drained = [launch["stall_drain"] * launch.duration_us for launch in pair.both]
    stores = (drained[1] - drained[0]) / (times[1] - times[0])
    room = abs(step) * max(longer, later, 0.0 if math.isnan(stores) else stores)
    if abs(value) > room:
        excess = value - math.copysign(room, value)
        decomposition.move(excess, cost.id, cost_term(decomposition))


def name_the_whole_of_a_product(decomposition: Decomposition, pair: Pair) -> None:
    """Name the work of a memory where no factor of it is what grew.

    Streams that one side reads in addition are more requests, and what they bring is used once: a
    sector of the mean costs more. All factors grow then, and none of them is most of it. And where
    more requests are mostly served above a memory that is the limit, what this one moves for all
    of them is what it takes. That is more bytes, and nothing about how they are asked for.
    """
    resource = pair.resource
    if resource is None or resource.product is None or not resource.is_global:
        return
    names = [name for name in _work_terms(pair)[1:] if name in decomposition]
    whole = sum(decomposition.log_ratio(name) for name in names)
    shares = {name: decomposition.log_ratio(name) / whole for name in names} if whole else {}
    mixed = len(shares) == _FACTORS and all(0 < share < MOST for share in shares.values())
    if mixed or _served_above(pair, resource, shares):
        before, after = (resource.amount(launch) for launch in pair.both)
        for name in names:
            decomposition.name(resource.work, before, after, decomposition.log_ratio(name), of=name)


def _served_above(pair: Pair, resource: Resource, shares: Mapping[str, float]) -> bool:
    """Return whether requests grew, and what each costs a memory that limits a side fell."""
    product = resource.product
    assert product is not None
    requests, parts = product.requests.id, product.parts.id
    cost = "" if product.cost is None else product.cost.id
    limits = max(resource.level_of(launch) for launch in pair.both) >= BUSY
    asked = shares.get(requests, 0.0) > 1 and abs(shares.get(parts, 0.0)) <= SMALL
    return limits and asked and shares.get(cost, 0.0) < -SMALL


def _work_terms(pair: Pair) -> tuple[str, ...]:
    """Return the terms of a pair's work: of its product, or the one."""
    resource = pair.resource
    if resource is None:
        return ()
    product = resource.product
    parts = () if product is None else (product.requests, product.parts, product.cost)
    return (resource.work.id, *(part.id for part in parts if part is not None))
