"""One launch alone: the tree asked against the same launch without its losses.

`advise` has no other side. What a launch could do without is known of some of its quantities: lanes
that work, sectors that were asked for, rounds of shared memory without conflicts, a machine that is
full. The same launch with these at their best, in which no unit is busy and no warp waits, stands
in the place of the faster side. So one engine answers for one side and for two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from perfml.explain.launches import Launch
from perfml.explain.limits.traffic import bytes_asked
from perfml.explain.tree.engine import Decomposed, decompose_pair
from perfml.metrics import load_catalogue

_FASTER = math.exp(-1)
"""The ideal launch takes so much of the time; only parts of the difference are read."""

_BEST = {
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 1.0,
    "gld_efficiency": 1.0,
    "gst_efficiency": 1.0,
    "ldgsts_efficiency": 1.0,
    "shared_efficiency": 1.0,
    "warp_execution_efficiency": 1.0,
    "sm_efficiency": 1.0,
}
"""Quantities whose best value is known of any launch."""

_NONE = (
    "local_load_transactions",
    "local_store_transactions",
    "local_load_requests",
    "local_store_requests",
    "shared_atomic_transactions",
)
"""What a launch can do without."""

_SECTOR = 32.0
_LEAST = 1e-6
"""Of the time, that a unit of the ideal launch is busy: the logarithm needs a little."""


def ideal_of(launch: Launch) -> Launch:
    """Return a launch without its losses: what stands in the place of a faster side."""
    catalogue = load_catalogue()
    counters: dict[str, float] = {}
    for name, value in launch.counters.items():
        busy = name in catalogue and catalogue[name].kind in ("level", "stall")
        counters[name] = _LEAST * value if busy else value
        if name.startswith("stall_"):
            counters[name] = _LEAST * value
    counters |= {name: best for name, best in _BEST.items() if name in counters}
    counters |= {name: 0.0 for name in _NONE if name in counters}
    counters |= _without_losses(launch)
    waves = launch["waves_per_sm"]
    if waves > 0:
        counters["waves_per_sm"] = float(math.ceil(waves))
    if launch["sm_active_cycles_mean"] > 0:
        counters["sm_active_cycles_max"] = launch["sm_active_cycles_mean"]
    counters.pop("ncu_time_us", None)
    return replace(launch, time_us=_FASTER * launch.time_us, counters=counters)


def _without_losses(launch: Launch) -> Mapping[str, float]:
    """Return amounts as the work needs them: bytes asked for, rounds without conflicts, full warps."""
    found = {}
    for kind in ("gld", "gst"):
        needed = launch[f"{kind}_transactions"] * launch[f"{kind}_efficiency"]
        if needed >= 0:
            found[f"{kind}_transactions"] = needed
    if launch["shared_load_transactions"] > 0:
        found["shared_load_transactions"] = min(
            launch["shared_load_transactions"], launch["inst_executed_shared_loads"]
        )
    lanes = launch["warp_execution_efficiency"]
    if lanes > 0:
        found["inst_executed"] = launch["inst_executed"] * lanes
    return {name: value for name, value in found.items() if not math.isnan(value)}


def causes_of_one(launch: Launch) -> Decomposed:
    """Return what holds the time of a launch, of which nothing faster is known."""
    return decompose_pair(ideal_of(replace_profiled(launch)), replace_profiled(launch), single=True)


def replace_profiled(launch: Launch) -> Launch:
    """Return a launch whose time is the one that its counters are of."""
    counters = {name: value for name, value in launch.counters.items() if name != "ncu_time_us"}
    return replace(launch, time_us=launch.duration_us, counters=counters)
