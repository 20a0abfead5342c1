"""The launches of a layer: counters, how many blocks fit, and how their order changed."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.chips import UNKNOWN, Chip, of_rows
from perfml.explain.compared import Side, rows_by
from perfml.kernel_names import kernel_label as kernel_label
from perfml.kernel_names import kernel_purpose
from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns
from perfml.util.json_values import Document

REGISTER_UNIT = 256  # registers are allocated to a warp in units of this many
WARP = 32

SHAPE = ("registers_per_thread", "shared_memory_per_block", "block", "compute_capability")
"""Columns of launches that say how many blocks fit."""

_PRINTED = 0.005  # waves below which two digits are zeros

LIMITS = ("registers", "shared_memory", "warps", "slots")
_TRIPLE = re.compile(r"\((\d+), *(\d+), *(\d+)\)")
COLUMN = "resident_blocks_limit_"  # beginning of the counters by which Nsight Compute says the same


def product(texts: pd.Series) -> Array:
    """Return the product of a grid or block written as ``(x, y, z)``; NaN where there is none."""
    codes, names = pd.factorize(texts)
    products = [_product(str(name)) for name in names]
    return np.array([*products, math.nan])[codes]


@functools.cache
def _product(text: str) -> float:
    found = _TRIPLE.search(text)
    return math.nan if found is None else float(math.prod(map(int, found.groups())))


def resident_blocks(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the blocks that fit by registers, shared memory, warps and places for blocks.

    The launches have the columns of `SHAPE`. Returned are the columns `LIMITS`, a row a launch; NaN
    where the shape or the device is not known.
    """
    sizes = [launches[name].to_numpy(dtype=float, na_value=np.nan).tolist() for name in SHAPE[:2]]
    rows = zip(*sizes, product(launches["block"]).tolist(), of_rows(launches), strict=True)
    found = np.array([_fit(*row) for row in rows], dtype=float)
    return pd.DataFrame(found.reshape(-1, len(LIMITS)), columns=list(LIMITS), index=launches.index)


def with_limits(launches: pd.DataFrame) -> pd.DataFrame:
    """Return launches with these limits as counters, where a profiler did not say them."""
    known = any(f"{COLUMN}{name}" in launches.columns for name in LIMITS)
    if known or not set(SHAPE) <= set(launches.columns):
        return launches
    fit = resident_blocks(launches).add_prefix(COLUMN)
    return launches if fit.isna().all(axis=None) else launches.join(fit)


def with_waves(launches: pd.DataFrame) -> pd.DataFrame:
    """Return launches with the waves of grids so small that Nsight Compute prints 0.00 of them."""
    # Fewer blocks than multiprocessors keep as many of these busy: the mean of their busy time,
    # over that of the busiest one, is blocks a multiprocessor, and a wave is as many as fit.
    wanted = ("waves_per_sm", "sm_active_cycles_mean", "sm_active_cycles_max")
    limits = [f"{COLUMN}{name}" for name in LIMITS]
    if not {*wanted, *limits} <= set(launches.columns):
        return launches
    waves, mean, most = (launches[name].astype(float) for name in wanted)
    rounded = (waves == 0) & (most > 0) & (mean > 0)
    small = (mean / most / launches[limits].astype(float).min(axis=1)).clip(upper=_PRINTED)
    return launches.assign(waves_per_sm=waves.mask(rounded & small.notna(), small))


def _fit(registers: float, shared: float, threads: float, chip: Chip) -> tuple[float, ...]:
    if math.isnan(chip.warps) or not threads > 0:
        return (math.nan,) * len(LIMITS)
    warps = math.ceil(threads / WARP)
    by_registers = by_shared = math.nan
    if registers > 0:
        unit = math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        by_registers = chip.registers // (unit * warps)
    if not math.isnan(shared):
        by_shared = chip.shared_bytes // max(shared + chip.reserved_shared_bytes, 1)
    return by_registers, by_shared, chip.warps // warps, chip.blocks


LABEL = 64  # characters of a kernel's name in the label of a launch


@dataclass(frozen=True)
class Launch:
    """A kernel launch with its counters (or a merged layer, as if it were one launch)."""

    kernel: str  # its name; empty for a merged layer
    time_us: float  # its time without a profiler, microseconds
    # metrics by name, and ``ncu_time_us`` (the duration under the profiler) where it is known; of a
    # merged layer also ``kernels``, how many launches it has
    counters: Mapping[str, float]
    grid: str = ""  # its grid as it was recorded; empty where that is not known
    chip: Chip = UNKNOWN  # what is known of its device

    def __getitem__(self, name: str) -> float:
        """Return a counter; NaN where it was not collected."""
        return self.counters.get(name, math.nan)

    def total(self, names: Sequence[str]) -> float:
        """Return the sum of some counters; NaN where one was not collected."""
        return sum(self[name] for name in names)

    @property
    def label(self) -> str:
        """What people read of its kernel."""
        return kernel_label(self.kernel, LABEL)

    @property
    def single(self) -> bool:
        """Whether it is one launch: a mean over several has no waves."""
        return bool(self.kernel) or self["kernels"] == 1

    @property
    def blocks(self) -> float:
        """How many blocks its grid has; NaN where that is not known."""
        return _product(self.grid)

    @property
    def profiled(self) -> bool:
        """Whether the profiler's own duration is known."""
        return self["ncu_time_us"] > 0

    @property
    def duration_us(self) -> float:
        """What the counters were taken over: the profiler's duration, or else the time."""
        return self["ncu_time_us"] if self.profiled else self.time_us


@dataclass(frozen=True)
class Launches:
    """What a layer launches in most of its repeats."""

    names: tuple[str, ...]  # kernels in launch order
    # the launches with their counters (medians over the repeats); their times add up to the
    # layer's. None where only a Layers table is known.
    launches: tuple[Launch, ...] | None
    repeats: int  # with this launch order
    others: int  # with another


class LaunchReader:
    """Reads the launches of any layer of one side; the tables are taken apart once."""

    def __init__(self, side: Side) -> None:
        self.side = side
        if side.kernels is None:
            return
        kernels = with_waves(with_limits(side.kernels))
        self._rows = rows_by(kernels["layer"])
        self._order = kernels["kernel_index"].to_numpy(dtype=float, na_value=np.nan)
        self._kernel = kernels["kernel"].astype(str).to_numpy(dtype=object)
        self._repeat = (
            kernels.groupby(["run_id", "iteration"], dropna=False, sort=False).ngroup().to_numpy()
        )
        self._grid = _texts(kernels, "grid")
        self._chips = of_rows(kernels)
        self._times = kernels["time_us"].to_numpy(dtype=float, na_value=np.nan)
        self._names = [name for name in ("ncu_time_us",) if name in kernels.columns]
        self._names += metric_columns(kernels)
        self._counters = kernels[self._names].to_numpy(dtype=float, na_value=np.nan)

    def read(self, layer: str, layer_us: float) -> Launches:
        """Return the launches of a layer."""
        # A launch's time is its mean share of the layer in a repeat times `layer_us`, so that
        # launches add up to the layer's time whatever mean that is.
        rows = self.side.rows(layer)
        orders = Counter(rows["kernel_names"].astype("string").fillna(""))
        usual, repeats = orders.most_common(1)[0]
        # the published dataset names no kernels
        names = tuple(usual.split("\n")) if usual else ()
        launches = None if self.side.kernels is None else self._launches(layer, names, layer_us)
        return Launches(names, launches, repeats, len(rows) - repeats)

    def _launches(
        self, layer: str, names: tuple[str, ...], layer_us: float
    ) -> tuple[Launch, ...] | None:
        rows = self._rows.get(layer, np.empty(0, dtype=int))
        rows = rows[np.argsort(self._order[rows], kind="stable")]
        # of a repeat that launches something else nothing is kept
        repeat = self._repeat[rows]
        parts = [rows[repeat == code] for code in np.unique(repeat)]
        repeats = [part for part in parts if tuple(self._kernel[part]) == names]
        if not repeats:
            # kernels of other runs than the layers: they say nothing about these times
            return None
        table = np.stack(repeats)
        times = self._times[table]
        shares = (times / times.sum(axis=1, keepdims=True)).mean(axis=0)
        counters = median_over_repeats(self._counters[table])
        grids, chips = self._grid[table[0]], self._chips[table[0]]
        return tuple(
            Launch(name, float(share) * layer_us, dict(zip(self._names, values, strict=True)), *of)
            for name, share, values, *of in zip(
                names, shares, counters.tolist(), grids, chips, strict=True
            )
        )


def _texts(kernels: pd.DataFrame, column: str) -> npt.NDArray[np.object_]:
    """Return what a column says of each launch; empty where it says nothing."""
    texts = kernels[column] if column in kernels.columns else pd.Series("", kernels.index)
    return texts.astype("string").fillna("").to_numpy(dtype=object)


def adds_up(name: str) -> bool:
    """Return whether a counter of several launches is the sum of theirs."""
    catalogue = load_catalogue()
    return name == "ncu_time_us" or (name in catalogue and catalogue[name].merge == "sum")


def known(value: float, otherwise: float = 0.0) -> float:
    """Return a value, or another one where it is NaN: a counter that was not collected."""
    return otherwise if math.isnan(value) else value


def merged_launch(rows: pd.DataFrame, time_us: float) -> Launch:
    """Return a layer's merged rows (one a repeat) as one launch, with a time that is given."""
    names = [name for name in ("kernels", "ncu_time_us") if name in rows.columns]
    means = rows[[*names, *metric_columns(rows)]].astype(float).mean()
    return Launch("", time_us, {str(name): float(value) for name, value in means.items()})


def median_over_repeats(values: Array) -> Array:
    """Return the medians over the first axis of what is known; NaN where nothing is.

    Examples
    --------
    >>> median_over_repeats(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])).tolist()
    [2.0, nan]
    """
    ordered = np.sort(values, axis=0)  # NaN comes last
    known = np.count_nonzero(~np.isnan(values), axis=0)
    middle = np.stack([np.maximum(known - 1, 0) // 2, known // 2])
    middle[1] = np.minimum(middle[1], len(values) - 1)
    medians: Array = np.take_along_axis(ordered, middle, axis=0).mean(axis=0)
    return medians


PAIRED = ("same", "variant")  # changes whose launches answer to each other one by one


@dataclass(frozen=True)
class Change:
    """A run of launches that stayed, or that one side does otherwise."""

    kind: str  # as `ChangeRow` has it; a variant has other template arguments
    baseline: range  # places in the launch order
    target: range


def changes_between(baseline: tuple[str, ...], target: tuple[str, ...]) -> tuple[Change, ...]:
    """Return how one launch order becomes the other, in launch order.

    Fused and split are said by count alone: a run of launches has fewer or more successors in the
    same place, between launches that both sides have.

    Examples
    --------
    >>> [change.kind for change in changes_between(("conv", "add", "relu"), ("conv", "add_relu"))]
    ['same', 'fused']
    """
    found: list[Change] = []
    whole = (range(len(baseline)), range(len(target)))
    # an add in fp16 is another instantiation of the add in fp32, not another kernel
    left, right = (tuple(map(kernel_purpose, names)) for names in (baseline, target))
    for change in _matched(baseline, target, *whole, equal="same"):
        if not len(change.baseline) or not len(change.target) or change.kind == "same":
            found.append(change)
        else:
            found += _matched(left, right, change.baseline, change.target, equal="variant")
    return tuple(found)


_KINDS = {"delete": "vanished", "insert": "appeared"}


def _matched(
    baseline: tuple[str, ...], target: tuple[str, ...], left: range, right: range, *, equal: str
) -> list[Change]:
    """Match the launches of two ranges by the names given, in order."""
    matcher = SequenceMatcher(
        a=baseline[left.start : left.stop], b=target[right.start : right.stop], autojunk=False
    )
    found = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        more = (j2 - j1) - (i2 - i1)
        replaced = "replaced" if more == 0 else "fused" if more < 0 else "split"
        kind = equal if tag == "equal" else _KINDS.get(tag, replaced)
        before = range(left.start + i1, left.start + i2)
        after = range(right.start + j1, right.start + j2)
        found.append(Change(kind, before, after))
    return found


ChangeRow = Document(
    "ChangeRow",
    {
        "change": Literal["same", "variant", "replaced", "fused", "split", "vanished", "appeared"],
        "baseline": str,
        "target": str,
        "baseline_us": float,
        "target_us": float,
    },
    words="A run of launches that stayed, or that one side does otherwise; names one a line.",
)


LaunchRow = Document(
    "LaunchRow",
    {
        "run": (int, "number of the change that it belongs to"),
        "change": str,
        "side": Literal["both", "baseline", "target"],
        "kernel": str,
        "baseline_us": float,
        "target_us": float,
    },
    words="A launch of either side or both.",
)


def changes_table(changes: tuple[Change, ...], before: Launches, after: Launches) -> pd.DataFrame:
    """Return a `ChangeRow` a change."""
    rows = []
    for change in changes:
        sides = ((before, change.baseline), (after, change.target))
        names = ["\n".join(side.names[place] for place in places) for side, places in sides]
        rows.append((change.kind, *names, *(_time(side, places) for side, places in sides)))
    return pd.DataFrame(rows, columns=list(ChangeRow.keys))


def launches_table(changes: tuple[Change, ...], before: Launches, after: Launches) -> pd.DataFrame:
    """Return a `LaunchRow` a launch; one that a side lacks has no time there."""
    rows: list[tuple[int, str, str, str, float, float]] = []
    for run, change in enumerate(changes):
        left = [(before.names[at], _time(before, range(at, at + 1))) for at in change.baseline]
        right = [(after.names[at], _time(after, range(at, at + 1))) for at in change.target]
        if change.kind in PAIRED:
            rows += [
                (run, change.kind, "both", name, time, other)
                for (name, time), (_, other) in zip(left, right, strict=True)
            ]
        else:
            rows += [(run, change.kind, "baseline", *one, math.nan) for one in left]
            rows += [(run, change.kind, "target", name, math.nan, time) for name, time in right]
    return pd.DataFrame(rows, columns=list(LaunchRow.keys))


def _time(launches: Launches, places: range) -> float:
    if not len(places):
        return 0.0
    if launches.launches is None:
        return math.nan
    return sum(launches.launches[index].time_us for index in places)
