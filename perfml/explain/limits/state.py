"""One launch as the tree reads it: counters, and quantities derived from them, by name.

A name is a counter of the catalogue (``dram_utilization``), a derived quantity of
``quantities.toml`` (``sectors_per_request``), what warps wait for (``wait.stall_sync``, a share
of the time), or a share of traffic (``share.global``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property

from perfml.chips import REFERENCE
from perfml.explain.launches import Launch, known
from perfml.explain.limits.traffic import (
    SECTOR,
    bytes_asked,
    evenness,
    global_traffic,
    l1_level,
    load_latency,
    operations,
    placed_blocks,
    shared_traffic,
    unseen_traffic,
    waits,
)
from perfml.metrics.expressions import Expression, parse
from perfml.metrics.sets import PUBLISHED, STALLS
from perfml.util.files import read_rows


def resident_warps(launch: Launch) -> float:
    """Return how many warps a multiprocessor of a launch's device can hold."""
    # A launch that does not name its device is taken for one of the reference chip.
    warps = launch.chip.warps
    return REFERENCE.warps if math.isnan(warps) else warps


_OF_DOUBLES = re.compile(r"\bdouble\b")
_WAIT, _SHARE = "wait.", "share."


@cache
def derived() -> Mapping[str, Expression]:
    """Return the formula of each derived quantity."""
    rows = read_rows("perfml.explain.limits", "quantities.toml")["quantities"]
    return {name: parse(formula) for name, formula in rows.items()}


class LaunchState:
    """A launch with everything that can be said of it by name; NaN where it is not known."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._known: dict[str, float] = {}
        self._values: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        """Return a quantity by its name."""
        if name not in self._known:
            self._known[name] = math.nan  # a formula that needs itself has no value
            self._known[name] = self._find(name)
        return self._known[name]

    def value(self, formula: Expression) -> float:
        """Return the value of a formula; NaN where one of its quantities is not known."""
        known = self._values.get(formula.text)
        if known is None:
            known = self._values[formula.text] = formula.number(self.__getitem__)
        return known

    @classmethod
    def of(cls, launch: Launch) -> LaunchState:
        """Return the one state of a launch: what was found for one is known to all who ask."""
        known: LaunchState | None = launch.__dict__.get("state")
        if known is None:
            known = launch.__dict__["state"] = cls(launch)
        return known

    @property
    def functions(self) -> Collection[str]:
        """Names of the quantities that code computes."""
        return _FUNCTIONS.keys()

    def _find(self, name: str) -> float:
        if name.startswith(_WAIT):
            reason = name.removeprefix(_WAIT)
            # waits of kinds of traffic are not told apart where copies wait, too
            unknown = not self._waits or (
                reason in ("local_memory", "global_atomics") and unseen_traffic(self.launch)
            )
            return self._waits.get(reason, math.nan if unknown else 0.0)
        if name.startswith(_SHARE):
            return self._shares[name.removeprefix(_SHARE)]
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](self)
        if name in derived():
            return self.value(derived()[name])
        return self.launch[name]

    @cached_property
    def _waits(self) -> Mapping[str, float]:
        return waits(self.launch)

    @cached_property
    def _shares(self) -> Mapping[str, float]:
        """Shares of the sectors that pass L1, and of the wavefronts of shared memory, by kind."""
        shares = {}
        for traffic, usual in (
            (global_traffic(self.launch), "global"),
            (shared_traffic(self.launch), "shared"),
        ):
            total = sum(traffic.values())
            for kind, amount in traffic.items():
                shares[kind] = amount / total if total > 0 else float(kind == usual)
        return shares


def _active(state: LaunchState) -> float:
    """Part of the time in which a multiprocessor has a block, in the mean; 1 if not known."""
    # Where it was not counted: a grid of fewer blocks than multiprocessors leaves the others idle.
    active, blocks = state.launch["sm_efficiency"], placed_blocks(state.launch)
    if not math.isnan(active):
        return active
    return min(1.0, blocks) if blocks > 0 else 1.0


def wave_fill(waves: float) -> float:
    """Return how full the waves of blocks are on average: 0.13 waves fill 13 % of one."""
    # 1.28 waves take the time of 2 and fill 64 % of them: the tail effect of the last wave.
    return waves / math.ceil(waves) if waves > 0 else math.nan


def _busiest_memory(state: LaunchState) -> float:
    """How busy the busiest level of the memory is."""
    launch = state.launch
    levels = (launch["dram_utilization"], launch["l2_utilization"], l1_level(launch))
    return max((level for level in levels if level >= 0), default=math.nan)


def _l1_busy(state: LaunchState) -> float:
    """How busy L1 is by the largest of what was collected of it; NaN where nothing was."""
    launch = state.launch
    levels = (l1_level(launch), launch["l1_utilization"])
    return max((level for level in levels if level >= 0), default=math.nan)


def _short_scoreboard(state: LaunchState) -> float:
    """Part of the time that warps wait for results of shared memory that no kind has by itself."""
    whole = state.launch["stall_short_scoreboard"]
    return math.nan if math.isnan(whole) else min(whole, state["wait.stall_exec_dependency"])


def _fixed_latency(state: LaunchState) -> float:
    """Part of the time that warps wait for results of arithmetic."""
    waited, short = state["wait.stall_exec_dependency"], state["short_scoreboard"]
    return waited if math.isnan(short) else max(0.0, waited - short)


def _of_doubles(state: LaunchState) -> float:
    """Whether the arrays of a launch are of doubles, by the name of its template."""
    return float(_OF_DOUBLES.search(state.launch.kernel) is not None)


def _doubles(state: LaunchState) -> float:
    """Part of the arithmetic in double precision; by the name of a template without arithmetic."""
    launch = state.launch
    doubles, floats = launch["flop_count_dp"], launch["flop_count_sp"]
    if doubles + floats > 0:
        return doubles / (doubles + floats)
    return _of_doubles(state)


def _issuing(state: LaunchState) -> float:
    """Part of the time of a warp in which it issues."""
    launch = state.launch
    selected = launch["stall_selected"]
    if not math.isnan(selected) or not launch["achieved_occupancy"] > 0:
        return selected
    issued = launch["ipc"] / (resident_warps(launch) * launch["achieved_occupancy"])
    return issued if math.isnan(issued) else min(1.0, issued)


def _uncounted(state: LaunchState) -> float:
    """Return the part of the time of a warp of which no reason was collected.

    None is, where all reasons were that warps usually wait for.
    """
    launch, usual = state.launch, set(STALLS) & set(PUBLISHED)
    if not any(math.isnan(launch[name]) for name in usual):
        return 0.0
    counted = sum(known(launch[name]) for name in STALLS if name != "stall_selected")
    return max(0.0, 1 - counted - known(state["issuing"]))


def _tensor_level(state: LaunchState) -> float:
    """How busy tensor cores are: their cycles, or their instructions where cycles are unknown."""
    cycles = state.launch["tensor_cycles_utilization"]
    return state.launch["tensor_utilization"] if math.isnan(cycles) else cycles


def _queued_loads(state: LaunchState) -> float:
    """Part of what loads are waited for that they stand in a queue; 1 if not known."""
    # A load that waits for no longer than it takes from where its data lies stands in none.
    longest = state["load_latency"] / state["load_wait"] if state["load_wait"] > 0 else math.nan
    return 1.0 if math.isnan(longest) else 1 - min(1.0, longest)


def _bytes_wanted(state: LaunchState) -> float:
    """Bytes that global loads and stores ask for; what they move where that was not counted."""
    asked = state["bytes_asked"]
    return SECTOR * state["sectors"] if math.isnan(asked) else asked


def _unseen(state: LaunchState) -> float:
    """1 where L2 or DRAM moved more than loads and stores ask for, else 0; NaN if not counted."""
    below = state["l2_sectors"] + state["dram_bytes"] + state["sectors"]
    return math.nan if math.isnan(below) else float(unseen_traffic(state.launch))


_FUNCTIONS: Mapping[str, Callable[[LaunchState], float]] = {
    "active": _active,
    "blocks": lambda state: state.launch.blocks,
    "multiprocessors": lambda state: state.launch.chip.multiprocessors,
    "at_work": lambda state: min(1.0, known(placed_blocks(state.launch), 1.0)),
    "even": lambda state: evenness(state.launch),
    "wave_fill": lambda state: wave_fill(state.launch["waves_per_sm"]),
    "busiest_memory": _busiest_memory,
    "short_scoreboard": _short_scoreboard,
    "fixed_latency": _fixed_latency,
    "doubles": _doubles,
    "of_doubles": _of_doubles,
    "issuing": _issuing,
    "tensor_level": _tensor_level,
    "l1_level": lambda state: l1_level(state.launch),
    "l1_busy": _l1_busy,
    "bytes_asked": lambda state: bytes_asked(state.launch),
    "warps": lambda state: resident_warps(state.launch),
    "queued_loads": _queued_loads,
    "bytes_wanted": _bytes_wanted,
    "load_latency": lambda state: load_latency(state.launch),
    "unseen_traffic": _unseen,
    "uncounted_wait": _uncounted,
    "flops": lambda state: operations(state.launch),
    "time": lambda state: state.launch.time_us,
}
