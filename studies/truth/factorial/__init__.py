"""Several causes at once, and how much each of them holds: ten kernels with five toggles each.

``kernels.cuh`` has the kernels, ``toggles.toml`` what a toggle does and the causes that say so.
Both were frozen before anything was recorded (``studies/data/h100-factorial``). A pair is a
combination and one with more toggles that takes longer. What a toggle truly holds is its Shapley
value, of the logarithm of measured times: the mean, over all orders of switching toggles on, of
what it adds. (L. S. Shapley, "A value for n-person games", 1953.)
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfml.datasets import find
from perfml.explain import load_tables, make_side
from perfml.explain.launches import LaunchReader
from studies.truth.labels import with_closer
from studies.truth.questions import Accepted, Question
from studies.truth.scores import EFFECT

TOGGLES = 5
AHEAD = 0.2
"""Of two toggles whose parts of the difference are closer, both are as good an answer."""

SIDE_EFFECTS = {"bins": 0b01000, "forces": 0b00110}
"""Toggles that (together) do what their causes do not say (README of the recording, defects 3 and
4); seen when misses were read, so such pairs count among all."""


@dataclass(frozen=True)
class Toggle:
    """A toggle that is on on the slow side alone.

    Attributes
    ----------
    terms
        Ids of the causes that say it.
    share
        Its true part of the logarithm of the ratio of times; those of all toggles sum to 1.
    """

    terms: frozenset[str]
    share: float


@dataclass(frozen=True)
class FactorialPair:
    """Two combinations of a kernel.

    Attributes
    ----------
    question
        Why the second one takes longer; right is the toggle with the greatest share.
    toggles
        What is on on the slow side alone, the greatest share first.
    clear
        Whether there is one right answer, by the times: the greatest share is greater by `AHEAD`;
        without that toggle the slow side is faster by `EFFECT` (another may make it do nothing
        there); no toggle that is on on both sides is needed for half of the difference, and so is
        as good a cause; and no toggle has a side effect.
    """

    question: Question
    toggles: tuple[Toggle, ...]
    clear: bool

    def said(self, causes: Mapping[str, float]) -> list[float]:
        """Return what causes give each toggle; one that several have is given to all alike.

        Parameters
        ----------
        causes
            Parts of the logarithm of the ratio, by id.
        """
        owners = {name: sum(name in one.terms for one in self.toggles) for name in causes}
        return [
            sum(part / owners[name] for name, part in causes.items() if name in one.terms)
            for one in self.toggles
        ]


def shapley(times: Mapping[int, float], fast: int, slow: int) -> dict[int, float]:
    """Return the part of each toggle that two combinations differ by.

    Parameters
    ----------
    times
        Of each combination, by its mask.
    fast, slow
        Masks; `slow` has all toggles of `fast`.

    Examples
    --------
    >>> shapley({0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0}, 0, 3)  # doctest: +NUMBER
    {0: 0.3333, 1: 0.6667}
    """
    switched = [k for k in range(TOGGLES) if (slow & ~fast) >> k & 1]
    whole = math.log(times[slow] / times[fast])
    parts = dict.fromkeys(switched, 0.0)
    orders = list(itertools.permutations(switched))
    for order in orders:
        mask = fast
        for k in order:
            parts[k] += math.log(times[mask | 1 << k] / times[mask]) / whole / len(orders)
            mask |= 1 << k
    return parts


def pairs() -> list[FactorialPair]:
    """Return all pairs whose slow side takes longer by `EFFECT`: counters of the first recording.

    Times are medians of both.
    """
    folder = find("h100-factorial")
    assert folder is not None
    layers, kernels = load_tables(folder)
    assert kernels is not None
    text = Path(__file__).with_name("toggles.toml").read_text(encoding="utf-8")
    times: dict[str, dict[int, float]] = {}
    for layer, found in kernels.groupby("layer")["time_us"]:
        family, mask = str(layer).split("_")
        times.setdefault(family, {})[int(mask)] = float(found.median())
    chosen = [table[table["backend"] == "first"] for table in (layers, kernels)]
    reader = LaunchReader(make_side("factorial", *chosen))
    return [
        pair
        for family, terms in tomllib.loads(text).items()
        for pair in _of_family(reader, family, terms["terms"], times[family])
    ]


def _of_family(
    reader: LaunchReader, family: str, terms: Sequence[Sequence[str]], times: Mapping[int, float]
) -> Iterator[FactorialPair]:
    launches = {mask: reader.read(f"{family}_{mask}", us) for mask, us in times.items()}
    for fast, slow in itertools.permutations(sorted(times), 2):
        if slow & fast != fast or times[slow] / times[fast] < EFFECT:
            continue
        parts = sorted(shapley(times, fast, slow).items(), key=lambda part: -part[1])
        toggles = tuple(Toggle(with_closer(terms[k]), share) for k, share in parts)
        question = Question(
            case=f"{family} {fast} to {slow}",
            family=family,
            before=launches[fast],
            after=launches[slow],
            comparable=True,
            accepted=Accepted(toggles[0].terms, frozenset(), (), ()),
        )
        clear = _is_clear(family, parts, times, fast, slow)
        yield FactorialPair(question, toggles, clear)


def _is_clear(
    family: str,
    parts: Sequence[tuple[int, float]],
    times: Mapping[int, float],
    fast: int,
    slow: int,
) -> bool:
    """Return whether one toggle is the right answer (`FactorialPair.clear`)."""
    greatest, share = parts[0]
    if times[slow] / times[slow & ~(1 << greatest)] < EFFECT:
        return False
    if len(parts) > 1 and share - parts[1][1] < AHEAD:
        return False
    several = SIDE_EFFECTS.get(family, 0)
    if several and slow & several == several and fast & several != several:
        return False
    whole = math.log(times[slow] / times[fast])
    both = (~(1 << k) for k in range(TOGGLES) if fast >> k & 1)
    return all(math.log(times[slow & rest] / times[fast & rest]) >= whole / 2 for rest in both)
