"""Kernels that their caller did not write: what they did is compared, not how they are built.

Who calls a library or PyTorch chooses what is computed, and the library chooses kernels for it. How
many registers another kernel needs, or what its warps wait for, are properties of another program.
How many instructions it executes for the call, and how many bytes it moves, say what the call costs
more: an unfused call writes what the fused one keeps, and a kernel for any alignment takes more
instructions than one for rows of 16 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from perfml.explain.confidence import MOST
from perfml.explain.launches import Launch, adds_up
from perfml.explain.remedies import Person, person_of
from perfml.explain.tree.causes import TERMS, Contribution, Kind
from perfml.explain.tree.thresholds import SMALL, START_US

_LARGEST = 65_535
"""Blocks that a grid has at most along its second and third dimension (CUDA C++ Programming Guide,
"Technical specifications per compute capability"): a larger batch takes several launches."""

_ARITHMETIC = re.compile(
    r"gemm|gemv|nvjet|cutlass|conv(?!ert)|fprop|dgrad|wgrad|winograd|mma|attention|flash|fmha|sdpa|trsm|trmm|syrk|"
    # what cuDNN compiles at run time for convolutions, products and attention
    r"cudnn_generated",
    re.IGNORECASE,
)
_AROUND = re.compile("nchwToNhwc|nhwcToNchw|splitKreduce|precompute_indices")

_OF_PROGRAMS = (Kind.OCCUPANCY, Kind.STALL, Kind.RESIDUAL)
"""Kinds of terms that say how a kernel is built and runs."""


_ASKED = ("global_requests", "narrow_access", "redundant_traffic", "sectors_per_request")
_COSTS = ("l2_sectors_per_l1_sector", "dram_bytes_per_sector")
"""What the work of a memory is a product of: what was asked for in L1, and what that costs."""

_WORKS = {
    "dram_bytes": (("dram_read_bytes", "dram_write_bytes"), "dram_utilization"),
    "instructions": (("inst_executed",), "issue_slot_utilization"),
}
"""What a run of launches did, by term: the counters that add up to it, the level of its unit."""


_MIX = ("integer_arithmetic", "integer_division", "lsu_pipe_time")
"""Kinds of instructions that say how a kernel finds its operands and shares them."""


def of_others(*launches: Launch) -> bool:
    """Return whether all of some kernels are a library's or PyTorch's."""
    return all(one.kernel and person_of(one.kernel) is not Person.AUTHOR for one in launches)


def of_library(launch: Launch) -> bool:
    """Return whether a kernel is a library's (cuBLAS, cuDNN, flash attention), not PyTorch's."""
    return person_of(launch.kernel) is Person.LIBRARY


def does_arithmetic(kernel: str) -> bool:
    """Return whether a kernel's name says that it does a layer's arithmetic."""
    # What is added around it (layouts turned, parts added up, types converted) is not called so.
    return _ARITHMETIC.search(kernel) is not None and not _AROUND.search(kernel)


def is_product(kernel: str) -> bool:
    """Return whether a kernel is a library's product: of matrices, a convolution, attention.

    Examples
    --------
    >>> is_product("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT")
    True
    >>> is_product("void cudnn::engines_precompiled::nchwToNhwcKernel<float>()")
    False
    >>> is_product("void elemWiseRNNcell<float, (cudnnRNNMode_t)2>()")
    False
    """
    return person_of(kernel) is Person.LIBRARY and does_arithmetic(kernel)


def judge_by_work(
    contributions: Sequence[Contribution], before: Sequence[Launch], after: Sequence[Launch]
) -> tuple[Contribution, ...]:
    """Return the terms of two unlike kernels; what others built them like goes to what they did.

    `before` and `after` are the runs of launches that stand in each other's place. The sum stays;
    where neither instructions nor bytes grew enough, nothing changes.
    """
    step = math.log(sum(one.time_us for one in after) / sum(one.time_us for one in before))
    sign = math.copysign(1.0, step)
    contributions = _counted_in_all(_netted(contributions, sign), sign)
    slow = after if step > 0 else before
    grown = []
    for name, (counters, unit) in _WORKS.items():
        levels = [sum(one.total(counters) for one in side) for side in (before, after)]
        if min(levels) > 0 and sign * math.log(levels[1] / levels[0]) >= MOST * abs(step) > 0:
            grown.append((_level(slow, unit), name, levels))
    if not grown:
        return tuple(contributions)
    _, name, levels = max(grown, key=lambda each: each[0])
    term = TERMS[name]
    own = sum(one.log_ratio for one in contributions if one.term == term)
    room = max(0.0, sign * (math.log(levels[1] / levels[0]) - own))
    taken = [
        one for one in contributions if one.term.kind in _OF_PROGRAMS and sign * one.log_ratio > 0
    ]
    whole = sum(abs(one.log_ratio) for one in taken)
    share = min(1.0, room / whole) if whole > 0 else 0.0
    if share == 0:
        return tuple(contributions)
    others = [
        replace(one, log_ratio=(1 - share) * one.log_ratio) if one in taken else one
        for one in contributions
        if one.term != term
    ]
    named = Contribution(term, levels[0], levels[1], own + sign * share * whole)
    return (named, *others)


def _counted_in_all(contributions: Sequence[Contribution], sign: float) -> tuple[Contribution, ...]:
    """Return terms; the mix of additional instructions goes to these: how a kernel is built."""
    # Addresses and exchanges between lanes grow along where another program executes a hundred
    # times as many instructions of every kind, and are no cause that its caller could remove.
    whole = next((one for one in contributions if one.term.id == "instructions"), None)
    if whole is None or not sign * whole.log_ratio > 0:
        return tuple(contributions)
    mix = [one for one in contributions if one.term.id in _MIX and sign * one.log_ratio > 0]
    more = whole.log_ratio + sum(one.log_ratio for one in mix)
    others = (one for one in contributions if one is not whole and one not in mix)
    return (whole.with_part(more), *others)


def _netted(contributions: Sequence[Contribution], sign: float) -> tuple[Contribution, ...]:
    """Return terms; dearer sectors are a cause only as far as fewer of them do not make up for it.

    Unlike kernels share the same bytes out differently: half the sectors, each from DRAM.
    """
    asked = sum(one.log_ratio for one in contributions if one.term.id in _ASKED)
    dearer = sum(one.log_ratio for one in contributions if one.term.id in _COSTS)
    if not (sign * asked < 0 < sign * dearer):
        return tuple(contributions)
    net = min(abs(asked), abs(dearer))
    left = {**dict.fromkeys(_ASKED, 1 - net / abs(asked))}
    left |= dict.fromkeys(_COSTS, 1 - net / abs(dearer))
    return tuple(
        replace(one, log_ratio=left.get(one.term.id, 1.0) * one.log_ratio) for one in contributions
    )


def _level(launches: Sequence[Launch], name: str) -> float:
    """Return how busy a unit is over some launches."""
    known = [one for one in launches if one[name] >= 0]
    whole = sum(one.time_us for one in known)
    return sum(one.time_us * one[name] for one in known) / whole if whole > 0 else 0.0


def as_calls(launches: Sequence[Launch]) -> list[Launch]:
    """Return launches, with those of one call joined: a grid's limit cut it, nobody's loop."""
    found: list[list[Launch]] = []
    for one in launches:
        if found and found[-1][-1].kernel == one.kernel and is_full(found[-1][-1].grid):
            found[-1].append(one)
        else:
            found.append([one])
    return [_joined(parts) for parts in found]


def as_passes(launches: Sequence[Launch], others: Sequence[Launch]) -> list[Launch]:
    """Return launches, with passes joined in whose place the other side has one launch of another.

    Long launches are what they compute, not how many they are: where a start takes less of each
    than a difference that says nothing, the number of launches can be no cause of the time.
    """
    one_kernel = len({one.kernel for one in launches}) == 1 == len(others)
    long = all(math.expm1(SMALL) * one.time_us > START_US for one in launches)
    return [_joined(launches)] if one_kernel and long else list(launches)


def is_full(grid: str) -> bool:
    """Return whether a grid is as large as it can be, so that one call takes several launches."""
    size = [int(each) for each in re.findall(r"\d+", grid)]
    return len(size) == 3 and max(size[1:]) == _LARGEST


def _joined(launches: Sequence[Launch]) -> Launch:
    """Return some launches as one: counts add up, levels are means over the time."""
    if len(launches) == 1:
        return launches[0]
    times = [one.time_us for one in launches]
    counters = {}
    for name in launches[0].counters:
        values = [one[name] for one in launches]
        counters[name] = sum(values)
        if not adds_up(name) and name != "waves_per_sm":
            parts = (us * value for us, value in zip(times, values, strict=True))
            counters[name] = sum(parts) / sum(times)
    return replace(launches[0], time_us=sum(times), counters=counters)
