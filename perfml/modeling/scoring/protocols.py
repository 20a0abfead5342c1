"""How rows are split into training and test: scikit-learn splitters, usable in cross_validate.

Rows of a Layers table are repeats of a few conditions, so a random split tests on near-copies of
the training rows. The grouped protocols keep a layer, a condition or a run whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import ShuffleSplit

from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.features import CONDITION_COLUMNS, SHAPE_AMOUNTS, Problem, group_codes
from perfml.util.typing import Ints

Split = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

PUBLISHED_TEST_SIZE = 0.3


class RepeatedRandomSplit:
    """Random splits, the study's protocol.

    Split i is the one ``train_test_split(test_size=test_size, random_state=random_state + i)``
    gives, so that each can be repeated on its own.

    Parameters
    ----------
    n_splits
        How many.
    test_size
        Share of test rows; the study used 0.2 to 0.3.
    random_state
        Seed of the first split.
    """

    def __init__(
        self,
        n_splits: int = 20,
        *,
        test_size: float = PUBLISHED_TEST_SIZE,
        random_state: int = 0,
    ) -> None:
        self.n_splits = n_splits
        self.test_size = test_size
        self.random_state = random_state

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Yield training and test rows."""
        for seed in range(self.random_state, self.random_state + self.n_splits):
            one = ShuffleSplit(n_splits=1, test_size=self.test_size, random_state=seed)
            yield next(one.split(X))

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits


class _Grouped:
    """Folds that keep groups whole: each group is the test set once."""

    what = "group"
    columns: tuple[str, ...] = ()
    """Of a Layers table: what tells the groups apart."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Yield training and test rows.

        Parameters
        ----------
        X
            Features; a Layers table supplies its own groups.
        y
            Ignored.
        groups
            One label a row, where X is no Layers table.

        Raises
        ------
        PerfmlError
            If there are no groups, a row has none, or there is only one.
        """
        codes = self._codes(X, groups)
        folds = self._folds(codes)
        for fold in range(int(folds.max()) + 1):
            test = folds[codes] == fold
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return int(self._folds(self._codes(X, groups)).max()) + 1

    def _codes(self, X: Any, groups: Any) -> Ints:
        return _require_groups(self._labels(X, groups), self.what, 2)

    def _labels(self, X: Any, groups: Any) -> Ints:
        return _labels(X, groups, self.columns, self.what)

    def _folds(self, codes: Ints) -> Ints:
        """Return the fold of each group."""
        return np.arange(int(codes.max()) + 1, dtype=np.int64)


class LeaveOneLayerOut(_Grouped):
    """Each layer is the test set once, under all its backends."""

    what = "layer"
    columns = ("layer",)


class LeaveOneShapeOut(_Grouped):
    """All layers of one shape are the test set once; ``groups`` are shapes."""

    what = "shape"
    columns = SHAPE_AMOUNTS


class LeaveOneNetworkOut(_Grouped):
    """Each network (workload) is the test set once."""

    what = "network"
    columns = ("workload",)


class LeaveOneKindOut(_Grouped):
    """Each kind of layer (column ``kind``, such as ``Conv2d``) is the test set once."""

    what = "kind"
    columns = ("kind",)


class LeaveOneDeviceOut(_Grouped):
    """Each GPU is the test set once."""

    what = "device"
    columns = ("device",)


class LeaveOneGroupOut(_Grouped):
    """Each group is the test set once; ``groups`` are needed."""


class LeaveOneConditionOut(_Grouped):
    """Each condition (workload, backend, precision, batch, layer) is the test set once."""

    what = "condition"
    columns = CONDITION_COLUMNS


class _GroupFolds(_Grouped):
    """K folds that keep groups whole, groups dealt out at random."""

    def __init__(self, n_splits: int = 10, *, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds: `n_splits`, or fewer where there are fewer groups."""
        if X is None and groups is None:
            return self.n_splits
        return super().get_n_splits(X, y, groups)

    def _folds(self, codes: Ints) -> Ints:
        """Deal groups out, largest first, each to the smallest fold; ties in random order."""
        sizes = np.bincount(codes)
        shuffled = np.random.default_rng(self.random_state).permutation(len(sizes))
        filled = np.zeros(min(self.n_splits, len(sizes)), dtype=np.int64)
        folds = np.empty(len(sizes), dtype=np.int64)
        for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
            folds[group] = int(np.argmin(filled))
            filled[folds[group]] += sizes[group]
        return folds


class ByRun(_GroupFolds):
    """K folds of whole runs: all layers that one pass over the network measured stay together.

    ``groups`` are runs; a Layers table supplies its own (run and iteration).
    """

    what = "run"
    columns = ("run_id", "iteration")


class GroupFolds(_GroupFolds):
    """K folds of whole groups of any kind; ``groups`` are needed."""


class ExcludeDuplicates(_GroupFolds):
    """K folds in which no test row has an exact copy of its features in the training rows.

    Rows with equal features form a group; ``groups`` is ignored. X must be features only.
    """

    what = "feature row"

    def _labels(self, X: Any, groups: Any) -> Ints:
        return twin_codes(np.asarray(X, dtype=np.float64))


def twin_codes(values: npt.NDArray[np.float64]) -> Ints:
    """Number the distinct rows of a feature matrix; undefined cells are equal to each other."""
    # the bytes of a row decide; adding 0.0 makes -0.0 and 0.0 the same bytes
    plain = np.ascontiguousarray(np.where(np.isnan(values), np.inf, values) + 0.0)
    rows = plain.view([("", plain.dtype)] * plain.shape[1]).ravel()
    return np.asarray(np.unique(rows, return_inverse=True)[1], dtype=np.int64).ravel()


@dataclass(frozen=True)
class Protocol:
    """A named way to split one problem.

    Attributes
    ----------
    name
        As the user wrote it.
    splits
        Training and test rows.
    random
        Whether rows of one condition end up on both sides.
    """

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

OWN_PROTOCOL = "leave-one-group-out"
"""Holds out the groups that the user told, where rows are no layers."""

UNSEEN = ("leave-one-layer-out", OWN_PROTOCOL)
"""What tests on layers, or groups, that no model has seen."""

_LEAVE_ONE = {
    f"leave-one-{kind.what}-out": kind
    for kind in (
        LeaveOneLayerOut,
        LeaveOneShapeOut,
        LeaveOneConditionOut,
        LeaveOneNetworkOut,
        LeaveOneKindOut,
        LeaveOneDeviceOut,
        LeaveOneGroupOut,
    )
}
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
    known_base = base in PROTOCOLS or base in _LEAVE_ONE
    if not known_base or (argument and base != "random" and base not in _LEAVE_ONE):
        msg = f"no protocol is called {name!r}"
        known = f"Protocols are: {', '.join(PROTOCOLS)}."
        raise PerfmlError(msg, cure=did_you_mean(name, PROTOCOLS, known))
    values, groups = problem.design.values, None
    splitter: Any
    if base == "random":
        splitter = RepeatedRandomSplit(
            splits, test_size=_test_size(argument, name), random_state=seed
        )
    elif base == "no-twin":
        splitter = ExcludeDuplicates(random_state=seed)
    elif base == "by-run":
        splitter, groups = ByRun(random_state=seed), problem.run
    else:
        kind = _LEAVE_ONE[base]
        groups = getattr(problem, kind.what)
        if argument:
            splitter = GroupFolds(_folds(argument, name), random_state=seed)
        else:
            splitter = kind()
    found = tuple(splitter.split(values, groups=groups))
    return Protocol(_ALIASES.get(name, name), found, base in ("random", "by-run", "no-twin"))


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


def _labels(X: Any, groups: Any, columns: tuple[str, ...], what: str) -> Ints:
    if groups is not None:
        labels = np.asarray(groups)
        if labels.dtype.kind in "iu" and labels.size and labels.min() < 0:
            return np.asarray(labels, dtype=np.int64)
        codes: Ints = np.asarray(pd.factorize(groups)[0], dtype=np.int64)
        return codes
    present = [name for name in columns if name in getattr(X, "columns", ())]
    if columns[-1] not in present and columns[0] not in present:
        msg = f"these rows do not say which {what} they belong to"
        raise PerfmlError(msg, cure=f"Pass groups=, one {what} a row, or a Layers table as X.")
    if "layer" in columns and X["layer"].isna().any():
        return np.full(len(X), -1, dtype=np.int64)
    return group_codes(X, present)


def _require_groups(codes: Ints, what: str, least: int) -> Ints:
    if codes.size == 0 or codes.min() < 0:
        msg = f"a row does not say which {what} it belongs to"
        raise PerfmlError(
            msg,
            where=f"{what} of row {int(np.argmin(codes)) if codes.size else 0}",
            cure=f"Name a {what} in every row, or choose another protocol.",
        )
    count = int(codes.max()) + 1
    if count < least:
        msg = f"at least {least} {what}s are needed to hold one out"
        raise PerfmlError(msg, found=f"{count}", cure="Profile more, or choose another protocol.")
    return codes
