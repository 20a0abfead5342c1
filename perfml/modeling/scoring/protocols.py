"""How rows are split into training and test.

Rows of a Layers table are repeats of a few conditions, so a random split tests on near-copies of
the training rows. The grouped protocols keep a layer, a condition or a run whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import LeaveOneGroupOut, PredefinedSplit, ShuffleSplit

from perfml.errors import PerfmlError, TableError, did_you_mean
from perfml.modeling.features import BOUND, Problem
from perfml.modeling.own_data import twin_codes
from perfml.util.typing import Floats, Ints

Split = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

PUBLISHED_TEST_SIZE = 0.3


def random_splits(
    rows: int, splits: int = 20, *, test_size: float = PUBLISHED_TEST_SIZE, seed: int = 0
) -> list[Split]:
    """Return random splits, the study's protocol.

    Split i is the one ``train_test_split(test_size=test_size, random_state=seed + i)`` gives, so
    that each can be repeated on its own.
    """
    return [
        next(ShuffleSplit(n_splits=1, test_size=test_size, random_state=one).split(range(rows)))
        for one in range(seed, seed + splits)
    ]


def leave_one_out(groups: Ints, what: str = "group") -> list[Split]:
    """Return a split a group, which is tested whole.

    Raises `PerfmlError` if a row has no group (a negative number), or there is only one.
    """
    codes = _require_groups(groups, what)
    return list(LeaveOneGroupOut().split(codes, groups=codes))


def group_folds(groups: Ints, folds: int, *, seed: int = 0, what: str = "group") -> list[Split]:
    """Return folds that keep groups whole: dealt out, largest first, each to the smallest fold.

    There is one a group where these are fewer; `seed` orders groups of one size. Raises as
    `leave_one_out`.
    """
    codes = _require_groups(groups, what)
    sizes = np.bincount(codes)
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    filled = np.zeros(min(folds, len(sizes)), dtype=np.int64)
    fold = np.empty(len(sizes), dtype=np.int64)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold[group] = int(np.argmin(filled))
        filled[fold[group]] += sizes[group]
    return list(PredefinedSplit(fold[codes]).split())


@dataclass(frozen=True)
class Protocol:
    """A named way to split one problem; `random`: rows of a condition are on both sides."""

    name: str
    splits: tuple[Split, ...]
    random: bool


PROTOCOLS = (
    "random",
    "leave-one-layer-out",
    "leave-one-shape-out",
    "leave-one-condition-out",
    "leave-one-network-out",
    "leave-one-kind-out",
    "leave-one-device-out",
    "by-run",
    "no-twin",
)
"""Names that `make_protocol` knows; ``random:0.2`` sets the share of test rows, and
``leave-one-layer-out:10`` deals the layers (or other groups) out into ten folds, where one fold
each would be too many.

``leave-one-shape-out`` holds out layers of one shape together: a network often has the same layer
twice, and leaving out only one of them tests on a copy. It needs the shapes (`with_shapes`).
"""

_MOST_FOLDS = 50
"""Groups above which they are held out in ten folds instead of one by one."""

OWN_PROTOCOL = "leave-one-group-out"
"""Holds out the groups that the user told, where rows are no layers."""

UNSEEN = ("leave-one-layer-out", OWN_PROTOCOL)
"""What tests on layers, or groups, that no model has seen."""

_LEAVE_ONE = ("layer", "shape", "condition", "network", "kind", "device", "group")
"""What can be left out: attributes of a `Problem`."""

_ALIASES = {"grouped": "leave-one-layer-out"}


def make_protocol(name: str, problem: Problem, *, splits: int = 20, seed: int = 0) -> Protocol:
    """Split a problem.

    Parameters
    ----------
    name
        One of `PROTOCOLS` or `OWN_PROTOCOL`; ``grouped`` is leave-one-layer-out.
    problem
        What is split.
    splits
        How many random splits; the other protocols know their own number.
    seed
        Seed of the first random split, and of how groups are dealt out.

    Raises
    ------
    PerfmlError
        If there is no such protocol, or the rows do not have the groups it needs.
    """
    base, _, argument = _ALIASES.get(name, name).partition(":")
    left_out = base.removeprefix("leave-one-").removesuffix("-out")
    known_base = base in (*PROTOCOLS, OWN_PROTOCOL)
    if not known_base or (argument and base != "random" and left_out not in _LEAVE_ONE):
        msg = f"no protocol is called {name!r}"
        known = f"Protocols are: {', '.join(PROTOCOLS)}."
        raise PerfmlError(msg, cure=did_you_mean(name, PROTOCOLS, known))
    if base == "random":
        found = random_splits(problem.rows, splits, test_size=_test_size(argument, name), seed=seed)
    elif base == "no-twin":
        found = group_folds(twin_codes(problem.design.values), _FOLDS, seed=seed, what="row")
    elif base == "by-run":
        found = group_folds(problem.run, _FOLDS, seed=seed, what="run")
    elif argument:
        groups = getattr(problem, left_out)
        found = group_folds(groups, _folds(argument, name), seed=seed, what=left_out)
    else:
        found = leave_one_out(getattr(problem, left_out), left_out)
    random = base in ("random", "by-run", "no-twin")
    return Protocol(_ALIASES.get(name, name), tuple(found), random)


_FOLDS = 10
"""Folds of whole runs, and of rows without their copies."""


def _test_size(argument: str, name: str) -> float:
    if not argument:
        return PUBLISHED_TEST_SIZE
    try:
        size = float(argument)
    except ValueError:
        size = float("nan")
    if not 0 < size < 1:
        msg = f"the share of test rows in {name!r} must lie between 0 and 1"
        raise PerfmlError(msg, found=argument, cure="Write, for example, random:0.2.")
    return size


def _folds(argument: str, name: str) -> int:
    number = int(argument) if argument.isdecimal() else 0
    if not 2 <= number <= 1000:
        msg = f"the number of folds in {name!r} must be a whole number from 2 to 1000"
        raise PerfmlError(msg, found=argument, cure=f"Write, for example, {name.split(':')[0]}:10.")
    return number


def _require_groups(codes: Ints, what: str) -> Ints:
    if codes.size == 0 or codes.min() < 0:
        msg = f"a row does not say which {what} it belongs to"
        raise PerfmlError(
            msg,
            where=f"{what} of row {int(np.argmin(codes)) if codes.size else 0}",
            cure=f"Name a {what} in every row, or choose another protocol.",
        )
    codes = np.asarray(pd.factorize(codes, sort=True)[0], dtype=np.int64)
    count = int(codes.max()) + 1
    if count < 2:
        msg = f"at least 2 {what}s are needed to hold one out"
        raise PerfmlError(msg, found=f"{count}", cure="Profile more, or choose another protocol.")
    return codes


TARGETS = ("time", "log-time", "time-per-flop", "time-per-byte", "time-per-bound")
"""``time`` (milliseconds) is the study's. ``log-time`` makes errors relative, as MAPE is. The
others are logarithms of the time per floating-point operation, per byte of input, weights and
output, or over the time that the machine's peaks would take (column ``bound_us``): how far a layer
is from the machine's peak, so that its size does not have to be learned.
"""

_SCALES = {
    "time-per-flop": ("flops",),
    "time-per-byte": ("input_bytes", "weight_bytes", "output_bytes"),
    "time-per-bound": (BOUND,),
}


def without_unit(values: Floats) -> Floats:
    """Return positive numbers as multiples of their median, in 40 bits.

    Another unit of the target changes its last bits, and these would decide ties in trees.
    """
    part, power = np.frexp(values / np.median(values))
    return np.asarray(np.ldexp(np.round(part * 2.0**40), power - 40))


@dataclass(frozen=True)
class Target:
    """A transform of milliseconds into what a model fits, and back."""

    name: str  # one of `TARGETS`
    # work of each row (operations or bytes); None for targets without one
    scale: Floats | None = None

    def forward(self, time_ms: Floats, rows: np.ndarray) -> Floats:
        """Transform the times of some rows."""
        if self.name == "time":
            return time_ms
        log = np.log(time_ms)
        return log if self.scale is None else log - np.log(self.scale[rows])

    def inverse(self, fitted: Floats, rows: np.ndarray) -> Floats:
        """Return milliseconds; the rows are those of the table."""
        if self.name == "time":
            return fitted
        # a model that extrapolates a logarithm must not overflow
        log = fitted if self.scale is None else fitted + np.log(self.scale[rows])
        return np.asarray(np.exp(np.clip(log, -50.0, 50.0)), dtype=np.float64)


def make_target(name: str, layers: pd.DataFrame) -> Target:
    """Return a target for a Layers table.

    Raises `PerfmlError` if there is no such target, `TableError` if the table lacks the shapes that
    the target divides by.
    """
    if name not in TARGETS:
        msg = f"no target is called {name!r}"
        known = f"Targets are: {', '.join(TARGETS)}."
        raise PerfmlError(msg, cure=did_you_mean(name, TARGETS, known))
    columns = _SCALES.get(name)
    if columns is None:
        return Target(name)
    missing = [column for column in columns if column not in layers.columns]
    if missing:
        msg = f"target {name} needs the shapes of the layers"
        raise TableError(
            msg,
            where=f"columns {', '.join(missing)}",
            cure="Add them with perfml.modeling.with_shapes, or choose the target log-time.",
        )
    scale = layers[list(columns)].astype(float).sum(axis=1, skipna=False).to_numpy()
    bad = np.flatnonzero(~(scale > 0))
    if len(bad):
        msg = f"target {name} needs a positive amount of work in every row"
        raise TableError(
            msg,
            where=f"row {int(bad[0])}",
            found=str(scale[bad[0]]),
            cure="Choose the target log-time.",
        )
    return Target(name, scale)


def in_few_folds(protocol: str, groups: int) -> str:
    """Return a protocol that holds out groups, in ten folds where there are many of them.

    A fit of each model for each of hundreds of groups takes minutes.
    """
    return protocol if groups <= _MOST_FOLDS else f"{protocol}:10"


def own_protocols(named: Sequence[str], problem: Problem) -> tuple[str, ...]:
    """Return protocols for rows of one's own; one that holds out groups is always among them.

    Groups are held out one by one, or in ten folds where there are many; without groups, rows with
    equal features stay together.
    """
    unseen = in_few_folds(OWN_PROTOCOL, problem.n_layers)
    if not problem.words.grouped:
        unseen = "no-twin"
    groups = ("grouped", "leave-one-layer-out")
    found = tuple(unseen if name in groups else name for name in named)
    held_out = {name.partition(":")[0] for name in found} & {OWN_PROTOCOL, "no-twin"}
    return found if held_out else (*found, unseen)
