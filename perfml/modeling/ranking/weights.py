"""Does a ranking depend on how the kernels of a layer were weighted when they were merged.

The published rule weights each metric by the kernel times of the very row whose time is predicted.
Weights averaged over a layer's repeats leave the row's own clock out of its metrics; a ranking
that is the same under both does not live on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypedDict

import numpy as np
import pandas as pd

from perfml.metrics import load_catalogue
from perfml.modeling.features import build_design
from perfml.modeling.ranking.rank import rank
from perfml.modeling.results import Ranking
from perfml.util.json_values import json_object
from perfml.util.words import Readable

CHEAP_METHODS = ("builtin", "permutation")
"""What is ranked by where nothing was asked for: everything is done twice."""

STEADY = 0.1
"""A group whose probability of the first three moves by more is named."""


class GroupPlaces(TypedDict):
    """Where a group of metrics stands under either weights."""

    group: str
    members: str
    own_place: int
    layer_mean_place: int
    own_p_top3: float
    layer_mean_p_top3: float


@dataclass(frozen=True)
class WeightsComparison:
    """A ranking under both merge weights, with the same seeds and resamples.

    Attributes
    ----------
    own, layer_mean
        The rankings.
    groups
        One `GroupPlaces` a group of the ranking with own weights. Under layer-mean weights a group
        stands where the first of its members stands.
    largest_feature_change
        Largest difference that the weights make to any feature, as a share of its range.
    depends
        Whether the first three groups differ, or a probability moved by more than `STEADY`.
    verdict
        One sentence saying so.
    """

    own: Ranking
    layer_mean: Ranking
    groups: Annotated[pd.DataFrame, GroupPlaces]
    largest_feature_change: float
    depends: bool
    verdict: str

    @property
    def table(self) -> pd.DataFrame:
        """The tables of both rankings, with the weights in a column."""
        tables = {"own": self.own.table, "layer-mean": self.layer_mean.table}
        parts = [frame.assign(weights=weights) for weights, frame in tables.items()]
        return pd.concat(parts, ignore_index=True)

    JSON: ClassVar = ("depends", "verdict", "largest_feature_change", "groups", "layer_mean")
    to_dict = json_object


def rank_both_weights(
    own: pd.DataFrame,
    layer_mean: pd.DataFrame,
    *,
    methods: str | Sequence[str] | None = None,
    features: str | Sequence[str] = "published",
    **options: Any,
) -> WeightsComparison:
    """Rank a Layers table under own and under layer-mean merge weights.

    The same rows under both weights are what `perfml.ingest.merge.under_both_weights` gives.
    Without `methods` it is `CHEAP_METHODS`; all else is as for `rank`.
    """
    first, second = (
        rank(table, features=features, methods=methods or CHEAP_METHODS, **options)
        for table in (own, layer_mean)
    )
    groups = _places(first, second)
    moved = _largest_change(own, layer_mean, features)
    depends, verdict = _verdict(groups, moved)
    return WeightsComparison(first, second, groups, moved, depends, verdict)


def _places(own: Ranking, mean: Ranking) -> pd.DataFrame:
    place_of: dict[str, int] = {}
    chance_of: dict[str, float] = {}
    for place, (members, chance) in enumerate(
        zip(mean.summary["members"].tolist(), mean.summary["p_top3"].tolist(), strict=True)
    ):
        for name in members.split(", "):
            place_of[name], chance_of[name] = place + 1, chance
    rows = []
    for place, (group, members, chance) in enumerate(
        own.summary[["group", "members", "p_top3"]].itertuples(index=False, name=None)
    ):
        # a metric that is constant under one of the weights has no place there
        found = [name for name in members.split(", ") if name in place_of]
        first = min(found, key=lambda name: place_of[name]) if found else None
        rows.append(
            {
                "group": group,
                "members": members,
                "own_place": place + 1,
                "layer_mean_place": float("nan") if first is None else place_of[first],
                "own_p_top3": chance,
                "layer_mean_p_top3": 0.0 if first is None else chance_of[first],
            }
        )
    return pd.DataFrame(rows)


def _largest_change(own: pd.DataFrame, mean: pd.DataFrame, features: str | Sequence[str]) -> float:
    catalogue = load_catalogue()
    changes = [0.0]
    for name in build_design(own, features).names:
        if name not in catalogue or catalogue[name].merge in ("sum", "max"):
            continue
        left, right = own[name].to_numpy(dtype=float), mean[name].to_numpy(dtype=float)
        spread = float(np.nanmax(left) - np.nanmin(left))
        if spread > 0:
            changes.append(float(np.nanmax(np.abs(left - right))) / spread)
    return max(changes)


def _verdict(groups: pd.DataFrame, moved: float) -> tuple[bool, str]:
    shift = (groups["layer_mean_p_top3"] - groups["own_p_top3"]).to_numpy(dtype=float)
    largest = int(np.abs(shift).argmax())
    name = str(groups["members"].iloc[largest]).split(", ")[0]
    top = set(groups["group"][groups["own_place"] <= 3])
    same = top == set(groups["group"][groups["layer_mean_place"] <= 3])
    depends = not same or bool(abs(shift[largest]) > STEADY)
    start = "The ranking depends" if depends else "The ranking does not depend"
    first = "stay the same" if same else "change"
    return depends, (
        f"{start} on the merge weights. With weights averaged over repeats the first three groups "
        f"{first}. The largest move of P(top 3) is {shift[largest]:+.2f} ({name}). No metric "
        f"changes by more than {Readable(moved):.2%} of its range."
    )
