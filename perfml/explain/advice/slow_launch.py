"""A slow launch as estimates see it: how busy its units are, and what its warps wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from perfml.chips import REFERENCE, Chip
from perfml.explain.launches import Launch, known
from perfml.explain.limits.traffic import (
    SMALL,
    load_latency,
    placed_blocks,
    shared_of_requests,
    shared_of_wavefronts,
    waits,
)
from perfml.explain.tree.limits import limit_of

SUSTAINED = {
    "l2_utilization": limit_of("l2").ceiling,
    "dram_utilization": limit_of("dram").ceiling,
    "ldst_fu_utilization": 0.25,
}
"""The busiest that these units were in any recorded launch. Loads and stores are a quarter: the
four parts of a multiprocessor send them to one unit, which takes one a cycle."""
OTHERS_SUSTAIN = 0.95
"""What the other units reach where one of them is the limit."""
_FULL = 0.9
"""Busy so much of the time, a unit is what all else waits for."""
START_US = 1.9
"""Time of a launch in which its multiprocessors are idle although it has blocks for all of them:
the 10th percentile of 813 recorded launches with at least one wave of blocks."""
_FILL_US = 2.3
"""What a launch that DRAM limits takes beside its bytes and the start, while its queues fill and
empty: 4.2 us with the start, the median of 27 recorded ones of 80 to 160 us with DRAM busy."""

ACTIVE = (
    "single_precision_fu_utilization",
    "double_precision_fu_utilization",
    "special_fu_utilization",
    "ldst_fu_utilization",
    "tensor_cycles_utilization",
    "issue_slot_utilization",
    "alu_utilization",
)
"""Levels of active multiprocessors; the others are of the whole time."""
BELOW = ("l2_utilization", "dram_utilization")
_SHARED = "shared_utilization"
_UNITS = (
    *ACTIVE,
    *BELOW,
    _SHARED,
    "constant_cache_utilization",
    "l2_atomic_utilization_max",
)

_OF_ALL_TIME = (_SHARED, "constant_cache_utilization")
"""Units of a multiprocessor whose levels are of the whole time of a launch."""

_LEAST_ACTIVE = 1e-3
"""A level is not divided by less."""
LANES = 32


class SlowLaunch:
    """What is known of a slow launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @cached_property
    def _chip(self) -> Chip:
        """The chip; an H200 where nobody knows which."""
        return self.launch.chip.filled_from(REFERENCE)

    @cached_property
    def active(self) -> float:
        """The part of the time in which a multiprocessor has a block, in the mean of all.

        What is counted is that of its four parts (``smsp__cycles_active``): of one that holds a
        single warp, three are idle.
        """
        chip = self._chip
        warps = known(self.launch["achieved_occupancy"], 1.0) * chip.warps
        parts = chip.schedulers
        return min(1.0, self._parts_active * parts / min(max(warps, 1.0), parts))

    @cached_property
    def _parts_active(self) -> float:
        known_part = self.launch["sm_efficiency"]
        part = self._placed * self._worked if math.isnan(known_part) else known_part
        return max(part, _LEAST_ACTIVE)

    @cached_property
    def _placed(self) -> float:
        """The part of the multiprocessors that a small grid has a block for."""
        return min(1.0, known(placed_blocks(self.launch), 1.0) or 1.0)

    @cached_property
    def _worked(self) -> float:
        """The part of the time for which the multiprocessor that works longest has a block.

        Nobody counted it: all of it where all have blocks. Of a smaller grid what the usual start
        leaves, or as long as a unit there is busy.
        """
        launch = self.launch
        if not math.isnan(launch["sm_efficiency"]):
            longest = known(launch["sm_active_cycles_max"] / launch["sm_active_cycles_mean"], 1.0)
            return min(1.0, self.active * max(longest, 1.0))
        if self._placed == 1:
            return 1.0
        busy = (known(launch[name]) / self._placed for name in _OF_ALL_TIME)
        return min(1.0, max(1 - START_US / max(launch.duration_us, START_US), *busy))

    @cached_property
    def busy(self) -> dict[str, float]:
        """Busy fraction of each unit over the launch's time; 0 where it was not collected.

        Where L1's data stage takes fewer wavefronts than one a cycle (compute capability 7.5), the
        level of shared memory is low and L1's is not.
        """
        levels = {
            name: known(self.launch[name]) * (self._parts_active if name in ACTIVE else 1.0)
            for name in _UNITS
        }
        shares = (shared_of_wavefronts(self.launch), shared_of_requests(self.launch))
        of_l1 = known(float(np.minimum(*shares)) * self.launch["l1_utilization"])
        levels[_SHARED] = max(levels[_SHARED], of_l1 * self._parts_active)
        return levels

    def level(self, name: str) -> float:
        """Return how busy a unit is while there is a block: of memory below L1, all the time."""
        if name in BELOW:
            return self.busy[name]
        return self.busy[name] / (self._parts_active if name in ACTIVE else self.active)

    @cached_property
    def shared_level(self) -> float:
        """How busy shared memory keeps L1 while there is a block: its data stage, or its entrance.

        Loads and stores of all memories enter through one unit, at `SUSTAINED` of its level.
        """
        entering = self.launch["ldst_fu_utilization"] / SUSTAINED["ldst_fu_utilization"]
        entrance = known(shared_of_requests(self.launch) * entering)
        return min(1.0, max(self.level(_SHARED), entrance))

    def full(self, name: str) -> float:
        """Return the part of the time that is a unit's: all of it once it is the limit.

        Where a unit does all that it can, other waits pass meanwhile.
        """
        return 1.0 if self.level(name) >= _FULL else self.busy[name]

    def limit(self, relieved: Mapping[str, float], spreads: bool) -> float:
        """Return the time of the busiest unit, as a fraction of the launch's."""
        times = {
            name: (self.busy[name] if spreads else self.level(name))
            * relieved.get(name, 1.0)
            / SUSTAINED.get(name, OTHERS_SUSTAIN)
            for name in _UNITS
        }
        busiest = max(times, key=lambda name: times[name])
        if busiest != "dram_utilization":
            return times[busiest]
        return min(1.0, times[busiest] + _FILL_US / max(self.launch.duration_us, _FILL_US))

    @cached_property
    def start(self) -> float:
        """The part of the time before the first and after the last instruction.

        No longer than the multiprocessor that works longest is without a block.
        """
        return min(1 - self._worked, START_US / max(self.launch.duration_us, START_US))

    def per_request(self, name: str) -> float:
        """Return how many cycles of a warp there are for each request; NaN if not known."""
        launch = self.launch
        warps = launch["achieved_occupancy"] * self._chip.warps
        if not launch["ipc"] > 0 or not launch[name] > 0:
            return math.nan
        return warps * launch["inst_executed"] / launch["ipc"] / launch[name]

    def waited(self, *terms: str, by: str) -> float:
        """Return how many cycles a warp waits for each of some requests; NaN if not known."""
        return sum(self._waits.get(term, 0.0) for term in terms) * self.per_request(by)

    @cached_property
    def latency(self) -> float:
        """Cycles until a load has its value, where nothing is in its way; NaN if not known."""
        return load_latency(self.launch)

    @property
    def shared_latency(self) -> float:
        """Cycles until a load of shared memory has its value."""
        return self._chip.shared_latency

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
        return min(1.0, max(share + self.queued, *(self.busy[name] for name in BELOW)))

    @property
    def queued(self) -> float:
        """The share of waits for the queue of loads and stores; 0 where shared memory fills it."""
        if self.busy[_SHARED] >= SMALL:
            return 0.0
        return self.waiting("mio_throttle") + known(self.launch["stall_short_scoreboard"])

    def instructions(self, *names: str) -> float:
        """Return the share of instructions of a kind, from counts of threads."""
        share = self.launch.total(names) / LANES / self.launch["inst_executed"]
        return min(1.0, known(share))

    @property
    def special_slots(self) -> float:
        """The share of issue slots in which an instruction goes to the special function unit."""
        # slots that pass while the special functions' pipe takes the lanes of a warp
        slots = self._chip.schedulers * LANES / self._chip.sfu
        issue = max(self.busy["issue_slot_utilization"], 0.01)
        return min(1.0, self.busy["special_fu_utilization"] / slots / issue)

    def ratio(self, above: tuple[str, ...], below: tuple[str, ...]) -> float:
        """Return a ratio of counts; NaN where one was not collected or the lower one is 0."""
        whole = self.launch.total(below)
        return self.launch.total(above) / whole if whole > 0 else math.nan
