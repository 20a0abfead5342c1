"""How global memory is asked for: requests, what each of them touches, and whose they are.

A memory's work is requests x sectors of a request. More requests are more bytes asked for,
narrower ones, or warps of which fewer lanes ask; more sectors a request are wider requests, or
lanes that are further apart. What was counted tells these apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.counters.traffic import SMALL, bytes_asked, operations

DIVERGENCE = "active_threads_per_warp"
UNPROFILED = "unprofiled_time"

_GLOBAL_REQUESTS = ("global_load_requests", "global_store_requests")
_BELOW_L1 = (
    ("l2_read_transactions", "l2_write_transactions"),
    ("dram_read_bytes", "dram_write_bytes"),
)
"""What is moved below L1, the nearest first: reports differ in what they count."""
_SECTOR = 32  # bytes
_CLEARLY = math.log(1.2)
"""Fewer additional requests are no cause of their own."""

_AS_MUCH = 0.9
"""Operations grew as much as loads from this part of their growth (in logarithms) on."""

_DENSE = 0.25
"""Of a sector's bytes: where more than two words are asked for, lanes share sectors."""

_EFFICIENCIES = {
    "uncoalesced_loads": "gld_efficiency",
    "uncoalesced_copies": "ldgsts_efficiency",
    "uncoalesced_stores": "gst_efficiency",
}

_WAITS_FOR_REQUESTS = ("stall_memory_dependency", "stall_memory_throttle")
_COSTS_OF_REQUESTS = (
    *_WAITS_FOR_REQUESTS,
    UNPROFILED,  # with the profiler's cold caches, wide and narrow accesses wait alike
    "instructions",
    "integer_arithmetic",
)
"""Terms that requests for fewer bytes raise."""


def net_requests_of_sectors(decomposition: Decomposition, pair: Pair) -> None:
    """Judge what is moved in all before how it is asked for.

    A quarter of the requests with four times the sectors each move as much: neither is a cause.
    """
    product = None if pair.resource is None else pair.resource.product
    if product is None or product.parts.id not in decomposition:
        return
    requests, parts = product.requests.id, product.parts.id
    ours, theirs = decomposition.log_ratio(requests), decomposition.log_ratio(parts)
    if ours * theirs < 0:
        decomposition.move(math.copysign(min(abs(ours), abs(theirs)), ours), requests, parts)


def name_divergent_requests(decomposition: Decomposition, pair: Pair) -> None:
    """Name requests that grew because fewer lanes of a warp ask at once.

    The threads of a diverged warp ask one path after another: half the lanes, twice the requests.
    """
    resource = pair.resource
    product = None if resource is None else resource.product
    if resource is None or product is None or not resource.is_global:
        return
    before, after = pair.levels("warp_execution_efficiency")
    if product.requests.id not in decomposition or not (before > 0 and after > 0):
        return
    more, fewer = decomposition.log_ratio(product.requests.id), math.log(before / after)
    if more * fewer > 0 and abs(fewer) >= _CLEARLY:
        part = math.copysign(min(abs(more), abs(fewer)), more)
        decomposition.name(DIVERGENCE, before, after, part, of=product.requests.id)


def name_wider_requests(decomposition: Decomposition, pair: Pair) -> None:
    """Leave to the work of a memory what requests move more because they ask for more.

    Of doubles a request touches twice the sectors of floats, and no lane is further from the next.
    Lanes that are scattered touch a sector each, however wide they are: more sectors are then more
    lanes that go apart.
    """
    resource = pair.resource
    product = None if resource is None else resource.product
    if resource is None or product is None or not resource.is_global:
        return
    if product.parts.id not in decomposition:
        return
    value = decomposition.log_ratio(product.parts.id)
    asked = [bytes_asked(launch) / launch.total(product.request_counters) for launch in pair.both]
    if not all(size > 0 for size in asked):
        return
    wider = math.log(asked[1] / asked[0])
    moved = [_SECTOR * launch.total(product.part_counters) for launch in pair.both]
    slower = 1 if value > 0 else 0
    if bytes_asked(pair.both[slower]) < _DENSE * moved[slower]:
        return
    if wider * value > 0 and abs(wider) >= _CLEARLY:
        part = math.copysign(min(abs(wider), abs(value)), value)
        amounts = [resource.amount(launch) for launch in pair.both]
        decomposition.name(resource.work, amounts[0], amounts[1], part, of=product.parts.id)


def name_uncoalesced_access(decomposition: Decomposition, pair: Pair) -> None:
    """Name the part of a memory's work that nobody asked for, where sectors were not counted.

    The same bytes asked for, at half the efficiency, are twice the sectors.
    """
    resource = pair.resource
    if resource is None or not resource.is_global or resource.work.id not in decomposition:
        return
    if not any(math.isnan(launch.total(_GLOBAL_REQUESTS)) for launch in pair.both):
        return
    work = decomposition.log_ratio(resource.work.id)
    levels = {term: pair.levels(metric) for term, metric in _EFFICIENCIES.items()}
    more = {
        term: math.log(before / after)
        for term, (before, after) in levels.items()
        if before > 0 and after > 0 and math.log(before / after) * work > 0
    }
    whole = sum(more.values())
    share = min(1.0, work / whole) if whole else 0.0
    for term, value in more.items():
        decomposition.name(term, *levels[term], share * value, of=resource.work.id)


def name_narrower_requests(decomposition: Decomposition, pair: Pair) -> None:
    """Name requests that grew where as many bytes are asked for: each asks for fewer.

    Scattered or strided, they move as many sectors each as wider ones.
    """
    term = "global_requests"
    if term not in decomposition:
        return
    asked = [bytes_asked(launch) for launch in pair.both]
    requests = [launch.total(_GLOBAL_REQUESTS) for launch in pair.both]
    if not all(value > 0 for value in (*asked, *requests)):
        return
    more, value = math.log(requests[1] / requests[0]), decomposition.log_ratio(term)
    if abs(math.log(asked[1] / asked[0])) >= _CLEARLY or abs(more) < _CLEARLY or more * value <= 0:
        return
    sizes = [whole / count for whole, count in zip(asked, requests, strict=True)]
    part = math.copysign(min(abs(value), abs(more)), value)
    decomposition.name("narrow_access", sizes[0], sizes[1], part, of=term)


def name_redundant_traffic(decomposition: Decomposition, pair: Pair) -> None:
    """Name loads that grew alone: as many sectors each, for as many stores as before.

    Where issuing is the limit and the arithmetic grew as much, nothing is loaded for nothing.
    """
    requests, parts = "global_requests", "sectors_per_request"
    if requests not in decomposition:
        return
    more = decomposition.log_ratio(requests)
    loads, stores = pair.levels("global_load_requests"), pair.levels("global_store_requests")
    if not all(value > 0 for value in (*loads, *stores)):
        return
    limit = SMALL * abs(more)
    if abs(math.log(stores[1] / stores[0])) > limit or more == 0:
        return
    if pair.resource is not None and pair.resource.issued and _worked_as_much(pair):
        return
    if parts not in decomposition or abs(decomposition.log_ratio(parts)) <= limit:
        ratios = [load / store for load, store in zip(loads, stores, strict=True)]
        decomposition.name("redundant_traffic", ratios[0], ratios[1], more, of=requests)


def _worked_as_much(pair: Pair) -> bool:
    """Return whether operations grew as much as loads."""
    loads = pair.levels("global_load_requests")
    worked = [operations(launch) for launch in pair.both]
    more = math.log(loads[1] / loads[0])
    return more != 0 < min(worked) and math.log(worked[1] / worked[0]) / more >= _AS_MUCH


def name_narrow_access(decomposition: Decomposition, pair: Pair) -> None:
    """Name requests that grew where as many sectors are moved: each moves fewer bytes.

    They cost queues, latency and instructions, so their part is taken out of those.
    """
    requests = [launch.total(_GLOBAL_REQUESTS) for launch in pair.both]
    sectors = [launch.total(("gld_transactions", "gst_transactions")) for launch in pair.both]
    if not all(value > 0 for value in (*requests, *sectors)):
        return
    more = math.log(requests[1] / requests[0])
    if abs(more) >= _CLEARLY and abs(math.log(sectors[1] / sectors[0])) <= SMALL * abs(more):
        sizes = [_SECTOR * part / whole for part, whole in zip(sectors, requests, strict=True)]
        decomposition.take_from(_COSTS_OF_REQUESTS, "narrow_access", sizes, more)
    else:
        _name_narrower_of_same_bytes(decomposition, pair, requests)


def _name_narrower_of_same_bytes(
    decomposition: Decomposition, pair: Pair, requests: Sequence[float]
) -> None:
    """Name requests that grew where lanes ask for as many bytes, and as many are moved below L1.

    As many warps have so much less under way while they wait, however well L1 serves them.
    """
    asked = [bytes_asked(launch) for launch in pair.both]
    moved = ([launch.total(names) for launch in pair.both] for names in _BELOW_L1)
    below = next((amounts for amounts in moved if min(amounts) > 0), [math.nan] * 2)
    if not all(value > 0 for value in (*asked, *below)):
        return
    more = math.log(requests[1] / requests[0])
    same = [abs(math.log(after / before)) <= SMALL * abs(more) for before, after in (asked, below)]
    if abs(more) >= _CLEARLY and all(same):
        sizes = [whole / count for whole, count in zip(asked, requests, strict=True)]
        decomposition.take_from(_WAITS_FOR_REQUESTS, "narrow_access", sizes, more)
