"""Draw bootstrap resamples of distinct layers, and turn importances into places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem
from perfml.util.typing import Floats, Ints

Rows = npt.NDArray[np.intp]

_TRIES = 200
"""Draws until a resample has held-out rows and every class."""


@dataclass(frozen=True)
class Drawn:
    """Rows of one resample: drawn with replacement, and those never drawn."""

    rows: Rows
    held_out: Rows


def resampled(problem: Problem, pieces: Ints, seeds: range) -> Iterator[Drawn]:
    """Draw one resample a seed, of whole pieces of evidence (see `distinct_layers`).

    Raises `PerfmlError` if no draw holds out anything while keeping every class.
    """
    members = [np.flatnonzero(pieces == code) for code in range(int(pieces.max()) + 1)]
    for seed in seeds:
        yield _draw(problem, members, np.random.default_rng([seed, 1]))


def _draw(problem: Problem, members: list[Rows], rng: np.random.Generator) -> Drawn:
    for _ in range(_TRIES):
        chosen = rng.integers(len(members), size=len(members))
        rows = np.concatenate([members[code] for code in chosen])
        drawn = np.zeros(problem.rows, dtype=bool)
        drawn[rows] = True
        held_out = np.flatnonzero(~drawn)
        if len(held_out) < 2:
            continue
        if problem.classes and len(np.unique(problem.truth[rows])) < len(problem.classes):
            continue
        return Drawn(rows, held_out)
    msg = "resampling leaves no rows to test on, or not every backend to learn from"
    raise PerfmlError(msg, found=f"{problem.rows} conditions", cure="Profile more layers.")


def ranks(values: Floats) -> Floats:
    """Return places along the last axis, 1 for the largest value; ties share their mean place."""
    return np.asarray(rankdata(-values, method="average", axis=-1), dtype=np.float64)


def top_share(values: Floats, k: int) -> Floats:
    """Return how far each value is among the `k` largest: 1, 0, or a share of a tie.

    Of m values tied for p < m places each gets p / m, so that the shares of a row add up to `k`,
    or to their number where there are fewer.
    """
    best = rankdata(-values, method="min", axis=-1)
    worst = rankdata(-values, method="max", axis=-1)
    return np.asarray(np.clip((k - best + 1) / (worst - best + 1), 0.0, 1.0), dtype=np.float64)
