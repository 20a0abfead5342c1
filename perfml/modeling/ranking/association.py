"""Which features go with the target beyond chance: one permutation test of several statistics.

Every statistic is a correlation of the target with a shape of a feature:

- ``spearman``: ranks with ranks, for anything monotone;
- ``pearson``: the feature as it is with the logarithm of the target, for lines and powers;
- ``shape``: steps at eighths of the feature's ranks, a bump, a V, and where it is undefined;
- ``pair``: two features that only together tell something (an exclusive or), their own effects
  taken out.

The tables of chance have the target of other rows (`draws.py`). In each the largest value of a
statistic over all features counts (max-T: Westfall and Young 1993, Resampling-Based Multiple
Testing), and the smallest weighted p-value over the statistics (min-P, the same book). The table
as it is counts as one of them, so the p-value is exact for any number of permutations where rows
can be exchanged (Phipson and Smyth 2010, Permutation p-values should never be zero, Statistical
Applications in Genetics and Molecular Biology 9, 39). It is corrected for all features, pairs and
statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.modeling.ranking.draws import exchanged_classes, exchanged_rows, several_inside
from perfml.modeling.results import ASKED_R2, LEVEL, Chance
from perfml.util.typing import Floats, Ints

FEWEST_PERMUTATIONS = 19
"""Fewer cannot give a p-value of 5 %: the table itself is one of the arrangements."""

PERMUTATIONS = 999
"""Enough that another draw of them moves a p-value of 5 % by less than 1.4 points."""

WEIGHTS = {"spearman": 1.0, "pearson": 1.0, "shape": 0.8, "pair": 0.8}
"""Share of the level at which a statistic alone would speak. Lines are the usual case; what is
given to the others costs them little (`studies/ranking/RESULTS.md`)."""

PLANTED = 200
"""Simulated tables behind that power: its standard error is below 4 points."""

MOST_CELLS = 4_000_000
"""Numbers in one array of permuted targets, or of pairs (32 MB)."""

_CUTS = tuple(eighth / 8 for eighth in range(1, 8))

_ROUNDING = 1e-9
"""Difference of two correlations that is none."""


def against_chance(
    values: Floats,
    target: npt.NDArray[Any],
    pieces: Ints,
    strata: Ints,
    *,
    classes: int = 0,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> tuple[pd.DataFrame, Chance]:
    """Test every feature against chance.

    Parameters
    ----------
    values
        Features of shape (rows, features); NaN where undefined.
    target
        One number a row, best a logarithm; or class codes.
    pieces
        Code of the rows that belong together: they get the targets of one other piece.
    strata
        Code of the rows among which targets may be exchanged.
    classes
        How many there are; 0 for numbers.
    permutations, seed
        How many tables of chance, and the seed of their order.

    Returns
    -------
    pandas.DataFrame
        One row a feature: ``p_value``, the ``statistic`` that gave it, ``partner`` (the other
        feature of a pair, else -1) and ``rho``, the rank correlation (of classes: its ratio).
    Chance
    """
    exchange = exchanged(
        values, target, pieces, strata, classes=classes, permutations=permutations, seed=seed
    )
    shapes, tables = exchange.shapes, exchange.tables
    ways = len(np.unique(exchange.drawn, axis=0))
    rho = tables.signed(shapes.spearman)
    independent = int(pieces.max()) + 1
    if ways * LEVEL < 1:
        nothing = np.full(values.shape[1], np.nan)
        frame = pd.DataFrame({"p_value": nothing, "statistic": "", "partner": -1, "rho": rho})
        reason = (
            f"the rows can be exchanged in only {ways} ways, and a test against chance at "
            f"{LEVEL:.0%} needs {1 / LEVEL:.0f}"
        )
        return frame, Chance(permutations, independent, float("nan"), float("nan"), reason)
    limits = Limits.of(exchange.highest)
    frame = limits.judged(exchange)
    power = _power(exchange, limits, np.random.default_rng([seed, 4]))
    chance = Chance(permutations, independent, float(frame["p_value"].min()), power)
    return frame.assign(rho=rho), chance


def exchanged(
    values: Floats,
    target: npt.NDArray[Any],
    pieces: Ints,
    strata: Ints,
    *,
    classes: int = 0,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Exchange:
    """Return every statistic of the table, and what the tables of chance give."""
    inside = bool(classes) and several_inside(target, pieces)
    if classes:
        strata = pieces if inside else np.zeros_like(pieces)
    shapes = _Shapes.of(values, strata)
    tables = _Tables(_steady(target, classes), pieces, strata, classes, inside)
    drawn = tables.drawn(permutations, np.random.default_rng([seed, 3]))
    observed: dict[str, Floats] = {}
    highest: dict[str, list[Floats]] = {}
    step = max(1, MOST_CELLS // drawn.shape[1])
    for start in range(0, len(drawn), step):
        for name, found in _statistics(shapes, *tables.scores(drawn[start : start + step])):
            observed.setdefault(name, found[0])
            highest.setdefault(name, []).append(found.max(axis=1))
    maxima = {name: np.concatenate(parts) for name, parts in highest.items()}
    return Exchange(shapes, tables, drawn, observed, maxima)


def _steady(target: npt.NDArray[Any], classes: int) -> npt.NDArray[Any]:
    """Return numbers without the digits that another unit of the target changes."""
    if classes:
        return target
    spread = float(target.std())
    centred = target - target.mean()
    return np.asarray(np.round(centred / spread, 9) if spread > 0 else centred * 0.0)


@dataclass(frozen=True)
class _Shapes:
    """Columns of unit length that a target is correlated with, (rows, features or pairs)."""

    spearman: Floats
    pearson: Floats
    shape: Floats  # (shapes, rows, features)
    pair: Floats
    members: Ints  # the two features of each pair, (2, pairs)

    @classmethod
    def of(cls, values: Floats, strata: Ints) -> _Shapes:
        """Return the shapes of features; an undefined cell counts for nothing."""
        missing = np.isnan(values)
        ranks = _ranks(values, strata)
        place = np.where(missing, 0.0, ranks)
        centred = np.where(missing, 0.0, values - _means(values, strata))
        # undefined cells lie on neither side of a cut
        shapes = [np.where(missing, np.nan, ranks > cut - 0.5) for cut in _CUTS]
        shapes += [np.abs(ranks), np.where(missing, np.nan, np.abs(ranks) < 0.25)]
        if missing.any():
            shapes.append(missing)
        shape = np.stack([_unit(_centred(one.astype(float), strata)) for one in shapes])
        pair, members = _pairs(_unit(_centred(np.sign(place), strata)))
        return cls(_unit(place), _unit(centred), shape, pair, members)


def _pairs(signs: Floats) -> tuple[Floats, Ints]:
    """Return the product of every two columns without what either explains alone.

    Signs, because a product of numbers is as uncertain as its largest factor: beside a strong
    feature chance would then reach further than in the tables of chance.
    """
    rows, features = signs.shape
    first, second = np.triu_indices(features, 1)
    if rows * len(first) > MOST_CELLS:
        return np.zeros((rows, 0)), np.zeros((2, 0), dtype=np.int64)
    left, right = signs[:, first], signs[:, second]
    product = left * right
    product -= product.mean(axis=0)
    common, by_left, by_right = ((a * b).sum(axis=0) for a, b in _sides(left, right, product))
    rest = 1.0 - common**2
    usable = rest > _ROUNDING
    rest = np.where(usable, rest, 1.0)
    product -= left * ((by_left - common * by_right) / rest)
    product -= right * ((by_right - common * by_left) / rest)
    return _unit(product)[:, usable], np.stack([first, second])[:, usable]


def _sides(left: Floats, right: Floats, product: Floats) -> Iterator[tuple[Floats, Floats]]:
    yield from ((left, right), (product, left), (product, right))


@dataclass(frozen=True)
class _Tables:
    """The target of every row, and how it is exchanged."""

    target: npt.NDArray[Any]
    pieces: Ints
    strata: Ints
    classes: int
    inside: bool  # whether classes exchange their names inside a piece

    def drawn(self, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the table as it is, then permuted ones: rows whose target each row has; codes."""
        if self.classes and self.inside:
            return exchanged_classes(self.target, self.pieces, count, rng)
        donors = exchanged_rows(self.pieces, self.strata, count, rng)
        return np.asarray(self.target[donors]) if self.classes else donors

    def scores(self, drawn: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the targets of some tables as ranks and as they are, (tables, rows, scores)."""
        if self.classes:
            codes = np.arange(self.classes)
            flags = (drawn[:, :, None] == codes).astype(float)
            flags /= np.sqrt(np.maximum(flags.sum(axis=1, keepdims=True), 1.0))
            return flags, flags
        both = (_ranks(self.target[:, None], self.strata)[:, 0], self.target)
        ranks, numbers = (_rows_of_length_1(one[drawn], self.strata) for one in both)
        return ranks[:, :, None], numbers[:, :, None]

    def signed(self, ranked: Floats) -> Floats:
        """Return the rank correlation of each feature; of classes the correlation ratio."""
        itself = self.target[None] if self.classes else np.arange(len(self.target))[None]
        ranks, _ = self.scores(itself)
        if self.classes:
            return np.asarray(_strength(ranks, ranked)[0])
        return np.asarray(ranks[0, :, 0] @ ranked)


@dataclass(frozen=True)
class Exchange:
    """A table and the tables of chance: the statistics of the first, the largest of all."""

    shapes: _Shapes
    tables: _Tables
    drawn: npt.NDArray[Any]  # a row a table: whose target each row has, or its class
    observed: dict[str, Floats]  # of each feature, or pair
    highest: dict[str, Floats]  # over the features, of each table; the table as it is first


def _statistics(shapes: _Shapes, ranks: Floats, numbers: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield the name and the values, (tables, features or pairs), of every statistic."""
    yield "spearman", _strength(ranks, shapes.spearman)
    yield "pearson", _strength(numbers, shapes.pearson)
    best = _strength(numbers, shapes.shape[0])
    for one in shapes.shape[1:]:
        np.maximum(best, _strength(numbers, one), out=best)
    yield "shape", best
    if shapes.pair.shape[1]:
        yield "pair", _strength(ranks, shapes.pair)


def _strength(scores: Floats, columns: Floats) -> Floats:
    """Return the multiple correlation of scores (tables, rows, scores) with each column."""
    squares = [np.square(scores[:, :, at] @ columns) for at in range(scores.shape[2])]
    # numbers that differ by rounding only are equal
    return np.asarray(np.round(np.sqrt(np.sum(squares, axis=0)), 9))


@dataclass(frozen=True)
class Limits:
    """What chance gives: the largest values of each statistic, and the smallest quotas."""

    highest: dict[str, Floats]  # ascending, of the permuted tables
    least: Floats  # ascending, of the permuted tables
    weights: dict[str, float]

    @classmethod
    def of(cls, highest: dict[str, Floats], weights: dict[str, float] = WEIGHTS) -> Limits:
        """Count the table as it is, the first of `highest`, as one of all."""
        kept = {name: values for name, values in highest.items() if name in weights}
        quotas = np.min(
            [_beaten(np.sort(values), values) / weights[name] for name, values in kept.items()],
            axis=0,
        )
        return cls(
            {name: np.sort(values[1:]) for name, values in kept.items()},
            np.sort(quotas[1:]) / len(quotas),
            weights,
        )

    def quotas(self, name: str, values: Floats) -> Floats:
        """Return the share of tables whose largest value reaches each one, over the weight."""
        reached = 1 + _beaten(self.highest[name], values)
        return np.asarray(reached / (1 + len(self.least)) / self.weights[name])

    def p_values(self, quotas: Floats) -> Floats:
        """Return the share of tables whose smallest quota is as small."""
        smaller = np.searchsorted(self.least, quotas + _ROUNDING, side="right")
        return np.asarray((1 + smaller) / (1 + len(self.least)))

    def judged(self, exchange: Exchange) -> pd.DataFrame:
        """Return the p-value, statistic and partner of each feature."""
        observed = exchange.observed
        quotas = {name: self.quotas(name, observed[name]) for name in self.highest}
        features = exchange.shapes.spearman.shape[1]
        partner = np.full(features, -1, dtype=np.int64)
        if "pair" in quotas:
            of_pairs, best = quotas["pair"], np.full(features, np.inf)
            members = exchange.shapes.members
            # the best pair last, so that it stays
            for at in np.argsort(-of_pairs, kind="stable"):
                for one, other in (members[:, at], members[::-1, at]):
                    best[one], partner[one] = of_pairs[at], other
            quotas["pair"] = best
        names, table = np.array(list(quotas)), np.stack(list(quotas.values()))
        statistic = names[table.argmin(axis=0)]
        return pd.DataFrame(
            {
                "p_value": self.p_values(table.min(axis=0)),
                "statistic": statistic,
                "partner": np.where(statistic == "pair", partner, -1),
            }
        )


def _beaten(ascending: Floats, values: Floats) -> Ints:
    """Return how many numbers reach each value."""
    below = np.searchsorted(ascending, values - _ROUNDING, side="left")
    return np.asarray(len(ascending) - below, dtype=np.int64)


def _power(exchange: Exchange, limits: Limits, rng: np.random.Generator) -> float:
    """Return how often a straight effect of `ASKED_R2` of some feature would be shown."""
    shapes, tables, drawn = exchange.shapes, exchange.tables, exchange.drawn
    count, features = PLANTED, shapes.pearson.shape[1]
    rows = len(tables.target)
    planted = rng.integers(features, size=count)
    if tables.classes:
        noise = _rows_of_length_1(rng.normal(size=(count, rows)), tables.strata)
    else:
        noise = tables.scores(drawn[1 + np.arange(count) % (len(drawn) - 1)])[1][:, :, 0]
    effect = shapes.pearson[:, planted].T
    latent = np.sqrt(ASKED_R2) * effect + np.sqrt(1 - ASKED_R2) * noise
    places = _ranks(latent.T, tables.strata).T
    if tables.classes:
        order = np.argsort(places, axis=1, kind="stable")
        if tables.inside:
            order = np.lexsort((places, np.broadcast_to(tables.strata, places.shape)))
        inside = np.lexsort((tables.target, tables.strata)) if tables.inside else None
        codes = np.sort(tables.target) if inside is None else tables.target[inside]
        given = np.empty(places.shape, dtype=np.int64)
        np.put_along_axis(given, order, np.broadcast_to(codes, places.shape), axis=1)
        ranks = numbers = tables.scores(given)[0]
    else:
        ranks, numbers = (
            _rows_of_length_1(one, tables.strata)[:, :, None] for one in (places, latent)
        )
    own = _of_one_feature(shapes, planted, ranks, numbers)
    least = np.min([limits.quotas(name, values) for name, values in own.items()], axis=0)
    return float((limits.p_values(least) <= LEVEL).mean())


def _of_one_feature(
    shapes: _Shapes, planted: Ints, ranks: Floats, numbers: Floats
) -> dict[str, Floats]:
    """Return the statistics of one feature in each table, (tables,)."""

    def strength(scores: Floats, columns: Floats) -> Floats:
        products = np.einsum("trs,rt->ts", scores, columns[:, planted])
        return np.asarray(np.sqrt(np.square(products).sum(axis=1)))

    return {
        "spearman": strength(ranks, shapes.spearman),
        "pearson": strength(numbers, shapes.pearson),
        "shape": np.max([strength(numbers, one) for one in shapes.shape], axis=0),
    }


def _ranks(values: Floats, strata: Ints) -> Floats:
    """Return the ranks of each column within strata, from -0.5 to 0.5 in each; NaN stays."""
    by_stratum = pd.DataFrame(values).groupby(strata)
    ranks = by_stratum.rank().to_numpy()
    count = by_stratum.transform("count").to_numpy()
    return np.asarray((ranks - (count + 1) / 2) / np.maximum(count, 1))


def _means(values: Floats, strata: Ints) -> Floats:
    return np.asarray(pd.DataFrame(values).groupby(strata).transform("mean").to_numpy())


def _centred(values: Floats, strata: Ints) -> Floats:
    """Return columns without the means of strata; what is undefined lies at the mean."""
    return np.nan_to_num(values - _means(values, strata))


def _rows_of_length_1(values: Floats, strata: Ints) -> Floats:
    """Return rows without the means of strata, of length 1."""
    if strata.any():
        values = _centred(values.T, strata).T
    else:
        values = values - values.mean(axis=1, keepdims=True)
    return _unit(values.T).T


def _unit(columns: Floats) -> Floats:
    """Return columns of length 1; one that is constant stays zero."""
    length = np.sqrt(np.square(columns).sum(axis=0))
    return np.asarray(columns / np.where(length > _ROUNDING, length, np.inf))
