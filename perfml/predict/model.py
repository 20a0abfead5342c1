"""What layers like these usually take: a boosted ensemble on the time over the roofline's bound.

The logarithm of the time over the bound and a launch is fitted, so that neither the size of a layer
nor the peak of a precision has to be learned. The table that is learned from may have any columns:
a model is fitted on those that the layers to be judged have, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.modeling.features import BOUND
from perfml.predict.describe import Vocabulary, describe
from perfml.predict.trees import Trees
from perfml.util.typing import Floats, Ints

ENSEMBLE = "hgb"
"""The model of the registry: with absolute errors, networks left out are off by 0.26 in the mean
instead of 0.31 with squared ones (shapes alone, 50 networks of the atlas)."""

LAUNCH_US = 1.0
"""Microseconds that a launch of nothing takes, about: the fastest layer of the atlas has 0.77."""

FOLDS = 6
"""Parts into which networks are dealt to see how far a network is off that was not learned from."""


@dataclass(frozen=True)
class LayerModel:
    """A fitted model.

    Attributes
    ----------
    words
        What it was described by.
    tier
        ``shape``, ``counted`` or ``clocked``.
    columns
        Features that vary in the reference.
    trees
        Predict `log_ratio`.
    """

    words: Vocabulary
    tier: str
    columns: tuple[str, ...]
    trees: Trees

    @classmethod
    def fit(
        cls, reference: pd.DataFrame, words: Vocabulary, tier: str, seed: int = 0
    ) -> LayerModel:
        """Fit prepared rows with times and bounds; every row weighs the same."""
        features = describe(reference, words, tier)
        return cls.of_features(features, log_ratio(reference), words, tier, seed)

    @classmethod
    def of_features(
        cls, features: pd.DataFrame, ratio: Floats, words: Vocabulary, tier: str, seed: int
    ) -> LayerModel:
        """Fit rows that were described before, and their `log_ratio`."""
        # scikit-learn takes a second to import, and what is kept fitted does without
        from perfml.modeling.models.registry import get_model
        from perfml.modeling.parallel import quietly

        columns = tuple(name for name in features.columns if _varies(features[name].to_numpy()))
        values = features[list(columns)].to_numpy()
        # one thread: several that wait for each other on a busy machine took 100 times longer
        estimator, _ = quietly(
            lambda data: get_model(ENSEMBLE, "regression").make(seed).fit(data, ratio), values
        )
        return cls(words, tier, columns, Trees.of(estimator))

    def log_times(self, rows: pd.DataFrame) -> Floats:
        """Return the logarithm of the expected microseconds of prepared rows."""
        return self.log_ratios(describe(rows, self.words, self.tier)) + log_base(rows)

    def log_ratios(self, features: pd.DataFrame) -> Floats:
        """Return the expected `log_ratio` of described rows."""
        return self.trees.predict(features[list(self.columns)].to_numpy())


def _varies(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool(len(known) and (known != known[0]).any())


def log_ratio(rows: pd.DataFrame) -> Floats:
    """Return the logarithm of the time over the bound and a launch."""
    return np.asarray(np.log(rows["time_us"].to_numpy(float)) - log_base(rows))


def log_base(rows: pd.DataFrame) -> Floats:
    """Return the logarithm of the bound and a launch together, microseconds."""
    return np.asarray(np.log(rows[BOUND].to_numpy(float) + LAUNCH_US))


def held_out_residuals(
    reference: pd.DataFrame,
    words: Vocabulary,
    tier: str,
    groups: Ints,
    *,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    keep: list[tuple[frozenset[str], LayerModel]] | None = None,
) -> Floats:
    """Return log(measured / expected) of every row, by models that did not learn from its group.

    Rows are prepared, and described by `words` and `tier`; `groups` are a number a row, dealt into
    at most `FOLDS` parts. Each model is added to `keep`, with the networks that it did not learn
    from.
    """
    features, ratio = describe(reference, words, tier), log_ratio(reference)
    folds = deal(groups, FOLDS, seed)
    residuals = np.empty(len(reference))
    count = int(folds.max()) + 1
    for fold in range(count):
        test = folds == fold
        model = LayerModel.of_features(features[~test], ratio[~test], words, tier, seed)
        residuals[test] = ratio[test] - model.log_ratios(features[test])
        if keep is not None:
            keep.append((frozenset(map(str, reference["workload"][test])), model))
        if progress is not None:
            progress(fold + 1, count, "networks held out")
    return residuals


def deal(groups: Ints, folds: int, seed: int = 0) -> Ints:
    """Return the fold of each row: groups dealt out whole, the largest first."""
    count = len(np.unique(groups))
    dealt = np.empty(len(groups), dtype=np.int64)
    if count <= folds:
        return np.asarray(pd.factorize(groups)[0], dtype=np.int64)
    from perfml.modeling.scoring.protocols import group_folds

    for fold, (_, test) in enumerate(group_folds(groups, folds, seed=seed)):
        dealt[test] = fold
    return dealt


def codes_of(rows: pd.DataFrame, column: str) -> Ints:
    """Number the values of a column from 0."""
    return np.asarray(pd.factorize(rows[column], use_na_sentinel=False)[0], dtype=np.int64)
