"""How long a launch would take without one of its causes: that is taken out, the next limit stays.

A part of a launch's time is the cause's (the share of its warps' waiting, or the busy time of the
unit). The fix leaves a fraction of that part (scattered lanes: the bytes asked for, of those
moved). The other parts stay, and no unit can become busier than it sustains. So

    after / now = max(1 - part + part x left, busiest other unit / what it sustains)

From one launch alone: nothing of the faster side is used. What `studies.truth.fixes` measured of it
backwards, on launches whose fix is known, gives the interval.

Here to change: a cause's cure is a row of `CURES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from perfml.explain.counters.resources import wave_fill
from perfml.explain.counters.traffic import SMALL, global_traffic, waits
from perfml.explain.launches import Launch

SPREAD = (-0.26, 0.31)
"""The error's logarithm over `size_of` of the saving: its 10th and 90th percentile over the planted
families and ladders (`studies.truth.fixes`)."""

SUSTAINED = {"l2_utilization": 0.6, "dram_utilization": 0.93}
"""The busiest that L2 and DRAM were in any recorded launch (0.63 and 0.93)."""
_SUSTAINED = 0.9

_ACTIVE = (
    "single_precision_fu_utilization",
    "double_precision_fu_utilization",
    "special_fu_utilization",
    "ldst_fu_utilization",
    "tensor_cycles_utilization",
    "issue_slot_utilization",
    "alu_utilization",
)
"""Levels of active multiprocessors; the others are of the whole time."""
_BELOW = ("l2_utilization", "dram_utilization")
_UNITS = (
    *_ACTIVE,
    *_BELOW,
    "shared_utilization",
    "constant_cache_utilization",
    "l2_atomic_utilization_max",
)

_MISS = 0.45
"""A load that misses L2 waits about twice as long: this much of its time is DRAM's."""
_LATENCY, _IN_FLIGHT = 600.0, 8.0
"""Cycles of a load from memory, and loads a warp should have in flight (unrolled by eight)."""
_HALF = 0.5
"""What stays of a work whose least amount a launch does not tell, as in rules of advice."""
_LANES, _WIDEST = 32, 512
"""Lanes of a warp, and bytes of a request in which each of them moves sixteen."""
_XU_CYCLES = 8
"""Issue slots a special function's pipe is busy for (CUDA C++ Programming Guide, throughput of
native arithmetic instructions: 16 a cycle and multiprocessor)."""


@dataclass(frozen=True)
class Estimate:
    """A time after a fix, microseconds: best guess, and an interval that holds it in 80 %."""

    time_us: float
    low_us: float
    high_us: float


@dataclass(frozen=True)
class Cure:
    """What a fix takes away.

    Attributes
    ----------
    part
        Of the time that is the cause's.
    left
        What stays of that part.
    relieved
        What stays of the busy time of units.
    """

    part: float
    left: float
    relieved: Mapping[str, float] = field(default_factory=dict)


class State:
    """What is known of a slow launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @cached_property
    def busy(self) -> dict[str, float]:
        """Busy fraction of each unit over the launch's time; 0 where it was not collected."""
        active = _known(self.launch["sm_efficiency"], 1.0)
        return {
            name: _known(self.launch[name]) * (active if name in _ACTIVE else 1.0)
            for name in _UNITS
        }

    @cached_property
    def _waits(self) -> dict[str, float]:
        return waits(self.launch)

    def waiting(self, *terms: str) -> float:
        """Return the share of some waits, of the time in which warps are not ready."""
        ready = self._waits.get("stall_not_selected", 0.0)
        return min(1.0, sum(self._waits.get(term, 0.0) for term in terms) / max(1 - ready, 0.05))

    @property
    def memory(self) -> float:
        """The part of the time that is global memory's."""
        share = self.waiting("stall_memory_dependency", "stall_memory_throttle", "stall_texture")
        if self.busy["shared_utilization"] < SMALL:
            # nobody else fills the queue that loads and stores pass, too
            share += self.waiting("mio_throttle") + _known(self.launch["stall_short_scoreboard"])
        return min(1.0, max(share, *(self.busy[name] for name in _BELOW)))

    def instructions(self, *names: str) -> float:
        """Return the share of instructions of a kind, from counts of threads."""
        share = self.launch.total(names) / _LANES / self.launch["inst_executed"]
        return min(1.0, _known(share))

    def ratio(self, above: tuple[str, ...], below: tuple[str, ...]) -> float:
        """Return a ratio of counts; NaN where one was not collected or the lower one is 0."""
        whole = self.launch.total(below)
        return self.launch.total(above) / whole if whole > 0 else math.nan


def time_after(launch: Launch, term: str, left: float | None = None) -> float:
    """Return how long a launch would take without a cause, as a fraction of its time.

    Parameters
    ----------
    launch
        The launch as it is.
    term
        Id of the cause.
    left
        What will stay of it, where that is known: 0.5 for half as many shared loads. By default
        what the launch says that it needs at least, or half.

    Returns
    -------
    float
        NaN for a cause whose end cannot be told from one launch.
    """
    if term not in CURES:
        return math.nan
    state = State(launch)
    cure = CURES[term](state)
    stays = cure.left if left is None else left
    relieved = dict(cure.relieved)
    if left is not None and cure.left < 1:
        # units are relieved by as much of their part as the cause itself
        relieved = {
            name: 1 - (1 - stay) * (1 - left) / (1 - cure.left) for name, stay in relieved.items()
        }
    if math.isnan(cure.part) or math.isnan(stays):
        return math.nan
    limit = max(
        level * relieved.get(name, 1.0) / SUSTAINED.get(name, _SUSTAINED)
        for name, level in state.busy.items()
    )
    return min(1.0, max(1 - cure.part + cure.part * stays, limit))


def estimate(now_us: float, fraction: float) -> Estimate:
    """Return the time after a fix with its interval.

    Parameters
    ----------
    now_us
        The time as it is.
    fraction
        What will be left of it.
    """
    after = now_us * fraction
    low, high = (after * math.exp(each * size_of(fraction)) for each in SPREAD)
    return Estimate(after, low, min(high, now_us))


def size_of(fraction: float) -> float:
    """Return what errors grow with: a predicted saving is the less certain, the larger it is."""
    return 1 - math.log(fraction)


def _known(value: float, otherwise: float = 0.0) -> float:
    return otherwise if math.isnan(value) else value


def _scattered(state: State) -> Cure:
    launch = state.launch
    loads, stores = _known(launch["gld_transactions"]), _known(launch["gst_transactions"])
    if loads + stores == 0:
        loads = stores = 1.0
    asked = loads * _known(launch["gld_efficiency"], 1.0)
    asked += stores * _known(launch["gst_efficiency"], 1.0)
    left = min(1.0, asked / (loads + stores))
    return Cure(state.memory, left, dict.fromkeys(_BELOW, left))


def _conflicts(state: State) -> Cure:
    left = _known(state.launch["shared_efficiency"], 1.0) or 1.0
    part = max(state.busy["shared_utilization"], state.waiting("mio_throttle", "stall_pipe_busy"))
    return Cure(part, left, {"shared_utilization": left})


def _shared_loads(state: State) -> Cure:
    cure = _conflicts(state)
    return Cure(cure.part, _HALF, {"shared_utilization": _HALF})


def _divergence(state: State) -> Cure:
    left = state.launch["warp_execution_efficiency"]
    return Cure(1.0, left, dict.fromkeys((*_ACTIVE, "shared_utilization"), left))


def _level(name: str) -> Callable[[State], Cure]:
    return lambda state: Cure(1.0, state.launch[name])


def _of_theoretical(state: State) -> Cure:
    launch = state.launch
    return Cure(1.0, min(1.0, launch["achieved_occupancy"] / launch["theoretical_occupancy"]))


def _uneven(state: State) -> Cure:
    return Cure(1.0, state.ratio(("sm_active_cycles_mean",), ("sm_active_cycles_max",)))


def _wait(*terms: str, left: float = 0.0, relieves: str | None = None) -> Callable[[State], Cure]:
    relieved = {} if relieves is None else {relieves: 0.0}
    return lambda state: Cure(state.waiting(*terms), left, relieved)


def _latency(state: State) -> Cure:
    """Loads in flight, by Little's law: what a warp waits for a load, over a load's latency."""
    launch = state.launch
    part = state.waiting("stall_memory_dependency")
    warps = launch["achieved_occupancy"] * 64
    cycles = part * warps * launch["inst_executed"] / launch["ipc"] if launch["ipc"] > 0 else 0.0
    loads = launch["global_load_requests"]
    left = _LATENCY / _IN_FLIGHT / (cycles / loads) if cycles > 0 and loads > 0 else math.nan
    return Cure(part, min(1.0, _known(left, _HALF)))


def _misses(state: State) -> Cure:
    launch = state.launch
    moved = launch.total(("dram_read_bytes", "dram_write_bytes")) / 32
    sectors = launch.total(("l2_read_transactions", "l2_write_transactions"))
    share = min(1.0, moved / sectors) if sectors > 0 else math.nan
    part = max(state.waiting("stall_memory_dependency"), state.busy["dram_utilization"])
    return Cure(part, 1 - _MISS * share, {"dram_utilization": 1 - share})


def _repeated(state: State) -> Cure:
    left = 2 * state.ratio(("global_store_requests",), ("global_load_requests",))
    left = min(1.0, left)
    return Cure(state.memory, left, dict.fromkeys((*_BELOW, "ldst_fu_utilization"), left))


def _narrow(state: State) -> Cure:
    sectors = state.ratio(
        ("gld_transactions", "gst_transactions"), ("global_load_requests", "global_store_requests")
    )
    left = min(1.0, 32 * sectors / _WIDEST)
    relieved = dict.fromkeys(("ldst_fu_utilization", "issue_slot_utilization"), left)
    waits_for_memory = state.waiting("stall_memory_dependency", "stall_memory_throttle")
    return Cure(waits_for_memory, left, relieved)


def _atomics(state: State) -> Cure:
    part = max(state.waiting("global_atomics"), state.busy["l2_atomic_utilization_max"])
    # spread over all slices of L2, the busiest has as much to do as the mean
    left = _known(state.ratio(("l2_atomic_utilization",), ("l2_atomic_utilization_max",)))
    return Cure(part, left, {"l2_atomic_utilization_max": left})


def _unit_wait(term: str, unit: str, *kinds: str) -> Callable[[State], Cure]:
    def cure(state: State) -> Cure:
        relieved = {unit: 0.0}
        if kinds:
            relieved["issue_slot_utilization"] = 1 - state.instructions(*kinds)
        return Cure(max(state.waiting(term), state.busy[unit]), 0.0, relieved)

    return cure


def _local(state: State) -> Cure:
    traffic = global_traffic(state.launch)
    share = traffic["local_memory"] / max(sum(traffic.values()), 1.0)
    part = max(state.waiting("local_memory"), share * max(state.busy[name] for name in _BELOW))
    relieved = dict.fromkeys((*_BELOW, "ldst_fu_utilization"), 1 - share)
    # each access computes an address, too
    asked = state.ratio(("local_load_requests", "local_store_requests"), ("inst_executed",))
    issue = max(0.0, 1 - 2 * _known(asked))
    relieved |= dict.fromkeys(("issue_slot_utilization", "alu_utilization"), issue)
    return Cure(part, 0.0, relieved)


def _special(state: State) -> Cure:
    issue = max(state.busy["issue_slot_utilization"], 0.01)
    slots = min(1.0, state.busy["special_fu_utilization"] / _XU_CYCLES / issue)
    relieved = {
        "special_fu_utilization": 0.0,
        "issue_slot_utilization": 1 - max(slots, state.instructions("inst_bit_convert")),
    }
    return Cure(1.0, 0.0, relieved)


def _integers(state: State) -> Cure:
    left = 1 - state.instructions("inst_integer") * _HALF
    names = ("alu_utilization", "issue_slot_utilization", "single_precision_fu_utilization")
    return Cure(1.0, 0.0, dict.fromkeys(names, left))


def _half_of(unit: str) -> Callable[[State], Cure]:
    return lambda _: Cure(1.0, _HALF, {unit: _HALF})


def _tensor(_: State) -> Cure:
    relieved = dict.fromkeys(_ACTIVE, 1 / 8) | {"shared_utilization": 1 / 4}
    return Cure(1.0, 0.0, relieved)


CURES: dict[str, Callable[[State], Cure]] = {
    "sectors_per_request": _scattered,
    "uncoalesced_loads": _scattered,
    "uncoalesced_stores": _scattered,
    "wavefronts_per_shared_load": _conflicts,
    "shared_memory_busy_time": _conflicts,
    "shared_time_per_wavefront": _shared_loads,
    "shared_loads": _shared_loads,
    "active_threads_per_warp": _divergence,
    "theoretical_occupancy": _level("theoretical_occupancy"),
    "block_slots": _level("theoretical_occupancy"),
    "achieved_of_theoretical": _of_theoretical,
    "block_imbalance": _of_theoretical,
    "sm_imbalance": _uneven,
    "wave_quantization": lambda state: Cure(1.0, wave_fill(state.launch["waves_per_sm"])),
    "memory_fence": _wait("memory_fence", left=_HALF),
    "async_copy": _wait("stall_memory_dependency", left=_HALF),
    "stall_memory_dependency": _latency,
    "stall_inst_fetch": _wait("stall_inst_fetch", relieves="l2_utilization"),
    "stall_sync": _wait("stall_sync"),
    "stall_exec_dependency": _wait("stall_exec_dependency"),
    "stall_memory_throttle": _wait("stall_memory_throttle"),
    "stall_constant_memory_dependency": _wait("stall_constant_memory_dependency"),
    "stall_branch_resolving": _wait("stall_branch_resolving"),
    "stall_pipe_busy": _wait("stall_pipe_busy"),
    "math_throttle": _wait("math_throttle"),
    "mio_throttle": _wait("mio_throttle"),
    "dram_bytes_per_sector": _misses,
    "dram_time_per_sector": _misses,
    "dram_bytes": _half_of("dram_utilization"),
    "dram_busy_time": _half_of("dram_utilization"),
    "l2_sectors": _half_of("l2_utilization"),
    "l2_busy_time": _half_of("l2_utilization"),
    "redundant_traffic": _repeated,
    "narrow_access": _narrow,
    "global_atomics": _atomics,
    "shared_atomics": _unit_wait("shared_atomics", "shared_utilization"),
    "lsu_pipe_time": _unit_wait(
        "lsu_pipe_time", "shared_utilization", "inst_inter_thread_communication"
    ),
    "constant_serialization": _unit_wait("constant_serialization", "constant_cache_utilization"),
    "local_memory": _local,
    "special_function_pipe_time": _special,
    "integer_arithmetic": _integers,
    "fp64_pipe_time": _half_of("double_precision_fu_utilization"),
    "fp32_pipe_time": _half_of("single_precision_fu_utilization"),
    "fp32_operations": _half_of("single_precision_fu_utilization"),
    "instructions": _half_of("issue_slot_utilization"),
    "tensor_unused": _tensor,
}
"""Cause -> what its fix takes away; a cause that is not here has no estimate."""
