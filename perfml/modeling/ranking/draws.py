"""Resamples of the layers, and the same table with its target given to other layers.

Of a permuted table there is nothing left to find, all else the same. Whole layers exchange their
times, because the rows of a layer belong together: under the hypothesis that no metric tells
anything of the time, layers are exchangeable and every such table was as likely as the one that was
measured. Layers exchange only with layers of their configuration (backend, precision, batch ...),
so what a configuration does to the time stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem
from perfml.modeling.scoring.targets import Target
from perfml.util.typing import Ints

Rows = npt.NDArray[np.intp]

_TRIES = 200
"""Draws until a resample has held-out rows and every class."""


def permuted_problems(
    problem: Problem, target: Target, pieces: Ints, count: int, seed: int
) -> Iterator[Problem]:
    """Return the problem with times, or classes, permuted between layers, `count` times.

    The target is permuted, so that a layer keeps its amount of work where that is a time per
    operation. Copies of a layer, one of `pieces`, move together.
    """
    everything = np.arange(problem.rows)
    for index in range(count):
        rng = np.random.default_rng([seed, 3, index])
        if problem.classes:
            yield replace(problem, truth=_permuted_classes(problem.truth, pieces, rng))
            continue
        donors = _donors(problem.configuration, pieces, rng)
        fitted = target.forward(problem.truth, everything)[donors]
        yield replace(problem, truth=target.inverse(fitted, everything))


def arrangements(problem: Problem, pieces: Ints) -> float:
    """Return how many different tables permutation can give, at most; infinite from 10^12 on.

    Exchanging all names of the classes at once changes no importance, so it does not count.
    """
    if problem.classes and _exchange_within(problem.truth, pieces):
        present = [len(np.unique(problem.truth[pieces == piece])) for piece in np.unique(pieces)]
        return _product([*present], divided_by=len(problem.classes))
    codes = problem.configuration
    together = {tuple(np.unique(pieces[codes == code])) for code in np.unique(codes)}
    if problem.classes:
        together = {tuple(np.unique(pieces))}
    # one order of all layers serves every configuration
    every = math.lgamma(len(np.unique(pieces)) + 1)
    log = min(every, sum(math.lgamma(len(members) + 1) for members in together))
    return round(math.exp(log)) if log < math.log(1e12) else math.inf


def _product(sizes: list[int], divided_by: int) -> float:
    log = sum(math.lgamma(size + 1) for size in sizes) - math.lgamma(divided_by + 1)
    return round(math.exp(log)) if log < math.log(1e12) else math.inf


def _donors(configuration: Ints, pieces: Ints, rng: np.random.Generator) -> Ints:
    """Return the row whose time each row gets: of another layer, in the same configuration.

    One permutation of the layers serves all configurations that have the same layers, so that a
    layer which is slow under one library stays slow under the others. Rows of a layer come in
    random order: what their order tells (a size that grows) is no part of what chance keeps.
    """
    order = rng.permutation(int(pieces.max()) + 1)
    donors = np.empty(len(pieces), dtype=np.int64)
    for code in range(int(configuration.max()) + 1):
        inside = np.flatnonzero(configuration == code)
        present = np.unique(pieces[inside])
        givers = present[np.argsort(order[present])]
        for piece, giver in zip(present, givers, strict=True):
            takes = inside[pieces[inside] == piece]
            gives = rng.permutation(inside[pieces[inside] == giver])
            donors[takes] = np.resize(gives, len(takes))
    return donors


def _exchange_within(classes: Ints, pieces: Ints) -> bool:
    """Return whether some layer has rows of several classes."""
    return any(len(np.unique(classes[pieces == piece])) > 1 for piece in np.unique(pieces))


def _permuted_classes(classes: Ints, pieces: Ints, rng: np.random.Generator) -> Ints:
    """Return the classes with their names exchanged, within each layer that has several.

    Where every layer has one class only, whole layers exchange theirs.
    """
    if not _exchange_within(classes, pieces):
        first = classes[np.unique(pieces, return_index=True)[1]]
        return np.asarray(rng.permutation(first)[pieces], dtype=np.int64)
    permuted = classes.copy()
    for piece in range(int(pieces.max()) + 1):
        inside = pieces == piece
        present = np.unique(classes[inside])
        permuted[inside] = rng.permutation(present)[np.searchsorted(present, classes[inside])]
    return permuted


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
