"""What counters say beyond the factors of a time: functions that move parts between terms.

- Where the work was counted in lanes, fewer active threads a warp cost as many more instructions.
  Where it was counted in warp instructions or in pipe time, the additional ones are no work.
- Warps spend their cycles waiting for known reasons. With the cost C of a unit of work (the rest's
  factor is the ratio of both sides' C) and the share s_r of a reason r, the part s_r C grows by its
  own amount; divided by the logarithmic mean of both C, these parts add up to the rest exactly.

Here to change: the formula of a new cause is a function here, in `REFINEMENTS`. It may name a term
out of another one (`Decomposition.name`), or move a part (`Decomposition.move`), so that the sum
stays what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfml.explain.counters.companions import (
    KINDS,
    give_addresses_to_accesses,
    give_conversions_to_division,
    give_conversions_to_doubles,
    give_multiplications_to_integers,
    give_the_mix_to_instructions,
    name_instructions,
)
from perfml.explain.counters.evidence import is_proven
from perfml.explain.counters.factors import ISSUE_RATE, Decomposition, Pair, cost_term
from perfml.explain.counters.precision import name_doubles
from perfml.explain.counters.products import (
    limit_memory_to_what_it_costs,
    name_the_whole_of_a_product,
    net_work,
)
from perfml.explain.counters.requests import (
    DIVERGENCE,
    name_divergent_requests,
    name_narrow_access,
    name_narrower_requests,
    name_redundant_traffic,
    name_uncoalesced_access,
    name_wider_requests,
    net_requests_of_sectors,
)
from perfml.explain.counters.resident import (
    limit_occupancy_to_idle_time,
    name_block_slots,
    name_imbalance,
    name_launches_of_blocks,
    net_waves_of_occupancy,
)
from perfml.explain.counters.resources import BUSY, MemoryLevel
from perfml.explain.counters.terms import TERMS, Kind
from perfml.explain.counters.traffic import (
    SMALL,
    global_traffic,
    mostly_unseen,
    operations,
    shared_traffic,
    waits,
)
from perfml.explain.counters.waiting import (
    name_waited_generic_loads,
    name_waited_loads,
    name_waited_shared,
)
from perfml.explain.launches import Launch

MOST = 0.5
"""A kind of instruction that is most of the additional ones is named for them."""

_CLEARLY = math.log(1.2)
"""Fewer additional requests are no cause of their own."""

_MATRICES = 0.01
"""Tensor pipe below which no matrices are multiplied: an instruction for halves passes it, too."""

_FEEDS_FP32 = ("instructions", "shared memory")
"""Units that operations in FP32 and their operands pass."""

_ONLY_WAIT = ("memory_fence", "stall_sleeping")
"""What warps wait for in instructions that do nothing else."""


_COSTS_OF_COPIES = (
    "stall_sync",
    DIVERGENCE,
    "instructions",
    "integer_arithmetic",
    "stall_exec_dependency",
    "stall_memory_dependency",
    "stall_branch_resolving",
    ISSUE_RATE,
)
"""Terms that bulk copies of fewer bytes raise."""


def log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers; it lies between them.

    Examples
    --------
    >>> round(log_mean(1.0, 2.0), 4)
    1.4427
    """
    step = math.log(a / b)
    return b if step == 0 else b * math.expm1(step) / step


def name_divergence(decomposition: Decomposition, pair: Pair) -> None:
    """Name the threads that a warp carries along without work."""
    before, after = pair.levels("warp_execution_efficiency")
    resource = pair.resource
    if resource is None or not (before > 0 and after > 0) or before == after:
        return
    if resource.counts_lanes:
        decomposition.name(DIVERGENCE, before, after, -math.log(after / before))
    elif resource.counts_warps and resource.work.id in decomposition:
        decomposition.name(
            DIVERGENCE, before, after, -math.log(after / before), of=resource.work.id
        )


def name_bank_conflicts(decomposition: Decomposition, pair: Pair) -> None:
    """Name conflicts that are not those of loads: of stores, whose rounds are not counted.

    The same bytes, at half the efficiency, take twice the rounds; those of loads are known.
    """
    resource = pair.resource
    if resource is None or resource.memory is not MemoryLevel.SHARED:
        return
    before, after = pair.levels("shared_efficiency")
    if not (before > 0 and after > 0 and is_proven(TERMS["bank_conflicts"], *pair.both)):
        return
    more = math.log(before / after)
    for source in ("shared_memory_busy_time", "shared_time_per_wavefront"):
        if source in decomposition and decomposition.log_ratio(source) * more > 0:
            if abs(more) >= _CLEARLY:
                value = decomposition.log_ratio(source)
                value = math.copysign(min(abs(value), abs(more)), value)
                decomposition.name("bank_conflicts", before, after, value, of=source)
            return


def split_work_by_kind(decomposition: Decomposition, pair: Pair) -> None:
    """Give a memory's work to the kinds of traffic that it consists of, by their counts."""
    resource = pair.resource
    if resource is None or resource.memory is None or resource.work.id not in decomposition:
        return
    traffic_of = global_traffic if resource.memory.is_global else shared_traffic
    before, after = (traffic_of(launch) for launch in pair.both)
    slower = max(pair.both, key=lambda launch: launch.duration_us)
    if resource.memory.is_global and mostly_unseen(slower):
        return  # few atomics among bulk copies are not whose traffic it is
    work = decomposition.log_ratio(resource.work.id)
    costs = [
        max(resource.amount(launch), 0.0) / total if (total := sum(traffic.values())) > 0 else 0.0
        for launch, traffic in zip(pair.both, (before, after), strict=True)
    ]
    growth = {kind: after[kind] * costs[1] - before[kind] * costs[0] for kind in before}
    same = sum(value for value in growth.values() if value * work > 0)
    for kind, value in growth.items():
        if kind in TERMS and value * work > 0 and value / same > SMALL:
            decomposition.name(
                kind, before[kind], after[kind], value / same * work, of=resource.work.id
            )


def name_stalls(decomposition: Decomposition, pair: Pair) -> None:
    """Split the cost of a unit of work by what warps wait for; a side's shares are at most 1."""
    source = cost_term(decomposition)
    cost = math.exp(decomposition.log_ratio(source))
    mean = log_mean(cost, 1.0)
    before, after = (waits(launch) for launch in pair.both)
    known = [name for name in before if name in after and max(before[name], after[name]) > 0]
    sums = [max(1.0, sum(side[name] for name in known)) for side in (before, after)]
    values = {
        name: (after[name] / sums[1] * cost - before[name] / sums[0]) / mean for name in known
    }
    rest = decomposition.log_ratio(source)
    others = rest - sum(values.values())
    along = sum(value for value in (*values.values(), others) if value * rest > 0)
    for name, value in values.items():
        # what warps wait for less gives way to what they wait for more: only the sum is a cause
        net = value * rest / along if value * rest > 0 else 0.0
        decomposition.name(name, before[name], after[name], net, of=source, waits=True)


def name_waiting_instructions(decomposition: Decomposition, pair: Pair) -> None:
    """Give additional instructions to what warps wait for, where they do nothing but wait.

    A fence is a few instructions and a long wait. Where the slots to issue are not full, its time
    is that of the wait: as much of the whole difference as the wait grew by.
    """
    resource = pair.resource
    if resource is None or not resource.issued:
        return
    slower = max(pair.both, key=lambda launch: launch.duration_us)
    times = [launch.duration_us for launch in pair.both]
    if times[0] == times[1] or not resource.level_of(slower) < BUSY:
        return
    before, after = (waits(launch) for launch in pair.both)
    whole = math.log(times[1] / times[0])
    for term in _ONLY_WAIT:
        if not (term in before and term in after and term in decomposition):
            continue
        share = (after[term] * times[1] - before[term] * times[0]) / (times[1] - times[0])
        room = max(min(share, 1.0) * abs(whole) - abs(decomposition.log_ratio(term)), 0.0)
        for source in (resource.work.id, *KINDS):
            if source in decomposition and decomposition.log_ratio(source) * whole > 0:
                value = decomposition.log_ratio(source)
                value = math.copysign(min(abs(value), room), value)
                room -= abs(value)
                decomposition.name(term, before[term], after[term], value, of=source)


def name_async_copies(decomposition: Decomposition, pair: Pair) -> None:
    """Name waiting for loads that asynchronous copies of the other side do not wait for."""
    source = "stall_memory_dependency"
    before, after = pair.levels("inst_executed_async_copies")
    if source not in decomposition or not max(before, after) > 0:
        return
    waiting = decomposition.log_ratio(source)
    if min(before, after) < max(before, after) / 2 and (before - after) * waiting > 0:
        decomposition.name("async_copy", before, after, waiting, of=source)


def name_narrow_copies(decomposition: Decomposition, pair: Pair) -> None:
    """Name bulk copies that grew in number where they bring as many bytes: each brings fewer.

    One thread asks for them while the others wait, so they cost instructions, lanes and barriers.
    """
    copies, moved = pair.levels("inst_executed_bulk_copies"), pair.levels("bulk_copy_bytes")
    if not all(value > 0 for value in (*copies, *moved)):
        return
    sizes = [whole / count for whole, count in zip(moved, copies, strict=True)]
    fewer = math.log(sizes[0] / sizes[1])
    more = math.log(copies[1] / copies[0])
    if abs(fewer) < _CLEARLY or fewer * more <= 0:
        return
    decomposition.take_from(_COSTS_OF_COPIES, "narrow_copies", sizes, more)


def name_unused_tensor_cores(decomposition: Decomposition, pair: Pair) -> None:
    """Name matrix operations that left the tensor cores for the FP32 pipe.

    Their part is the time that the FP32 pipe is busy longer, of the whole difference; or that the
    issue slots are, or shared memory, if one of these limits the slower side: a tensor core reuses
    an operand for a whole tile, and the FP32 pipe has it loaded for a few multiply-adds, so the
    instructions and loads come with the operations.
    """
    times = [launch.duration_us for launch in pair.both]
    busy = [
        [launch[name] * launch.duration_us * _active(launch) for launch in pair.both]
        for name in ("tensor_cycles_utilization", "single_precision_fu_utilization")
    ]
    worked = [operations(launch) for launch in pair.both]
    if times[0] == times[1] or not all(value >= 0 for value in (*busy[0], *worked)):
        return
    slow = 1 if times[1] > times[0] else 0
    tensor, fp32 = busy
    left = tensor[slow] < (1 - SMALL) * tensor[1 - slow]
    left = left and pair.both[1 - slow]["tensor_cycles_utilization"] >= _MATRICES
    if not left or worked[slow] < 2 * worked[1 - slow]:
        return
    longer = fp32[slow] - fp32[1 - slow]
    resource = pair.resource
    if longer > 0 and resource is not None and resource.label in _FEEDS_FP32:
        busy_longer = [resource.busy_time(launch) for launch in pair.both]
        longer = max(longer, busy_longer[slow] - busy_longer[1 - slow])
    share = longer / (times[slow] - times[1 - slow])
    if share > SMALL:
        levels = pair.levels("tensor_cycles_utilization")
        decomposition.take_share("tensor_unused", levels[0], levels[1], min(share, 1.0))


def take_back_contradictions(decomposition: Decomposition, pair: Pair) -> None:
    """Leave to the rest what a term says against its own levels.

    Had the faster side the higher occupancy, occupancy cannot be what works against it. Stalls are
    exempt: their levels are shares of a cost that changed too.
    """
    for one in decomposition.named():
        step = one.baseline - one.target if one.term.falls else one.target - one.baseline
        is_share = one.term.kind is Kind.STALL and one.term.id != ISSUE_RATE
        if not is_share and step * one.log_ratio < 0:
            decomposition.move(one.log_ratio, one.term.id, None)


def take_back_unproven(decomposition: Decomposition, pair: Pair) -> None:
    """Leave to the rest what a term says whose counters were not collected on both sides."""
    for one in decomposition.named():
        if not is_proven(one.term, *pair.both):
            decomposition.move(one.log_ratio, one.term.id, None)


def _active(launch: Launch) -> float:
    active = launch["sm_efficiency"]
    return 1.0 if math.isnan(active) else active


REFINEMENTS: tuple[Callable[[Decomposition, Pair], None], ...] = (
    net_requests_of_sectors,
    name_wider_requests,
    net_waves_of_occupancy,
    limit_occupancy_to_idle_time,
    name_divergence,
    net_work,
    limit_memory_to_what_it_costs,
    name_doubles,
    name_divergent_requests,
    name_uncoalesced_access,
    split_work_by_kind,
    name_bank_conflicts,
    name_instructions,
    give_multiplications_to_integers,
    give_conversions_to_division,
    give_conversions_to_doubles,
    give_addresses_to_accesses,
    give_the_mix_to_instructions,
    name_narrower_requests,
    name_redundant_traffic,
    name_the_whole_of_a_product,
    name_block_slots,
    name_launches_of_blocks,
    name_imbalance,
    name_stalls,
    name_waiting_instructions,
    name_narrow_access,
    name_waited_shared,
    name_waited_generic_loads,
    name_async_copies,
    name_narrow_copies,
    name_waited_loads,
    name_unused_tensor_cores,
    take_back_contradictions,
    take_back_unproven,
)
"""In this order: stalls split what all others leave, and what follows them takes from stalls."""
