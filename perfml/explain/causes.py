"""Causes: the physical attribution, with what its residual hides named by stalls, lanes and units.

The physical attribution divides a layer's time by work, occupancy and waves, and leaves the cost of
a unit of work to one residual, the rate per resident warp. Three kinds of counters say more of it:

- Warps spend their cycles waiting for known reasons. With the cost C of a unit of work (the
  residual's factor is the ratio of both sides' C) and the share s_r of a reason r, the part s_r C
  grows by its own amount; divided by the logarithmic mean of both C, these parts add up to the
  residual exactly (the additive form of the decomposition that `perfml.explain.physical` cites).
- Where the work was counted in lanes, fewer active lanes an instruction cost as many more
  instructions. Where it was counted in warp instructions or in pipe time, the additional ones are
  no work.
- Bytes of DRAM and busy time of memory are requests of warps, times the sectors a request touches,
  times what a sector costs there: scattered lanes are told from a larger working set.
- Units that have no account there (special functions, double precision) have busy time too. If such
  a unit is busier than the account's, it takes the account's place.

Nothing is fitted, and the causes add up to what the physical attribution adds up to.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from perfml.explain.accounts import ACCOUNTS, duration, number
from perfml.explain.physical import log_mean
from perfml.explain.results import LayerDiff, Physical
from perfml.explain.sides import Side, same_device
from perfml.metrics import STALLS
from perfml.tables import metric_columns

LANES = "lanes per instruction"

STALLED = tuple(name for name in STALLS if name not in ("stall_other", "stall_selected"))
"""Reasons that a counter names; the rest of the residual keeps the residual's name."""

_UNITS = {
    "special_fu_utilization": "work: special-function pipe time",
    "double_precision_fu_utilization": "work: FP64 pipe time",
}
_IN_LANES = ("FP32 operations",)
_IN_WARPS = {"instructions": "work: instructions", "FP32 pipe": "work: FP32 pipe time"}
_ISSUED = "issue rate per resident warp"
_PER_SECTOR = {
    "DRAM bytes": ("work: DRAM bytes", "DRAM bytes per sector"),
    "DRAM time": ("work: DRAM busy time", "DRAM busy time per sector"),
    "L2 time": ("work: L2 busy time", "L2 busy time per sector"),
}
_WORK = ("work: ", "sectors per request", "L2 sectors per L1 sector")


def find_causes(baseline: Side, target: Side, detail: LayerDiff) -> pd.DataFrame:
    """Return what makes a layer slower or faster, the largest first.

    Parameters
    ----------
    baseline, target
        The sides that were compared.
    detail
        The comparison of one of their layers, from `explain`.

    Returns
    -------
    DataFrame
        ``cause, log_ratio, factor, residual``; `log_ratio` adds up to that of the layer's time.
        Stalls are called ``stalls: NAME`` after their metric.

    Examples
    --------
    >>> from perfml.datasets import load
    >>> from perfml.explain import explain, sides_of
    >>> table = load("h200-sweep").frame
    >>> pair = sides_of(table[table["batch"] == 1], "cublas", "cudnn")
    >>> detail = explain(*pair, layers=["conv_20"], model=None).details[0]
    >>> causes = find_causes(*pair, detail)
    >>> bool(abs(causes["log_ratio"].sum() - detail.time.log_ratio) < 1e-9)
    True
    """
    before = _mean(baseline, detail.layer, detail.time.baseline_us)
    after = _mean(target, detail.target_layer, detail.time.target_us)
    comparable = same_device(baseline, target)
    return split_causes(detail.physical, before, after, same_device=comparable)


def split_causes(
    physical: Physical, before: pd.Series, after: pd.Series, *, same_device: bool = True
) -> pd.DataFrame:
    """Return the causes of a layer's log time ratio from its terms and both sides' mean rows.

    Busy fractions of units are compared where both sides ran on one kind of device only.
    """
    terms = physical.terms
    found = {
        str(row["term"]): float(row["log_ratio"])
        for row in terms[~terms["residual"].astype(bool)].to_dict(orient="records")
    }
    rests = {
        str(row["term"]): float(row["log_ratio"])
        for row in terms[terms["residual"].astype(bool)].to_dict(orient="records")
    }
    rest = sum(rests.values())
    name = max(rests, key=lambda term: abs(rests[term]), default="rate per resident warp")
    account = physical.account
    unit = _busier_unit(account, before, after) if same_device else None
    if unit is not None:
        moved = {term: value for term, value in found.items() if term.startswith(_WORK)}
        found = {term: value for term, value in found.items() if term not in moved}
        found[_UNITS[unit]] = _busy(after, unit) - _busy(before, unit)
        # what an instruction costs says nothing of what the unit's work costs
        rest += sum(moved.values()) + found.pop(_ISSUED, 0.0) - found[_UNITS[unit]]
        account = None
    lanes = _lanes(before, after)
    if lanes and account in _IN_LANES:
        found[LANES] = lanes
        rest -= lanes
    elif lanes and account in _IN_WARPS and _IN_WARPS[account] in found:
        found[LANES] = lanes
        found[_IN_WARPS[account]] -= lanes
    work, each = _PER_SECTOR.get(account or "", ("", ""))
    if work in found:
        sectors = _sectors(before, after)
        if sectors:
            found |= {**sectors, each: found.pop(work) - sum(sectors.values())}
    # where instructions were counted, the cost of one is known apart from clocks and idle SMs
    issued = _ISSUED in found
    cost = found.pop(_ISSUED) if issued else rest
    parts = _stalls(cost, before, after)
    unnamed = cost - sum(parts.values())
    if issued:
        found[_ISSUED] = unnamed
    else:
        rest = unnamed
    rows = [(cause, value, False) for cause, value in {**found, **parts}.items()]
    rows.append((name, rest, True))
    frame = pd.DataFrame(rows, columns=["cause", "log_ratio", "residual"])
    order = frame["log_ratio"].abs().sort_values(ascending=False, kind="stable").index
    frame = frame.loc[order].reset_index(drop=True)
    frame.insert(2, "factor", np.exp(frame["log_ratio"].to_numpy(dtype=float)))
    return frame


def _mean(side: Side, layer: str, time_us: float) -> pd.Series:
    rows = side.layers[side.layers["layer"] == layer]
    names = [name for name in ("ncu_time_us",) if name in rows.columns]
    means = rows[[*names, *metric_columns(rows)]].astype(float).mean()
    means["time_us"] = time_us
    return means


def _busy(row: pd.Series, unit: str) -> float:
    """Return the logarithm of a unit's busy time."""
    return math.log(number(row, unit) * duration(row))


def _busier_unit(account: str | None, before: pd.Series, after: pd.Series) -> str | None:
    """Return the unit without an account that was busier than the account's unit, if any."""
    rows = (before, after)
    chosen = {each.name: each.level for each in ACCOUNTS}.get(account or "")
    best, unit = 0.0 if chosen is None else _level(chosen, rows), None
    for each in _UNITS:
        if all(number(row, each) > 0 for row in rows) and _level(each, rows) > best:
            best, unit = _level(each, rows), each
    return unit


def _level(name: str, rows: tuple[pd.Series, pd.Series]) -> float:
    """Return the busy fraction over both sides, weighted by time."""
    total = sum(number(row, "time_us") for row in rows)
    return float(np.nansum([number(row, name) * number(row, "time_us") for row in rows])) / total


def _sectors(before: pd.Series, after: pd.Series) -> dict[str, float]:
    """Return what requests, and the sectors of a request, contribute to memory's work."""
    counts = []
    for row in (before, after):
        requests = number(row, "global_load_requests") + number(row, "global_store_requests")
        sectors = number(row, "gld_transactions") + number(row, "gst_transactions")
        if not (requests > 0 and sectors > 0):
            return {}
        counts.append((requests, sectors / requests))
    names = ("work: global requests", "sectors per request")
    return {name: math.log(right / left) for name, left, right in zip(names, *counts, strict=True)}


def _lanes(before: pd.Series, after: pd.Series) -> float:
    levels = [number(row, "warp_execution_efficiency") for row in (before, after)]
    return -math.log(levels[1] / levels[0]) if all(level > 0 for level in levels) else 0.0


def _stalls(rest: float, before: pd.Series, after: pd.Series) -> dict[str, float]:
    """Split the residual by the shares of the stalls; the shares of a side are at most 1."""
    cost = math.exp(rest)
    whole = log_mean(cost, 1.0)
    parts: dict[str, float] = {}
    shares = [{name: number(row, name) for name in STALLED} for row in (before, after)]
    known = [name for name in STALLED if not any(math.isnan(side[name]) for side in shares)]
    sums = [max(1.0, sum(side[name] for name in known)) for side in shares]
    for name in known:
        left, right = (side[name] / total for side, total in zip(shares, sums, strict=True))
        parts[f"stalls: {name}"] = (right * cost - left) / whole
    return parts
