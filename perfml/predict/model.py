"""What layers like these usually take: a boosted ensemble on the time over the roofline's bound.

The logarithm of the time over the bound and a launch is fitted, so that neither the size of a layer
nor the peak of a precision has to be learned. The table that is learned from may have any columns:
a model is fitted on those that the layers to be judged have, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.modeling.features import BOUND
from perfml.predict.describe import Vocabulary, describe
from perfml.util.typing import Floats, Ints

LAUNCH_US = 1.0
"""Microseconds that a launch of nothing takes, about: the fastest layer of the atlas has 0.77."""

LONG_US, LONG_WEIGHT = 10.0, 2.0
"""Microseconds from which on a layer's work is most of its time, and what such a layer weighs: they
are a quarter of the layers and nearly all of the time."""

FOLDS = 6
"""Parts into which networks are dealt to see how far a network is off that was not learned from."""


@dataclass(frozen=True)
class LayerModel:
    """Trees that predict `log_ratio` of rows described by `words` and `tier`.

    `columns` are the features that vary in the reference, `without` the networks left out of it.
    """

    words: Vocabulary
    tier: str
    columns: tuple[str, ...]
    trees: Trees
    without: frozenset[str] = frozenset()

    @classmethod
    def fit(
        cls,
        rows: pd.DataFrame,
        words: Vocabulary,
        tier: str,
        seed: int = 0,
        features: pd.DataFrame | None = None,
    ) -> LayerModel:
        """Fit prepared rows with times and bounds, and their features where these are known."""
        from perfml.modeling.parallel import quietly

        described = describe(rows, words, tier) if features is None else features
        columns = tuple(name for name in described.columns if _varies(described[name].to_numpy()))
        values, ratio = described[list(columns)].to_numpy(), log_ratio(rows)
        weights = np.where(rows["time_us"].to_numpy(float) >= LONG_US, LONG_WEIGHT, 1.0)
        # one thread: several that wait for each other on a busy machine took 100 times longer
        estimator, _ = quietly(lambda data: ensemble(seed).fit(data, ratio, weights), values)
        return cls(words, tier, columns, Trees.of(estimator))

    def log_times(self, rows: pd.DataFrame) -> Floats:
        """Return the logarithm of the expected microseconds of prepared rows."""
        return self.log_ratios(describe(rows, self.words, self.tier)) + log_base(rows)

    def log_ratios(self, features: pd.DataFrame) -> Floats:
        """Return the expected `log_ratio` of described rows."""
        return self.trees.predict(features[list(self.columns)].to_numpy())


def ensemble(seed: int) -> Any:
    """Return the boosted trees, not fitted.

    Squared errors of the logarithm: networks held out are off by 0.163 in the mean from 10 us on,
    with absolute errors by 0.172 (13,468 layers of 63 networks, tier ``launched``); 0.155 with a
    quarter of the features a split and long layers weighing twice.
    """
    # scikit-learn takes a second to import, and what is kept fitted does without
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=200,
        learning_rate=0.1,
        max_leaf_nodes=24,
        min_samples_leaf=8,
        l2_regularization=3.0,
        max_features=0.25,
        early_stopping=False,
        random_state=seed,
    )


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
    keep: list[LayerModel] | None = None,
) -> Floats:
    """Return log(measured / expected) of every row, by models that did not learn from its group.

    Rows are prepared, and described by `words` and `tier`; `groups` are a number a row, dealt into
    at most `FOLDS` parts. Each model is added to `keep`.
    """
    features, ratio = describe(reference, words, tier), log_ratio(reference)
    folds = deal(groups, FOLDS, seed)
    residuals = np.empty(len(reference))
    count = int(folds.max()) + 1
    for fold in range(count):
        test = folds == fold
        model = LayerModel.fit(reference[~test], words, tier, seed, features[~test])
        residuals[test] = ratio[test] - model.log_ratios(features[test])
        if keep is not None:
            keep.append(replace(model, without=frozenset(map(str, reference["workload"][test]))))
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


@dataclass(frozen=True)
class Trees:
    """A sum of regression trees, all nodes in one row of arrays.

    ``baseline``, shape (1,), is added to every sum; ``roots`` has the first node of each tree. A
    node asks for the column ``feature``, -1 at a leaf: at most ``threshold`` goes ``left``, as a
    row without a value does where ``missing_left``. Next nodes are counted over all trees.
    """

    baseline: Floats
    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: Floats
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    missing_left: npt.NDArray[np.bool_]
    value: Floats

    @classmethod
    def of(cls, estimator: Any) -> Trees:
        """Take the trees out of a fitted ``HistGradientBoostingRegressor``."""
        nodes = [stage[0].nodes for stage in estimator._predictors]
        starts = np.concatenate([[0], np.cumsum([len(tree) for tree in nodes])[:-1]])
        every = np.concatenate(nodes)
        if every["is_categorical"].any():
            msg = "trees with categories cannot be kept as arrays"
            raise ValueError(msg)
        offset = np.repeat(starts, [len(tree) for tree in nodes])
        leaf = every["is_leaf"].astype(bool)
        return cls(
            np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(1),
            starts.astype(np.int32),
            np.where(leaf, -1, every["feature_idx"]).astype(np.int16),
            np.where(leaf, 0.0, every["num_threshold"]),
            np.where(leaf, 0, every["left"] + offset).astype(np.int32),
            np.where(leaf, 0, every["right"] + offset).astype(np.int32),
            every["missing_go_to_left"].astype(bool) & ~leaf,
            np.where(leaf, every["value"], 0.0),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Trees:
        """Read what `as_arrays` gave; KeyError if a part is missing."""
        return cls(
            **{attribute.name: arrays[f"{prefix}{attribute.name}"] for attribute in fields(cls)}
        )

    def as_arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, each behind a prefix."""
        return {
            f"{prefix}{attribute.name}": getattr(self, attribute.name) for attribute in fields(self)
        }

    def predict(self, features: Floats) -> Floats:
        """Return the sum of all trees for each row of features; NaN is a missing value."""
        count = len(self.roots)
        place = np.tile(self.roots, len(features))
        going = np.arange(len(place))
        while len(going):
            asked = self.feature[place[going]]
            inner = asked >= 0
            going, asked = going[inner], asked[inner]
            node = place[going]
            values = features[going // count, asked]
            goes_left = values <= self.threshold[node]
            goes_left |= np.isnan(values) & self.missing_left[node]
            place[going] = np.where(goes_left, self.left[node], self.right[node])
        sums = self.value[place].reshape(len(features), count).sum(axis=1)
        return np.asarray(self.baseline[0] + sums)


CONFIDENCE = 0.9
"""Share of layers whose time lies inside."""

_MAD = 1.4826
"""Standard deviations a median absolute deviation is, of normal numbers."""

_STRENGTH = 20.0
"""Rows whose weight the scatter of all families has beside a family's own."""

_LEAST = 0.01
"""Smallest scatter, as a share of the time: clocks alone scatter by as much."""

_CLASSES_US = (3.0, 10.0, 50.0)
"""Expected times, microseconds, at which layers of a family begin to scatter otherwise: up to the
first a launch is most of the time, from the last on the work is."""


@dataclass(frozen=True)
class Intervals:
    """Calibrated intervals of the logarithm of a time.

    `scatter` is the robust standard deviation of log(measured / expected), by family, and by family
    and class of expected time; `overall` that of all rows, for families that the reference lacks.
    `scores` are residuals over their group's scatter, sorted; `below` is the share of a next
    layer's scores that are at most each of these.
    """

    scatter: dict[str, float]
    overall: float
    scores: Floats
    below: Floats

    @classmethod
    def calibrate(
        cls,
        residuals: Floats,
        family: pd.Series[Any],
        expected: Floats,
        networks: pd.Series[Any] | None = None,
    ) -> Intervals:
        """Calibrate on log(measured / expected) of layers that were not learned from.

        Each of the `networks` weighs the same; without them each layer does.
        """
        overall = _scatter(residuals)
        scatter: dict[str, float] = {}
        names = family.astype(object).to_numpy()
        for groups, wider in ((names, None), (_groups(names, expected), names)):
            for name in dict.fromkeys(groups):
                here = groups == name
                around = overall if wider is None else scatter[str(wider[here][0])]
                own = residuals[here]
                # variances are averaged, the group's own counting as many rows as it has
                weight = len(own) / (len(own) + _STRENGTH)
                mixed = weight * _scatter(own) ** 2 + (1 - weight) * around**2
                scatter[str(name)] = float(np.sqrt(mixed))
        made = cls(scatter, overall, np.zeros(0), np.zeros(0))
        scores = residuals / made._sigmas(expected, family)
        order = np.argsort(scores, kind="stable")
        weights = np.ones(len(scores))
        if networks is not None:
            weights /= networks.map(networks.value_counts()).to_numpy(float)
        # the next one is among them, with the mean weight
        below = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
        return replace(made, scores=scores[order], below=below)

    def around(
        self, expected: Floats, family: pd.Series[Any], confidence: float = CONFIDENCE
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper ends around expected logarithms of times."""
        outside = (1.0 - confidence) / 2
        # sums of weights are rounded
        first = np.searchsorted(self.below, outside + 1e-9, side="right")
        last = np.searchsorted(self.below, 1.0 - outside - 1e-9)
        # beyond the last of them nothing is known
        low = self.scores[first - 1] if first >= 1 else -np.inf
        high = self.scores[last] if last < len(self.scores) else np.inf
        sigmas = self._sigmas(expected, family)
        return expected + low * sigmas, expected + high * sigmas

    def _sigmas(self, expected: Floats, family: pd.Series[Any]) -> Floats:
        names = family.astype(object).to_numpy()
        known = zip(_groups(names, expected), names, strict=True)
        return np.array(
            [
                self.scatter.get(group, self.scatter.get(str(name), self.overall))
                for group, name in known
            ]
        )


def _groups(names: npt.NDArray[np.object_], expected: Floats) -> npt.NDArray[np.object_]:
    """Return family and class of the expected time of each row, whose logarithm is given."""
    classes = np.digitize(np.exp(expected), _CLASSES_US)
    return np.array([f"{name}, {k}" for name, k in zip(names, classes, strict=True)], dtype=object)


def _scatter(residuals: Floats) -> float:
    middle = np.median(residuals)
    return max(_LEAST, float(_MAD * np.median(np.abs(residuals - middle))))
