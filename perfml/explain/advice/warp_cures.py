"""What fixes of too few warps and of unequal or too few blocks take away, and what they leave."""

from __future__ import annotations

from perfml.explain.advice.cure import Cure
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.launches import known
from perfml.explain.limits.state import wave_fill

_SPLIT = "how far the grid can be split"
_REACHED = 0.85
"""Of the resident warps that a multiprocessor has room for, what launches of four waves or more
have in the mean, since a block that ends is replaced with a delay (median of the medians of ten
recorded sets; quartiles 0.83 and 0.96)."""


def more_resident(state: SlowLaunch) -> Cure:
    """Registers or shared memory that leave room for few warps."""
    left = min(1.0, state.launch["achieved_occupancy"] / _REACHED)
    return Cure(1.0, left, unknown="how few registers and how little shared memory a thread needs")


def of_theoretical(state: SlowLaunch) -> Cure:
    """Fewer warps than there is room for, since blocks are unequal."""
    launch = state.launch
    waves = known(launch["waves_per_sm"], 1.0)
    # below one wave no more warps than the grid's are ever resident
    fits = launch["theoretical_occupancy"] * min(1.0, waves) * _REACHED
    reached = launch["achieved_occupancy"]
    left = reached / fits if fits > reached else 1.0
    return Cure(1.0, left, spreads=True, unknown="" if waves >= 1 else _SPLIT)


def larger_blocks(state: SlowLaunch) -> Cure:
    """Blocks so small that their number, or launching them, is the limit."""
    return Cure(1.0, min(1.0, state.launch["achieved_occupancy"] / _REACHED))


def even_multiprocessors(state: SlowLaunch) -> Cure:
    """Multiprocessors that end early."""
    even = state.ratio(("sm_active_cycles_mean",), ("sm_active_cycles_max",))
    return Cure(1.0, even, spreads=True)


def full_waves(state: SlowLaunch) -> Cure:
    """A last wave that is not full, or a grid that is less than one."""
    waves = state.launch["waves_per_sm"]
    # a grid below one wave can be split as far as its work can be
    return Cure(1.0, wave_fill(waves), spreads=True, unknown="" if waves >= 1 else _SPLIT)
