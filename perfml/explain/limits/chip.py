"""What the tree knows of a chip: the one place to ask, so that its source can be switched."""

from __future__ import annotations

from perfml.explain.launches import Launch
from perfml.explain.residency import resident_warps_of

_WARPS = 64.0
"""Of a multiprocessor of compute capability 6.0 to 9.0 and 10.0 but 7.5 (CUDA C++ Programming
Guide, "Technical Specifications per Compute Capability"), for a launch that does not name its."""


def resident_warps(launch: Launch) -> float:
    """Return how many warps a multiprocessor of a launch's device can hold."""
    return resident_warps_of(launch.capability) or _WARPS
