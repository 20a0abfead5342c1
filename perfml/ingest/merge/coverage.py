"""How much of a layer was measured, where a profiler did not measure every launch of it.

A launch that was measured may still lack a metric, because it is undefined there: a kernel that
loads nothing has no load efficiency. Such a launch neither counts nor weighs. A launch that was
not measured is another matter: a count without it is no count of the layer, and a mean over the
others is a mean of a part.

Here to change: the least share, and what is said of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfml.metrics import load_catalogue
from perfml.util.words import Readable

LEAST_SHARE = 0.5
"""Share of a layer's time that a mean has to cover, or it is missing.

A fraction that was measured over the share s of the time leaves the layer's own mean open by
1 - s. Below a half, what is not known weighs more than what is.
"""

_SHOWN = 3


@dataclass(frozen=True)
class Coverage:
    """Rows of a Layers table of which a metric covers a part.

    Attributes
    ----------
    metric
        Its name.
    rows
        Rows in which some launches were not measured, and some were.
    least
        The smallest share of such a row's time that was measured.
    left_out
        Rows in which the metric is missing for it.
    """

    metric: str
    rows: int
    least: float
    left_out: int


def coverage_of(
    metric: str, share: npt.NDArray[np.float64], missing: npt.NDArray[np.bool_]
) -> Coverage | None:
    """Say how much of each row a metric covers; None where it covers all or nothing of each.

    `share` of each row's time is from 0 to 1; `missing` rows have no value of the metric.
    """
    part = (share > 0) & (share < 1)
    if not part.any():
        return None
    return Coverage(metric, int(part.sum()), float(share[part].min()), int((part & missing).sum()))


def joined(parts: Iterable[Coverage]) -> list[Coverage]:
    """Join what several parts of a table say of each metric."""
    by_metric: defaultdict[str, list[Coverage]] = defaultdict(list)
    for part in parts:
        by_metric[part.metric].append(part)
    return [
        Coverage(
            metric,
            sum(each.rows for each in same),
            min(each.least for each in same),
            sum(each.left_out for each in same),
        )
        for metric, same in by_metric.items()
    ]


def coverage_sentences(coverage: Sequence[Coverage], rows: int) -> list[str]:
    """Return what a user has to know: metrics of the same coverage in one sentence."""
    catalogue = load_catalogue()
    alike: defaultdict[tuple[int, float, int, bool], list[str]] = defaultdict(list)
    for each in coverage:
        is_sum = each.metric not in catalogue or catalogue[each.metric].merge == "sum"
        alike[each.rows, each.least, each.left_out, is_sum].append(each.metric)
    sentences = []
    for (part, least, left_out, is_sum), names in alike.items():
        start = f"{part} of {rows} rows have launches that were not measured"
        if is_sum:
            told = f"their {_list(names)} cannot be added up and are missing"
        else:
            told = f"the means cover at least {Readable(least):.0%} of the time ({_list(names)})"
            if left_out:
                told += f"; below {Readable(LEAST_SHARE):.0%}, in {left_out} rows, they are missing"
        sentences.append(f"{start}: {told}.")
    return sentences


def _list(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
