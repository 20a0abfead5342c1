"""Whether a ranking shows more than chance: a permutation test on the importances themselves.

The importances of the table and of tables with permuted times (`draws.py`) are measured
alike: the same resamples, seeds and models. Each group's importance is put in standard deviations
of all those tables and averaged over models and methods, and so is its rank correlation with the
target (`groups.py`). The mean of both is the group's score, and is compared with the *largest*
score of any group in each permuted table (maxT, Westfall and Young 1993, Resampling-Based Multiple
Testing). As all tables are treated alike, the p-value is exact where layers are exchangeable,
whatever the models do (Phipson and Smyth 2010, Permutation p-values should never be zero,
Statistical Applications in Genetics and Molecular Biology 9, 39); and it holds for the whole
ranking, not for one metric of many. A score has no ceiling, where a share of resamples has: with
few metrics the leading one is among the first three every time, by chance too.

The same tables give what each group's importance is by chance, so that neither a group's size nor
its spread of values lifts it in the ranking (Altmann et al. 2010, Permutation importance: a
corrected feature importance measure, Bioinformatics 26, 1340-1347).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfml.modeling.ranking.measure import Measured
from perfml.util.json_values import json_object
from perfml.util.typing import Floats

Pair = tuple[str, str]
"""A model and a method."""

LEVEL = 0.05
"""A p-value up to here is called more than chance."""

FEWEST_PERMUTATIONS = 19
"""Fewer cannot give a p-value of 5 %: the table itself is one of the arrangements."""

PERMUTATIONS = 40

FIRST_LOOK = 20
"""Permutations after which a ranking that cannot be told any more is given up. Of fewer tables the
standard deviations are too uncertain: of six, no score can lie above 2.04 of them."""

NULL_RESAMPLES = 3
"""Resamples of each permuted table. The test holds for any number; more find weaker effects."""

ROUNDING = 1e-9
"""Difference of two scores that is none."""


@dataclass(frozen=True)
class Null:
    """The test of a ranking against chance.

    Attributes
    ----------
    permutations
        How many permuted tables were measured.
    resamples
        Bootstrap resamples of each.
    highest
        Of each permuted table, the largest score of any group: standard deviations above the mean.
    observed
        The largest score of the table as it is; NaN where nothing was tested.
    reason
        Why there was no test; empty where there was one.
    """

    permutations: int
    resamples: int
    highest: tuple[float, ...]
    observed: float
    reason: str = ""

    @property
    def p_value(self) -> float:
        """How often chance alone gives a leading group as high a score; NaN without a test."""
        if self.reason:
            return float("nan")
        return float(adjusted(np.array([self.observed]), np.array(self.highest))[0])

    @property
    def limit(self) -> float:
        """The score that a leading group stays at or below by chance in 95 % of the cases."""
        if not self.highest:
            return float("nan")
        beyond = math.floor(LEVEL * (1 + len(self.highest)) + ROUNDING)
        return float(np.sort(self.highest)[-max(1, beyond)])

    def hopeless(self, planned: int) -> bool:
        """Return whether no outcome of the rest of `planned` permutations is more than chance."""
        beaten = sum(each >= self.observed - ROUNDING for each in self.highest)
        return bool(self.reason) or 1 + beaten > LEVEL * (1 + planned)

    JSON: ClassVar = ("permutations", "resamples", "observed", "limit", "p_value", "reason")
    to_dict = json_object


@dataclass(frozen=True)
class Baseline:
    """Importance of each group by chance, of one model and method, over the null's resamples."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Baseline:
        """Return the baseline that some null resamples give."""
        values = np.stack([result.joint for result in measured])
        return cls(values.mean(axis=0), values.std(axis=0, ddof=1))

    def scores(self, importance: Floats) -> Floats:
        """Return how many standard deviations above chance each group (last axis) is.

        A group whose importance is zero or less has no positive score: that chance does worse is no
        merit.
        """
        # a group that chance never uses would get an infinite score from its first use
        floor = 0.1 * float(np.mean(self.deviation))
        if floor == 0.0:
            return importance - self.mean
        score = (importance - self.mean) / np.maximum(self.deviation, floor)
        return np.where(importance > 0, score, np.minimum(score, 0.0))


def standardized(importance: Floats) -> Floats | None:
    """Return importances in standard deviations of all tables; None where none differs.

    Their shape is (tables, groups): the table as it is, then the permuted ones.
    """
    deviation = importance.std(axis=0)
    # a group that almost no table uses must not get an enormous score from its one use
    floor = 0.1 * float(deviation.mean())
    if floor == 0.0:
        return None
    return np.asarray((importance - importance.mean(axis=0)) / np.maximum(deviation, floor))


def pooled_scores(importances: Mapping[Pair, Floats], associations: Floats) -> Floats | None:
    """Return the scores of all tables and groups; None where nothing differs between tables.

    `associations` are `group_associations` of each table, shape (tables, groups); `importances` are
    as for `standardized`, of each model and method.
    """
    scores = _mean([standardized(importance) for importance in importances.values()])
    by_models = None if scores is None else standardized(scores)
    return _mean([by_models, standardized(associations)])


def _mean(scores: Sequence[Floats | None]) -> Floats | None:
    kept = [each for each in scores if each is not None]
    return np.asarray(np.mean(kept, axis=0)) if kept else None


def adjusted(scores: Floats, highest: Floats) -> Floats:
    """Return the p-value of each score among the largest scores of permuted tables.

    The table as it is counts as one of them.
    """
    beaten = (highest[None, :] >= scores[:, None] - ROUNDING).sum(axis=1)
    return np.asarray((1 + beaten) / (1 + len(highest)))
