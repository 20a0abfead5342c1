"""What grew of what a launch asks global memory for: requests, their sectors, from where."""

from __future__ import annotations

import math

from perfml.explain.tree.limits import Limit
from perfml.explain.tree.pair import Pair
from perfml.explain.tree.parts import Parts, spread
from perfml.explain.tree.thresholds import GREW, NEGLIGIBLE

LOADS = "stall_memory_dependency"

_EFFICIENCIES = {
    "uncoalesced_loads": "gld_efficiency",
    "uncoalesced_copies": "ldgsts_efficiency",
    "uncoalesced_stores": "gst_efficiency",
}
"""What tells scattered accesses where their sectors were not counted."""


def access_factors(pair: Pair, limit: Limit | None) -> Parts:
    """Return the factors of what global memory has to do, as logarithms; some may be negative.

    Parameters
    ----------
    pair
        The launches.
    limit
        The unit of the memory; None for requests and their sectors alone.
    """
    if math.isnan(pair.slow["sectors_per_request"]) and math.isnan(
        pair.fast["sectors_per_request"]
    ):
        return {cause: -pair.grew(name) for cause, name in _EFFICIENCIES.items()}
    grown = pair.grew("requests")
    parts = of_requests(pair, grown) if grown > 0 else {"global_requests": grown}
    sectors = pair.grew("sectors_per_request")
    # doubles touch twice the sectors of floats, and no lane is further from the next
    wider = max(0.0, min(sectors, pair.grew("bytes_per_request")))
    if wider >= GREW:
        sectors -= wider
        if limit is not None:
            parts[limit.whole] = wider
    parts["sectors_per_request"] = sectors
    unseen = any(side["unseen_traffic"] > 0 for side in (pair.slow, pair.fast))
    if limit is not None and not unseen:
        # what passes L2 beside L1 (bulk copies, instructions) is in no ratio of their sectors
        for cause, name in limit.factors.items():
            if cause not in ("requests", "sectors_per_request"):
                parts[cause] = pair.grew(name)
    return parts


def of_requests(pair: Pair, grown: float) -> Parts:
    """Return what more requests are: of warps with fewer lanes, narrower ones, repeated loads.

    Parameters
    ----------
    pair
        The launches.
    grown
        The logarithm by which they are more; above 0.
    """
    parts: Parts = {}
    lost = max(0.0, min(grown, pair.grew("lost_lanes")))
    if lost >= GREW:
        parts["active_threads_per_warp"] = lost
        grown -= lost
    stores = pair.grew("global_store_requests")
    if -pair.grew("bytes_per_request") >= GREW and abs(pair.grew("bytes_asked")) < GREW:
        parts["narrow_access"] = grown
    elif pair.slow["global_store_requests"] > 0 and abs(stores) <= NEGLIGIBLE * grown:
        parts["redundant_traffic"] = grown
    else:
        parts["global_requests"] = grown
    return parts


def latency_of_memory(pair: Pair, longer: float, wait: str = LOADS) -> Parts:
    """Return what makes warps wait longer for global memory that no unit of it is full with.

    More requests, sectors that queue, data from further away; what these leave is that fewer
    loads are in flight.

    Parameters
    ----------
    pair
        The launches.
    longer
        The logarithm by which the wait is longer; infinite where the fast side has none.
    wait
        The stall: for loads, or for room in the queue of L1.
    """
    factors = access_factors(pair, None)
    farther = pair.grew("load_latency")
    if farther > 0:
        from_dram = pair.grew("dram_bytes_per_sector") >= GREW
        factors["dram_bytes_per_sector" if from_dram else "l2_sectors_per_l1_sector"] = farther
    up = {cause: value for cause, value in factors.items() if value >= GREW}
    whole = sum(up.values())
    share = min(1.0, whole / longer if 0 < longer < math.inf else whole)
    parts = spread(up, share)
    if share < 1:
        parts[wait] = 1 - share
    return parts
