"""The NVTX ranges around many launches, each recurring name once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.util.ranges import Path, joined_names, split_range
from perfml.util.typing import Ints


@dataclass(frozen=True)
class SplitRanges:
    """What the ranges around launches say.

    Attributes
    ----------
    iterations
        The iteration of each launch, 0 where no range numbers it, shape (n,).
    numbered
        Whether any range numbers an iteration.
    codes
        A number for the layer of each launch, shape (n,).
    layers
        The range names that a number stands for, each layer once.
    """

    iterations: Ints
    numbered: bool
    codes: Ints
    layers: list[Path]


@dataclass(frozen=True)
class CodedRanges:
    """The range path of each launch, in two parts: ``around[outer] + within[inner]``.

    A program of 1,000 iterations through 30 layers has 30,000 paths, but only 1,000 names around
    and 30 within, and each of those is taken apart once.

    Attributes
    ----------
    outer, inner
        A number for each part of a launch's path, shape (n,).
    around, within
        The range names that a number stands for.
    """

    outer: Ints
    around: list[Path]
    inner: Ints
    within: list[Path]

    @classmethod
    def none(cls, launches: int) -> CodedRanges:
        """Return launches that run in no range."""
        nowhere = np.zeros(launches, dtype=np.int64)
        return cls(nowhere, [()], nowhere, [()])

    @classmethod
    def of(cls, paths: Sequence[Sequence[str]]) -> CodedRanges:
        """Return the ranges of launches whose whole paths are known."""
        numbers: dict[Path, int] = {}
        codes = [numbers.setdefault(tuple(path), len(numbers)) for path in paths]
        outer = np.array(codes, dtype=np.int64)
        return cls(outer, list(numbers) or [()], np.zeros(len(codes), dtype=np.int64), [()])

    def joined(self) -> tuple[CodedRanges, list[str]]:
        """Return ranges without serial numbers in their names, and what was joined."""
        paths = chain(self.around, self.within)
        common, said = joined_names(name for path in paths for name in path)
        if not common:
            return self, said
        around, within = (
            [tuple(common.get(name, name) for name in path) for path in part]
            for part in (self.around, self.within)
        )
        return CodedRanges(self.outer, around, self.inner, within), said

    def path(self, launch: int) -> Path:
        """Return the names around one launch."""
        outer, inner = int(self.outer[launch]), int(self.inner[launch])
        return self.around[outer] + self.within[inner]

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> CodedRanges:
        """Return the ranges of these launches."""
        return CodedRanges(self.outer[rows], self.around, self.inner[rows], self.within)

    def inside(self, others: CodedRanges) -> CodedRanges:
        """Return these ranges with others around them."""
        if not any(others.around) and not any(others.within):
            return self
        if not any(self.around) and not any(self.within):
            return others
        whole, paths = _joined(others.outer, others.around, others.inner, others.within)
        outer, around = _joined(whole, paths, self.outer, self.around)
        return CodedRanges(outer, around, self.inner, self.within)

    def innermost(self) -> tuple[Ints, list[str]]:
        """Return a number for the innermost range of each launch, and the names; "" for none."""
        numbers: dict[str, int] = {}
        last_around, last_within = (
            np.array([numbers.setdefault(path[-1] if path else "", len(numbers)) for path in paths])
            for paths in (self.around, self.within)
        )
        nothing = np.array([not path for path in self.within])[self.inner]
        codes = np.where(nothing, last_around[self.outer], last_within[self.inner])
        return codes, list(numbers)

    def split(self) -> SplitRanges:
        """Take apart iterations and layers, as `split_range` does with one path."""
        around, within = map(split_range, self.around), map(split_range, self.within)
        counts, rests = zip(*around, strict=True)
        counts_within, rests_within = zip(*within, strict=True)
        count = _counts(counts)[self.outer]
        later = count < 0  # the iteration may lie within
        iterations = np.where(later, _counts(counts_within)[self.inner], count)
        places, heads = _numbered(rests)
        # in an iteration, what looks like one more of them is a layer
        ends, tails = _numbered([*self.within, *rests_within])
        end = ends[self.inner + np.where(later, len(self.within), 0)]
        codes, layers = _joined(places[self.outer], heads, end, tails)
        numbered = bool((iterations >= 0).any())
        return SplitRanges(np.maximum(iterations, 0), numbered, codes, layers)


def _counts(numbers: Sequence[int | None]) -> Ints:
    return np.array([-1 if number is None else number for number in numbers], dtype=np.int64)


def _numbered(paths: Sequence[Path]) -> tuple[Ints, list[Path]]:
    """Return a number for each path, and the distinct paths."""
    numbers: dict[Path, int] = {}
    codes = [numbers.setdefault(path, len(numbers)) for path in paths]
    return np.array(codes, dtype=np.int64), list(numbers)


def _joined(
    outer: Ints, around: Sequence[Path], inner: Ints, within: Sequence[Path]
) -> tuple[Ints, list[Path]]:
    """Return a number for each launch's whole path, and the distinct paths."""
    places, pairs = pd.factorize(outer * len(within) + inner)
    paths = [around[pair // len(within)] + within[pair % len(within)] for pair in pairs.tolist()]
    codes, distinct = _numbered(paths)
    return codes[places], distinct
