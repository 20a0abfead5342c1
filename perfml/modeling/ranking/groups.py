"""Groups of metrics that no model can tell apart on these data, and how each goes with the target.

The second is the test's other leg, without any model. A model has to spend its few rows on all
metrics at once, so its importances miss weak effects that a rank correlation still shows; the
correlation misses effects that go up and down, or that only several metrics together have.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from perfml.modeling.features import Problem
from perfml.util.typing import Floats, Ints

CLUSTER_RHO = 0.8
"""Metrics whose absolute Spearman correlation reaches this, on average, are one group."""

Groups = tuple[tuple[int, ...], ...]
"""Columns of each group."""


def spearman_groups(problem: Problem) -> Groups:
    """Return groups of columns that rank the rows alike.

    Average linkage on ``1 - |rho|``, cut where the mean absolute Spearman correlation between two
    groups falls below `CLUSTER_RHO`. Undefined cells take the column's median.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    values = problem.design.values
    if values.shape[1] == 1:
        return ((0,),)
    filled = np.where(np.isnan(values), np.nanmedian(values, axis=0), values)
    with np.errstate(invalid="ignore"):
        rho = np.corrcoef(rankdata(filled, axis=0), rowvar=False)
    distance = 1.0 - np.abs(np.nan_to_num(rho))
    np.fill_diagonal(distance, 0.0)
    distance = np.clip((distance + distance.T) / 2, 0.0, None)
    cut = 1.0 - CLUSTER_RHO + 1e-12
    labels = fcluster(linkage(squareform(distance, checks=False), "average"), cut, "distance")
    members: dict[int, list[int]] = {}
    for column, label in enumerate(labels):
        members.setdefault(int(label), []).append(column)
    return tuple(sorted((tuple(group) for group in members.values()), key=lambda group: group[0]))


def group_label(problem: Problem, group: tuple[int, ...]) -> str:
    """Return a group's name: its members, joined with plus signs."""
    return " + ".join(problem.design.names[column] for column in group)


def group_associations(problem: Problem, pieces: Ints, groups: Groups) -> Floats:
    """Return the strongest association of each group's metrics with the target, from 0 to 1.

    Of times the absolute rank correlation, ranks taken within each configuration. Of classes the
    correlation ratio of ranks, taken within each layer where layers have several classes. That is
    what permutation leaves alone (`draws.py`).
    """
    values = problem.design.values
    filled = np.where(np.isnan(values), np.nanmedian(values, axis=0), values)
    if problem.classes:
        ranks = _centred_ranks(filled, pieces)
        if not ranks.any():  # one row a layer
            ranks = _centred_ranks(filled, np.zeros(problem.rows, dtype=np.int64))
        of_metric = _correlation_ratio(ranks, problem.truth)
    else:
        ranks = _centred_ranks(filled, problem.configuration)
        time = _centred_ranks(problem.truth[:, None], problem.configuration)
        of_metric = np.abs(_unit(ranks).T @ _unit(time))[:, 0]
    return np.array([of_metric[list(group)].max() for group in groups])


def _centred_ranks(values: Floats, inside: Ints) -> Floats:
    """Return the ranks of each column within groups of rows, from -0.5 to 0.5 in each group."""
    ranks = np.empty_like(values)
    for code in np.unique(inside):
        rows = inside == code
        size = int(rows.sum())
        ranks[rows] = (rankdata(values[rows], axis=0) - (size + 1) / 2) / size
    return ranks


def _unit(values: Floats) -> Floats:
    """Return columns of length 1; a column of zeros stays."""
    length = np.sqrt((values**2).sum(axis=0))
    return np.asarray(values / np.where(length > 0, length, 1.0))


def _correlation_ratio(ranks: Floats, classes: Ints) -> Floats:
    count = np.bincount(classes)
    sums = np.stack([np.bincount(classes, weights=column) for column in ranks.T])
    between = (sums**2 / np.maximum(count, 1)).sum(axis=1)
    total = (ranks**2).sum(axis=0)
    return np.asarray(np.sqrt(between / np.where(total > 0, total, 1.0)))
