"""How wide the intervals of estimates are, chosen without the author that they are measured on.

An author is who wrote the kernels of some fixes: all planted families are one's, each ladder is,
the public reports are, each exam is. What an interval promises is to hold on kernels of somebody
else, so a whole author is left out, never a row or a family.

Formulas were made with the errors of all authors in sight, so errors are smaller than those on
kernels nobody has seen. Until commit 2f4b1ba none was made with those of the exams; what that gave
for their pairs is kept (``tests/data/truth/fixes_first.csv``): the first answers. The rule:

1. Of the `SHAPES` that one is taken whose intervals at 80 % have the smallest interval score
   (T. Gneiting and A. E. Raftery, 2007, on the logarithm of the time) when each author is left out
   in turn; the score is the mean over authors.
2. Of the `LEVELS` the lowest one is taken at which 80 % of the first answers are held, by intervals
   that are made of the other authors. (Mean over the exams.)
3. The ends are the quantiles at that level. Everywhere an author weighs as much as another, and of
   an author's families each as much as another.

`held_out` applies the whole rule to the others of each author, and measures on that one. What ships
is the rule applied to all. The rule was changed after such tables had been seen; it stood before
the third exam was asked, which no width is made of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from perfml.explain.advice.after_fix import Width

FIRST = Path(__file__).resolve().parents[2] / "tests/data/truth/fixes_first.csv"
SHAPES = tuple((untold, saved) for untold in (1.0, 2.0) for saved in (0.0, 0.5))
"""What `Width.untold` and `Width.saved` may be: few, for seven authors do not tell more apart."""
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
    width, level
        What the rule chose without the author.
    share
        Of the rows that the interval holds.
    first
        Of the author's first answers; None where there are none.
    """

    author: str
    rows: int
    families: int
    width: Width
    level: float
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


def width_of(rows: Sequence[Row], shape: tuple[float, float], level: float) -> Width:
    """Return the width of a shape that holds a share of the rows, and as many on each side."""
    unit = Width(-1.0, 1.0, *shape)
    errors = np.array(
        [math.log(row.after_us / row.estimate_us) / _doubt(unit, row) for row in rows]
    )
    order = np.argsort(errors)
    heavy = weights(rows)[order]
    # each row stands in the middle of its weight
    places = np.cumsum(heavy) - heavy / 2
    ends = np.interp(((1 - level) / 2, (1 + level) / 2), places, errors[order])
    return Width(round(float(ends[0]), 2), round(float(ends[1]), 2), *shape)


def _doubt(width: Width, row: Row) -> float:
    return width.doubt(row.told, math.log(row.now_us / row.estimate_us))


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


def choose(rows: Sequence[Row], first: Sequence[Row]) -> tuple[Width, float]:
    """Return what the rule chooses, and the level.

    Parameters
    ----------
    rows
        To make intervals of.
    first
        First answers; without any, the level is that of the rows.
    """
    shape = min(SHAPES, key=lambda each: _left_out(rows, rows, each, PROMISED)[1])
    asked = first or rows
    held = (level for level in LEVELS if _left_out(rows, asked, shape, level)[0] >= PROMISED)
    level = next(held, LEVELS[-1])
    return width_of(rows, shape, level), level


def _left_out(
    rows: Sequence[Row], asked: Sequence[Row], shape: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return share and score on what was asked, of intervals made without its author's rows."""
    found = []
    for author in sorted({row.author for row in asked}):
        width = width_of(_but(rows, author), shape, level)
        mine = [row for row in asked if row.author == author]
        pairs = [(holds(width, row), _score(width, row)) for row in mine]
        found.append(np.average(pairs, axis=0, weights=weights(mine)))
    share, score = np.mean(found, axis=0)
    return float(share), float(score)


def _but(rows: Sequence[Row], author: str) -> list[Row]:
    return [row for row in rows if row.author != author]


def held_out(rows: Sequence[Row], first: Sequence[Row]) -> list[Held]:
    """Return how the intervals of each author do that the rule makes of the others."""
    found = []
    for author in dict.fromkeys(row.author for row in rows):
        width, level = choose(_but(rows, author), _but(first, author))
        mine, before = ([row for row in some if row.author == author] for some in (rows, first))
        shares = [
            float(np.mean([holds(width, row) for row in some])) if some else None
            for some in (mine, before)
        ]
        families = len({row.family for row in mine})
        found.append(Held(author, len(mine), families, width, level, shares[0] or 0.0, shares[1]))
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


def first_answers() -> list[FirstAnswer]:
    """Return what was kept."""
    found = pd.read_csv(FIRST).to_dict(orient="records")
    return [FirstAnswer(**{str(name): value for name, value in each.items()}) for each in found]
