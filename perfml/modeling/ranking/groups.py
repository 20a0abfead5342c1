"""Groups of metrics that no model can tell apart on these data."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from perfml.modeling.features import Problem

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
