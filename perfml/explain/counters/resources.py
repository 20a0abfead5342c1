"""The units that limit a kernel: what work each does, and which counters say so.

Time is work x cost. A resource names one kind of work; cost is split along the machine by
`perfml.explain.counters.factors`.

Here to change: a unit that can be a kernel's limit is a row of `RESOURCES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from perfml.explain.counters.evidence import is_proven
from perfml.explain.counters.terms import TERMS, Term
from perfml.explain.counters.traffic import l1_level
from perfml.explain.launches import Launch, known

BUSY = 0.6
"""A unit below this level limits nobody: what is left is latency. Nsight Compute's own rule
(SOLBottleneck) speaks of latency below the same 60 %."""

MOST = 0.5
"""What warps spend more than half of their time on is what a waiting launch waits for."""

LONGER = 0.25
"""A unit that is busy longer for less of the additional time says little about it."""

AS_BUSY = 0.9
"""A unit that is less busy than this part of the busiest is not about as busy."""

_ALL = 1.1
"""All of the additional time, and as much more as measurements differ."""

_CLEARLY = math.log(1.2)
"""A unit that is busy longer by less tells nothing."""

_WAITS_FOR_MEMORY = ("stall_memory_dependency", "stall_memory_throttle", "stall_texture")
_OTHER_WAITS = (
    "stall_inst_fetch",
    "stall_exec_dependency",
    "stall_membar",
    "stall_constant_memory_dependency",
    "stall_sleeping",
    "stall_branch_resolving",
    "stall_gmma",
)


class MemoryLevel(Enum):
    """Where a memory lies."""

    SHARED = "shared memory"
    L1 = "L1"
    L2 = "L2"
    DRAM = "DRAM"

    @property
    def is_global(self) -> bool:
        """Whether accesses to global memory pass it."""
        return self is not MemoryLevel.SHARED


@dataclass(frozen=True)
class Product:
    """Work of a memory as a product: requests x parts of a request x cost of a part.

    Attributes
    ----------
    requests, request_counters
        How many warps asked.
    parts, part_counters
        What a request touches: 4 sectors for 32 lanes that read neighbouring floats, 32 where every
        lane is somewhere else.
    cost
        What a part costs there; None where parts are the work itself.
    largest_cost_change
        If the cost (its logarithm) changes by more, others use this memory, and it is not split.
    """

    requests: Term
    request_counters: tuple[str, ...]
    parts: Term
    part_counters: tuple[str, ...]
    cost: Term | None
    largest_cost_change: float = math.inf


@dataclass(frozen=True)
class Resource:
    """A unit that can limit a kernel, and the work that it does.

    Attributes
    ----------
    label
        What people read.
    work
        The term of its work.
    counters
        Counters of the work; they add up to it.
    level
        Busy fraction of the unit; it tells which resource limits.
    derived
        Whether the work is busy fraction x duration, which compares one kind of device only.
    active_only
        Whether the busy fraction is one of active multiprocessors, which misses idle ones.
    counts_lanes
        Whether the work is of active lanes: idle ones cost as many more instructions.
    counts_warps
        Whether the work is of whole warps: the additional instructions of idle lanes are no work.
    memory
        Which memory it is; None for a unit that computes.
    product
        How the work splits into requests; None where it does not.
    issued
        Whether the issue rate says what a unit of this work costs.
    used
        Counters of what uses the unit: a launch where none is above 0 cannot be limited by it.
    lacking
        Counters that tell more of the work, and how busy the unit is: a row is for launches where
        none of them is known.
    """

    label: str
    work: Term
    counters: tuple[str, ...]
    level: str
    derived: bool = False
    active_only: bool = False
    counts_lanes: bool = False
    counts_warps: bool = False
    memory: MemoryLevel | None = None
    product: Product | None = None
    issued: bool = False
    used: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def is_global(self) -> bool:
        """Whether accesses to global memory pass it."""
        return self.memory is not None and self.memory.is_global

    @property
    def is_waited_for_as_memory(self) -> bool:
        """Whether warps that wait for the unit wait for global memory: atomics answer from L2."""
        return self.is_global or self.work.id == "global_atomics"

    def is_used(self, launch: Launch) -> bool:
        """Return whether a launch uses the unit at all, as far as that was counted."""
        counts = [launch[name] for name in self.used]
        return not counts or any(count > 0 for count in counts) or all(map(math.isnan, counts))

    def level_of(self, launch: Launch) -> float:
        """Return the busy fraction of the unit; NaN where it was not collected.

        L1 is as busy as the load/store pipe in front of it, or as its wavefronts where these are
        its limit, or warps wait for room in its queue (lg_throttle). Where neither is, they say
        nothing of what warps wait for.
        """
        level = launch[self.level]
        if self.memory is not MemoryLevel.L1:
            return level
        passing = l1_level(launch)
        queued = launch["stall_lg_throttle"] >= LONGER
        return max(level, passing) if passing >= BUSY or queued else level

    def amount(self, launch: Launch) -> float:
        """Return the work of a launch; NaN where it was not counted."""
        return self.busy_time(launch) if self.derived else launch.total(self.counters)

    def busy_time(self, launch: Launch) -> float:
        """Return for how long the unit is busy, in us."""
        busy = self.level_of(launch)
        if self.active_only:
            active = launch["sm_efficiency"]
            busy *= 1.0 if math.isnan(active) else active
        return busy * launch.duration_us


def _global(cost: str | None) -> Product:
    return Product(
        TERMS["global_requests"],
        ("global_load_requests", "global_store_requests"),
        TERMS["sectors_per_request"],
        ("gld_transactions", "gst_transactions"),
        None if cost is None else TERMS[cost],
    )


def _unit(label: str, work: str, level: str, *, counts_warps: bool = False) -> Resource:
    """Return a unit of a multiprocessor whose work is the time that it is busy."""
    return Resource(
        label,
        TERMS[work],
        (level,),
        level,
        derived=True,
        active_only=True,
        counts_warps=counts_warps,
    )


RESOURCES = (
    _unit("tensor pipe (cycles)", "tensor_pipe_time", "tensor_cycles_utilization"),
    _unit("tensor pipe", "tensor_pipe_time", "tensor_utilization"),
    Resource(
        "FP32 operations",
        TERMS["fp32_operations"],
        ("flop_count_sp",),
        "single_precision_fu_utilization",
        counts_lanes=True,
    ),
    _unit("FP32 pipe", "fp32_pipe_time", "single_precision_fu_utilization", counts_warps=True),
    _unit("FP64 pipe", "fp64_pipe_time", "double_precision_fu_utilization", counts_warps=True),
    _unit(
        "special functions",
        "special_function_pipe_time",
        "special_fu_utilization",
        counts_warps=True,
    ),
    Resource(
        "DRAM bytes",
        TERMS["dram_bytes"],
        ("dram_read_bytes", "dram_write_bytes"),
        "dram_utilization",
        memory=MemoryLevel.DRAM,
        product=_global("dram_bytes_per_sector"),
    ),
    Resource(
        "DRAM reads",
        TERMS["dram_bytes"],
        ("dram_read_bytes",),
        "dram_utilization",
        memory=MemoryLevel.DRAM,
        lacking=("dram_write_bytes", "dram_utilization"),
    ),
    Resource(
        "DRAM time",
        TERMS["dram_busy_time"],
        ("dram_utilization",),
        "dram_utilization",
        derived=True,
        memory=MemoryLevel.DRAM,
        product=_global("dram_time_per_sector"),
    ),
    Resource(
        "L2 sectors",
        TERMS["l2_sectors"],
        ("l2_read_transactions", "l2_write_transactions"),
        "l2_utilization",
        memory=MemoryLevel.L2,
        product=_global("l2_sectors_per_l1_sector"),
    ),
    Resource(
        "L1 sectors",
        TERMS["l1_sectors"],
        ("gld_transactions", "gst_transactions"),
        "ldst_fu_utilization",
        memory=MemoryLevel.L1,
        product=_global(None),
    ),
    Resource(
        "L2 time",
        TERMS["l2_busy_time"],
        ("l2_utilization",),
        "l2_utilization",
        derived=True,
        memory=MemoryLevel.L2,
        product=_global("l2_time_per_sector"),
    ),
    Resource(
        "shared memory",
        TERMS["shared_memory_busy_time"],
        ("shared_utilization",),
        "shared_utilization",
        derived=True,
        memory=MemoryLevel.SHARED,
        product=Product(
            TERMS["shared_loads"],
            ("inst_executed_shared_loads",),
            TERMS["wavefronts_per_shared_load"],
            ("shared_load_transactions",),
            TERMS["shared_time_per_wavefront"],
            # warpgroup instructions read shared memory in wavefronts that are not counted as loads
            largest_cost_change=math.log(2),
        ),
        used=(
            "inst_executed_shared_loads",
            "inst_executed_shared_stores",
            "inst_executed_shared_atomics",
            "inst_inter_thread_communication",
            "inst_executed_async_copies",
            "tensor_cycles_utilization",
        ),
    ),
    _unit("integer pipe", "integer_arithmetic", "alu_utilization", counts_warps=True),
    Resource(
        "constant cache",
        TERMS["constant_serialization"],
        ("constant_cache_utilization",),
        "constant_cache_utilization",
        derived=True,
    ),
    Resource(
        "L2 atomic units",
        TERMS["global_atomics"],
        ("l2_atomic_utilization_max",),
        "l2_atomic_utilization_max",
        derived=True,
        used=("global_atomic_requests", "global_reduction_requests"),
    ),
    Resource(
        "instructions",
        TERMS["instructions"],
        ("inst_executed",),
        "issue_slot_utilization",
        counts_warps=True,
        issued=True,
    ),
)
"""In order of preference where the levels tie; counted work comes before derived work."""


def candidate_resources(before: Launch, after: Launch, *, same_device: bool) -> list[Resource]:
    """Return the resources whose work is known on both sides, the likeliest limit first.

    The order is that of the busy fractions on the slower side: the time to be explained was spent
    there, and no side can be faster than its busiest unit; what was busy on the faster side limits
    that one, and of units about as busy on the slower side it comes first: it limits both, unless
    it is busy for as long on both, so that another took the additional time. Where no
    unit of the slower side reaches `BUSY`, its time is waiting: first comes what
    is busy longer for the most of the additional time, and units of global memory come before all
    where its warps wait for memory more than half of the time, and last where they wait for
    something else. (A busy pipe or queue does not say whose it is, nor does a barrier: who waits
    there waits for what the other warps wait for.)
    """
    slower = before if before.time_us > after.time_us else after
    candidates = [
        resource
        for resource in RESOURCES
        if (same_device or not resource.derived)
        and resource.is_used(slower)
        and is_proven(resource.work, before, after)
        and _comparable(resource, before, after, slower)
    ]
    levels = {resource.label: known(resource.level_of(slower)) for resource in candidates}
    candidates.sort(key=lambda resource: (-levels[resource.label], resource.derived))
    if not candidates:
        return candidates
    longer = {resource.label: _busy_longer(resource, before, after) for resource in candidates}
    first = candidates[0].label
    if levels[first] < BUSY:
        telling = {label: _telling(longer[label], level) for label, level in levels.items()}
        for resource in candidates:
            if resource.lacking:
                telling[resource.label] = _telling_of_work(resource, before, after)
        candidates.sort(key=lambda resource: -telling[resource.label])
        memory = _waits_for_memory(before, after)
        if memory is not None:
            candidates.sort(key=lambda resource: resource.is_waited_for_as_memory != memory)
    elif longer[first] < LONGER:
        # as busy on the faster side, which was not slow for it
        candidates.sort(
            key=lambda each: min(levels[each.label] - BUSY, longer[each.label] - MOST) < 0
        )
    else:
        faster = after if slower is before else before
        least = AS_BUSY * levels[first]
        candidates.sort(
            key=lambda each: (
                levels[each.label] < least
                or min(levels[each.label], known(each.level_of(faster))) < BUSY
                or longer[each.label] < LONGER
            )
        )
    return candidates


def _busy_longer(resource: Resource, before: Launch, after: Launch) -> float:
    """Return for how much of the additional time a unit is busy longer."""
    times = [launch.duration_us for launch in (before, after)]
    busy = [resource.busy_time(launch) for launch in (before, after)]
    return known((busy[1] - busy[0]) / (times[1] - times[0])) if times[0] != times[1] else 0.0


def _telling(longer: float, level: float) -> float:
    """Return for how much of the additional time a unit is busy longer, where that says something.

    Not where it is next to none of it, where the unit is idle anyway, or where it is more than
    there is: no launch has to wait for such a unit.
    """
    return longer if level >= LONGER and LONGER <= longer <= _ALL else 0.0


def _telling_of_work(resource: Resource, before: Launch, after: Launch) -> float:
    """Return `_telling` of a unit of which nobody knows how busy it is: by its work alone.

    Had it been busy all the time of the slower side, its additional work would have taken as much;
    less busy, it still may have taken all of the additional time. What a unit says that is known to
    be busy longer counts for more.
    """
    slower, faster = (before, after) if before.time_us > after.time_us else (after, before)
    more = 1.0 - resource.amount(faster) / resource.amount(slower)
    step = 1.0 - faster.duration_us / slower.duration_us
    return LONGER * min(more / step, 0.99) if step > 0 and more >= LONGER * step else 0.0


def _comparable(resource: Resource, before: Launch, after: Launch, slower: Launch) -> bool:
    """Return whether the work is known on both sides.

    The faster side need not do any where the unit is busy on the slower one.
    """
    amounts = [resource.amount(launch) for launch in (before, after)]
    if any(launch[name] >= 0 for name in resource.lacking for launch in (before, after)):
        return False
    if any(map(math.isnan, amounts)) or not resource.amount(slower) > 0:
        return False
    if resource.counts_lanes and _others_use(resource, before, after):
        return False
    return min(amounts) > 0 or known(resource.level_of(slower)) >= BUSY


def _others_use(resource: Resource, before: Launch, after: Launch) -> bool:
    """Return whether a unit is busy longer than the work that was counted makes it.

    Integers are multiplied on the FMA pipe, too, and are no operations in floating point.
    """
    works = []
    for launch in (before, after):
        active = launch["warp_execution_efficiency"]
        works.append(resource.amount(launch) / (active if active > 0 else 1.0))
    busy = [resource.busy_time(launch) for launch in (before, after)]
    integers = [launch["inst_integer"] for launch in (before, after)]
    if not all(value > 0 for value in (*works, *busy, *integers)):
        return False
    more, longer, others = (math.log(two / one) for one, two in (works, busy, integers))
    sign = math.copysign(1.0, after.time_us - before.time_us)
    return sign * longer > max(2 * sign * more, _CLEARLY) and sign * others > _CLEARLY


def _waits_for_memory(before: Launch, after: Launch) -> bool | None:
    """Return whether the additional time is waiting for global memory, or for else.

    None where neither is most of what the slower side's warps wait for.
    """
    slower, faster = (before, after) if before.time_us > after.time_us else (after, before)
    memory, others = (
        sum(known(slower[name]) for name in names) for names in (_WAITS_FOR_MEMORY, _OTHER_WAITS)
    )
    if not max(memory, others) > MOST:
        return None
    waited = sum(known(faster[name]) for name in _WAITS_FOR_MEMORY)
    more = memory * slower.duration_us - waited * faster.duration_us
    if memory > others and more < LONGER * (slower.duration_us - faster.duration_us):
        return None  # the faster side waits for memory as long
    return memory > others


def wave_fill(waves: float) -> float:
    """Return how full the waves of blocks are on average: 0.13 waves fill 13 % of one.

    1.28 waves take the time of 2 and fill 64 % of them: the tail effect of the last wave.
    """
    return waves / math.ceil(waves) if waves > 0 else math.nan
