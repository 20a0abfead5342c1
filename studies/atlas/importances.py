"""Which metrics matter, beyond chance and given all others."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from perfml.modeling.models.registry import make_imputer
from perfml.predict.model import codes_of, deal, log_ratio
from studies import yardsticks
from studies.atlas.data import (
    FOLDS,
    features,
    fitted,
    metric_columns_of,
    metrics,
    networks,
    rows,
)

PERMUTATIONS = 20
CONDITIONAL_ROWS = 3000
"""Rows of which is learned what a metric is, given all others; more change nothing."""


def losses(ratio, folds, rng):
    """Return by how much a network's error grows with a metric shuffled: metrics x networks."""
    found, codes = features("counted"), networks()
    place = {name: at for at, name in enumerate(found.columns)}
    mine = [[place[name] for name in metric_columns_of(metric)] for metric in metrics()]
    grown = np.zeros((len(metrics()), codes.max() + 1))
    for fold in range(folds.max() + 1):
        test = np.flatnonzero(folds == fold)
        train = folds != fold
        predict = fitted("lgbm", found[train], ratio[train])
        held = found.iloc[test]
        base = np.abs(predict(held) - ratio[test])
        values = held.to_numpy()
        count = np.maximum(np.bincount(codes[test], minlength=codes.max() + 1), 1)
        for at, columns in enumerate(mine):
            moved = values.copy()
            moved[:, columns] = values[rng.permutation(len(test))][:, columns]
            off = np.abs(predict(moved) - ratio[test]) - base
            grown[at] += np.bincount(codes[test], off, minlength=codes.max() + 1) / count
    return grown


def given_all_others():
    """Return what shuffling a metric given all others costs, by hidimstat, and q over networks."""
    from hidimstat import CFI

    found, ratio, codes = features("counted"), log_ratio(rows()), networks()
    values = make_imputer().set_params(add_indicator=False).fit_transform(found)
    plain = {name: f"c{place}" for place, name in enumerate(found.columns)}
    filled = pd.DataFrame(values, columns=list(plain.values()))
    groups = {metric: [plain[name] for name in metric_columns_of(metric)] for metric in metrics()}
    folds, costs = deal(codes, 5), np.empty((len(groups), len(ratio)))
    for fold in range(5):
        test, train = folds == fold, folds != fold
        model = yardsticks.make("lgbm", 0).fit(filled[train], ratio[train])
        tool = CFI(
            model,
            loss=_absolute,
            n_permutations=5,
            features_groups=groups,
            feature_types="continuous",
            random_state=0,
        )
        learned = np.random.default_rng(fold).choice(
            np.flatnonzero(train), min(CONDITIONAL_ROWS, int(train.sum())), replace=False
        )
        tool.fit(filled.iloc[learned], ratio[learned])
        for code in np.unique(codes[test]):
            here = codes == code
            costs[:, here] = (
                np.asarray(tool.importance(filled[here], ratio[here]))
                .reshape(len(groups), -1)
                .mean(axis=1)[:, None]
            )
    each = np.column_stack([costs[:, codes == code][:, 0] for code in np.unique(codes)])
    q = adjusted(above_zero(each))
    return {
        metric: {"importance": float(each[at].mean()), "q": float(q[at])}
        for at, metric in enumerate(groups)
    }


def _absolute(truth, guess):
    return np.abs(np.asarray(truth) - np.asarray(guess))


def adjusted(p_values):
    """Return Benjamini and Hochberg's adjusted p values."""
    p = np.asarray(p_values)
    order = np.argsort(p)
    raised = p[order] * len(p) / (np.arange(len(p)) + 1)
    found = np.empty(len(p))
    found[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return found


def ranking():
    """Return the metrics by what shuffling each costs networks that were held out."""
    rng = np.random.default_rng(0)
    ratio, folds = log_ratio(rows()), deal(networks(), FOLDS, 0)
    grown = losses(ratio, folds, rng)
    draws = rng.integers(grown.shape[1], size=(1000, grown.shape[1]))
    means = grown[:, draws].mean(axis=2)
    places = (-means).argsort(axis=0).argsort(axis=0) + 1
    nulls = [leader_by_chance(ratio, rng) for _ in range(PERMUTATIONS)]
    q = adjusted(above_zero(grown))
    lines = [
        {
            "metric": metric,
            "importance": float(grown[at].mean()),
            "low": float(np.quantile(means[at], 0.025)),
            "high": float(np.quantile(means[at], 0.975)),
            "rank": float(places[at].mean()),
            "p_top3": float((places[at] <= 3).mean()),
            "q": float(q[at]),
        }
        for at, metric in enumerate(metrics())
    ]
    lines.sort(key=lambda line: -line["importance"])
    return {"metrics": lines, "null_p_top3": sorted(nulls), "networks": int(grown.shape[1])}


def above_zero(scores):
    """Return the p value of each row's mean being above 0; 1 where a row does not vary."""
    found = np.array([ttest_1samp(row, 0.0, alternative="greater").pvalue for row in scores])
    return np.nan_to_num(found, nan=1.0)


def leader_by_chance(ratio, rng):
    """Return P(top 3) of whatever leads when times are permuted between the layers."""
    mixed = ratio.copy()
    codes = networks()
    for code in np.unique(codes):
        here = np.flatnonzero(codes == code)
        mixed[here] = ratio[rng.permutation(here)]
    grown = losses(mixed, deal(codes, 2, 0), rng)
    draws = rng.integers(grown.shape[1], size=(200, grown.shape[1]))
    places = (-grown[:, draws].mean(axis=2)).argsort(axis=0).argsort(axis=0)
    return float((places < 3).mean(axis=1).max())


def within_families():
    """Return the leading metrics of each family, fitted and shuffled within it."""
    found = []
    one, ratio, table = rows(), log_ratio(rows()), features("counted")
    rng = np.random.default_rng(0)
    for family, part in one.groupby("family"):
        if len(part) < 100 or part["workload"].nunique() < 10:
            continue
        places = part.index.to_numpy()
        folds = deal(codes_of(part, "workload"), 5, 0)
        cost = np.zeros(len(metrics()))
        for fold in range(5):
            train, test = places[folds != fold], places[folds == fold]
            predict = fitted("lgbm", table.iloc[train], ratio[train])
            base = np.abs(predict(table.iloc[test]) - ratio[test]).mean()
            for at, metric in enumerate(metrics()):
                moved = table.iloc[test].copy()
                mine = metric_columns_of(metric)
                moved[mine] = moved[mine].to_numpy()[rng.permutation(len(test))]
                cost[at] += np.abs(predict(moved) - ratio[test]).mean() - base
        first = np.argsort(-cost)[:3]
        leaders = [{"metric": metrics()[at], "importance": float(cost[at] / 5)} for at in first]
        found.append({"family": family, "rows": len(part), "leaders": leaders})
    return sorted(found, key=lambda line: -line["rows"])
