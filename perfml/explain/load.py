"""From what a user names to the layers, and where they can be had, the launches behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from perfml.datasets.loading import Given, read_given
from perfml.explain.align import Alignment
from perfml.explain.compared import Side, make_side


def load_tables(
    dataset: str | Path, where: Sequence[str] | None = None
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
    given = read_given(dataset, where=where)
    # without ranges the launches are the table; `make_side` makes one layer of them
    return given.table, given.kernels if given.ranged else None


def given_sides(
    names: Sequence[str], given: Sequence[Given]
) -> tuple[Side, Side, Alignment | None]:
    """Return two sides, and which of their layers answer to each other if ranges do not tell.

    Parameters
    ----------
    names
        What the sides are called.
    given
        What was read of either.
    """
    left, right = zip(names, given, strict=True)
    unranged = [name for name, each in (left, right) if not each.ranged]
    if unranged and all(each.kernels is not None for each in given):
        from perfml.explain.pairing import pair_kernels

        note = f"{unranged[0]} has no ranges, so kernels are compared."
        left_out = [each.left_out for _, each in (left, right)]
        paired = pair_kernels(
            (left[0], left[1].timed),
            (right[0], right[1].timed),
            notes=(note if len(unranged) == 1 else "", *left_out),
        )
        baseline, target = (
            replace(side, account=each.account)
            for side, each in ((paired.baseline, left[1]), (paired.target, right[1]))
        )
        return baseline, target, paired.alignment
    sides = [
        replace(
            make_side(name, each.table, each.kernels if each.ranged else None),
            account=each.account,
        )
        for name, each in (left, right)
    ]
    return sides[0], sides[1], None
