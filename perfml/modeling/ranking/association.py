"""How far each metric goes with the target, without any model: the test's second leg.

A model has to spend its few rows on all metrics at once, so its importances miss weak effects that
a rank correlation still shows; the correlation misses effects that go up and down, or that only
several metrics together have.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from perfml.modeling.features import Problem
from perfml.modeling.ranking.groups import Groups
from perfml.util.typing import Floats, Ints


def group_associations(problem: Problem, pieces: Ints, groups: Groups) -> Floats:
    """Return the strongest association of each group's metrics with the target, from 0 to 1.

    Of times the absolute rank correlation, ranks taken within each configuration. Of classes the
    correlation ratio of ranks, taken within each layer where layers have several classes. That is
    what permutation leaves alone (`permutations.py`).
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
