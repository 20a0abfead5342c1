"""A step on the clock: of one recording, and of two compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfml.report.document import (
    Cell,
    Points,
    ReportTable,
    Section,
    Sentence,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.labels import percent
from perfml.report.tables import amount
from perfml.util.words import micros

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.explain.steps import StepComparison

_WORTH = 0.05
"""What saves less of a step is not what to do first."""
_LARGE = 0.1
"""Kernels that take at least this part of a step are named where nothing is known to save."""


def step_section(step: StepComparison) -> Section:
    """Return two sides on the clock: the verdict, its first cause, what to do, and all parts."""
    points = [text for text in (step.cause(), _do(step)) if text is not None]
    rows = [[Cell(name), amount(us)] for name, us in step.rows()]
    table = ReportTable(
        "What the difference of a step is made of; the parts add up",
        (*words("part"), *numbers(f"{step.names[1]} takes more, µs a step")),
        rows,
        title="Where the difference is",
    )
    title = f"{step.names[1]} against {step.names[0]}, a step on the clock"
    notes = [Text(f"{text}", note=True) for text in step.notes()]
    return section(title, Points(tuple(points)), table, *notes, summary=step.sentence())


def _do(step: StepComparison) -> str | None:
    action = step.action()
    return None if action is None else f"do ({step.certainty}) {action}"


def step_sentences(account: Account) -> list[Sentence]:
    """Return what to do first about a step, and what it takes; nothing to do where all is little.

    Parameters
    ----------
    account
        Of one recording.
    """
    from perfml.account.causes import findings
    from perfml.account.words import evidence, longest_kernel, remedy, saving, step_sentence

    first = next((f for f in findings(account) if f.saved_us >= _WORTH * account.step_us), None)
    said = f"{step_sentence(account)} {longest_kernel(account)}".strip()
    time = Sentence("time", "firm" if account.agree else "open", said)
    if first is not None:
        title = f"{first.cause.words[:1].upper()}{first.cause.words[1:]}"
        text = f"{remedy(first, account)} Why: {evidence(first, account)}."
        return [Sentence("do", "likely", text, title, saving(first, account)), time]
    return [*_longest(account), time]


def _longest(account: Account) -> list[Sentence]:
    """Name the kernel that takes most of a step, where no cause is known."""
    parts = account.busiest.parts
    if not parts or parts[0].us < _LARGE * account.step_us:
        return []
    most = parts[0]
    share = percent(most.us / sum(part.us for part in parts))
    text = (
        f"It takes {micros(most.us)} of {micros(account.step_us)} in "
        f"{most.launches:,.0f} launches"
        + (f", in {most.where}" if most.where else "")
        + ". Its name tells no loss: look whether it computes more than it has to."
    )
    return [Sentence("do", "open", text, f"Look at {most.kernel} first", f"{share} of all kernels")]
