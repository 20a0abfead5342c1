"""What to do first where nothing is known to save: what takes its time, and what to type next."""

from __future__ import annotations

from dataclasses import replace
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
from perfml.report.tables import amount
from perfml.util.words import micros

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.explain.steps import StepComparison

WORTH = 0.05
"""What takes less of the time is not what to do first."""


def step_section(step: StepComparison) -> Section:
    """Return two sides on the clock: the verdict, its first cause, what to do, and all parts."""
    points = [text for text in (step.cause(), _do(step)) if text is not None]
    rows = [[Cell(name), amount(us)] for name, us in step.rows()]
    table = ReportTable(
        f"What the difference of a {step.unit} is made of; the parts add up",
        (*words("part"), *numbers(f"{step.names[1]} takes more, µs a {step.unit}")),
        rows,
        title="Where the difference is",
    )
    unit = "" if step.unit == "recording" else f"a {step.unit} "
    title = f"{step.names[1]} against {step.names[0]}, {unit}on the clock"
    notes = [Text(f"{text}", note=True) for text in step.notes()]
    return section(title, Points(tuple(points)), table, *notes, summary=step.sentence())


def _do(step: StepComparison) -> str | None:
    action = step.action()
    return None if action is None else f"do ({IN_WORDS[step.confidence]}): {action}"


def step_differences(step: StepComparison) -> list[Sentence]:
    """Return what to do first about the difference of two steps, and the verdict of the clock."""
    differs = step.verdict in ("slower", "faster")
    said = f"{step.names[1]} against {step.names[0]}, {step.sentence()}."
    sentences = [Sentence("time", "medium" if differs else "low", said)]
    if differs and step.first is not None:
        lost = step.difference_us > 0
        row, slow = step.first.row, step.target if lost else step.baseline
        gain = f"{micros(abs(step.difference_us))} a step {'lost' if lost else 'gained'}"
        text = f"{row.also} Why: {step.cause()}."
        do = Sentence("do", step.confidence, text, f"A step is {step.verdict}", gain)
        sentences.insert(0, replace(do, command=row.line(slow), look="lost" if lost else ""))
    return sentences


def step_sentences(account: Account, name: str = "") -> list[Sentence]:
    """Say what a step takes on the clock; `name` is whose it is, empty where there is one."""
    from perfml.account.words import longest_kernel, profiled, step_sentence

    said = f"{step_sentence(account, name)} {longest_kernel(account)}".strip()
    told = [Sentence("time", "medium", text)] if (text := profiled(account)) else []
    return [Sentence("time", "high" if account.agree else "low", said), *told]
