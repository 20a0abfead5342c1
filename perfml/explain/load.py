"""From what a user selects to two sides, and which kernel answers to which where no ranges tell.

Kernels are paired by name; among several of one name those of one signature and shape; what is
left by place. Where one side has more left than the other, all that is left is one pair: kernels
that were fused or split are compared together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.account.device_time import on_busiest_device, repeat_keys
from perfml.account.time_sources import not_comparable
from perfml.datasets import Input, Inputs, Selection, read_input, read_inputs
from perfml.datasets.loading import input_of
from perfml.datasets.selection import Source
from perfml.errors import PerfmlError
from perfml.explain.compared import (
    Alignment,
    Launched,
    Side,
    align_layers,
    checked,
    launched_as_repeats,
    make_side,
    require_value,
    sides_of,
)
from perfml.explain.confidence import MOST
from perfml.explain.reports import Report, reports_behind
from perfml.ingest.merge.groups import (
    KernelUnit,
    kernel_units,
    launch_numbers,
    occurrences,
    with_layers,
)
from perfml.util.words import first_few, say

_SHOWN = 4  # pairs of kernels with different names that the sentence on pairing lists


@dataclass(frozen=True)
class Sides:
    """What is compared."""

    baseline: Side
    target: Side
    alignment: Alignment | None = None  # of their layers, where ranges do not tell
    training: pd.DataFrame | None = None  # the one table of both, which a model may learn from
    reports: tuple[Sequence[Report], Sequence[Report]] = ((), ())

    @property
    def tables(self) -> list[tuple[str, pd.DataFrame, pd.DataFrame | None]]:
        """Name, layers and launches of both; layers that answer to each other share a name."""
        target = self.target
        if self.alignment is not None:
            pairs = self.alignment.pairs
            called = dict(zip(pairs["target_layer"], pairs["layer"], strict=True))
            layers, kernels = (
                None if each is None else each.assign(layer=each["layer"].replace(called))
                for each in (target.layers, target.kernels)
            )
            assert layers is not None
            target = replace(target, layers=layers, kernels=kernels)
        return [(side.name, side.layers, side.kernels) for side in (self.baseline, target)]


_Pair = tuple[tuple[tuple[int, ...], tuple[int, ...]], str]
"""Units of the baseline and of the target, by their places, and how they were found."""


@dataclass(frozen=True)
class _Grouped:
    """A side, and of each pair what a repeat of the program launches and what it is called."""

    side: Side
    launched: tuple[Launched, ...]
    labels: tuple[str, ...]
    whole_us: float


def pair_kernels(
    baseline: tuple[str, pd.DataFrame],
    target: tuple[str, pd.DataFrame],
    *,
    by: str = "",
    notes: Sequence[str] = (),
) -> Sides:
    """Pair the kernels of two Kernels tables: every kernel (or group of kernels) is a layer.

    A side is a name and a Kernels table, whose ranges are not looked at. `by` is the column that
    tells the sides apart, empty where they are two tables; `notes` are what else to say of the
    pairing.
    """
    ran = (on_busiest_device(baseline[1]), on_busiest_device(target[1]))
    units, codes = zip(*map(kernel_units, ran), strict=True)
    in_order = np.array_equal(*codes)
    pairs = sorted(_pairs(units, in_order=in_order), key=lambda pair: pair[0])
    ours, theirs = (
        _side(name, ran[at], units[at], codes[at], [places[at] for places, _ in pairs])
        for at, name in enumerate((baseline[0], target[0]))
    )
    rows = zip(ours.labels, theirs.labels, (how for _, how in pairs), strict=True)
    alone = [
        tuple(units[at][place].label for place in places)
        for at, places in enumerate(_unpaired(units, pairs))
    ]
    counted = not all(launched_as_repeats(each) for each in ran)
    # a profiler of counters measures the launches that it was asked for
    counted &= not not_comparable((baseline[0], ran[0]), (target[0], ran[1]))
    counted &= not (_as_often(ours, theirs) and not any(alone))
    sentences = (*notes, _sentence(pairs, ours, theirs), _unequal(ours, theirs, counted=counted))
    alignment = Alignment(
        pd.DataFrame(rows, columns=["layer", "target_layer", "aligned_by"]),
        alone[0],
        alone[1],
        launched=tuple(zip(ours.launched, theirs.launched, strict=True)) if counted else None,
        whole_us=(ours.whole_us, theirs.whole_us) if counted else None,
        said=tuple(each for each in sentences if each),
    )
    return Sides(replace(ours.side, by=by), replace(theirs.side, by=by), alignment)


def _pairs(units: Sequence[Sequence[KernelUnit]], *, in_order: bool) -> list[_Pair]:
    """Pair the units of both sides by name, then by signature, then by place.

    `in_order` says that both sides launch their units in the same order.
    """
    named: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, own in enumerate(units):
        for place, unit in enumerate(own):
            named[unit.purpose][side].append(place)
    found: list[_Pair] = []
    for ours, theirs in named.values():
        if len(ours) == len(theirs) == 1:
            found.append((((ours[0],), (theirs[0],)), "name"))
            continue
        for same in (
            lambda a, b: (a.kernel, a.shape) == (b.kernel, b.shape),
            lambda a, b: a.kernel == b.kernel,
        ):
            for place in list(ours):
                mine = units[0][place]
                match = next((each for each in theirs if same(mine, units[1][each])), None)
                if match is not None:
                    found.append((((place,), (match,)), "signature"))
                    ours.remove(place)
                    theirs.remove(match)
        found += [(((a,), (b,)), "name and place") for a, b in zip(ours, theirs, strict=False)]
    left, right = _unpaired(units, found)
    if not found and min(map(len, units)) > 1:
        if in_order and _alike(units):
            return [(((place,), (place,)), "order") for place in range(len(units[0]))]
        return []  # two programs, or two kinds of GPU: the place of a kernel tells nothing
    if len(left) == len(right):
        found += [(((a,), (b,)), "place") for a, b in zip(left, right, strict=True)]
    elif left and right:
        found.append(((left, right), "place"))
    return found


def _alike(units: Sequence[Sequence[KernelUnit]]) -> bool:
    """Return whether most units have the grid and block of the one in their place."""
    shapes = [(a.shape, b.shape) for a, b in zip(*units, strict=True)]
    return len([a for a, b in shapes if a == b != ""]) > MOST * len(shapes)


def _unpaired(
    units: Sequence[Sequence[KernelUnit]], pairs: Sequence[_Pair]
) -> list[tuple[int, ...]]:
    """Return the units of each side that are in no pair."""
    taken = [{place for places, _ in pairs for place in places[at]} for at in (0, 1)]
    return [
        tuple(place for place in range(len(own)) if place not in known)
        for own, known in zip(units, taken, strict=True)
    ]


def _side(
    name: str,
    table: pd.DataFrame,
    units: Sequence[KernelUnit],
    codes: np.ndarray,
    groups: Sequence[tuple[int, ...]],
) -> _Grouped:
    """Return a side with a layer a group of units."""
    repeats = max(table.groupby(repeat_keys(table), dropna=False).ngroups, 1)
    launches = launch_numbers(table)
    count = np.bincount(codes, launches) / repeats
    total = np.bincount(codes, launches * table["time_us"].to_numpy(dtype=float)) / repeats
    labels = np.array([unit.label for unit in units], dtype=object)
    rows = occurrences(table, codes)
    launched, names = [], []
    single = np.ones(len(table), dtype=bool)
    for group in groups:
        joined = " + ".join(units[place].label for place in group[:_SHOWN])
        more = len(group) - _SHOWN
        joined = f"{joined} + {more} more" if more > 0 else joined
        labels[list(group)] = joined
        often = set(count[list(group)].tolist())
        if len(often) > 1:
            # launched unequally often: they are one layer of a repeat of the program
            mine = np.isin(codes, group)
            rows[mine] = pd.factorize(table["iteration"])[0][mine]
            single &= ~mine
        launched.append(
            Launched(often.pop() if len(often) == 1 else 1.0, float(total[list(group)].sum()))
        )
        names.append(joined)
    named = with_layers(table, labels[codes], rows)
    if not single.all():
        named["launches"] = np.where(single, 1.0, launches)
    return _Grouped(make_side(name, named), tuple(launched), tuple(names), float(total.sum()))


def _sentence(pairs: Sequence[_Pair], ours: _Grouped, theirs: _Grouped) -> str:
    """Say how kernels were paired, and which of them have different names."""
    if not pairs:
        return say("explain.pairing.nothing")
    hows = Counter(how for _, how in pairs)
    counts = ", ".join(f"{count} by {how}" for how, count in hows.items())
    kernels = "kernel is" if len(pairs) == 1 else "kernels are"
    said = f"Without ranges, {len(pairs)} {kernels} paired: {counts}"
    order = say("explain.pairing.order") if "order" in hows else ""
    unlike = [
        f"{a} with {b}"
        for a, b, (_, how) in zip(ours.labels, theirs.labels, pairs, strict=True)
        if how in ("place", "order")
    ]
    if unlike:
        said += f" ({'; '.join(unlike[:_SHOWN])}{'; ...' if len(unlike) > _SHOWN else ''})"
    return f"{said}. {order}".rstrip()


def _as_often(ours: _Grouped, theirs: _Grouped) -> bool:
    """Return whether one side runs the same program longer: all launches differ by one factor."""
    factors = {
        round(after.launches / before.launches, 9)
        for before, after in zip(ours.launched, theirs.launched, strict=True)
    }
    return len(factors) == 1 and factors != {1.0}


def _unequal(ours: _Grouped, theirs: _Grouped, *, counted: bool) -> str:
    """Say which kernels the sides launch unequally often; nothing where there are none."""
    unlike = [
        f"{name} {before.launches:g} and {after.launches:g} times"
        for name, before, after in zip(ours.labels, ours.launched, theirs.launched, strict=True)
        if before.launches != after.launches
    ]
    if not unlike:
        return ""
    said = f"Launched unequally often on the two sides: {first_few(unlike)}"
    if not counted:
        return f"{said}; they count as repeats, and times are of one launch."
    return f"{said}; times are of all launches of a kernel."


def load_tables(
    dataset: str | Path, where: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Load a Kernels or Layers table and the launches behind it.

    Parameters
    ----------
    dataset
        As for `perfml.datasets.load`.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.

    Returns
    -------
    tuple
        The table (Kernels where no launch has a layer, else Layers, with the shapes of its layers
        where they are known), and the launches, or None.

    Raises
    ------
    PerfmlError
        If it is no such thing, or no row meets a condition.
    """
    read = read_input(dataset, where=where)
    # without ranges the launches are the table; `make_side` makes one layer of them
    return read.table, read.kernels if read.ranged else None


def inputs_of(baseline: pd.DataFrame | Source, target: pd.DataFrame | Source) -> Inputs:
    """Return two tables, or names of inputs, as one who names both on the command line has them.

    Raises `PerfmlError` if one is neither.
    """
    given = (baseline, target)
    names = tuple(str(each) for each in given if isinstance(each, str | Path))
    if len(names) == len(given):
        return read_inputs(Selection(names))
    tables = tuple(
        input_of(name, checked(name, each))
        if isinstance(each, pd.DataFrame)
        else replace(read_input(each), name=name)
        for name, each in zip(("baseline", "target"), given, strict=True)
    )
    return Inputs(Selection(("baseline", "target")), tables)


def load_sides(inputs: Inputs) -> Sides:
    """Return the two sides of a selection: its two inputs, or two values of a column of one.

    Raises `PerfmlError` if there is one side only, or both two inputs and two values are named.
    """
    chosen = inputs.selection
    if len(inputs.tables) == 1:
        return _of_one(inputs)
    if chosen.baseline or chosen.target:
        msg = "two tables are two sides already"
        raise PerfmlError(msg, cure="Leave out --baseline and --target, or give one table.")
    left, right = inputs.comparable.tables
    named = list(zip(inputs.names, (left, right), strict=True))
    unranged = [name for name, each in named if not each.ranged]
    if not unranged or any(each.kernels is None for _, each in named):
        layered = ((name, each.in_layers) for name, each in named)
        before, after = (make_side(name, each.layers, each.kernels) for name, each in layered)
        sides = answering(before, after)
    else:
        one = len(unranged) == 1
        note = f"{unranged[0]} has no ranges, so kernels are compared." if one else ""
        sides = pair_kernels(
            *((name, each.timed) for name, each in named),
            notes=(note, *(each.left_out for _, each in named)),
        )
    return replace(
        sides,
        baseline=replace(sides.baseline, account=left.account),
        target=replace(sides.target, account=right.account),
        reports=(reports_behind(left), reports_behind(right)),
    )


def answering(left: Side, right: Side) -> Sides:
    """Return two sides whose layers answer to each other: those of one name, else single kernels.

    Kernels are compared of two recordings that share no range: one has none of the other's, or
    serial numbers in its names.
    """
    kernels = left.kernels, right.kernels
    try:
        align_layers(left.layers, right.layers)
    except PerfmlError:
        # of merged layers alone `explain` says what the clock tells
        if kernels[0] is None or kernels[1] is None:
            return Sides(left, right)
    else:
        return Sides(left, right)
    note = "No range of one side answers to a range of the other, so kernels are compared."
    pairs = pair_kernels((left.name, kernels[0]), (right.name, kernels[1]), notes=(note,))
    left = replace(left, layers=pairs.baseline.layers, kernels=pairs.baseline.kernels)
    right = replace(right, layers=pairs.target.layers, kernels=pairs.target.kernels)
    return Sides(left, right, pairs.alignment)


def _of_one(inputs: Inputs) -> Sides:
    """Return two sides of one table, told apart by a column."""
    chosen, given = inputs.selection, inputs.first
    if chosen.baseline is None or chosen.target is None:
        raise _two_needed(given, chosen.by)
    if not given.ranged:
        names = (chosen.baseline, chosen.target)
        before, after = ((name, require_value(given.timed, chosen.by, name)) for name in names)
        paired = pair_kernels(before, after, by=chosen.by)
        reports = (reports_behind(given, before[1]), reports_behind(given, after[1]))
        return replace(paired, reports=reports)
    table = given.layers
    left, right = sides_of(
        table, chosen.baseline, chosen.target, by=chosen.by, kernels=given.kernels
    )
    reports = (reports_behind(given, left.kernels), reports_behind(given, right.kernels))
    return Sides(left, right, None, table, reports)


def _two_needed(given: Input, by: str) -> PerfmlError:
    """Return the error that there is one side, with what would make two of it."""
    from perfml.datasets.choosing import named

    frame = given.table
    values = sorted(map(str, frame[by].dropna().unique())) if by in frame.columns else []
    if len(values) > 1:
        msg = "one table needs --baseline and --target"
        return PerfmlError(
            msg,
            found=f"{by}: {', '.join(values[:8])}",
            cure="Name two of these values, or give a second table.",
        )
    names = pd.Series() if given.kernels is None else given.kernels["kernel"].dropna()
    known = list(names.unique())
    ways = ["Give a second file"]
    if len(known) > 1:
        ways.append(f"name two kernels: perfml explain {given.name} --kernel ONE --kernel-b OTHER")
    elif len(names) > 1:
        ways.append(f"two launches: perfml explain {given.name}@0 {given.name}@1")
    msg = "one side alone: there is nothing to compare it with"
    cure = f"{', or '.join(ways)}; perfml advise says what is slow in one."
    return PerfmlError(msg, where=given.name, found=named(known) or None, cure=cure)
