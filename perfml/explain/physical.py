"""The physical attribution: a log time ratio as a sum of terms from counters, without training.

A layer's time is a sum over its kernels, and a kernel's time a product of work and cost. The
logarithmic mean carries the logarithms of the products through the sum without a remainder: with
L(a, b) = (a - b) / ln(a / b), kernel k contributes L(t_k, b_k) / L(t, b) * ln(t_k / b_k), and a
kernel that only one side has contributes its time over L(t, b) (B. W. Ang, "The LMDI approach to
decomposition analysis", Energy Policy 33, 2005). Kernels that answer to each other are split
further into factors; what no counter separates stays in one named residual.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.explain.accounts import (
    OUTSIDE,
    Account,
    Pair,
    cost_factors,
    duration,
    number,
    usable,
)
from perfml.explain.launches import PAIRED, Change, Launches, kernel_label
from perfml.explain.results import Physical

VANISHED, APPEARED = "kernels that vanished", "kernels that appeared"

_WANTED = ("theoretical_occupancy", "waves_per_sm", "achieved_occupancy")
_COUNTED = (
    "inst_executed",
    "ipc",
    "dram_read_bytes",
    "dram_write_bytes",
    "l2_read_transactions",
    "global_load_requests",
    "sm_efficiency",
)
LAUNCH_COUNT = "launch count"
WHOLE_LAYER = "whole layer"


Term = tuple[str, float, float, float, bool]
"""Name, level on either side, logarithm, and whether it is a residual."""
Split = Callable[[pd.Series, pd.Series], list[Term]]


@dataclass(frozen=True)
class Unit:
    """Launches that answer to each other, or (one of the two missing) a launch of one side."""

    label: str
    before: pd.Series | None
    after: pd.Series | None


def log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers; it lies between them.

    Examples
    --------
    >>> round(log_mean(1.0, 2.0), 4)
    1.4427
    """
    step = math.log(a / b)
    return b if step == 0 else b * math.expm1(step) / step


def attribute_kernels(
    changes: Sequence[Change], before: Launches, after: Launches, *, same_device: bool
) -> Physical:
    """Attribute a layer's log time ratio to its kernels and their factors.

    Parameters
    ----------
    changes
        From `changes_between`.
    before, after
        Launches of both sides, with frames.
    same_device
        Whether busy fractions of the two sides are fractions of the same peak.
    """
    left, right = before.frame, after.frame
    assert left is not None
    assert right is not None
    units = units_of(changes, left, right)
    return _attribute(units, same_device=same_device, single=True)


def attribute_layer(before: pd.Series, after: pd.Series, *, same_device: bool) -> Physical:
    """Attribute a layer's log time ratio where only its merged row is known.

    The rows hold ``time_us``, ``kernels`` and the layer's metrics.
    """
    single = number(before, "kernels") == 1 and number(after, "kernels") == 1
    unit = Unit(WHOLE_LAYER, before, after)
    found = _attribute([unit], same_device=same_device, single=single)
    wanted = ("kernels table (to tell kernels that vanished or appeared from those that changed)",)
    return Physical(
        found.account,
        found.terms,
        found.by_kernel,
        found.log_ratio,
        found.accounts,
        (*wanted, *found.missing),
    )


def units_of(changes: Sequence[Change], left: pd.DataFrame, right: pd.DataFrame) -> list[Unit]:
    """Return the launches of both sides (frames of `Launches`) as they answer to each other."""
    return [unit for change in changes for unit in _units(change, left, right)]


def _units(change: Change, left: pd.DataFrame, right: pd.DataFrame) -> list[Unit]:
    before = [_label(left, place) for place in range(len(left))]
    after = [_label(right, place) for place in range(len(right))]
    if change.kind in PAIRED:
        return [
            Unit(before[i], left.iloc[i], right.iloc[j])
            for i, j in zip(change.baseline, change.target, strict=True)
        ]
    gone, new = list(change.baseline), list(change.target)
    units = []
    if gone and new:
        i = max(gone, key=lambda place: _weight(_row(left, place)))
        j = max(new, key=lambda place: _weight(_row(right, place)))
        gone.remove(i)
        new.remove(j)
        units.append(Unit(f"{before[i]} -> {after[j]}", left.iloc[i], right.iloc[j]))
    units += [Unit(before[i], left.iloc[i], None) for i in gone]
    units += [Unit(after[j], None, right.iloc[j]) for j in new]
    return units


def _label(frame: pd.DataFrame, place: int) -> str:
    return kernel_label(str(frame["kernel"].iloc[place]), 64)


def _row(frame: pd.DataFrame, place: int) -> pd.Series:
    row: pd.Series = frame.iloc[place]
    return row


_ARITHMETIC = re.compile(r"gemm|conv(?!ert)|fprop|dgrad|wgrad|winograd|mma|attention|flash", re.I)
"""Names of kernels that do a layer's arithmetic; what is added around them is not called so."""


def _weight(row: pd.Series) -> tuple[float, float, float]:
    """Order the kernels of a replaced run: first the one that does the arithmetic.

    By name, since a warpgroup instruction keeps the tensor pipe busy for longer than its level
    says; then by how busy the arithmetic pipes were, then by time.
    """
    busy = np.array(
        [number(row, "tensor_utilization"), number(row, "single_precision_fu_utilization")]
    )
    worked = float(np.nansum(busy)) * duration(row)
    time = number(row, "time_us")
    if _ARITHMETIC.search(str(row["kernel"])):
        return time, worked, time
    return 0.0, worked, time


def _attribute(units: Sequence[Unit], *, same_device: bool, single: bool) -> Physical:
    pairs: list[Pair] = [
        (unit.before, unit.after)
        for unit in units
        if unit.before is not None and unit.after is not None
    ]
    accounts = usable(pairs, same_device) if pairs else []
    ledgers = {each.name: ledger(units, _counted_in(each, single)) for each in accounts} or {
        "": ledger(units, _counted_in(None, single))
    }
    name = next(iter(ledgers))
    others = [
        summed(each).assign(account=key)[["account", "term", "log_ratio"]]
        for key, each in ledgers.items()
        if key and key != name
    ]
    before, after = _totals(units)
    return Physical(
        account=name or None,
        terms=summed(ledgers[name]),
        by_kernel=ledgers[name].drop(columns="residual"),
        log_ratio=math.log(after / before),
        accounts=pd.concat(others, ignore_index=True)
        if others
        else pd.DataFrame(columns=["account", "term", "log_ratio"]),
        missing=_missing(pairs, same_device),
    )


def _totals(units: Sequence[Unit]) -> tuple[float, float]:
    """Return the times of both sides."""
    before = sum(number(unit.before, "time_us") for unit in units if unit.before is not None)
    after = sum(number(unit.after, "time_us") for unit in units if unit.after is not None)
    return before, after


def _counted_in(account: Account | None, single: bool) -> Split:
    return lambda before, after: factors_of(before, after, account, single)


def ledger(units: Sequence[Unit], split: Split) -> pd.DataFrame:
    """Return one row a term of a unit, weighted so that all of them add up to the layer's ratio.

    Parameters
    ----------
    units
        From `units_of`.
    split
        Splits the logarithm of a pair's ratio into terms.

    Returns
    -------
    DataFrame
        ``kernels, term, baseline, target, log_ratio, residual``.
    """
    before, after = _totals(units)
    whole = log_mean(after, before)
    rows: list[tuple[str, str, float, float, float, bool]] = []
    for unit in units:
        if unit.after is None and unit.before is not None:
            time = number(unit.before, "time_us")
            rows.append((unit.label, VANISHED, time, 0.0, -time / whole, False))
        elif unit.before is None and unit.after is not None:
            time = number(unit.after, "time_us")
            rows.append((unit.label, APPEARED, 0.0, time, time / whole, False))
        elif unit.before is not None and unit.after is not None:
            share = log_mean(number(unit.after, "time_us"), number(unit.before, "time_us")) / whole
            rows += [
                (unit.label, term, left, right, share * value, residual)
                for term, left, right, value, residual in split(unit.before, unit.after)
            ]
    columns = ["kernels", "term", "baseline", "target", "log_ratio", "residual"]
    return pd.DataFrame(rows, columns=columns)


def factors_of(
    before: pd.Series, after: pd.Series, account: Account | None, single: bool
) -> list[Term]:
    """Split ln(after / before) of one launch.

    The logarithms add up to that of the times; the residual is last.
    """
    rows = (before, after)
    rest = math.log(number(after, "time_us") / number(before, "time_us"))
    found: list[Term] = []

    def take(term: str, left: float, right: float, sign: float) -> None:
        nonlocal rest
        value = sign * math.log(right / left)
        rest -= value
        found.append((term, left, right, value, False))

    profiled = all(number(row, "ncu_time_us") > 0 for row in rows)
    if profiled and any(number(row, "time_us") != duration(row) for row in rows):
        left, right = (number(row, "time_us") / duration(row) for row in rows)
        take(OUTSIDE, left, right, 1.0)
    amounts = [float("nan")] * 2 if account is None else [account.amount(row) for row in rows]
    if account is None or not all(amount > 0 for amount in amounts):
        left, right = (duration(row) for row in rows)
        found.append(("kernels without counters of work", left, right, rest, True))
        return found
    counts = [number(row, "kernels") for row in rows]
    if not single and all(count > 0 for count in counts) and counts[0] != counts[1]:
        # a merged row: more launches of as much work each are more work
        take(LAUNCH_COUNT, counts[0], counts[1], 1.0)
        left, right = (amount / count for amount, count in zip(amounts, counts, strict=True))
        take(f"{account.work} a launch", left, right, 1.0)
    else:
        for (term, left), (_, right) in _parts(account, rows, amounts):
            take(term, left, right, 1.0)
    reached, taken = [1.0, 1.0], [1.0, 1.0]
    residual = "achieved rate"
    for factor in cost_factors(account, single):
        levels = [factor.value(row) for row in rows]
        if not all(level > 0 for level in levels):
            continue
        # an absolute level is measured against what the levels before it would give
        steps = [a / b for a, b in zip(levels, reached, strict=True)] if factor.absolute else levels
        reached = [a * b for a, b in zip(reached, steps, strict=True)]
        if factor.most is not None:
            # more warps than blocks on all multiprocessors would give: some of these are idle, and
            # that is said already
            steps = [min(step, factor.most) for step in steps]
        take(factor.term, steps[0], steps[1], -1.0)
        taken = [a * b for a, b in zip(taken, steps, strict=True)]
        residual = factor.then
    rates = [amount / duration(row) for amount, row in zip(amounts, rows, strict=True)]
    left, right = (rate / level for rate, level in zip(rates, taken, strict=True))
    found.append((residual, left, right, rest, True))
    return found


def _parts(
    account: Account, rows: Pair, amounts: Sequence[float]
) -> list[tuple[tuple[str, float], tuple[str, float]]]:
    """Return the factors of the work on both sides; one factor where a side cannot be split."""
    left, right = (account.parts(row) for row in rows)
    split = [name for name, _ in left] == [name for name, _ in right]
    if split and all(value > 0 for _, value in (*left, *right)):
        return list(zip(left, right, strict=True))
    return [((account.work, amounts[0]), (account.work, amounts[1]))]


def summed(pieces: pd.DataFrame) -> pd.DataFrame:
    """Return the terms over all kernels, the largest first."""
    sums = pieces.groupby("term", sort=False).agg(
        log_ratio=("log_ratio", "sum"), residual=("residual", "any")
    )
    order = sums["log_ratio"].abs().sort_values(ascending=False, kind="stable").index
    sums = sums.loc[order].reset_index()
    sums.insert(2, "factor", np.exp(sums["log_ratio"].to_numpy(dtype=float)))
    return sums


def _missing(pairs: Sequence[Pair], same_device: bool) -> tuple[str, ...]:
    """Return what would split the terms further and was not collected."""
    rows = [row for pair in pairs for row in pair]
    absent = [
        name
        for name in (*_WANTED, *_COUNTED)
        if rows and all(math.isnan(number(row, name)) for row in rows)
    ]
    if "sm_efficiency" in absent:
        absent.remove("sm_efficiency")
        absent.append("sm_efficiency (without it, pipe times are of active multiprocessors only)")
    if not same_device:
        absent.append("peaks of both devices (busy fractions of different devices do not compare)")
    return tuple(absent)
