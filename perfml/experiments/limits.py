"""Which limit a launch stands at, by how its time answers to less of each resource.

The shares of a launch's time add up to 1:

- ``launch``: what an empty kernel takes in the same batch. The others divide what is left.
- ``multiprocessor``: the elasticity for multiprocessors (the lesser of those for three quarters and
  for half of them), less the part that fewer resident warps make longer. Units of the
  multiprocessor (pipes, issue, shared memory, L1) do work in proportion.
- ``warps``: the elasticity for resident warps: latency that more warps would hide.

What more multiprocessors do not shorten lies outside them, and is divided by what traffic from
other multiprocessors does to it:

- ``memory_latency``: all of it, where traffic on DRAM costs more than the bandwidth that it takes
  (`QUEUES`), or is felt while half of the multiprocessors do not suffice either (`SATURATED`): the
  launch waits for single answers of memory, which queue behind the traffic.
- ``dram``: the least of the elasticities for traffic on DRAM, on L2 and on its atomic units. What
  DRAM limits passes L2, too, so it answers to all three.
- ``l2``: the rest, where atomics of others are felt (`FELT`): slices of L2, their atomic units.
- ``fixed``: the rest, where it is not: few blocks, or a chain of dependent instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfml.experiments.responses import Responses

LIMITS = {
    "launch": "launch overhead",
    "multiprocessor": "units of the multiprocessor",
    "warps": "latency that more resident warps would hide",
    "dram": "DRAM bandwidth",
    "memory_latency": "latency of memory",
    "l2": "slices of L2 or their atomic units",
    "fixed": "work that no further multiprocessor shortens",
}
"""Id of a limit to its words."""
QUEUES = 2.5
"""From this elasticity for traffic on DRAM on it costs more than the bandwidth that it takes."""
SATURATED = 0.15
"""To this elasticity for multiprocessors memory is busy enough without the other half of them."""
FELT = 0.12
"""From this elasticity for traffic on memory on it is felt.

`QUEUES`, `SATURATED` and `FELT` are fitted to planted kernels on an H100, and tried on families
that the fit has not seen (``studies/experiments``).
"""


DECIDES = 0.5
"""A limit is named that makes at least half of the time; else the launch stands at several."""


@dataclass(frozen=True)
class Breakdown:
    """What a launch's time consists of."""

    # id of a limit to its share of the time; they add up to 1. All but that of launch overhead are
    # NaN where a launch runs on all multiprocessors only.
    shares: dict[str, float]
    limit: str | None  # the id that makes `DECIDES` of the time or more; None where none does

    @property
    def largest(self) -> str:
        """The id with the largest known share."""
        return max(self.shares, key=lambda name: np.nan_to_num(self.shares[name]))

    def sentence(self) -> str:
        """Say where the launch stands, in words."""
        name = self.largest
        share = f"{100 * self.shares[name]:.0f} %"
        if math.isnan(self.shares["fixed"]):
            return "Not known: it could not be run on fewer multiprocessors."
        if self.limit is None:
            return f"Several limits; the largest is {LIMITS[name]} with {share} of the time."
        return f"Limited by {LIMITS[name]}: {share} of the time."


def breakdown(
    responses: Responses, queues: float = QUEUES, saturated: float = SATURATED, felt: float = FELT
) -> Breakdown:
    """Divide a launch's time among limits.

    Parameters
    ----------
    responses
        Of one launch. Where a condition did not apply (one block a multiprocessor has no fewer
        warps), its resource has no share.
    queues, saturated, felt
        Thresholds; a study fits them.
    """
    launch = _within(responses.launch_share)
    left = 1 - launch
    answer = responses.elasticity_beyond_launch
    # a grid that leaves some idle does not miss a quarter of them, and then half of them at once
    answers = [answer(name) for name in ("sm_most", "sm_half")]
    if launch < 1 and all(math.isnan(each) for each in answers):
        return Breakdown(dict.fromkeys(LIMITS, math.nan) | {"launch": launch}, None)
    multiprocessors = min((_within(each) for each in answers if not math.isnan(each)), default=0.0)
    multiprocessors *= left
    warps = min(_within(answer("warps_half")) * left, multiprocessors)
    outside = left - multiprocessors
    traffic = [answer(name) for name in ("dram_traffic", "l2_traffic", "atomic_traffic")]
    known = [each for each in traffic if not math.isnan(each)]
    feels = any(each >= felt for each in (traffic[0], traffic[-1]))
    unsaturated = answer("sm_half") >= saturated
    waits = feels and (traffic[0] >= queues or unsaturated)
    dram = 0.0 if waits or not feels else _within(min(known)) * outside
    rest = 0.0 if waits else outside - dram
    slices = feels and known[-1] >= felt
    shares = {
        "launch": launch,
        "multiprocessor": multiprocessors - warps,
        "warps": warps,
        "memory_latency": outside if waits else 0.0,
        "dram": dram,
        "l2": rest if slices else 0.0,
        "fixed": 0.0 if slices or waits else rest,
    }
    largest = max(shares, key=lambda name: shares[name])
    return Breakdown(shares, largest if shares[largest] >= DECIDES else None)


def _within(value: float) -> float:
    return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)
