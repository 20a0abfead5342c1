"""From measured importances to tables: each metric's, each group's, and how far methods agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from perfml.modeling.features import Problem
from perfml.modeling.ranking.measure import (
    GROUP_METHOD,
    Groups,
    Measured,
    group_label,
)
from perfml.modeling.results import LEVEL
from perfml.util.typing import Floats

Pair = tuple[str, str]
"""A model and a method."""

TIE = 2.0
"""Standard errors of the difference of two mean ranks within which the order is chance."""


def by_pair(measured: Iterable[Measured]) -> dict[Pair, list[Measured]]:
    """Return the results of each model and method."""
    pairs: dict[Pair, list[Measured]] = {}
    for result in measured:
        pairs.setdefault((result.model, result.method), []).append(result)
    return pairs


def summarised_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """Return the methods that the summary of the groups rests on.

    Shuffling a group is what ``permutation`` does for a group anyway, so it does not count twice.
    """
    twice = "permutation" in methods
    return tuple(name for name in methods if name != GROUP_METHOD or not twice)


def metric_table(
    problem: Problem, groups: Groups, measured: Sequence[Measured], tested: pd.DataFrame
) -> pd.DataFrame:
    """Return one row a (model, method, metric); see `Ranking.table`."""
    names = problem.design.names
    labels = [group_label(problem, group) for group in groups]
    group_of = {
        column: label for group, label in zip(groups, labels, strict=True) for column in group
    }
    p_value = tested["p_value"].to_numpy()
    p_group = [p_value[list(group)].min() for group in groups]
    frames = []
    for (model, method), results in by_pair(measured).items():
        values = np.stack([result.values for result in results])
        whole = method == GROUP_METHOD
        places = ranks(values)
        low, high = np.quantile(values, [0.025, 0.975], axis=0)
        rank_low, rank_high = np.quantile(places, [0.025, 0.975], axis=0)
        frame = pd.DataFrame(
            {
                "model": model,
                "method": method,
                "metric": labels if whole else names,
                "group": labels if whole else [group_of[j] for j in range(len(names))],
                "importance": values.mean(axis=0),
                "low": low,
                "high": high,
                "mean_rank": places.mean(axis=0),
                "rank_low": rank_low,
                "rank_high": rank_high,
                "p_top1": top_share(values, 1).mean(axis=0),
                "p_top3": top_share(values, 3).mean(axis=0),
                "p_value": p_group if whole else p_value,
            }
        )
        frames.append(frame.sort_values("mean_rank", kind="stable"))
    return pd.concat(frames, ignore_index=True)


def group_table(
    problem: Problem,
    groups: Groups,
    measured: Sequence[Measured],
    methods: Sequence[str],
    tested: pd.DataFrame,
) -> pd.DataFrame:
    """Return one row a group; see `Ranking.summary`.

    Every (model, method) counts the same, however many resamples it ran on. `methods` are those
    that count, `tested` what `against_chance` says of the metrics.
    """
    places, first, third, weights = [], [], [], []
    for results in _counted(measured, methods).values():
        joint = np.stack([result.joint for result in results])
        places.append(ranks(joint))
        first.append(top_share(joint, 1))
        third.append(top_share(joint, 3))
        weights.append(np.full(len(results), 1.0 / len(results)))
    place = np.concatenate(places)
    weight = np.concatenate(weights) / len(weights)
    low, high = (_weighted_quantile(place, weight, q) for q in (0.025, 0.975))
    names = np.array(problem.design.names, dtype=object)
    # of a group's metrics the one whose p-value is smallest speaks for it
    p_value = tested["p_value"].to_numpy()
    speaks = [group[int(p_value[list(group)].argmin())] for group in groups]
    partner = tested["partner"].to_numpy()[speaks]
    frame = pd.DataFrame(
        {
            "group": [group_label(problem, group) for group in groups],
            "members": [", ".join(names[list(group)]) for group in groups],
            "mean_rank": weight @ place,
            "rank_low": low,
            "rank_high": high,
            "p_top1": weight @ np.concatenate(first),
            "p_top3": weight @ np.concatenate(third),
            "p_value": p_value[speaks],
            "statistic": tested["statistic"].to_numpy()[speaks],
            "partner": np.where(partner < 0, "", names[partner]),
            "rho": tested["rho"].to_numpy()[speaks],
        }
    )
    # importances order what is beyond chance; beneath it a column of many values wins by noise
    shown = frame["p_value"].le(LEVEL)
    unshown = frame["p_value"].where(~shown, 0.0)
    return (
        frame.assign(unshown=unshown)
        .sort_values(["unshown", "mean_rank"], kind="stable", ignore_index=True)
        .drop(columns="unshown")
    )


def tied_first(
    measured: Sequence[Measured], methods: Sequence[str], among: Sequence[int]
) -> list[int]:
    """Return the groups that share the first place, best mean rank first; none if one leads alone.

    A group `among` these ties with the first where its mean rank is worse by less than `TIE`
    standard errors of that difference over the resamples: another draw of as many may turn the two
    round.
    """
    if not among:
        return []
    places: dict[int, list[Floats]] = {}
    for results in _counted(measured, methods).values():
        for result in results:
            places.setdefault(result.seed, []).append(ranks(result.joint)[list(among)])
    means = np.stack([np.mean(rows, axis=0) for rows in places.values()])
    order = np.argsort(means.mean(axis=0), kind="stable")
    behind = means - means[:, order[:1]]
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(means))
    tied = [among[group] for group in order if behind[:, group].mean() <= TIE * error[group]]
    return tied if len(tied) > 1 else []


def _counted(measured: Sequence[Measured], methods: Sequence[str]) -> dict[Pair, list[Measured]]:
    """Return the results of the methods that the summary rests on."""
    pairs = by_pair(measured)
    other = {GROUP_METHOD} - set(methods)
    return {pair: results for pair, results in pairs.items() if pair[1] not in other}


def _weighted_quantile(values: Floats, weight: Floats, q: float) -> Floats:
    """Return the weighted quantile of each column (the smallest value that reaches `q`)."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0) >= q - 1e-12
    first = reached.argmax(axis=0)
    quantile: Floats = np.take_along_axis(
        np.take_along_axis(values, order, axis=0), first[None], axis=0
    )[0]
    return quantile


def agreement(measured: Sequence[Measured]) -> pd.DataFrame:
    """Return how far two (model, method) pairs name the same groups; see `Ranking.agreement`."""
    tops = {"/".join(pair): _tops(results) for pair, results in by_pair(measured).items()}
    names = list(tops)
    rows = []
    for start, left in enumerate(names):
        for right in names[start + 1 :]:
            # a method that names nobody in a resample neither agrees nor disagrees there
            both = [
                (tops[left][seed], tops[right][seed]) for seed in tops[left] if seed in tops[right]
            ]
            common = [np.minimum(a, b).sum() / max(a.sum(), b.sum()) for a, b in both]
            rows.append((left, right, float(np.mean(common)) if common else float("nan")))
    return pd.DataFrame(rows, columns=["left", "right", "share"])


def _tops(results: Sequence[Measured]) -> dict[int, Floats]:
    """Return how far each group is among the first three, by the seed of the resample.

    A group without any importance is never among them; a resample that has no other is left out.
    """
    joint = np.stack([result.joint for result in results])
    tops = np.where(joint > 0, top_share(joint, 3), 0.0)
    return {result.seed: top for result, top in zip(results, tops, strict=True) if top.any()}


def ranks(values: Floats) -> Floats:
    """Return places along the last axis, 1 for the largest value; ties share their mean place."""
    return np.asarray(rankdata(-values, method="average", axis=-1), dtype=np.float64)


def top_share(values: Floats, k: int) -> Floats:
    """Return how far each value is among the `k` largest: 1, 0, or a share of a tie.

    Of m values tied for p < m places each gets p / m, so that the shares of a row add up to `k`,
    or to their number where there are fewer.
    """
    best = rankdata(-values, method="min", axis=-1)
    worst = rankdata(-values, method="max", axis=-1)
    return np.asarray(np.clip((k - best + 1) / (worst - best + 1), 0.0, 1.0), dtype=np.float64)
