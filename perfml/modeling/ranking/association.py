"""Which features go with the target beyond chance: one permutation test of several statistics.

Every statistic is a correlation of the target's normal scores with a shape of a feature:

- ``monotone``: the feature's normal scores (van der Waerden 1952), as powerful as a line where
  that is best (Chernoff and Savage 1958, Annals of Mathematical Statistics 29, 972); or the feature
  and the target as they are, which a few rows need: the larger one counts;
- ``shape``: their square (a U), steps at the quartiles, and where the feature is undefined;
- ``pair``: two features that only together tell something (an exclusive or), their own effects
  taken out.

A piece of evidence counts the same however many rows it has: its rows share one weight.

The tables of chance have the target of other rows (`measure.py`). In each the largest value of a
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
from scipy.special import ndtri

from perfml.modeling.ranking.measure import exchanged_classes, exchanged_rows, several_inside
from perfml.modeling.results import ASKED_R2, LEVEL, Chance
from perfml.util.typing import Floats, Ints

FEWEST_PERMUTATIONS = 19
"""Fewer cannot give a p-value of 5 %: the table itself is one of the arrangements."""

PERMUTATIONS = 999
"""Enough that another draw of them moves a p-value of 5 % by less than 1.4 points."""

WEIGHTS = {"monotone": 1.0, "shape": 0.6, "pair": 0.8}
"""Share of the level at which a statistic alone would speak, see `studies/ranking/RESULTS.md`."""

PLANTED = 200
"""Simulated tables behind that power: its standard error is below 4 points."""

MOST_CELLS = 4_000_000
"""Numbers in one array of permuted targets, or of pairs (32 MB)."""

_CUTS = (0.25, 0.5, 0.75)

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
        One number a row; or class codes.
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
        feature of a pair, else -1) and ``rho``, the correlation of normal scores (of classes: its
        ratio).
    Chance
    """
    exchange = exchanged(
        values, target, pieces, strata, classes=classes, permutations=permutations, seed=seed
    )
    shapes, tables = exchange.shapes, exchange.tables
    ways = len(np.unique(exchange.drawn, axis=0))
    rho = tables.signed(shapes.monotone)
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
    weights = np.ones(len(pieces)) if classes else 1.0 / np.bincount(pieces)[pieces]
    shapes = _Shapes.of(values, strata, weights)
    tables = _Tables.of(target, pieces, strata, weights, classes, inside)
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


@dataclass(frozen=True)
class _Shapes:
    """Columns of unit length that a target is correlated with, (rows, features or pairs)."""

    monotone: Floats
    plain: Floats
    shape: Floats  # (shapes, rows, features)
    pair: Floats
    members: Ints  # the two features of each pair, (2, pairs)

    @classmethod
    def of(cls, values: Floats, strata: Ints, weights: Floats) -> _Shapes:
        """Return the shapes of features; an undefined cell counts for nothing."""
        missing = np.isnan(values)
        scores = _normal_scores(values, strata)
        # undefined cells lie on neither side of a cut
        shapes = [np.where(missing, np.nan, scores > ndtri(cut)) for cut in _CUTS]
        shapes += [np.square(scores), *([missing] if missing.any() else [])]
        shape = np.stack([_columns(one.astype(float), strata, weights) for one in shapes])
        monotone, plain = (_columns(one, strata, weights) for one in (scores, values))
        return cls(monotone, plain, shape, *_pairs(np.sign(scores), strata, weights))


def _pairs(signs: Floats, strata: Ints, weights: Floats) -> tuple[Floats, Ints]:
    """Return the product of every two columns without what either explains alone.

    Signs, because a product of numbers is as uncertain as its largest factor: beside a strong
    feature chance would then reach further than in the tables of chance.
    """
    rows, features = signs.shape
    first, second = np.triu_indices(features, 1)
    if rows * len(first) > MOST_CELLS:
        return np.zeros((rows, 0)), np.zeros((2, 0), dtype=np.int64)
    centred, alone = _centred(signs, strata, weights), _columns(signs, strata, weights)
    left, right = alone[:, first], alone[:, second]
    defined = np.isfinite(signs[:, first] * signs[:, second])
    both = np.where(defined, centred[:, first] * centred[:, second], np.nan)
    product = _columns(both, strata, weights)
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
    normal: Floats  # its normal scores
    pieces: Ints
    strata: Ints
    weights: Floats
    classes: int
    inside: bool  # whether classes exchange their names inside a piece

    @classmethod
    def of(
        cls,
        target: npt.NDArray[Any],
        pieces: Ints,
        strata: Ints,
        weights: Floats,
        classes: int,
        inside: bool,
    ) -> _Tables:
        """Return numbers without the digits that another unit of the target changes."""
        if not classes:
            spread = float(target.std())
            target = np.round((target - target.mean()) / (spread if spread > 0 else np.inf), 9)
        normal = _normal_scores(target[:, None], strata)[:, 0]
        return cls(target, normal, pieces, strata, weights, classes, inside)

    def drawn(self, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the table as it is, then permuted ones: rows whose target each row has; codes."""
        if self.classes and self.inside:
            return exchanged_classes(self.target, self.pieces, count, rng)
        donors = exchanged_rows(self.pieces, self.strata, count, rng)
        return np.asarray(self.target[donors]) if self.classes else donors

    def scores(self, drawn: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the targets of some tables by normal scores and plain, (tables, rows, scores)."""
        if self.classes:
            flags = (drawn[:, :, None] == np.arange(self.classes)).astype(float)
            flags /= np.sqrt(np.maximum(flags.sum(axis=1, keepdims=True), 1.0))
            return flags, flags
        return self.rows(self.normal[drawn]), self.rows(self.target[drawn])

    def rows(self, values: Floats) -> Floats:
        """Return targets without the means of strata, of length 1, (tables, rows, 1)."""
        return _columns(values.T, self.strata, self.weights).T[:, :, None]

    def signed(self, monotone: Floats) -> Floats:
        """Return the correlation of each feature; of classes the correlation ratio."""
        if self.classes:
            return np.asarray(_strength(self.scores(self.target[None])[0], monotone)[0])
        return np.asarray(self.scores(np.arange(len(self.target))[None])[0][0, :, 0] @ monotone)


@dataclass(frozen=True)
class Exchange:
    """A table and the tables of chance: the statistics of the first, the largest of all."""

    shapes: _Shapes
    tables: _Tables
    drawn: npt.NDArray[Any]  # a row a table: whose target each row has, or its class
    observed: dict[str, Floats]  # of each feature, or pair
    highest: dict[str, Floats]  # over the features, of each table; the table as it is first


def _statistics(shapes: _Shapes, normal: Floats, plain: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield the name and the values, (tables, features or pairs), of every statistic."""
    line = _strength(plain, shapes.plain)
    yield "monotone", np.maximum(_strength(normal, shapes.monotone), line)
    yield "shape", np.max([_strength(normal, one) for one in shapes.shape], axis=0)
    if shapes.pair.shape[1]:
        yield "pair", _strength(normal, shapes.pair)


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
        features = exchange.shapes.monotone.shape[1]
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
    count, features = PLANTED, shapes.monotone.shape[1]
    rows = len(tables.target)
    planted = rng.integers(features, size=count)
    if tables.classes:
        noise = tables.rows(rng.normal(size=(count, rows)))[:, :, 0]
    else:
        noise = tables.scores(drawn[1 + np.arange(count) % (len(drawn) - 1)])[0][:, :, 0]
    latent = np.sqrt(ASKED_R2) * shapes.monotone[:, planted].T + np.sqrt(1 - ASKED_R2) * noise
    places = _normal_scores(latent.T, tables.strata).T
    if tables.classes:
        order = np.argsort(places, axis=1, kind="stable")
        if tables.inside:
            order = np.lexsort((places, np.broadcast_to(tables.strata, places.shape)))
        inside = np.lexsort((tables.target, tables.strata)) if tables.inside else None
        codes = np.sort(tables.target) if inside is None else tables.target[inside]
        given = np.empty(places.shape, dtype=np.int64)
        np.put_along_axis(given, order, np.broadcast_to(codes, places.shape), axis=1)
        normal = plain = tables.scores(given)[0]
    else:
        normal, plain = tables.rows(places), tables.rows(latent)

    def strength(scores: Floats, columns: Floats) -> Floats:
        products = np.einsum("trs,rt->ts", scores, columns[:, planted])
        return np.asarray(np.sqrt(np.square(products).sum(axis=1)))

    line = np.maximum(strength(normal, shapes.monotone), strength(plain, shapes.plain))
    shape = np.max([strength(normal, one) for one in shapes.shape], axis=0)
    quotas = (limits.quotas("monotone", line), limits.quotas("shape", shape))
    return float((limits.p_values(np.minimum(*quotas)) <= LEVEL).mean())


def _normal_scores(values: Floats, strata: Ints) -> Floats:
    """Return the normal scores of each column within strata; NaN stays."""
    by_stratum = pd.DataFrame(values).groupby(strata)
    ranks, count = by_stratum.rank().to_numpy(), by_stratum.transform("count").to_numpy()
    return np.asarray(ndtri(ranks / (count + 1)))


def _columns(values: Floats, strata: Ints, weights: Floats) -> Floats:
    """Return columns whose products are weighted correlations: centred, of length 1."""
    return _unit(np.sqrt(weights)[:, None] * _centred(values, strata, weights))


def _centred(values: Floats, strata: Ints, weights: Floats) -> Floats:
    """Return columns without the means of strata; what is undefined lies at the mean."""
    of_cells = np.where(np.isnan(values), 0.0, weights[:, None])
    sums, total = (
        pd.DataFrame(part).groupby(strata).transform("sum").to_numpy()
        if strata.any()
        else part.sum(axis=0)
        for part in (np.nan_to_num(values) * of_cells, of_cells)
    )
    return np.nan_to_num(values - sums / np.where(total > 0, total, 1.0))


def _unit(columns: Floats) -> Floats:
    """Return columns of length 1; one that is constant stays zero."""
    length = np.sqrt(np.square(columns).sum(axis=0))
    return np.asarray(columns / np.where(length > _ROUNDING, length, np.inf))
