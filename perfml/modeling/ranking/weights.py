"""Does a ranking depend on how the kernels of a layer were weighted when they were merged.

The published rule weights each metric by the kernel times of the very row whose time is predicted.
Weights averaged over a layer's repeats leave the row's own clock out of its metrics; a ranking
that is the same under both does not live on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.merge.rule import Weights, merge
from perfml.metrics import load_catalogue
from perfml.modeling.features import build_design
from perfml.modeling.ranking.rank import rank
from perfml.modeling.results import Ranking
from perfml.tables import metric_columns
from perfml.util.json_values import json_object
from perfml.util.typing import Progress
from perfml.util.words import Readable

CHEAP_METHODS = ("builtin", "permutation")
"""What is ranked by where nothing was asked for: everything is done twice."""

STEADY = 0.1
"""A group whose probability of the first three moves by more is named."""

SAME_TIME = 1e-3
"""Relative difference of a row's time beyond which the kernels are of another recording."""

_KEYS = ("run_id", "workload", "backend", "precision", "batch", "iteration", "layer")


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
    layers: pd.DataFrame,
    kernels: pd.DataFrame,
    task: str = "regression",
    models: str | Sequence[str] | None = None,
    resamples: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    features: str | Sequence[str] = "published",
    target: str = "time",
    methods: str | Sequence[str] | None = None,
    permutations: int = 40,
    n_jobs: int | None = None,
) -> WeightsComparison:
    """Rank a Layers table under own and under layer-mean merge weights.

    Parameters
    ----------
    layers
        A Layers table; its rows say which launches are merged.
    kernels
        The Kernels table that it was merged from.
    methods
        As for `rank`; None for `CHEAP_METHODS`.
    task, models, resamples, seed, progress, features, target, permutations, n_jobs
        As for `rank`.

    Raises
    ------
    PerfmlError
        If the launches are not those of the layers, or as for `rank`.
    """
    tables = {weights: remerged(layers, kernels, weights) for weights in ("own", "layer-mean")}
    own, mean = (
        rank(
            table,
            task=task,
            models=models,
            resamples=resamples,
            seed=seed,
            progress=progress,
            features=features,
            target=target,
            methods=methods or CHEAP_METHODS,
            permutations=permutations,
            n_jobs=n_jobs,
        )
        for table in tables.values()
    )
    groups = _places(own, mean)
    moved = _largest_change(tables["own"], tables["layer-mean"], features)
    depends, verdict = _verdict(groups, moved)
    return WeightsComparison(own, mean, groups, moved, depends, verdict)


def remerged(layers: pd.DataFrame, kernels: pd.DataFrame, weights: Weights) -> pd.DataFrame:
    """Return a Layers table with the metrics that its launches give under some weights.

    Rows, their order and columns without a metric stay as they are, so that two results differ by
    the weights only.

    Raises
    ------
    PerfmlError
        If a row has no launches, or its launches take another time.
    """
    inside = kernels[kernels["layer"].isin(layers["layer"].dropna().unique())]
    if inside.empty:
        msg = "no launch of the kernels belongs to a layer of the dataset"
        raise PerfmlError(msg, cure="Give the Kernels table that the dataset was merged from.")
    merged = merge(inside, weights=weights)
    place = _rows(layers, merged)
    wrong = np.flatnonzero(place < 0)
    if len(wrong):
        msg = f"{len(wrong)} of {len(layers)} rows of the dataset have no launches in the kernels"
        raise PerfmlError(
            msg,
            where=_row(layers, int(wrong[0])),
            cure="Give the Kernels table that the dataset was merged from.",
        )
    time, theirs = (
        layers["time_us"].to_numpy(dtype=float),
        merged["time_us"].to_numpy(dtype=float)[place],
    )
    wrong = np.flatnonzero(np.abs(theirs - time) > SAME_TIME * time)
    if len(wrong):
        msg = f"{len(wrong)} of {len(layers)} rows take another time than their launches"
        raise PerfmlError(
            msg,
            where=_row(layers, int(wrong[0])),
            found=f"{time[wrong[0]]:.4g} µs in the dataset, {theirs[wrong[0]]:.4g} µs in launches",
            cure="Give the Kernels table that the dataset was merged from.",
        )
    result = layers.copy()
    for name in metric_columns(layers):
        if name in merged.columns:
            result[name] = merged[name].to_numpy(dtype=float)[place]
    return result


def _rows(layers: pd.DataFrame, merged: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the row of `merged` that each row of `layers` is; -1 where there is none."""
    keys = [name for name in _KEYS if name in layers.columns and layers[name].notna().any()]
    left, right = _texts(layers, keys), _texts(merged, keys)
    if right.has_duplicates or left.has_duplicates:
        msg = "several rows of the dataset have the same keys"
        raise PerfmlError(
            msg,
            where=f"columns {', '.join(keys)}",
            cure="Use the Layers table of perfml merge, which names run and iteration.",
        )
    return np.asarray(right.get_indexer(left), dtype=np.int64)


def _texts(table: pd.DataFrame, keys: list[str]) -> pd.MultiIndex:
    return pd.MultiIndex.from_arrays(
        [table[name].astype("string").fillna("").to_numpy(dtype=object) for name in keys]
    )


def _row(layers: pd.DataFrame, row: int) -> str:
    one = layers.iloc[row]
    return f"layer {one['layer']}, backend {one['backend']}, iteration {one['iteration']}"


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
