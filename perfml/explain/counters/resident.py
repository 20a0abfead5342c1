"""How many warps are resident, and where: functions that move parts between terms.

- Below one wave, fewer blocks that fit fill more of it: neither is a cause.
- More resident warps cannot make a unit busier than always. Fewer of them explain no more than the
  unit's idle time leaves room for; of a unit that is busy on both sides, no more than its work
  takes longer.
- Warps that fit and are not there are those of blocks that ended, that wait to be launched, or of
  multiprocessors that have none left.
"""

from __future__ import annotations

import math

from perfml.explain.counters.factors import Decomposition, Pair, cost_term
from perfml.explain.counters.resources import BUSY
from perfml.explain.counters.traffic import blocks_a_cycle, launches_blocks, placed_blocks
from perfml.explain.launches import Launch

OCCUPANCY = ("theoretical_occupancy", "achieved_of_theoretical")
WAVES = "wave_quantization"

_LIMITS = ("registers", "shared_memory", "warps")
"""What else limits how many blocks are resident."""


def net_waves_of_occupancy(decomposition: Decomposition, pair: Pair) -> None:
    """Below one wave, take what the limit and the fill of a wave take back from each other.

    If fewer blocks fit, the same blocks fill more of a wave: as many warps are resident. Where they
    no longer fit into one, the blocks that the one wave was short of on each multiprocessor are
    none that fitting would have brought; multiprocessors that it left idle stay a cause.
    """
    limit = OCCUPANCY[0]
    if limit not in decomposition or WAVES not in decomposition:
        return
    short = [_short_of_blocks(launch) for launch in pair.both]
    ours, theirs = decomposition.log_ratio(limit), decomposition.log_ratio(WAVES)
    if min(short) == 0:
        theirs = short[1] - short[0]
    if max(short) > 0 and ours * theirs < 0:
        moved = min(abs(ours), abs(theirs))
        decomposition.move(math.copysign(moved, ours), limit, WAVES)
        if min(short) == 0:
            decomposition.raise_level(WAVES, math.exp(moved), baseline=short[0] > 0)


def _short_of_blocks(launch: Launch) -> float:
    """Return the logarithm by which multiprocessors with blocks have fewer than fit.

    0 from one wave on. Of 8.5 blocks a multiprocessor, the busiest has 9: only that many of the
    16 that fit are missing there, the other half block is idle multiprocessors.
    """
    waves, blocks = launch["waves_per_sm"], placed_blocks(launch)
    if not 0 < waves < 1:
        return 0.0
    most = blocks if math.isnan(blocks) else math.ceil(blocks)
    return -math.log(waves) if math.isnan(most) else math.log(blocks / waves / most)


def limit_occupancy_to_idle_time(decomposition: Decomposition, pair: Pair) -> None:
    """Take out of occupancy what the busy unit has no room for.

    Had the side with fewer warps as many as the other, its unit could have worked at most as much
    more as it was idle: a factor of one over its busy fraction.
    """
    if pair.resource is None:
        return
    terms = [term for term in OCCUPANCY if term in decomposition]
    whole = sum(decomposition.log_ratio(term) for term in terms)
    level = pair.resource.level_of(pair.after if whole > 0 else pair.before)
    if whole == 0 or not level > 0:
        return
    room = max(0.0, -math.log(level))
    towards = (whole > 0) == (pair.after.time_us > pair.before.time_us)
    if towards or min(pair.levels(pair.resource.level)) >= BUSY:
        room = min(room, _net_of_warps(decomposition, whole, tail=towards) * abs(whole))
    share = min(1.0, room / abs(whole))
    for term in terms:
        decomposition.move(
            (1 - share) * decomposition.log_ratio(term), term, cost_term(decomposition)
        )


def _net_of_warps(decomposition: Decomposition, whole: float, *, tail: bool) -> float:
    """Return how much of the occupancy's part is left where fewer warps take as much less each.

    They wait for one another then, so only the net is a cause. Those that a wave which is not full
    leaves out (`tail`) count as those that do not fit.
    """
    cost = decomposition.log_ratio(cost_term(decomposition))
    left_out = decomposition.log_ratio(WAVES) if tail and WAVES in decomposition else 0.0
    left_out = left_out if left_out * whole > 0 else 0.0
    net = min(1.0, max(0.0, 1.0 + cost / (whole + left_out)))
    if left_out != 0:
        decomposition.move((1 - net) * left_out, WAVES, cost_term(decomposition))
    return net


def name_block_slots(decomposition: Decomposition, pair: Pair) -> None:
    """Name the slots for blocks where they, and nothing else, limit the side with fewer warps."""
    limit = OCCUPANCY[0]
    if limit not in decomposition:
        return
    before, after = pair.levels(limit)
    fewer = pair.after if after < before else pair.before
    others = [fewer[f"resident_blocks_limit_{name}"] for name in _LIMITS]
    if fewer["resident_blocks_limit_slots"] <= min(others):
        decomposition.name("block_slots", before, after, decomposition.log_ratio(limit), of=limit)


def name_launches_of_blocks(decomposition: Decomposition, pair: Pair) -> None:
    """Name blocks so short and small that warps are missing because blocks are launched too slowly.

    However even their work is, a multiprocessor has as many as arrive while one works.
    """
    achieved = OCCUPANCY[1]
    if achieved not in decomposition:
        return
    value = decomposition.log_ratio(achieved)
    fewer, other = (pair.after, pair.before) if value > 0 else (pair.before, pair.after)
    if launches_blocks(fewer) and blocks_a_cycle(fewer) >= blocks_a_cycle(other):
        fits = pair.levels("theoretical_occupancy")
        decomposition.name("block_slots", *fits, value, of=achieved)


def name_imbalance(decomposition: Decomposition, pair: Pair) -> None:
    """Name blocks and multiprocessors that work longer than others.

    Where as many warps fit, in as many waves, fewer of them are resident because some blocks end
    before others. (Of different grids below one wave, one is too small for that.)
    """
    waves = pair.levels("waves_per_sm")
    if not all(level >= 1 for level in waves) and not (min(waves) > 0 and _alike(*waves)):
        return
    _name_imbalance_of_multiprocessors(decomposition, pair)
    achieved = OCCUPANCY[1]
    fits = pair.levels("theoretical_occupancy")
    if achieved in decomposition and _alike(*waves) and min(fits) > 0 and _alike(*fits):
        steps = [
            launch["achieved_occupancy"] / fit for launch, fit in zip(pair.both, fits, strict=True)
        ]
        value = decomposition.log_ratio(achieved)
        if (steps[0] - steps[1]) * value > 0:
            decomposition.name("block_imbalance", steps[0], steps[1], value, of=achieved)


def _name_imbalance_of_multiprocessors(decomposition: Decomposition, pair: Pair) -> None:
    most, mean = pair.levels("sm_active_cycles_max"), pair.levels("sm_active_cycles_mean")
    if not all(level > 0 for level in (*most, *mean)):
        return
    uneven = [highest / usual for highest, usual in zip(most, mean, strict=True)]
    # idle multiprocessors are in no rate of active ones: what they cost is always in the rest
    step, rest = math.log(uneven[1] / uneven[0]), decomposition.log_ratio(None)
    if WAVES in decomposition:
        # a last wave that is not full leaves multiprocessors idle, and that is said already
        tail = decomposition.log_ratio(WAVES)
        step = 0.0 if tail * step > 0 and abs(tail) > abs(step) else step - max(tail * step, 0.0)
    if step * rest > 0:
        value = math.copysign(min(abs(step), abs(rest)), step)
        decomposition.name("sm_imbalance", uneven[0], uneven[1], value)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= 0.05 * max(one, other)
