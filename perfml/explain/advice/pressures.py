"""How much of a launch's time a kind of access takes: inputs of rules about shared units.

Several kinds of access pass one unit (`perfml.explain.limits.traffic`); each of these inputs is
what the unit is busy with one kind, or what warps wait for it, whichever is more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from perfml.chips import of_rows
from perfml.explain.advice.slow_launch import BELOW, SUSTAINED, SlowLaunch
from perfml.explain.launches import Launch
from perfml.explain.limits.traffic import global_traffic, l1_level, shared_traffic, waits
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns

Pressure = Callable[[Launch], float]

LEVELS = (
    "dram_utilization",
    "l2_utilization",
    "shared_utilization",
    "single_precision_fu_utilization",
    "double_precision_fu_utilization",
    "half_precision_fu_utilization",
    "special_fu_utilization",
    "ldst_fu_utilization",
    "tensor_utilization",
    "tensor_cycles_utilization",
    "issue_slot_utilization",
)
"""Busy fractions of units; a launch cannot become shorter than its busiest unit is busy."""


def per_launch(
    of: Pressure, used: Sequence[str], otherwise: float = 0.0
) -> Callable[[pd.DataFrame], Array]:
    """Return a function that makes an input of launches.

    Parameters
    ----------
    of
        Gives the input of one launch.
    used
        Counters of which one is above 0 where a launch does something of the kind.
    otherwise
        The input of launches that do nothing of the kind.
    """

    def make(frame: pd.DataFrame) -> Array:
        there = [name for name in used if name in frame.columns]
        doing = (frame[there].fillna(0.0) > 0).any(axis=1).to_numpy(dtype=bool)
        names = metric_columns(frame)
        values = np.full(len(frame), otherwise)
        places = np.flatnonzero(doing)
        if not len(places):
            return values
        # once for all: taking a row out of a table costs more than what is computed of it
        rows = frame[names].iloc[places].to_numpy(dtype=float, na_value=np.nan)
        times = frame["time_us"].to_numpy(dtype=float)[places].tolist()
        chips = of_rows(frame)[places]
        for place, row, time, chip in zip(places, rows.tolist(), times, chips, strict=True):
            values[place] = of(Launch("", time, dict(zip(names, row, strict=True)), chip=chip))
        return values

    return make


def _most(*values: float) -> float:
    return min(1.0, max((0.0, *(value for value in values if not np.isnan(value)))))


def shared_level(launch: Launch) -> float:
    """Return how busy shared memory keeps L1 while there is a block."""
    return SlowLaunch(launch).shared_level


def global_atomics(launch: Launch) -> float:
    """Return the part of the time that atomics on global memory take."""
    return _most(launch["l2_atomic_utilization_max"], waits(launch).get("global_atomics", 0.0))


def shared_atomics(launch: Launch) -> float:
    """Return the part of the time that atomics on shared memory take."""
    return _of_shared(launch, "shared_atomics")


def lane_exchange(launch: Launch) -> float:
    """Return the part of the time that values sent between lanes take."""
    return _of_shared(launch, "lsu_pipe_time")


def _of_shared(launch: Launch, kind: str) -> float:
    traffic = shared_traffic(launch)
    share = traffic[kind] / max(sum(traffic.values()), 1.0)
    return _most(share * launch["shared_utilization"], waits(launch).get(kind, 0.0))


def local_share(launch: Launch) -> float:
    """Return the share of local memory among the sectors that pass L1."""
    traffic = global_traffic(launch)
    return traffic["local_memory"] / max(sum(traffic.values()), 1.0)


def local_memory(launch: Launch) -> float:
    """Return the part of the time that local memory takes."""
    busy = _most(launch["l2_utilization"], launch["dram_utilization"])
    return _most(local_share(launch) * busy, waits(launch).get("local_memory", 0.0))


def bytes_per_request(launch: Launch) -> float:
    """Return how many bytes a warp asks for at once, of loads and stores; NaN if not known."""
    asked = 0.0
    for kind in ("gld", "gst"):
        moved = launch[f"{kind}_transactions"]
        if moved > 0:
            asked += 32 * moved * launch[f"{kind}_efficiency"]
    return asked / launch.total(("global_load_requests", "global_store_requests"))


def loads_for_dram(launch: Launch) -> float:
    """Return how often each byte that DRAM read was loaded; NaN if it read nothing."""
    read = launch["dram_read_bytes"]
    asked = 32 * launch["gld_transactions"] * launch["gld_efficiency"]
    return asked / read if read > 0 else float("nan")


def sectors(launch: Launch) -> float:
    """Return the part of the time that fewer sectors can save.

    Sectors fill L1, L2, DRAM or their queues. A load that waits for no longer than where it comes
    from takes waits as long for one sector; what it waits beyond that, it stands in a queue.
    """
    state = SlowLaunch(launch)
    cycles = state.waited("stall_memory_dependency", by="global_load_requests")
    queued = 1 - min(state.latency / cycles, 1.0) if cycles > 0 else 1.0
    levels = [launch[name] / SUSTAINED[name] for name in BELOW]
    waiting = 0.0 if math.isnan(queued) else queued * launch["stall_memory_dependency"]
    return _most(*levels, l1_level(launch), launch["stall_memory_throttle"], waiting)


_OTHERS = ("shared_atomic_transactions", "inst_inter_thread_communication")
_others_share = per_launch(lambda launch: 1 - _own_share(launch), _OTHERS)


def shared_access_share(frame: pd.DataFrame) -> Array:
    """Return the share of loads and stores among what passes shared memory."""
    return 1 - _others_share(frame)


def _own_share(launch: Launch) -> float:
    traffic = shared_traffic(launch)
    return traffic["shared"] / max(sum(traffic.values()), 1.0)


def busiest(rows: pd.DataFrame, relieved: Sequence[str] = ()) -> Array:
    """Return the busy fraction of the busiest unit, but for those that a mitigation relieves."""
    levels = [name for name in LEVELS if name in rows.columns and name not in relieved]
    if not levels:
        return np.zeros(len(rows))
    table = [rows[name].to_numpy(dtype=float, na_value=np.nan) for name in levels]
    highest: Array = np.clip(np.nan_to_num(np.fmax.reduce(table), nan=0.0), 0, 1)
    return highest
