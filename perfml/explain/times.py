"""How much slower: a ratio of times with its interval, its verdict, and its sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.explain.confidence import TimeVerdict
from perfml.metrics.sets import CACHED, INSTRUCTIONS, REPEATABLE
from perfml.util.json_values import json_object
from perfml.util.typing import Floats
from perfml.util.words import say


@dataclass(frozen=True)
class Ratio:
    """Target time over baseline time.

    Attributes
    ----------
    baseline_us, target_us
        Geometric means over the repeats, microseconds; means of launches that answer to each other.
    log_ratio
        Natural logarithm of target over baseline; above 0 the target is slower.
    log_low, log_high
        Interval of `log_ratio`; None without repeats on both sides.
    repeats
        Of the baseline and of the target.
    verdict
        ``slower``, ``faster``, ``no difference``, or ``undecided`` where the repeats scatter too
        much to say.
    processes
        Of the baseline and of the target. The interval covers the scatter between processes only
        where both sides have several.
    p_value
        Of a difference beyond the tolerance, for this ratio alone; None without an interval.
    compared
        How many ratios were judged together (`perfml.explain.times.corrected_verdicts`).
    unclaimed
        Why nothing is claimed of these times, as the beginning of a sentence; empty else.
    of
        What takes these times: ``kernels``, while the device is busy with them, or the ``clock``,
        with copies and idle time.
    """

    baseline_us: float
    target_us: float
    log_ratio: float
    log_low: float | None
    log_high: float | None
    repeats: tuple[int, int]
    verdict: TimeVerdict
    processes: tuple[int, int] = (1, 1)
    p_value: float | None = None
    compared: int = 1
    unclaimed: str = ""
    of: Literal["kernels", "clock"] = "kernels"

    JSON: ClassVar = (
        *("baseline_us", "target_us", "ratio", "interval", "log_ratio", "repeats", "processes"),
        *("scope", "p_value", "compared", "verdict", "of"),
    )

    @property
    def of_what(self) -> str:
        """What takes these times, in words."""
        return say(f"explain.time.of_{self.of}")

    @property
    def scope(self) -> str | None:
        """What the interval covers, in words; None without one."""
        if self.interval is None:
            return None
        over = "over" if min(self.processes) > 1 else "within"
        return say(f"explain.time.{over}", processes=self.processes)

    @property
    def slower(self) -> int | None:
        """The side that is slower: 0 the baseline, 1 the target; None where neither is."""
        return {"slower": 1, "faster": 0}.get(self.verdict)

    @property
    def ratio(self) -> float:
        """Target over baseline."""
        return math.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of `ratio`, or None."""
        if self.log_low is None or self.log_high is None:
            return None
        return math.exp(self.log_low), math.exp(self.log_high)

    def sentence(self) -> str:
        """Say it in words."""
        if self.unclaimed:
            return say("explain.time.unclaimed", time=self)
        sure = say(f"explain.time.{'one_side' if self.interval is None else 'interval'}", time=self)
        most = max(abs(math.expm1(bound or 0)) for bound in (self.log_low, self.log_high))
        many = self.compared if self.compared > 1 else None
        fast = 1 / self.ratio if self.ratio < 1 else None
        form = f"explain.time.{self._form}"
        return say(form, time=self, sure=sure, most=most, many=many, fast=fast)

    @property
    def _form(self) -> str:
        """The row of its words."""
        where = self.interval
        if self.verdict == "no difference":
            return "same" if where is None else "shown"
        if self.verdict != "undecided":
            return "differs"
        if where is None:
            return "one_launch"
        repeats_tell = (self.p_value or 0.0) * self.compared <= 0.05
        clear = (where[0] - 1) * (where[1] - 1) > 0
        return "processes" if min(self.processes) == 1 and clear and repeats_tell else "scatter"

    to_dict = json_object


TOLERANCE = 0.01
"""Ratios within 1 % of 1 are no difference: repeats of one process agree better than processes."""

SINGLE = 0.03
"""A difference of up to 3 % of one process a side is not claimed: its interval, if there is one,
holds for this process alone. Of 78 kernels that ran twice in a row under Nsight Compute with cold
caches (an H200, 2026-11-22), 17 differed by more than 1 %, 5 by more than 2 %, one by 3.1 %."""

SAME_WORK = 0.06
"""The same of sides that did the same, count for count: what is left is by how much two processes
of one program differ. Of 18,413 layers in two processes each (``datasets/atlas/times.parquet``, an
H200), 2,237 differed by more than 3 %, 636 by more than 6 %; of the 4,335 of 10 us and more, 147
and 67."""

EQUIVALENT = 0.05
"""An interval that lies within 5 % of 1 is no difference; a wider one around 1 decides nothing."""


def compare_times(
    baseline_us: npt.ArrayLike,
    target_us: npt.ArrayLike,
    *,
    baseline_process: npt.ArrayLike | None = None,
    target_process: npt.ArrayLike | None = None,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
    same_work: bool = False,
    in_order: bool = False,
) -> Ratio:
    """Compare two sets of repeated times.

    The ratio is that of geometric means, its interval Welch's t-interval of the difference of
    mean log times. Launches that answer to each other (levels of a graph search, diagonals of a
    solver) are compared `in_order`: the ratio is that of all of them, its interval over the pairs.
    Where both sides were timed in several processes, it is taken over the means
    of the processes and covers what differs between them (addresses, clocks, the order of
    allocations); else over the repeats, and holds within that one process only.

    Parameters
    ----------
    baseline_us, target_us
        Times of the repeats, microseconds; one or more a side.
    baseline_process, target_process
        The process of each repeat: any labels. None for one process.
    confidence
        Of the interval.
    tolerance
        A difference is claimed only where the whole interval lies beyond 1 +/- `tolerance`, and
        where a side was timed in one process only beyond `SINGLE` too.
    same_work
        Whether both sides are known to have done the same: then beyond `SAME_WORK` instead.
    in_order
        Whether both sides have as many times, which answer to each other by their places.

    Returns
    -------
    Ratio
        Without an interval where a side has one repeat only.

    Raises
    ------
    PerfmlError
        If a time is not positive, or a side has none.

    Examples
    --------
    >>> compare_times([10.0, 10.1, 9.9], [20.1, 19.9, 20.0]).verdict
    'slower'
    """
    logs = _logs(baseline_us, "baseline"), _logs(target_us, "target")
    means = (
        _process_means(logs[0], baseline_process, "baseline"),
        _process_means(logs[1], target_process, "target"),
    )
    across = len(means[0]) > 1 and len(means[1]) > 1
    before, after = means if across else logs
    centres = [float(side.mean()) for side in (before, after)]
    log_ratio = centres[1] - centres[0]
    low = high = p_value = None
    if len(before) > 1 and len(after) > 1:
        interval = _welch
        if in_order and not across:
            interval, centres = _over_pairs, [math.log(np.exp(side).mean()) for side in logs]
            log_ratio = centres[1] - centres[0]
        half, chance = interval(before, after, confidence, abs(log_ratio) - math.log1p(tolerance))
        if half < _WIDEST:
            low, high, p_value = log_ratio - half, log_ratio + half, chance
    least = 0.0 if across else math.log1p(SAME_WORK if same_work else SINGLE)
    return Ratio(
        baseline_us=math.exp(centres[0]),
        target_us=math.exp(centres[1]),
        log_ratio=log_ratio,
        log_low=low,
        log_high=high,
        repeats=(len(logs[0]), len(logs[1])),
        verdict=_verdict(log_ratio, low, high, tolerance, least),
        processes=(len(means[0]), len(means[1])),
        p_value=p_value,
    )


_WIDEST = math.log(1000)
"""An interval that reaches further to either side says no more than a single repeat does: one
launch is nearly all of the time, and hardly a degree of freedom is left."""


def _welch(before: Floats, after: Floats, confidence: float, beyond: float) -> tuple[float, float]:
    """Return half the interval of a difference of means, and its p-value (Welch 1947)."""
    # The p-value is how often a ratio no further from 1 than the tolerance would look as far, by
    # `beyond` its logarithm lies outside; in both directions, as the interval has two ends.
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import

    parts = [(float(side.var(ddof=1)) / len(side), len(side)) for side in (before, after)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0, 0.0 if beyond > 0 else 1.0
    freedom = variance**2 / sum(part**2 / (count - 1) for part, count in parts)
    half = float(stdtrit(freedom, 0.5 + confidence / 2) * np.sqrt(variance))
    return half, min(1.0, float(2 * stdtr(freedom, -beyond / np.sqrt(variance))))


FEWEST = 3
"""Pairs of launches that have an interval."""
_BY_CHANCE = 0.01
"""Sides whose launches are in one order more seldom than this by chance answer to each other."""


def follow(before: npt.ArrayLike, after: npt.ArrayLike) -> bool:
    """Return whether times of both sides grow and shrink together from launch to launch."""
    from scipy.special import betainc

    one, other = np.log(np.asarray(before, dtype=float)), np.log(np.asarray(after, dtype=float))
    if len(one) != len(other) or len(one) < FEWEST or not (np.ptp(one) and np.ptp(other)):
        return False
    # Pearson's correlation of unrelated normal numbers is a beta distribution over -1 to 1
    shape = len(one) / 2 - 1
    correlation = min(max(float(np.corrcoef(one, other)[0, 1]), -1.0), 1.0)
    return bool(betainc(shape, shape, (1 - correlation) / 2) < _BY_CHANCE)


def _over_pairs(
    before: Floats, after: Floats, confidence: float, beyond: float
) -> tuple[float, float]:
    """Return what `_welch` does, of pairs of launches by the share of time that a pair takes.

    One long launch is nearly all of the time: then there are few pairs, and little freedom.
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import

    share = np.exp((before + after) / 2)
    share /= share.sum()
    ratios, fewer = after - before, float((share**2).sum())
    scatter = float(share @ (ratios - share @ ratios) ** 2)
    if scatter * fewer < _SAME:
        return 0.0, 0.0 if beyond > 0 else 1.0
    error, freedom = math.sqrt(scatter * fewer / (1 - fewer)), 1 / fewer - 1
    half = float(stdtrit(freedom, 0.5 + confidence / 2) * error)
    return half, min(1.0, float(2 * stdtr(freedom, -beyond / error)))


_SAME = 1e-18
"""Ratios that scatter less differ by rounding."""


def may_overlap(rows: pd.DataFrame) -> bool:
    """Return whether times of a layer are sums over launches that may have run side by side."""
    # They are on several streams, and starts are not known.
    if "streams" not in rows.columns or not bool((rows["streams"] > 1).any()):
        return False
    return "wall_us" not in rows.columns or bool(rows["wall_us"].isna().any())


OVERLAP = (
    "undecided: launches on several streams may run side by side, and only the sums of their times "
    "are known"
)
"""Why nothing is claimed of such layers."""


def without_verdict(ratio: Ratio, why: str) -> Ratio:
    """Return a ratio of times that nothing follows from."""
    return replace(
        ratio, verdict="undecided", log_low=None, log_high=None, p_value=None, unclaimed=why
    )


def of_totals(ratio: Ratio, totals: tuple[float, float], *, unequal: bool) -> Ratio:
    """Return the ratio of the times of all launches of a kernel, by that of single launches.

    How often a kernel is launched is counted, so that the interval is as wide as that of one
    launch, around another ratio. `totals` are microseconds of all launches of either side;
    `unequal` says that the sides launch it unequally often, which is a difference of its own.
    """
    log_ratio = float(np.log(totals[1] / totals[0]))
    by = log_ratio - ratio.log_ratio
    bounds = [None if each is None else each + by for each in (ratio.log_low, ratio.log_high)]
    verdict, p_value = ratio.verdict, ratio.p_value
    if unequal:
        low, high = (log_ratio if each is None else each for each in bounds)
        verdict = _verdict(log_ratio, low, high, TOLERANCE, 0.0)
        p_value = None
    return replace(
        ratio,
        baseline_us=totals[0],
        target_us=totals[1],
        log_ratio=log_ratio,
        log_low=bounds[0],
        log_high=bounds[1],
        verdict=verdict,
        p_value=p_value,
    )


def processes_of(rows: pd.DataFrame) -> npt.NDArray[np.int64] | None:
    """Return the process that each row was timed in; None where the table does not say."""
    # A run is one process (`perfml.tables.RUN_COLUMNS`), unless the column ``process`` numbers
    # several within a run, as ``perfml collect --processes`` writes it.
    names = [name for name in ("run_id", "process") if name in rows.columns]
    if not names:
        return None
    # as many groups are one for most layers: pandas' groupby takes milliseconds to say so
    numbers = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        codes, known = pd.factorize(rows[name], use_na_sentinel=False)
        numbers = pd.factorize(numbers * len(known) + codes)[0]
    return np.asarray(numbers, dtype=np.int64)


_WRONG = 0.05  # chance that any layer is called slower or faster wrongly


def corrected_verdicts(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Return ratios whose verdicts hold together, not only one at a time."""
    # Of 20 layers without any difference one is called slower or faster at 95 %. Holm's correction
    # (Holm 1979, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    # Statistics 6, 65-70) keeps the chance of even one wrong call below 5 %. It was chosen over
    # Benjamini and Hochberg's because a reader acts on single layers, not on their share, and
    # because it holds for layers whose times move together. What it takes back becomes undecided.
    # `Ratio.compared` says how many were judged together.
    tested = [index for index, ratio in enumerate(ratios) if ratio.p_value is not None]
    tested.sort(key=lambda index: ratios[index].p_value or 0.0)
    results = [
        ratio if ratio.p_value is None else replace(ratio, compared=len(tested)) for ratio in ratios
    ]
    for rank, index in enumerate(tested):
        if (ratios[index].p_value or 0.0) * (len(tested) - rank) > _WRONG:
            # Holm stops at the first that fails: it and all with a larger p-value are undecided
            for later in tested[rank:]:
                if ratios[later].verdict in ("slower", "faster"):
                    results[later] = replace(results[later], verdict="undecided")
            break
    return results


_EXACT, _NEARLY = 0.001, 0.02
"""By how much counts of one program differ between runs, and what its caches let through."""
_MOST = dict.fromkeys(REPEATABLE, _EXACT) | dict.fromkeys(CACHED, _NEARLY)


def did_the_same(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Return whether rows of two sides are of one program: the same kernels and counts."""
    # Without instructions counted, nobody knows.
    sides = (before, after)
    if not all({"kernel_names", INSTRUCTIONS} <= set(side.columns) for side in sides):
        return False
    kernels = [set(side["kernel_names"].astype("string").fillna("")) for side in sides]
    if kernels[0] != kernels[1] or len(kernels[0]) != 1 or kernels[0] == {""}:
        return False
    counted = [name for name in _MOST if all(name in side.columns for side in sides)]
    means = {name: [float(side[name].astype(float).mean()) for side in sides] for name in counted}
    differ = (abs(a - b) > _MOST[name] * max(a, b) for name, (a, b) in means.items())
    return all(count > 0 for count in means[INSTRUCTIONS]) and not any(differ)


def _verdict(
    log_ratio: float, low: float | None, high: float | None, tolerance: float, least: float
) -> TimeVerdict:
    band = float(np.log1p(tolerance))
    if low is None or high is None:
        low = high = log_ratio
    if low > band or high < -band:
        if abs(log_ratio) <= least:
            return "undecided"
        return "slower" if low > band else "faster"
    if abs(log_ratio) <= band or max(-low, high) <= np.log1p(EQUIVALENT):
        return "no difference"
    return "undecided"


def _process_means(logs: Floats, process: npt.ArrayLike | None, side: str) -> Floats:
    """Return the mean log time of each process."""
    if process is None:
        return np.array([logs.mean()])
    codes = pd.factorize(np.asarray(process, dtype=object).ravel(), use_na_sentinel=False)[0]
    if len(codes) != len(logs):
        msg = f"the {side} has another number of processes than of times"
        raise PerfmlError(
            msg, found=f"{len(codes)} and {len(logs)}", cure="Name the process of each time."
        )
    return np.asarray(np.bincount(codes, weights=logs) / np.bincount(codes), dtype=np.float64)


def _logs(values: npt.ArrayLike, side: str) -> Floats:
    times = np.asarray(values, dtype=np.float64).ravel()
    if not len(times):
        msg = f"the {side} has no times"
        raise PerfmlError(msg, cure="Give a side that was measured.")
    bad = times[~((times > 0) & np.isfinite(times))]
    if len(bad):
        msg = f"a time of the {side} is not positive"
        raise PerfmlError(msg, found=str(bad[0]), cure="Measure again, or ingest again.")
    return np.log(times)
