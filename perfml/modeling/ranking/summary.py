"""From measured importances to tables: each metric's, each group's, and how far methods agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from perfml.modeling.features import Problem
from perfml.modeling.ranking.groups import Groups, group_label
from perfml.modeling.ranking.measure import GROUP_METHOD, REFIT_METHOD, Measured
from perfml.modeling.ranking.null import Baseline, Null, Pair, adjusted, standardized
from perfml.util.typing import Floats

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
    Drop-column fits again for every metric, too often for a null, so it counts only alone.
    """
    kept = [name for name in methods if name != REFIT_METHOD]
    if "permutation" in kept:
        kept = [name for name in kept if name != GROUP_METHOD]
    return tuple(kept or methods)


def tables_importance(
    observed: Sequence[Measured],
    permuted: Sequence[Sequence[Measured]],
    resamples: int,
    what: str,
) -> dict[Pair, Floats]:
    """Return the mean importances of the table and of its permutations, of each model and method.

    `resamples` of the table are counted: as many as a permutation has. `what` are ``values`` of
    metrics, or ``joint`` ones of groups. Arrays have shape (1 + permutations, metrics or groups).
    """
    tables = [by_pair(observed), *(by_pair(results) for results in permuted)]
    everywhere = [pair for pair in tables[0] if all(pair in table for table in tables)]
    return {
        pair: np.stack(
            [
                np.mean([getattr(result, what) for result in table[pair][:resamples]], axis=0)
                for table in tables
            ]
        )
        for pair in everywhere
        if len(tables) > 1
    }


def metric_table(
    problem: Problem,
    groups: Groups,
    measured: Sequence[Measured],
    permuted: Sequence[Sequence[Measured]],
    resamples: int,
) -> pd.DataFrame:
    """Return one row a (model, method, metric); see `Ranking.table`."""
    names = problem.design.names
    labels = [group_label(problem, group) for group in groups]
    group_of = {
        column: label for group, label in zip(groups, labels, strict=True) for column in group
    }
    chance = tables_importance(measured, permuted, resamples, "values")
    frames = []
    for (model, method), results in by_pair(measured).items():
        values = np.stack([result.values for result in results])
        whole = method == GROUP_METHOD
        places = ranks(values)
        low, high = np.quantile(values, [0.025, 0.975], axis=0)
        rank_low, rank_high = np.quantile(places, [0.025, 0.975], axis=0)
        by_chance, p_value = _chance_of(chance.get((model, method)), values.shape[1])
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
                "by_chance": by_chance,
                "p_value": p_value,
            }
        )
        frames.append(frame.sort_values("mean_rank", kind="stable"))
    return pd.concat(frames, ignore_index=True)


def _chance_of(tables: Floats | None, width: int) -> tuple[Floats, Floats]:
    """Return the 95 % point of each metric's importance by chance, and its p-value among all."""
    unknown = np.full(width, np.nan)
    if tables is None:
        return unknown, unknown
    scores = standardized(tables)
    p_value = unknown if scores is None else adjusted(scores[0], scores[1:].max(axis=1))
    return np.quantile(tables[1:], 0.95, axis=0), p_value


def group_scores(
    measured: Sequence[Measured], baselines: Mapping[Pair, Baseline]
) -> tuple[Floats, Floats]:
    """Return the scores of the groups in every resample that the summary rests on, and weights.

    Scores, shape (results, groups), are standard deviations above chance, see `Baseline.scores`.
    Weights, shape (results,), sum to 1: every (model, method) counts the same, however many
    resamples it ran on.
    """
    scores, weights = [], []
    for pair, results in by_pair(measured).items():
        if pair in baselines:
            scores.append(baselines[pair].scores(np.stack([result.joint for result in results])))
            weights.append(np.full(len(results), 1.0 / len(results)))
    return np.concatenate(scores), np.concatenate(weights) / len(weights)


def group_table(
    problem: Problem,
    groups: Groups,
    scores: Floats,
    weight: Floats,
    tables: Floats | None,
    null: Null,
) -> pd.DataFrame:
    """Return one row a group, highest score first; see `Ranking.summary`.

    `scores` and `weight` are as `group_scores` returns them; `tables` are the scores of the groups
    in the table and in its permutations.
    """
    places = ranks(scores)
    low, high = (_weighted_quantile(places, weight, q) for q in (0.025, 0.975))
    unknown = np.full(len(groups), np.nan)
    frame = pd.DataFrame(
        {
            "group": [group_label(problem, group) for group in groups],
            "members": [", ".join(problem.design.names[j] for j in group) for group in groups],
            "mean_rank": weight @ places,
            "rank_low": low,
            "rank_high": high,
            "p_top1": weight @ top_share(scores, 1),
            "p_top3": weight @ top_share(scores, 3),
            "score": unknown if tables is None else tables[0],
            "p_value": unknown
            if tables is None or null.reason
            else adjusted(tables[0], np.array(null.highest)),
        }
    )
    # the score, not the mean rank: a column of many values wins ranks of trees by noise alone
    order = ["score", "mean_rank"]
    return frame.sort_values(order, ascending=[False, True], kind="stable", ignore_index=True)


def tied_first(measured: Sequence[Measured], baselines: Mapping[Pair, Baseline]) -> list[int]:
    """Return the groups that share the first place, best mean rank first; none if one leads alone.

    A group ties with the first where its mean rank is worse by less than `TIE` standard errors of
    that difference over the resamples: another draw of as many may turn the two round.
    """
    places: dict[int, list[Floats]] = {}
    for pair, results in by_pair(measured).items():
        if pair in baselines:
            scores = baselines[pair].scores(np.stack([result.joint for result in results]))
            for result, row in zip(results, ranks(scores), strict=True):
                places.setdefault(result.seed, []).append(row)
    means = np.stack([np.mean(rows, axis=0) for rows in places.values()])
    order = np.argsort(means.mean(axis=0), kind="stable")
    behind = means - means[:, order[:1]]
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(means))
    tied = [int(group) for group in order if behind[:, group].mean() <= TIE * error[group]]
    return tied if len(tied) > 1 else []


def _weighted_quantile(values: Floats, weight: Floats, q: float) -> Floats:
    """Return the weighted quantile of each column (the smallest value that reaches `q`)."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0) >= q - 1e-12
    first = reached.argmax(axis=0)
    quantile: Floats = np.take_along_axis(
        np.take_along_axis(values, order, axis=0), first[None], axis=0
    )[0]
    return quantile


def agreement(measured: Sequence[Measured], baselines: Mapping[Pair, Baseline]) -> pd.DataFrame:
    """Return how far two (model, method) pairs name the same groups; see `Ranking.agreement`."""
    tops = {
        "/".join(pair): _tops(results, baselines.get(pair))
        for pair, results in by_pair(measured).items()
    }
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


def _tops(results: Sequence[Measured], baseline: Baseline | None) -> dict[int, Floats]:
    """Return how far each group is among the first three, by the seed of the resample.

    A group without any importance is never among them; a resample that has no other is left out.
    """
    joint = np.stack([result.joint for result in results])
    scores = joint if baseline is None else baseline.scores(joint)
    tops = np.where(scores > 0, top_share(scores, 3), 0.0)
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
