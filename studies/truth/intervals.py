"""How wide the intervals of estimates are, chosen without the author that they are measured on.

An author is who wrote the kernels of some fixes: all planted families are one's, each ladder is,
the public reports are, each exam is. What an interval promises is to hold on kernels of somebody
else, so a whole author is left out, never a row or a family.

Fixes are of two kinds: counters tell what the fix leaves, and a number is said; or they do not, and
only the interval is.

Formulas were made with the errors of all authors in sight, so errors are smaller than those on
kernels nobody has seen. What was estimated before anybody had read an exam's errors is kept
(``tests/data/truth/fixes_first.csv``): the first answers. The rule:

1. Of the `SHAPES` that one is taken whose intervals at 80 % have the smallest interval score
   (T. Gneiting and A. E. Raftery, 2007, on the logarithm of the time) when each author is left out
   in turn; the score is the mean over authors.
2. Of the `LEVELS` the lowest one is taken, for each kind, at which 80 % of the first answers of
   that kind are held, by intervals that are made of the other authors. (Of all pairs, since an exam
   has from one to twenty of a kind; those for which nothing would be said today are left out.)
3. The ends of a kind are its quantiles at that level. Everywhere an author weighs as much as
   another, and of an author's families each as much as another.

`held_out` applies the whole rule to the others of each author, and measures on that one. What ships
is the rule applied to all. The rule was changed after such tables had been seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from perfml.explain.advice.fix import SAID, Width

FIRST = Path(__file__).resolve().parents[2] / "tests/data/truth/fixes_first.csv"
SHAPES = (0.0, 0.5)
"""What `Width.saved` may be: few, for nine authors do not tell more apart."""
LEVELS = (0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96)
PROMISED = 0.8


class Row(Protocol):
    """A fix with its result and estimate."""

    @property
    def author(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def now_us(self) -> float: ...
    @property
    def after_us(self) -> float: ...
    @property
    def estimate_us(self) -> float: ...
    @property
    def told(self) -> float: ...


@dataclass(frozen=True)
class Held:
    """How the intervals of an author do that were made of the others.

    Attributes
    ----------
    author
        Left out.
    rows, families
        How many.
    width, levels
        What the rule chose without the author; levels where a number is said, and where only an
        interval is.
    share
        Of the rows that the interval holds.
    first
        Of the author's first answers; None where there are none.
    """

    author: str
    rows: int
    families: int
    width: Width
    levels: tuple[float, float]
    share: float
    first: float | None


def weights(rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return weights that sum to one: authors the same, and families of an author."""
    sizes = Counter((row.author, row.family) for row in rows)
    families = Counter(author for author, _ in sizes)
    authors = len(families)
    return np.array(
        [1 / sizes[row.author, row.family] / families[row.author] / authors for row in rows]
    )


def width_of(rows: Sequence[Row], saved: float, levels: tuple[float, float]) -> Width:
    """Return the width that holds a share of the rows of each kind, and as many on each side."""
    unit = Width(-1.0, 1.0, -1.0, 1.0, saved)
    ends = (
        _ends(some or rows, unit, level) for some, level in zip(_kinds(rows), levels, strict=True)
    )
    return Width(*(round(end, 2) for each in ends for end in each), saved=saved)


def _kinds(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of which a number is said, and those of which only an interval is."""
    return [row for row in rows if row.told >= SAID], [row for row in rows if row.told < SAID]


def _ends(rows: Sequence[Row], unit: Width, level: float) -> tuple[float, float]:
    errors = np.array(
        [
            math.log(row.after_us / row.estimate_us)
            / unit.doubt(math.log(row.now_us / row.estimate_us))
            for row in rows
        ]
    )
    order = np.argsort(errors)
    heavy = weights(rows)[order]
    # each row stands in the middle of its weight
    places = np.cumsum(heavy) - heavy / 2
    low, high = np.interp(((1 - level) / 2, (1 + level) / 2), places, errors[order])
    return float(low), float(high)


def holds(width: Width, row: Row) -> bool:
    """Return whether the interval holds the time after the fix."""
    low, high = width.around(row.estimate_us, row.now_us, row.told)
    return low <= row.after_us <= high


def _score(width: Width, row: Row) -> float:
    low, high, after = map(
        math.log, (*width.around(row.estimate_us, row.now_us, row.told), row.after_us)
    )
    outside = max(low - after, 0.0) + max(after - high, 0.0)
    return high - low + 2 / (1 - PROMISED) * outside


def choose(rows: Sequence[Row], first: Sequence[Row]) -> tuple[Width, tuple[float, float]]:
    """Return what the rule chooses, and the level of each kind.

    Parameters
    ----------
    rows
        To make intervals of.
    first
        First answers; without any of a kind, the level is that of the rows.
    """
    saved = min(SHAPES, key=lambda each: _score_left_out(rows, each))
    asked = [some or mine for some, mine in zip(_kinds(first), _kinds(rows), strict=True)]
    one, other = (_level(rows, some, saved) for some in asked)
    return width_of(rows, saved, (one, other)), (one, other)


def _level(rows: Sequence[Row], asked: Sequence[Row], saved: float) -> float:
    """Return the lowest level at which what was asked is held as often as promised."""
    for level in LEVELS:
        held = [
            holds(width, row)
            for width, mine in _left_out(rows, asked, saved, level)
            for row in mine
        ]
        if not held or np.mean(held) >= PROMISED:
            return level
    return LEVELS[-1]


def _score_left_out(rows: Sequence[Row], saved: float) -> float:
    """Return the mean over authors of the interval score, of intervals made without them."""
    scores = [
        np.average([_score(width, row) for row in mine], weights=weights(mine))
        for width, mine in _left_out(rows, rows, saved, PROMISED)
    ]
    return float(np.mean(scores))


def _left_out(
    rows: Sequence[Row], asked: Sequence[Row], saved: float, level: float
) -> Iterator[tuple[Width, list[Row]]]:
    """Return the rows asked of each author, with the width that is made without that author."""
    for author in sorted({row.author for row in asked}):
        width = width_of(_but(rows, author), saved, (level, level))
        yield width, [row for row in asked if row.author == author]


def _but(rows: Sequence[Row], author: str) -> list[Row]:
    return [row for row in rows if row.author != author]


def held_out(rows: Sequence[Row], first: Sequence[Row]) -> list[Held]:
    """Return how the intervals of each author do that the rule makes of the others."""
    found = []
    for author in dict.fromkeys(row.author for row in rows):
        width, levels = choose(_but(rows, author), _but(first, author))
        mine, before = ([row for row in some if row.author == author] for some in (rows, first))
        shares = [
            float(np.mean([holds(width, row) for row in some])) if some else None
            for some in (mine, before)
        ]
        families = len({row.family for row in mine})
        found.append(Held(author, len(mine), families, width, levels, shares[0] or 0.0, shares[1]))
    return found


@dataclass(frozen=True)
class FirstAnswer:
    """An estimate of the day on which nobody had read the kernels yet."""

    author: str
    family: str
    now_us: float
    after_us: float
    estimate_us: float
    told: float


def first_answers(rows: Sequence[Row]) -> list[FirstAnswer]:
    """Return what was kept of fixes that still have an interval, of the kind that they are today.

    Parameters
    ----------
    rows
        Today's.
    """
    kinds = {(row.author, row.family): row.told for row in rows}
    found = []
    for each in pd.read_csv(FIRST).to_dict(orient="records"):
        row = FirstAnswer(**{str(name): value for name, value in each.items()})
        if (row.author, row.family) in kinds:
            found.append(replace(row, told=kinds[row.author, row.family]))
    return found
