"""From what a user selects to two sides, or to the layers and the launches behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from perfml.datasets import Input, Inputs, read_input
from perfml.errors import PerfmlError
from perfml.explain.align import Alignment
from perfml.explain.compared import Side, make_side, require_value, sides_of
from perfml.explain.pairing import Pairing, pair_kernels
from perfml.explain.reports import Report, reports_behind


@dataclass(frozen=True)
class Sides:
    """What is compared.

    Attributes
    ----------
    baseline, target
        The sides.
    alignment
        Which of their layers answer to each other, where ranges do not tell.
    training
        The table that both are of, which a model may learn from; None of two tables.
    reports
        The reports behind the baseline and behind the target.
    """

    baseline: Side
    target: Side
    alignment: Alignment | None
    training: pd.DataFrame | None
    reports: tuple[list[Report], list[Report]]

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
    reports = (reports_behind(left), reports_behind(right))
    if not unranged or any(each.kernels is None for _, each in named):
        layered = [(name, each.in_layers) for name, each in named]
        sides = [make_side(name, each.layers, each.kernels) for name, each in layered]
        return _sides(sides[0], sides[1], (left, right), reports)
    one = len(unranged) == 1
    note = f"{unranged[0]} has no ranges, so kernels are compared." if one else ""
    paired = pair_kernels(
        *((name, each.timed) for name, each in named),
        notes=(note, *(each.left_out for _, each in named)),
    )
    return _sides(paired.baseline, paired.target, (left, right), reports, paired)


def _sides(
    baseline: Side,
    target: Side,
    inputs: tuple[Input, Input],
    reports: tuple[list[Report], list[Report]],
    paired: Pairing | None = None,
) -> Sides:
    """Return the sides of two inputs, with what a trace tells of their steps."""
    before, after = (
        replace(side, account=each.account)
        for side, each in zip((baseline, target), inputs, strict=True)
    )
    return Sides(before, after, paired.alignment if paired else None, None, reports)


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
        return Sides(paired.baseline, paired.target, paired.alignment, None, reports)
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
