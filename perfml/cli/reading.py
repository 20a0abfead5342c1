"""What verbs read, with what there is to say of it; and the clock of one recording."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.account.ranks import Ranks
    from perfml.cli.output import Output
    from perfml.datasets import Inputs, Selection

_STEP_KERNELS = 6
"""Kernels that are printed without -v."""


def read(
    selection: Selection, output: Output, *, study: bool = False, in_layers: bool = False
) -> Inputs:
    """Return what is selected, and warn of what readers noticed and of what was left out.

    `study` and `in_layers` are as for `perfml.datasets.Inputs.notes`.
    """
    from perfml.datasets import read_inputs

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        inputs = read_inputs(selection)
    more = output.verbose > 0
    for each in caught:
        output.warn(str(each.message))
    for note in inputs.notes(study=study or more, in_layers=in_layers, all_of_them=more):
        output.warn(note)
    return inputs


def show_ranks(output: Output, ranks: Ranks) -> None:
    """Print which rank is the slowest, and a step of each."""
    from perfml.account.words import rank_sentences, rank_table

    output.result({}, rank_sentences(ranks))
    title, columns, rows = rank_table(ranks)
    output.table(["rank", *columns], [(rank, *us) for rank, us in rows], title)


def show_step(output: Output, account: Account, name: str = "") -> None:
    """Print what a step takes on the clock, and its kernels; `name` is whose it is."""
    from perfml.account.words import kernel_rows, step_sentence
    from perfml.report.labels import percent

    output.result({}, [step_sentence(account, name)])
    rows = kernel_rows(account)
    shown = rows if output.verbose else rows[:_STEP_KERNELS]
    more = "" if len(shown) == len(rows) else f", {len(shown)} of {len(rows)}"
    output.table(
        ["kernel", "launches", "µs", "of all kernels"],
        [(name, round(n, 1), us, percent(share)) for name, n, us, share in shown],
        f"Kernels of a step{more}",
    )
