"""Causes: the physical attribution kernel by kernel, with what its residual hides named.

The physical attribution counts one kind of work for a whole layer, divides its time by work,
occupancy and waves, and leaves the cost of a unit of work to one residual, the rate per resident
warp. Here every pair of kernels is counted in the work of the unit that is busiest on its slower
side, and counters say more of the cost:

- Warps spend their cycles waiting for known reasons. With the cost C of a unit of work (the
  residual's factor is the ratio of both sides' C) and the share s_r of a reason r, the part s_r C
  grows by its own amount; divided by the logarithmic mean of both C, these parts add up to the
  residual exactly (the additive form of the decomposition that `perfml.explain.physical` cites).
- Where the work was counted in lanes, fewer active lanes an instruction cost as many more
  instructions. Where it was counted in warp instructions or in pipe time, the additional ones are
  no work.
- More resident warps cannot make a unit busier than always. Fewer of them explain no more than the
  unit's idle time leaves room for.
- Bytes of DRAM and busy time of memory are requests of warps, times the sectors a request touches,
  times what a sector costs there: scattered lanes are told from a larger working set.

Nothing is fitted, and the causes add up to what the physical attribution adds up to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from perfml.explain.accounts import Account, number, usable
from perfml.explain.launches import Change, Launches
from perfml.explain.physical import (
    WHOLE_LAYER,
    Term,
    Unit,
    factors_of,
    ledger,
    log_mean,
    summed,
    units_of,
)
from perfml.explain.results import Causes
from perfml.explain.sides import Side
from perfml.metrics import STALLS
from perfml.tables import metric_columns

LANES = "lanes per instruction"

STALLED = tuple(name for name in STALLS if name not in ("stall_other", "stall_selected"))
"""Reasons that a counter names; the rest of the residual keeps the residual's name."""

_IN_LANES = ("FP32 operations",)
_IN_WARPS = {
    "instructions": "work: instructions",
    "FP32 pipe": "work: FP32 pipe time",
    "FP64 pipe": "work: FP64 pipe time",
    "special functions": "work: special-function pipe time",
}
_OCCUPANCY = ("occupancy limit", "occupancy reached")
_ISSUED = "issue rate per resident warp"
_GLOBAL = (
    ("work: global requests", ("global_load_requests", "global_store_requests")),
    ("sectors per request", ("gld_transactions", "gst_transactions")),
)
_SHARED = (
    ("work: shared loads", ("inst_executed_shared_loads",)),
    ("wavefronts per shared load", ("shared_load_transactions",)),
)
_COST_CHANGE = math.log(2)
"""If a counted wavefront of shared memory costs more than twice as much on one side, others use it:
warpgroup instructions read it in wavefronts that are not counted as loads."""
_COUNTED = {
    "DRAM bytes": ("work: DRAM bytes", _GLOBAL, "DRAM bytes per sector"),
    "DRAM time": ("work: DRAM busy time", _GLOBAL, "DRAM busy time per sector"),
    "L2 time": ("work: L2 busy time", _GLOBAL, "L2 busy time per sector"),
    "shared memory": (
        "work: shared-memory busy time",
        _SHARED,
        "shared-memory busy time per wavefront",
    ),
}
"""Work of a memory as a product: how many requests, parts of a request, cost of a part."""


def kernel_causes(
    changes: Sequence[Change], before: Launches, after: Launches, *, same_device: bool
) -> Causes:
    """Return the causes of a layer whose launches are known; see `attribute_kernels`."""
    assert before.frame is not None
    assert after.frame is not None
    units = units_of(changes, before.frame, after.frame)
    return _causes(units, same_device=same_device, single=True)


def layer_causes(before: pd.Series, after: pd.Series, *, same_device: bool) -> Causes:
    """Return the causes of a layer where only its merged row is known; see `attribute_layer`."""
    single = number(before, "kernels") == 1 and number(after, "kernels") == 1
    units = [Unit(WHOLE_LAYER, before, after)]
    return _causes(units, same_device=same_device, single=single)


def mean_row(side: Side, layer: str, time_us: float) -> pd.Series:
    """Return the means of a layer's merged rows, with a time that is given."""
    rows = side.layers[side.layers["layer"] == layer]
    names = [name for name in ("kernels", "ncu_time_us") if name in rows.columns]
    means = rows[[*names, *metric_columns(rows)]].astype(float).mean()
    means["time_us"] = time_us
    return means


def _causes(units: Sequence[Unit], *, same_device: bool, single: bool) -> Causes:
    def split(before: pd.Series, after: pd.Series) -> list[Term]:
        account = next(iter(usable([(before, after)], same_device)), None)
        return split_pair(before, after, account, single)

    pieces = ledger(units, split)
    named = {"term": "cause"}
    return Causes(
        terms=summed(pieces).rename(columns=named),
        by_kernel=pieces.drop(columns="residual").rename(columns=named),
        log_ratio=float(pieces["log_ratio"].sum()),
    )


def split_pair(
    before: pd.Series, after: pd.Series, account: Account | None, single: bool
) -> list[Term]:
    """Return the causes of one pair of kernels (or merged rows); they add up to its log ratio."""
    factors = factors_of(before, after, account, single)
    name, *levels, rest, _ = factors[-1]
    found: dict[str, Term] = {piece[0]: piece for piece in factors[:-1]}
    kind = "" if account is None else account.name
    _net_of_limit(found, before, after)
    idle = 0.0 if account is None else _without_room(found, account, before, after)
    if _ISSUED in found:
        _take(found, _ISSUED, -idle)
    else:
        rest += idle
    lanes = _lanes(before, after)
    if lanes is not None and kind in _IN_LANES:
        found[LANES] = lanes
        rest -= lanes[3]
    elif lanes is not None and _IN_WARPS.get(kind) in found:
        found[LANES] = lanes
        _take(found, _IN_WARPS[kind], lanes[3])
    work, counters, each = _COUNTED.get(kind, ("", _GLOBAL, ""))
    requests = _requests(counters, before, after) if work in found else []
    moved = sum(piece[3] for piece in requests)
    if kind == "shared memory" and requests and abs(found[work][3] - moved) > _COST_CHANGE:
        requests = []
    if requests:
        found |= {piece[0]: piece for piece in requests}
        _take(found, work, moved)
        _, left, right, value, _ = found.pop(work)
        parts = [_count(row, *counters[1][1]) for row in (before, after)]
        found[each] = (each, left / parts[0], right / parts[1], value, False)
    # where instructions were counted, the cost of one is known apart from clocks and idle SMs
    cost = found[_ISSUED][3] if _ISSUED in found else rest
    stalls = _stalls(cost, before, after)
    named = sum(piece[3] for piece in stalls)
    if _ISSUED in found:
        _take(found, _ISSUED, named)
    else:
        rest -= named
    return [*found.values(), *stalls, (name, levels[0], levels[1], rest, True)]


def _without_room(
    found: dict[str, Term], account: Account, before: pd.Series, after: pd.Series
) -> float:
    """Take out of the terms of occupancy what the busy unit has no room for, and return it.

    Had the side with fewer warps as many as the other, its unit could have worked at most as much
    more as it was idle: a factor of one over its busy fraction.
    """
    names = [name for name in _OCCUPANCY if name in found]
    whole = sum(found[name][3] for name in names)
    level = number(after if whole > 0 else before, account.level)
    if whole == 0 or not level > 0:
        return 0.0
    share = min(1.0, max(0.0, -math.log(level)) / abs(whole))
    for name in names:
        _take(found, name, (1 - share) * found[name][3])
    return (1 - share) * whole


def _net_of_limit(found: dict[str, Term], before: pd.Series, after: pd.Series) -> None:
    """Below one wave, take what the limit and the fill of a wave take back from each other.

    If fewer blocks fit, the same blocks fill more of a wave: as many warps are resident.
    """
    if not {"occupancy limit", "wave fill"} <= set(found):
        return
    if not all(0 < number(row, "waves_per_sm") <= 1 for row in (before, after)):
        return
    limit, fill = (found[name][3] for name in ("occupancy limit", "wave fill"))
    if limit * fill < 0:
        shared = math.copysign(min(abs(limit), abs(fill)), limit)
        _take(found, "occupancy limit", shared)
        _take(found, "wave fill", -shared)


def _take(found: dict[str, Term], name: str, value: float) -> None:
    """Take what another cause explains out of a cause."""
    cause, left, right, whole, residual = found[name]
    found[name] = (cause, left, right, whole - value, residual)


def _count(row: pd.Series, *names: str) -> float:
    return sum(number(row, name) for name in names)


def _requests(
    counters: Sequence[tuple[str, tuple[str, ...]]], before: pd.Series, after: pd.Series
) -> list[Term]:
    """Return what requests, and the parts of a request, contribute to a memory's work."""
    (work, asked), (each, moved) = counters
    requests = [_count(row, *asked) for row in (before, after)]
    parts = [_count(row, *moved) for row in (before, after)]
    if not all(value > 0 for value in (*requests, *parts)):
        return []
    ratios = [part / request for part, request in zip(parts, requests, strict=True)]
    return [
        (name, left, right, math.log(right / left), False)
        for name, (left, right) in ((work, requests), (each, ratios))
    ]


def _lanes(before: pd.Series, after: pd.Series) -> Term | None:
    left, right = (number(row, "warp_execution_efficiency") for row in (before, after))
    if left > 0 and right > 0 and left != right:
        return LANES, left, right, -math.log(right / left), False
    return None


def _stalls(rest: float, before: pd.Series, after: pd.Series) -> list[Term]:
    """Split the residual by the shares of the stalls; the shares of a side are at most 1."""
    cost = math.exp(rest)
    whole = log_mean(cost, 1.0)
    shares = [{name: number(row, name) for name in STALLED} for row in (before, after)]
    known = [name for name in STALLED if not any(math.isnan(side[name]) for side in shares)]
    sums = [max(1.0, sum(side[name] for name in known)) for side in shares]
    parts: list[Term] = []
    for name in known:
        before_share, after_share = (side[name] for side in shares)
        left, right = before_share / sums[0], after_share / sums[1]
        value = (right * cost - left) / whole
        parts.append((f"stalls: {name}", before_share, after_share, value, False))
    return parts
