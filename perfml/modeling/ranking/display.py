"""Draw a ranking: how far each group of metrics stands above chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfml.errors import PerfmlError
from perfml.modeling.ranking.null import LEVEL, Null

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_STRONG, _WEAK = "#2a6fb0", "#b8bcc2"
"""Bars of groups that are more than chance, and of the others."""


def draw_scores(summary: pd.DataFrame, null: Null | None, title: str, ax: Axes | None) -> Axes:
    """Draw the scores of groups as bars, beside what a leading group gets by chance.

    `summary` are rows of `Ranking.summary`. Raises `PerfmlError` if the ranking is empty.
    """
    rows = summary.iloc[::-1]
    if rows.empty:
        msg = "the ranking is empty"
        raise PerfmlError(msg, cure="Rank again, with more resamples or other models.")
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 1 + 0.3 * len(rows)), layout="constrained")
    labels = [
        first + (f" +{len(more)}" if more else "")
        for first, *more in (str(members).split(", ") for members in rows["members"])
    ]
    tints = [_STRONG if p <= LEVEL else _WEAK for p in rows["p_value"]]
    ax.barh(np.arange(len(rows)), rows["score"].to_numpy(float), color=tints)
    ax.set_yticks(np.arange(len(rows)), labels)
    if null is not None and not null.reason:
        ax.axvline(null.limit, color="black", linestyle="--", linewidth=1)
        ax.annotate(" 95 % of leading metrics by chance", (null.limit, -0.4), fontsize="small")
    ax.set_xlabel("importance, standard deviations above chance")
    ax.set_title(title)
    return ax
