"""How much slower: a time ratio with an interval from the repeats, and a verdict."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError
from perfml.explain.results import Ratio

TOLERANCE = 0.01
"""Ratios within 1 % of 1 are no difference: repeats of one process agree better than processes."""

EQUIVALENT = 0.05
"""An interval that lies within 5 % of 1 is no difference; a wider one around 1 decides nothing."""


def compare_times(
    baseline_us: npt.ArrayLike,
    target_us: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
) -> Ratio:
    """Compare two sets of repeated times.

    The ratio is that of geometric means, its interval Welch's t-interval of the difference of
    mean log times. It covers the scatter of these repeats; another process, clock or day is
    beyond what they can tell.

    Parameters
    ----------
    baseline_us, target_us
        Times of the repeats, microseconds; one or more a side.
    confidence
        Of the interval.
    tolerance
        A difference is claimed only where the whole interval lies beyond 1 +/- `tolerance`.

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
    before, after = _logs(baseline_us, "baseline"), _logs(target_us, "target")
    log_ratio = float(after.mean() - before.mean())
    low = high = None
    if len(before) > 1 and len(after) > 1:
        half = _half_width(before, after, confidence)
        low, high = log_ratio - half, log_ratio + half
    band = float(np.log1p(tolerance))
    nearest, furthest = (log_ratio, log_ratio) if low is None or high is None else (low, high)
    if nearest > band:
        verdict = "slower"
    elif furthest < -band:
        verdict = "faster"
    elif abs(log_ratio) <= band or max(-nearest, furthest) <= np.log1p(EQUIVALENT):
        verdict = "no difference"
    else:
        verdict = "undecided"
    return Ratio(
        baseline_us=float(np.exp(before.mean())),
        target_us=float(np.exp(after.mean())),
        log_ratio=log_ratio,
        log_low=low,
        log_high=high,
        repeats=(len(before), len(after)),
        verdict=verdict,
    )


def _logs(values: npt.ArrayLike, side: str) -> npt.NDArray[np.float64]:
    times = np.asarray(values, dtype=np.float64).ravel()
    if not len(times):
        msg = f"the {side} has no times"
        raise PerfmlError(msg, cure="Give a side that was measured.")
    bad = times[~((times > 0) & np.isfinite(times))]
    if len(bad):
        msg = f"a time of the {side} is not positive"
        raise PerfmlError(msg, found=str(bad[0]), cure="Measure again, or ingest again.")
    return np.log(times)


def _half_width(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64], confidence: float
) -> float:
    from scipy.stats import t

    parts = [float(side.var(ddof=1)) / len(side) for side in (before, after)]
    variance = sum(parts)
    if variance == 0:
        return 0.0
    # Welch and Satterthwaite's degrees of freedom
    freedom = variance**2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True)
    )
    return float(t.ppf(0.5 + confidence / 2, freedom) * np.sqrt(variance))
