"""A step on the clock: of one recording, and of two compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfml.explain.confidence import IN_WORDS
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
from perfml.report.labels import capital
from perfml.report.sections.time_spent import WORTH
from perfml.report.tables import amount

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.explain.steps import StepComparison


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
    return None if action is None else f"do ({IN_WORDS[step.confidence]}): {action}"


def step_sentences(account: Account) -> list[Sentence]:
    """Return what to do first about a step, if that saves much, and what it takes."""
    from perfml.account.causes import findings
    from perfml.account.words import evidence, longest_kernel, saving, step_sentence

    first = next((f for f in findings(account) if f.saved_us >= WORTH * account.step_us), None)
    said = f"{step_sentence(account)} {longest_kernel(account)}".strip()
    time = Sentence("time", "high" if account.agree else "low", said)
    if first is not None:
        title = capital(first.cause.words)
        text = f"{first.cause.also} Why: {evidence(first, account)}."
        line = first.cause.line(account)
        return [Sentence("do", "medium", text, title, saving(first, account), line), time]
    return [time]
