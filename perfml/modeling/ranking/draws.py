"""Resamples of the layers, and the same table with its target given to other layers.

Of a permuted table there is nothing left to find, all else the same. Whole layers exchange their
times, because the rows of a layer belong together: under the hypothesis that no metric tells
anything of the time, layers are exchangeable and every such table was as likely as the one that was
measured. Layers exchange only with layers of their configuration (backend, precision, batch ...),
so what a configuration does to the time stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem
from perfml.util.typing import Ints

Rows = npt.NDArray[np.intp]

_TRIES = 200
"""Draws until a resample has held-out rows and every class."""


def exchanged_rows(pieces: Ints, strata: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return the row whose target each row gets, (1 + count, rows); the first table is as it is.

    One permutation of the pieces serves all strata that have the same pieces, so that a layer
    which is slow under one library stays slow under the others. Rows of a piece come in random
    order: what their order tells (a size that grows) is no part of what chance keeps. A piece with
    fewer rows than the one that gets them gives some of them twice.
    """
    rows = len(pieces)
    donors = np.empty((1 + count, rows), dtype=np.int64)
    donors[0] = np.arange(rows)
    order = rng.random((count, int(pieces.max()) + 1))
    keys = rng.random((count, rows))
    for code in np.unique(strata):
        inside = np.flatnonzero(strata == code)
        present, piece, sizes = np.unique(pieces[inside], return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        givers = np.argsort(order[:, present], axis=1)
        # rows of the stratum piece by piece, each piece's in random order
        mixed = np.argsort(piece + keys[:, inside], axis=1)
        place = np.empty(len(inside), dtype=np.int64)
        sorted_rows = np.argsort(piece, kind="stable")
        place[sorted_rows] = np.arange(len(inside)) - np.repeat(starts, sizes)
        giver = givers[:, piece]
        taken = starts[giver] + place % sizes[giver]
        donors[1:, inside] = inside[np.take_along_axis(mixed, taken, axis=1)]
    return donors


def several_inside(classes: Ints, pieces: Ints) -> bool:
    """Return whether some piece has rows of several classes."""
    return len(np.unique(np.stack([pieces, classes]), axis=1).T) > len(np.unique(pieces))


def exchanged_classes(classes: Ints, pieces: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return the classes with their names exchanged inside each piece, (1 + count, rows)."""
    tables = np.broadcast_to(classes, (1 + count, len(classes))).copy()
    for piece in np.unique(pieces):
        inside = np.flatnonzero(pieces == piece)
        present, code = np.unique(classes[inside], return_inverse=True)
        orders = rng.permuted(np.broadcast_to(present, (count, len(present))), axis=1)
        tables[1:, inside] = orders[:, code]
    return tables


Drawn = tuple[Rows, Rows]
"""Rows of one resample: drawn with replacement, and those never drawn."""


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
        return rows, held_out
    msg = "resampling leaves no rows to test on, or not every backend to learn from"
    raise PerfmlError(msg, found=f"{problem.rows} conditions", cure="Profile more layers.")
