"""What a ranking looks like when there is nothing to find: times permuted between layers.

The same table with its times given to other layers has the same groups of metrics, the same
repeats and the same models, and no relation between metrics and time. Whatever is ranked first
there is first by chance. It serves twice: each group's importance is measured against what that
very group gets by chance, so that neither a group's size nor its spread of values lifts it; and
the probability of the leading group stands beside the one that a leading group gets by chance.

The correction of importances is that of Altmann et al. 2010 (Permutation importance: a corrected
feature importance measure, Bioinformatics 26, 1340-1347), with the null's mean and standard
deviation; whole layers are permuted instead of rows because the rows of a layer belong together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfml.modeling.features import Problem
from perfml.modeling.ranking.measure import Measured
from perfml.modeling.scoring.targets import Target
from perfml.util.typing import Floats, Ints

CONFIDENCE = 0.95
"""Quantile of the null that a probability must exceed to be called more than chance."""

FEWEST_PERMUTATIONS = 20
"""Below that the 95 % point of the null cannot be known: the largest of 19 is the 95 % point."""

NULL_RESAMPLES = 10
"""Resamples of each permutation. Fewer than those of the ranking: the null's probabilities scatter
a little more, so its 95 % point is rather too high than too low."""

ROUNDING = 1e-9
"""Difference of two shares that is none."""

QUICK_RESAMPLES = (3, 5)
"""Resamples of each permutation in a report, which has to be quick: three where they tell, else
five (`Null.exceeded_by`). The 95 % point is higher still, so that false alarms are rarer than 5 %
and a weak effect is told less often."""


@dataclass(frozen=True)
class Null:
    """What the leading group gets when times (or backends) are permuted between layers.

    Attributes
    ----------
    permutations
        How many permutations.
    resamples
        Bootstrap resamples of each.
    p_top3
        Of each permutation, the largest probability of being among the first three.
    """

    permutations: int
    resamples: int
    p_top3: tuple[float, ...]

    @property
    def median(self) -> float:
        """What a leading group usually gets by chance."""
        return float(np.median(self.p_top3))

    @property
    def limit(self) -> float:
        """What a leading group exceeds by chance in at most 5 % of the permutations."""
        # the observed table counts as one more permutation, which makes the test exact
        place = math.ceil(CONFIDENCE * (len(self.p_top3) + 1))
        return float(np.sort(self.p_top3)[min(place, len(self.p_top3)) - 1])

    def exceeded_by(self, share: float) -> bool:
        """Return whether a group's probability of being among the first three is beyond chance.

        The fewer resamples a permutation has, the more its probabilities scatter and the higher are
        the largest of them. So a group above the 95 % point of few resamples is above that of more,
        but for chance, and needs no more of them; one that is not has to wait for more. Stopping as
        soon as the answer is known is the idea of the sequential Monte Carlo test of Besag and
        Clifford 1991 (Sequential Monte Carlo p-values, Biometrika 78, 301-304); here what grows is
        not the number of permutations, all of which a small p-value needs, but how well each is
        known.
        """
        # shares that are equal but for rounding are no more than chance
        return share > self.limit + ROUNDING

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "permutations": self.permutations,
            "resamples": self.resamples,
            "p_top3_median": self.median,
            "p_top3_95": self.limit,
        }


@dataclass(frozen=True)
class Baseline:
    """Importance of each group by chance, of one model and method.

    Attributes
    ----------
    mean, deviation
        One number a group: mean and standard deviation over the null's resamples.
    """

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Baseline:
        """Return the baseline that some null resamples give."""
        values = np.stack([result.joint for result in measured])
        return cls(values.mean(axis=0), values.std(axis=0, ddof=1))

    def scores(self, importance: Floats) -> Floats:
        """Return how many standard deviations above chance each group is.

        Parameters
        ----------
        importance
            One number a group, along the last axis.

        Returns
        -------
        ndarray
            Of the same shape. A group whose importance is zero or less has no positive score:
            that chance does worse is no merit.
        """
        # a group that chance never uses would get an infinite score from its first use
        floor = 0.1 * float(np.mean(self.deviation))
        if floor == 0.0:
            return importance - self.mean
        score = (importance - self.mean) / np.maximum(self.deviation, floor)
        return np.where(importance > 0, score, np.minimum(score, 0.0))


def permuted_problems(
    problem: Problem, target: Target, pieces: Ints, count: int, seed: int
) -> Iterator[Problem]:
    """Return the problem with times, or backends, permuted between layers, `count` times.

    The target is permuted, so that a layer keeps its amount of work where that is a time per
    operation. Copies of a layer, one of `pieces`, move together.
    """
    everything = np.arange(problem.rows)
    for index in range(count):
        rng = np.random.default_rng([seed, 3, index])
        if problem.classes:
            yield replace(problem, truth=_permuted_classes(problem.truth, pieces, rng))
            continue
        donors = _donors(problem.configuration, pieces, rng)
        fitted = target.forward(problem.truth, everything)[donors]
        yield replace(problem, truth=target.inverse(fitted, everything))


def _donors(configuration: Ints, pieces: Ints, rng: np.random.Generator) -> Ints:
    """Return the row whose time each row gets: of another layer, in the same configuration.

    One permutation of the layers serves all configurations that have the same layers, so that a
    layer which is slow under one library stays slow under the others.
    """
    order = rng.permutation(int(pieces.max()) + 1)
    donors = np.empty(len(pieces), dtype=np.int64)
    for code in range(int(configuration.max()) + 1):
        inside = np.flatnonzero(configuration == code)
        present = np.unique(pieces[inside])
        givers = present[np.argsort(order[present])]
        for piece, giver in zip(present, givers, strict=True):
            takes = inside[pieces[inside] == piece]
            gives = inside[pieces[inside] == giver]
            donors[takes] = np.resize(gives, len(takes))
    return donors


def _permuted_classes(classes: Ints, pieces: Ints, rng: np.random.Generator) -> Ints:
    """Return the classes with their names exchanged, within each layer that has several.

    Where every layer has one class only, whole layers exchange theirs.
    """
    permuted = classes.copy()
    exchanged = False
    for piece in range(int(pieces.max()) + 1):
        inside = pieces == piece
        present = np.unique(classes[inside])
        exchanged = exchanged or len(present) > 1
        permuted[inside] = rng.permutation(present)[np.searchsorted(present, classes[inside])]
    if exchanged:
        return permuted
    first = classes[np.unique(pieces, return_index=True)[1]]
    return np.asarray(rng.permutation(first)[pieces], dtype=np.int64)
