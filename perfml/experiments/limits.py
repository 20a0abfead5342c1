"""Which limit a launch stands at, by how its time answers to less of each resource.

The shares of a launch's time add up to 1:

- ``launch``: what an empty kernel takes in the same batch.
- ``multiprocessor``: the elasticity for multiprocessors, less the part that fewer resident warps
  make longer. Units of the multiprocessor (pipes, issue, shared memory, L1) do work in proportion.
- ``warps``: the elasticity for resident warps: latency that more warps would hide.
- ``dram``: the elasticity for DRAM bandwidth, as long as it is no more than 1.
- ``memory_latency``: where traffic costs more than the bandwidth that it takes, the launch waits
  for single answers of memory, which queue behind the traffic.
- ``fixed``: the rest. More multiprocessors, warps or bandwidth do not shorten it: a chain of
  dependent instructions, one slice of L2 (atomics on few addresses), blocks on few multiprocessors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfml.experiments.responses import Responses

LIMITS = {
    "launch": "launch overhead",
    "multiprocessor": "units of the multiprocessor",
    "warps": "latency that more resident warps would hide",
    "dram": "DRAM bandwidth",
    "memory_latency": "latency of memory",
    "fixed": "work that no further multiprocessor shortens",
}
"""Id of a limit to its words."""
QUEUES = 1.5
"""From this elasticity for DRAM on the traffic costs more than bandwidth.

Planted kernels on an H100 with DRAM at 85 % and more: 0.8 to 1.4; kernels that walk through memory:
1.6 to 9 (``studies/experiments``).
"""
DECIDES = 0.5
"""A limit is named that makes at least half of the time; else the launch stands at several."""


@dataclass(frozen=True)
class Breakdown:
    """What a launch's time consists of.

    Attributes
    ----------
    shares
        Id of a limit to its share of the time; they add up to 1.
    limit
        The id that makes `DECIDES` of the time or more; None where none does.
    """

    shares: dict[str, float]
    limit: str | None

    @property
    def largest(self) -> str:
        """The id with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    def sentence(self) -> str:
        """Say where the launch stands, in words."""
        name = self.largest
        share = f"{100 * self.shares[name]:.0f} %"
        if self.limit is None:
            return f"Several limits; the largest is {LIMITS[name]} with {share} of the time."
        return f"Limited by {LIMITS[name]}: {share} of the time."


def breakdown(responses: Responses) -> Breakdown:
    """Divide a launch's time among limits.

    Parameters
    ----------
    responses
        Of one launch. Where a condition did not apply (one block a multiprocessor has no fewer
        warps), its resource has no share.
    """
    launch = _within(responses.empty_us / responses.time_us)
    left = 1 - launch
    multiprocessors = _within(responses.elasticity("sm_half")) * left
    warps = min(_within(responses.elasticity("warps_half")) * left, multiprocessors)
    outside = left - multiprocessors
    traffic = responses.elasticity("dram_traffic")
    bandwidth = latency = 0.0
    if traffic >= QUEUES:
        latency = outside
    else:
        bandwidth = min(_within(traffic) * left, outside)
    shares = {
        "launch": launch,
        "multiprocessor": multiprocessors - warps,
        "warps": warps,
        "dram": bandwidth,
        "memory_latency": latency,
        "fixed": outside - bandwidth - latency,
    }
    largest = max(shares, key=lambda name: shares[name])
    return Breakdown(shares, largest if shares[largest] >= DECIDES else None)


def _within(value: float) -> float:
    return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)
