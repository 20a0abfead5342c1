"""Warps that are missing and multiprocessors that are idle: what of the launch says why."""

from __future__ import annotations

import math

from perfml.explain.limits.state import LaunchState
from perfml.explain.limits.traffic import launches_blocks
from perfml.explain.tree.limits import load_limits
from perfml.explain.tree.pair import Pair
from perfml.explain.tree.parts import Parts, spread

_ALIKE = 0.05
"""Waves and limits that differ by less are the same."""

_SHAPE = ("waves_per_sm", "theoretical_occupancy")
_LIMITS = ("registers", "shared_memory", "warps")


def missing_warps(pair: Pair) -> Parts:
    """Return by what fewer warps are resident on the slow side: logarithms by cause.

    First those that do not fit, then those that a grid below one wave does not have, then those
    whose blocks ended before others. More warps can make no unit busier than it sustains, so all
    together are no more than what the busiest one is short of that.
    """
    fewer = -pair.grew("achieved_occupancy")
    if not fewer > 0:
        return {}
    fits = -pair.grew("theoretical_occupancy")
    # below one wave, as many blocks are there whether fewer of them fit or not
    grid = fits + (
        _short_of_blocks(pair.slow) - _short_of_blocks(pair.fast) if pair.single else 0.0
    )
    limited = max(0.0, min(grid, fewer))
    of_fit = max(0.0, min(fits, limited))
    parts: Parts = {}
    if of_fit > 0:
        parts["block_slots" if _slots_limit(pair.slow) else "theoretical_occupancy"] = of_fit
    if limited > of_fit:
        parts["wave_quantization"] = limited - of_fit
    if fewer > limited:
        cause = _ended_early(pair, fits)
        parts[cause] = parts.get(cause, 0.0) + fewer - limited
    room = -math.log(max(nearest_unit(pair.slow), 0.01))
    return spread(parts, min(sum(parts.values()), room))


def _short_of_blocks(state: LaunchState) -> float:
    """Return the logarithm by which a grid is smaller than one wave; 0 from one wave on."""
    waves = state["waves_per_sm"]
    return -math.log(waves) if 0 < waves < 1 else 0.0


def _slots_limit(state: LaunchState) -> bool:
    """Return whether places for blocks, and nothing else, limit how many warps are resident."""
    others = [state[f"resident_blocks_limit_{name}"] for name in _LIMITS]
    return state["resident_blocks_limit_slots"] <= min(others)


def _ended_early(pair: Pair, fits: float) -> str:
    """Return why warps that fit, and have a block, are not resident."""
    if launches_blocks(pair.slow.launch):
        return "block_slots"
    known = all(state[name] > 0 for state in (pair.slow, pair.fast) for name in _SHAPE)
    alike = known and abs(pair.grew("waves_per_sm")) < _ALIKE and abs(fits) < _ALIKE
    return "block_imbalance" if alike else "achieved_of_theoretical"


def nearest_unit(state: LaunchState) -> float:
    """Return how near to its ceiling the fullest unit of a launch stands; 1 at most."""
    units, _, _ = load_limits()
    levels = (state.value(unit.time) / unit.ceiling for unit in units if unit.id != "idle")
    return min(1.0, max((level for level in levels if level >= 0), default=0.0))


def idle_causes(pair: Pair) -> Parts:
    """Return why multiprocessors have no block: a last wave that is not full, uneven work."""
    tail = -pair.grew("wave_fill") if pair.single else 0.0
    parts = {"wave_quantization": tail, "sm_imbalance": pair.grew("imbalance") - max(tail, 0.0)}
    return spread(parts)
