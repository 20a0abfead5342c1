"""The smallest set of metrics that suffices beside shapes, and how certain the choice is.

A search adds the metric that helps most on networks held out one at a time, by a ridge regression
of the logarithms. Two things make a choice depend on the networks that happen to be there: metrics
that say the same (twins), and differences smaller than their scatter over networks. So a search
offers one of each group of twins, and among metrics that are within a standard error of the best
it takes the one that is cheapest to measure (Breiman, Friedman, Olshen and Stone, "Classification
and regression trees", 1984, has the rule of one standard error).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.stats import rankdata
from sklearn.preprocessing import StandardScaler

from perfml.metrics import load_catalogue
from perfml.modeling.models.registry import make_imputer
from perfml.predict.model import deal, log_ratio
from studies.atlas.data import (
    features,
    fit_predict,
    metric_columns_of,
    metrics,
    networks,
    rows,
    shape_columns,
)

REPETITIONS = 20
TRIED_REPETITIONS = 10
MOST = 6
"""Metrics of a set at most."""

TOLERANCE = 1.1
"""A set is as good as all counted metrics if its error is at most a tenth above theirs."""

TWINS = 0.95
"""Rank correlation from which on two metrics say the same."""


@dataclass(frozen=True)
class Rules:
    """How a search chooses; the page compares them."""

    alone: bool = True
    """Hold each network out by itself and average over networks, not over four parts' rows."""

    twins: bool = True
    """Offer one of each group of twins."""

    one_error: bool = True
    """Take the cheapest of those within a standard error of the best."""


def by_cost():
    """Return the metrics by what they cost: facts of the launch first, then in catalogue order."""
    catalogue = load_catalogue()
    order = {name: place for place, name in enumerate(catalogue.names)}

    def cost(name):
        free = name == "kernels" or catalogue[name].family == "launch"
        return (not free, order.get(name, -1))

    return sorted(metrics(), key=cost)


def twins(limit=TWINS):
    """Return groups of metrics whose ranks correlate by at least `limit`, each by cost."""
    names = by_cost()
    found = features("counted")
    columns = [found[metric_columns_of(name)[0]].to_numpy() for name in names]
    ranks = np.array([rankdata(np.where(np.isnan(each), -np.inf, each)) for each in columns])
    apart = np.clip(1 - np.abs(np.corrcoef(ranks)), 0, None)
    np.fill_diagonal(apart, 0.0)
    # complete linkage: all members of a group are twins of each other
    labels = fcluster(linkage(squareform(apart, checks=False), "complete"), 1 - limit, "distance")
    groups = {}
    for name, label in zip(names, labels, strict=True):
        groups.setdefault(label, []).append(name)
    return list(groups.values())


class Search:
    """Errors of ridge regressions on some networks, from products of columns made once."""

    def __init__(self, members, rules, seed=0):
        kept = np.isin(networks(), members)
        table, self.ratio = features("counted")[kept], log_ratio(rows())[kept]
        self.codes = np.unique(networks()[kept], return_inverse=True)[1]
        self.folds = self.codes if rules.alone else deal(self.codes, 4, seed)
        self.alone = rules.alone
        plain = make_imputer().set_params(add_indicator=False).fit_transform(table)
        scaled = np.column_stack([StandardScaler().fit_transform(plain), np.ones(len(plain))])
        self.place = {name: at for at, name in enumerate(table.columns)} | {"1": table.shape[1]}
        self.parts = [scaled[self.folds == fold] for fold in range(self.folds.max() + 1)]
        self.sides = [self.ratio[self.folds == fold] for fold in range(self.folds.max() + 1)]
        grams = [part.T @ part for part in self.parts]
        right = [part.T @ side for part, side in zip(self.parts, self.sides, strict=True)]
        # without one part: all less that one
        self.grams = sum(grams) - np.array(grams)
        self.right = sum(right) - np.array(right)

    def errors(self, columns):
        """Return the mean error of each part that was held out."""
        at = [self.place[name] for name in (*columns, "1")]
        grams = self.grams[:, at][:, :, at] + np.eye(len(at))
        slopes = np.linalg.solve(grams, self.right[:, at][..., None])[..., 0]
        off = [
            np.abs(part[:, at] @ slope - side)
            for part, slope, side in zip(self.parts, slopes, self.sides, strict=True)
        ]
        if self.alone:
            return np.array([each.mean() for each in off])
        return np.concatenate(off)


def search(members, rules, offered, most, seed=0):
    """Return metrics in the order of choice."""
    made = Search(members, rules, seed)
    chosen, columns = [], shape_columns()
    while len(chosen) < most:
        left = [name for name in offered if name not in chosen]
        errors = {name: made.errors([*columns, *metric_columns_of(name)]) for name in left}
        best = min(left, key=lambda name: errors[name].mean())
        if rules.one_error:
            # `left` is by cost, so the first that is no worse than chance allows
            best = next(name for name in left if _as_good(errors[name], errors[best]))
        chosen.append(best)
        columns = [*columns, *metric_columns_of(best)]
    return chosen


def _as_good(errors, best):
    worse = errors - best
    return worse.mean() <= worse.std(ddof=1) / np.sqrt(len(worse))


def offered_by(rules):
    """Return the metrics that a search may take, by cost."""
    order = by_cost()
    if not rules.twins:
        return order
    return [name for name in order if any(name == group[0] for group in twins())]


def stability(rules, size, repetitions, everyone=None, seed=0):
    """Return the sets that searches without a fifth of the networks find."""
    everyone = np.unique(networks()) if everyone is None else everyone
    offered = offered_by(rules)
    rng = np.random.default_rng(seed)
    return [
        search(
            rng.choice(everyone, len(everyone) * 4 // 5, replace=False), rules, offered, size, each
        )
        for each in range(repetitions)
    ]


TRIED = {
    "four parts, all metrics": Rules(alone=False, twins=False, one_error=False),
    "a network at a time, all metrics": Rules(twins=False, one_error=False),
    "a network at a time, one of each group of twins": Rules(one_error=False),
    "the same, and the cheapest within a standard error": Rules(),
}
CHOSEN = "a network at a time, one of each group of twins"


def path_of(order, members=None):
    """Return how many of some metrics are a gain, and LightGBM's error with each one more.

    A search ends at the first metric whose gain, network by network, is not larger than its
    standard error.
    """
    codes = networks()
    kept = np.isin(codes, codes if members is None else members)
    table, ratio = features("counted")[kept], log_ratio(rows())[kept]
    codes = np.unique(codes[kept], return_inverse=True)[1]
    folds = deal(codes, 5)

    def errors(columns):
        off = np.empty(len(ratio))
        for fold in range(5):
            test = folds == fold
            guess = fit_predict("lgbm", table[columns][~test], ratio[~test], table[columns][test])
            off[test] = guess - ratio[test]
        return np.bincount(codes, np.abs(np.exp(off) - 1)) / np.bincount(codes)

    columns, path = shape_columns(), []
    before, size = errors(columns), None
    for number, metric in enumerate(order):
        columns = columns + metric_columns_of(metric)
        after = errors(columns)
        if size is None and _as_good(before, after):
            size = number
        path.append({"metric": metric, "error": float(after.mean())})
        before = after
    return len(order) if size is None else size, path, float(errors(list(table.columns)).mean())


def sets():
    """Return the set beyond which no metric is a gain, and how often searches find the same."""
    everyone, rules = np.unique(networks()), TRIED[CHOSEN]
    order = search(everyone, rules, offered_by(rules), MOST)
    size, path, best = path_of(order)
    parts = stability(rules, MOST, REPETITIONS)
    names = dict.fromkeys(name for each in parts for name in each[:size])
    shares = {name: float(np.mean([name in each[:size] for each in parts])) for name in names}
    for number, step in enumerate(path):
        step["same"] = same(parts, order, number + 1)
    return {
        "metrics": order[:size],
        "path": path,
        "all": best,
        "tolerance": TOLERANCE,
        "repetitions": REPETITIONS,
        "same": same(parts, order, size),
        "shares": dict(sorted(shares.items(), key=lambda pair: -pair[1])),
        "twins": [group for group in twins() if len(group) > 1],
        "limit": TWINS,
        "tried": [
            {"rules": title, **_tried(each, everyone, size)}
            for title, each in TRIED.items()
            if title != CHOSEN
        ],
        "tried_repetitions": TRIED_REPETITIONS,
    }


def _tried(rules, everyone, size):
    found = search(everyone, rules, offered_by(rules), size)
    parts = stability(rules, size, TRIED_REPETITIONS)
    return {"metrics": found, "same": same(parts, found, size)}


def same(parts, chosen, size):
    """Return the share of searches whose first metrics are those of the chosen set."""
    return float(np.mean([set(each[:size]) == set(chosen[:size]) for each in parts]))
