"""What a step takes on the clock, printed by the verbs that show one recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.cli.output import Output

_STEP_KERNELS = 6
"""Kernels that are printed without -v."""


def show_step(out: Output, account: Account) -> None:
    """Print what a step takes on the clock, and its kernels."""
    from perfml.account.words import kernel_rows, step_sentence
    from perfml.report.labels import percent

    out.result({}, [step_sentence(account)])
    rows = kernel_rows(account)
    shown = rows if out.verbose else rows[:_STEP_KERNELS]
    more = "" if len(shown) == len(rows) else f", {len(shown)} of {len(rows)}"
    out.table(
        ["kernel", "launches", "µs", "of all kernels"],
        [(name, round(n, 1), us, percent(share)) for name, n, us, share in shown],
        f"Kernels of a step{more}",
    )
