"""What the tree knows of a chip: the one place to ask."""

from __future__ import annotations

import math

from perfml.chips import REFERENCE
from perfml.explain.launches import Launch


def resident_warps(launch: Launch) -> float:
    """Return how many warps a multiprocessor of a launch's device can hold.

    A launch that does not name its device is taken for one of the reference chip.
    """
    warps = launch.chip.warps
    return REFERENCE.warps if math.isnan(warps) else warps
