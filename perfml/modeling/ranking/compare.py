"""Compare two rankings of the same metrics: does the answer depend on a choice that was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling.results import Ranking
from perfml.util.json_values import json_value, records
from perfml.util.words import Readable


@dataclass(frozen=True)
class Comparison:
    """Two rankings side by side.

    Attributes
    ----------
    names
        What each ranking is, such as ``("own", "layer-mean")`` for the merge weights.
    table
        One row a (model, method, metric) that both have: ``model, method, metric, left_rank,
        right_rank, left_p_top3, right_p_top3``.
    common
        One row a (model, method): ``model, method, same_first, top3, spearman``. ``same_first``:
        the metric with the best mean rank is the same. ``top3``: share that the three metrics
        with the best mean ranks have in common. ``spearman``: correlation of the mean ranks.
    verdict
        One sentence.
    """

    names: tuple[str, str]
    table: pd.DataFrame
    common: pd.DataFrame
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "names": list(self.names),
            "table": records(self.table),
            "common": records(self.common),
            "verdict": json_value(self.verdict),
        }


def compare_rankings(left: Ranking, right: Ranking, names: tuple[str, str]) -> Comparison:
    """Compare two rankings, such as those of published and of layer-mean merge weights.

    Weights taken from a row's own kernel times carry a part of the target into the metrics; a
    ranking that stays when the weights are averaged over a layer's repeats does not live on that.

    Raises
    ------
    PerfmlError
        If the tasks differ, or nothing was ranked by the same model and method in both.
    """
    if left.task != right.task:
        msg = "rankings of different tasks cannot be compared"
        raise PerfmlError(msg, found=f"{left.task} and {right.task}", cure="Rank one task twice.")
    columns = ["model", "method", "metric"]
    shown = [*columns, "mean_rank", "p_top3"]
    table = left.table[shown].merge(right.table[shown], on=columns, suffixes=("_left", "_right"))
    table = table[table["method"] != "group-permutation"].reset_index(drop=True)
    if table.empty:
        msg = "the rankings have no model, method and metric in common"
        raise PerfmlError(msg, cure="Rank both with the same models and methods.")
    table.columns = pd.Index([*columns, "left_rank", "left_p_top3", "right_rank", "right_p_top3"])
    common = pd.DataFrame(
        [
            {"model": model, "method": method, **_agreement(part)}
            for (model, method), part in table.groupby(["model", "method"], sort=False)
        ]
    )
    same = int(common["same_first"].sum())
    verdict = (
        f"{names[0]} and {names[1]}: the first metric is the same in {same} of {len(common)} "
        f"(model, method) pairs, the first three have {Readable(common['top3'].mean()):.0%} in "
        f"common, and the mean ranks correlate with {common['spearman'].median():.2f} (median)."
    )
    return Comparison(names, table, common, verdict)


def _agreement(part: pd.DataFrame) -> dict[str, Any]:
    left, right = part["left_rank"].to_numpy(), part["right_rank"].to_numpy()
    tops = [
        set(part.nsmallest(3, column)["metric"].tolist()) for column in ("left_rank", "right_rank")
    ]
    flat = len(np.unique(left)) < 2 or len(np.unique(right)) < 2
    rho = float("nan") if flat else float(part["left_rank"].corr(part["right_rank"], "spearman"))
    return {
        "same_first": part["metric"].iloc[int(left.argmin())]
        == part["metric"].iloc[int(right.argmin())],
        "top3": len(tops[0] & tops[1]) / min(3, len(part)),
        "spearman": rho,
    }
