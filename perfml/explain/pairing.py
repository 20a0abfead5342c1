"""Which kernel of one profile answers to which of another, where no ranges tell.

Kernels are paired by name; among several of one name those of one signature and shape; what is
left by place. Where one side has more left than the other, all that is left is one pair: kernels
that were fused or split are compared together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfml.account.device_time import on_busiest_device, repeat_keys
from perfml.account.time_sources import not_comparable
from perfml.explain.align import Alignment, Launched
from perfml.explain.compared import Side, launched_as_repeats, make_side
from perfml.ingest.merge.by_kernel import KernelUnit, kernel_units, occurrences, with_layers
from perfml.ingest.merge.numbering import launch_numbers

_SHOWN = 4
"""Pairs of kernels with different names that the sentence on pairing lists."""


@dataclass(frozen=True)
class Pairing:
    """Kernels of two sides that answer to each other.

    Attributes
    ----------
    baseline, target
        The sides; every kernel (or group of kernels) is a layer.
    alignment
        Which answers to which.
    """

    baseline: Side
    target: Side
    alignment: Alignment


@dataclass(frozen=True)
class _Pair:
    left: tuple[int, ...]
    right: tuple[int, ...]
    how: str


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
) -> Pairing:
    """Pair the kernels of two Kernels tables.

    A side is a name and a Kernels table, whose ranges are not looked at. `by` is the column that
    tells the sides apart, empty where they are two tables; `notes` are what else to say of the
    pairing.
    """
    ran = (on_busiest_device(baseline[1]), on_busiest_device(target[1]))
    left, left_codes = kernel_units(ran[0])
    right, right_codes = kernel_units(ran[1])
    pairs = sorted(_pairs(left, right), key=lambda pair: pair.left)
    ours = _side(baseline[0], ran[0], left, left_codes, [pair.left for pair in pairs])
    theirs = _side(target[0], ran[1], right, right_codes, [pair.right for pair in pairs])
    rows = zip(ours.labels, theirs.labels, (pair.how for pair in pairs), strict=True)
    alone = [
        tuple(unit.label for place, unit in enumerate(units) if place not in taken)
        for units, taken in (
            (left, {place for pair in pairs for place in pair.left}),
            (right, {place for pair in pairs for place in pair.right}),
        )
    ]
    counted = not all(launched_as_repeats(each) for each in ran)
    # a profiler of counters measures the launches that it was asked for
    counted &= not not_comparable((baseline[0], ran[0]), (target[0], ran[1]))
    sentences = (*notes, _sentence(pairs, ours, theirs), _unequal(ours, theirs, counted=counted))
    alignment = Alignment(
        pd.DataFrame(rows, columns=["layer", "target_layer", "aligned_by"]),
        alone[0],
        alone[1],
        launched=tuple(zip(ours.launched, theirs.launched, strict=True)) if counted else None,
        whole_us=(ours.whole_us, theirs.whole_us) if counted else None,
        said=tuple(each for each in sentences if each),
    )
    return Pairing(replace(ours.side, by=by), replace(theirs.side, by=by), alignment)


def _pairs(left: Sequence[KernelUnit], right: Sequence[KernelUnit]) -> list[_Pair]:
    """Pair units by name, then by signature, then by place."""
    named: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, units in enumerate((left, right)):
        for place, unit in enumerate(units):
            named[unit.purpose][side].append(place)
    found: list[_Pair] = []
    for ours, theirs in named.values():
        if len(ours) == len(theirs) == 1:
            found.append(_Pair((ours[0],), (theirs[0],), "name"))
            continue
        for same in (
            lambda a, b: (a.kernel, a.shape) == (b.kernel, b.shape),
            lambda a, b: a.kernel == b.kernel,
        ):
            for place in list(ours):
                match = next((each for each in theirs if same(left[place], right[each])), None)
                if match is not None:
                    found.append(_Pair((place,), (match,), "signature"))
                    ours.remove(place)
                    theirs.remove(match)
        found += [_Pair((a,), (b,), "name and place") for a, b in zip(ours, theirs, strict=False)]
    taken = [{place for pair in found for place in side(pair)} for side in (_left, _right)]
    rest = [
        [place for place in range(len(units)) if place not in known]
        for units, known in zip((left, right), taken, strict=True)
    ]
    if len(rest[0]) == len(rest[1]):
        found += [_Pair((a,), (b,), "place") for a, b in zip(*rest, strict=True)]
    elif rest[0] and rest[1]:
        found.append(_Pair(tuple(rest[0]), tuple(rest[1]), "place"))
    return found


def _left(pair: _Pair) -> tuple[int, ...]:
    return pair.left


def _right(pair: _Pair) -> tuple[int, ...]:
    return pair.right


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
    hows = Counter(pair.how for pair in pairs)
    counts = ", ".join(f"{count} by {how}" for how, count in hows.items())
    kernels = "kernel is" if len(pairs) == 1 else "kernels are"
    said = f"Without ranges, {len(pairs)} {kernels} paired: {counts}"
    unlike = [
        f"{a} with {b}"
        for a, b, pair in zip(ours.labels, theirs.labels, pairs, strict=True)
        if pair.how == "place"
    ]
    if unlike:
        said += f" ({'; '.join(unlike[:_SHOWN])}{'; ...' if len(unlike) > _SHOWN else ''})"
    return f"{said}."


def _unequal(ours: _Grouped, theirs: _Grouped, *, counted: bool) -> str:
    """Say which kernels the sides launch unequally often; nothing where there are none."""
    unlike = [
        f"{name} {before.launches:g} and {after.launches:g} times"
        for name, before, after in zip(ours.labels, ours.launched, theirs.launched, strict=True)
        if before.launches != after.launches
    ]
    if not unlike:
        return ""
    more = f", and {len(unlike) - _SHOWN} more" if len(unlike) > _SHOWN else ""
    said = f"Launched unequally often on the two sides: {', '.join(unlike[:_SHOWN])}{more}"
    if not counted:
        return f"{said}; they count as repeats, and times are of one launch."
    return f"{said}; times are of all launches of a kernel."
