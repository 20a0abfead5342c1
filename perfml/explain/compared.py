"""The two sides: rows that can be compared, and which of their layers answer to each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.account import Account
from perfml.datasets.loading import EXPERIMENTS, UNKNOWN
from perfml.errors import PerfmlError, TableError, did_you_mean
from perfml.experiments.responses import Responses
from perfml.ingest.merge.groups import launch_numbers
from perfml.ingest.merge.rule import launch_totals, merge, unattributed_time
from perfml.modeling.layer_shapes import AMOUNTS
from perfml.util.words import Readable, count

WHOLE = "(whole run)"  # name of the one layer of a Kernels table without ranges

UNNAMED = "(unnamed kernel)"  # name of a launch without one

_SHARED = ("workload", "precision", "batch", "device")
"""What should be the same on both sides, or the comparison is of more than it says."""


@dataclass(frozen=True)
class Side:
    """One side."""

    name: str
    layers: pd.DataFrame  # Layers table; every row of a layer is a repeat
    kernels: pd.DataFrame | None  # Kernels table of the same runs, or None
    warnings: tuple[str, ...] = ()  # what the user has to know of it
    by: str = ""  # column that tells it from the other side; empty where they are two tables
    account: Account | None = None  # what a step takes on the clock, where a trace tells

    @cached_property
    def _repeats(self) -> dict[str, pd.DataFrame]:
        places = rows_by(self.layers["layer"])
        return {layer: self.layers.iloc[rows] for layer, rows in places.items()}

    @property
    def proved(self) -> Sequence[Responses]:
        """How its launches answered to experiments; empty where there are none beside it."""
        frames = [each for each in (self.layers, self.kernels) if each is not None]
        return next((each.attrs[EXPERIMENTS] for each in frames if EXPERIMENTS in each.attrs), ())

    @property
    def names(self) -> Set[str]:
        """The layers that it has rows of."""
        return self._repeats.keys()

    def rows(self, layer: str) -> pd.DataFrame:
        """Return the rows of a layer: its repeats."""
        known = self._repeats.get(layer)
        return self.layers.iloc[:0] if known is None else known


def rows_by(names: pd.Series) -> dict[str, npt.NDArray[np.intp]]:
    """Return the positions of every name in a column, in order; missing names are left out."""
    codes, known = pd.factorize(names)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(known) + 1))
    return {str(name): order[slice(*bounds[at : at + 2])] for at, name in enumerate(known)}


def make_side(name: str, table: pd.DataFrame, kernels: pd.DataFrame | None = None) -> Side:
    """Return a side from a Layers or a Kernels table.

    Parameters
    ----------
    name
        What it is called.
    table
        A Kernels table is merged. Without any range it is one layer: kernels that a profiler of
        counters measured equally often give as many repeats, all else one repeat an iteration.
    kernels
        Kernels table behind a Layers table.

    Raises
    ------
    TableError
        If it is neither kind of table, or is empty.
    """
    checked(name, table)
    if "kernel_names" in table.columns:
        if kernels is None:
            return Side(name, table.reset_index(drop=True), None)
        inside = launch_totals(kernels[kernels["layer"].notna()])
        return Side(name, table.reset_index(drop=True), inside, _outside(name, kernels))
    if table["kernel"].isna().any():
        table = table.assign(kernel=table["kernel"].astype("string").fillna(UNNAMED))
    if table["layer"].isna().all():
        table = _one_layer(table)
    inside = table[table["layer"].notna()].reset_index(drop=True)
    return Side(name, merge(inside), launch_totals(inside), _outside(name, table))


def checked(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return a side's table; raise `TableError` if it is of neither kind, or is empty."""
    if table.empty:
        msg = f"the {name} side has no rows"
        raise TableError(msg, cure="Give a table that holds measurements.")
    if not {"kernel_names", "kernel"} & set(table.columns):
        msg = "neither a kernels nor a layers table"
        raise TableError(
            msg,
            where=name,
            found=", ".join(map(str, table.columns[:6])),
            cure="Make one with: perfml ingest, perfml merge",
        )
    return table


def _outside(name: str, kernels: pd.DataFrame) -> tuple[str, ...]:
    """Say how much of a side lies outside every layer."""
    if not kernels["layer"].isna().any():
        return ()
    outside = unattributed_time(kernels)
    launches = count(int(outside["launches"].sum()), "launch lies", "launches lie")
    share = Readable(float(outside["share"].mean()))
    where = f"outside every layer ({share:.1%} of the time) and are not compared"
    return (f"{name}: {launches} {where}",)


def sides_of(
    layers: pd.DataFrame,
    baseline: str,
    target: str,
    *,
    by: str = "backend",
    kernels: pd.DataFrame | None = None,
) -> tuple[Side, Side]:
    """Return two sides of one dataset.

    Parameters
    ----------
    layers
        Layers (or Kernels) table with both sides.
    baseline, target
        Values of the column `by`.
    by
        What tells the sides apart.
    kernels
        Kernels table behind the Layers table.

    Raises
    ------
    PerfmlError
        If the column or a value does not exist.
    """
    if baseline == target:
        msg = "baseline and target are the same side"
        raise PerfmlError(msg, found=f"{by}={baseline}", cure="Name two values.")
    sides = []
    for value in (baseline, target):
        rows = require_value(layers, by, value)
        launches = None
        if kernels is not None and by in kernels.columns:
            launches = kernels[kernels[by].astype("string") == value]
            # a table of other runs would give kernels of another measurement
            launches = launches[launches["run_id"].isin(rows["run_id"])]
            launches = None if launches.empty else launches
        sides.append(replace(make_side(value, rows, launches), by=by))
    return sides[0], sides[1]


def require_value(table: pd.DataFrame, by: str, value: str) -> pd.DataFrame:
    """Return the rows that have a value in a column.

    Raises `PerfmlError` if there is no such column, or none has it.
    """
    if by not in table.columns:
        msg = f"the table has no column {by}"
        known = f"Columns are: {', '.join(map(str, table.columns[:12]))}."
        raise PerfmlError(msg, cure=did_you_mean(by, table.columns, known))
    rows = table[table[by].astype("string") == value]
    if rows.empty:
        values = sorted(map(str, table[by].dropna().unique()))
        msg = f"no row has {by}={value}"
        cure = did_you_mean(value, values, "Choose one of these values.")
        raise PerfmlError(msg, found=", ".join(values[:8]), cure=cure)
    return rows


def check_conditions(baseline: Side, target: Side) -> list[str]:
    """Return warnings where the sides differ in more than they should.

    Raises `PerfmlError` if one side mixes measurements that are no repeats of each other.
    """
    warnings = [*baseline.warnings, *target.warnings]
    for side, other in ((baseline, target), (target, baseline)):
        for name in ("backend", *_SHARED[:3]):
            values = _values(side, name)
            if len(values) > 1:
                both = [value for value in values if value in _values(other, name)] or values
                msg = f"the {side.name} side mixes several values of {name}"
                raise PerfmlError(
                    msg,
                    found=", ".join(values[:6]),
                    cure=f"Keep one, such as: --where {name}={both[0]}",
                )
    for name in _SHARED:
        sides = (_values(side, name) for side in (baseline, target))
        left, right = ([each for each in said if each != UNKNOWN] for said in sides)
        if left != right and left and right and name not in (baseline.by, target.by):
            warnings.append(
                f"the sides differ in {name} too: {', '.join(left)} against {', '.join(right)}"
            )
    return warnings


def same_device(baseline: Side, target: Side) -> bool:
    """Return whether both sides ran on one kind of device, as far as the tables say."""
    return all(
        _values(baseline, name) == _values(target, name)
        for name in ("device", "compute_capability")
    )


def _values(side: Side, name: str) -> list[str]:
    if name not in side.layers.columns:
        return []
    return sorted(map(str, side.layers[name].dropna().unique()))


def launched_as_repeats(launches: pd.DataFrame) -> bool:
    """Return whether launches are repeats of one another, as many as a profiler was asked for."""
    # A profiler of counters measures all kernels equally often where it repeats a program. A trace
    # has the program as it ran: there a kernel that is launched more often does more.
    if "start_us" in launches.columns or bool((launch_numbers(launches) > 1).any()):
        return False
    counts = np.bincount(_kernel_codes(launches))
    return bool((counts == counts[0]).all())


def _kernel_codes(launches: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Number the kernels, each shape apart, in order of their first launch."""
    parts = [launches[name].astype("string").fillna("") for name in ("kernel", "grid", "block")]
    return np.asarray(pd.factorize(pd.MultiIndex.from_arrays(parts))[0])


def _one_layer(table: pd.DataFrame) -> pd.DataFrame:
    whole = table.assign(layer=WHOLE)
    if launched_as_repeats(whole):
        # they are repeats even where nothing numbers the iterations
        codes = _kernel_codes(whole)
        whole["iteration"] = whole.groupby(codes).cumcount()
        whole["kernel_index"] = codes
    return whole


@dataclass(frozen=True)
class Launched:
    """What a side launches of a kernel in a repeat of its program."""

    launches: float  # how often
    total_us: float  # the time of all of them, in microseconds


@dataclass(frozen=True)
class Alignment:
    """Pairs of layers, and what found no partner."""

    pairs: pd.DataFrame  # ``layer, target_layer, aligned_by`` in the baseline's order
    only_baseline: tuple[str, ...]  # names without a partner
    only_target: tuple[str, ...]
    # what both sides launch of each pair, where the rows of a layer are single launches
    launched: tuple[tuple[Launched, Launched], ...] | None = None
    # then the time of all launches of a repeat, with those without a partner
    whole_us: tuple[float, float] | None = None
    said: tuple[str, ...] = ()  # how the pairs were found, where names of ranges did not tell

    @property
    def names(self) -> list[tuple[str, str]]:
        """The names of each pair."""
        columns = (self.pairs[name].astype(str) for name in ("layer", "target_layer"))
        return list(zip(*columns, strict=True))


def aligned(baseline: Side, target: Side) -> Alignment:
    """Return which layers of two sides answer to each other.

    Of two accounts of steps none has to: the clock answers, and says what the host did.
    """
    try:
        return align_layers(baseline.layers, target.layers)
    except PerfmlError:
        if baseline.account is None or target.account is None:
            raise
        columns = list(align_layers(baseline.layers, baseline.layers).pairs.columns)
        left, right = (tuple(_layer_names(each.layers)) for each in (baseline, target))
        return Alignment(pd.DataFrame(columns=columns, dtype="string"), left, right)


def align_layers(baseline: pd.DataFrame, target: pd.DataFrame) -> Alignment:
    """Align the layers of two Layers tables.

    By name first; the rest by shape (equal amounts of work, in order of appearance) where both
    tables have the columns `AMOUNTS`; a single layer on each side is aligned whatever its name.

    Raises
    ------
    PerfmlError
        If no layer finds a partner.
    """
    left, right = _layer_names(baseline), _layer_names(target)
    pairs: dict[str, tuple[str, str]] = {}
    if len(left) == len(right) == 1:
        how = "name" if left == right else "only one"
        pairs[left[0]] = (right[0], how)
    else:
        pairs |= {name: (name, "name") for name in left if name in set(right)}
        taken = set(pairs)
        pairs |= _by_shape(
            baseline,
            target,
            [name for name in left if name not in taken],
            [name for name in right if name not in taken],
        )
    if not pairs:
        msg = "no layer of one side answers to a layer of the other"
        raise PerfmlError(
            msg,
            found=f"{', '.join(left[:4])} against {', '.join(right[:4])}",
            cure="Use the same range names on both sides, or tables with shapes "
            "(perfml.modeling.with_shapes), or keep one layer a side.",
        )
    met = {partner for partner, _ in pairs.values()}
    rows = [(name, *pairs[name]) for name in left if name in pairs]
    return Alignment(
        pd.DataFrame(rows, columns=["layer", "target_layer", "aligned_by"]),
        tuple(name for name in left if name not in pairs),
        tuple(name for name in right if name not in met),
    )


def _layer_names(layers: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(layers["layer"].dropna())]


def _by_shape(
    baseline: pd.DataFrame, target: pd.DataFrame, left: list[str], right: list[str]
) -> dict[str, tuple[str, str]]:
    if not all(name in side.columns for name in AMOUNTS for side in (baseline, target)):
        return {}
    waiting: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name, shape in _shapes(target, right).items():
        waiting[shape].append(name)
    found = {}
    for name, shape in _shapes(baseline, left).items():
        if waiting[shape]:
            found[name] = (waiting[shape].pop(0), "shape")
    return found


def _shapes(layers: pd.DataFrame, names: list[str]) -> dict[str, tuple[float, ...]]:
    first = layers.drop_duplicates("layer").set_index("layer")[list(AMOUNTS)].dropna()
    return {
        name: tuple(first.loc[[name]].to_numpy(dtype=float)[0].tolist())
        for name in names
        if name in first.index
    }
