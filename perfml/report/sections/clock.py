"""The clock: a step, two steps compared, the phases of a server, and the ranks of a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfml.account.phases import DECODE
from perfml.account.words import (
    longest_computing,
    longest_kernel,
    profiled,
    rank_sentences,
    rank_table,
    step_sentence,
)
from perfml.explain.advice.finding import Finding
from perfml.explain.advice.settings import choice
from perfml.explain.confidence import IN_WORDS, of_measured, of_ratio, probability
from perfml.explain.remedies import Situation, of_account, remedy_for
from perfml.explain.words import step_action, step_cause, step_verdict
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
from perfml.report.tables import amount, share
from perfml.util.words import capital, micros, say

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.account.phase_times import PhaseTimes
    from perfml.account.ranks import Ranks, RankTime
    from perfml.explain.steps import StepComparison


def ranks_section(ranks: Ranks | None) -> Section | None:
    """Return what a step of each rank takes; None where there are none."""
    if ranks is None:
        return None
    title, columns, times = rank_table(ranks)
    rows = [[Cell(rank), *map(amount, us)] for rank, us in times]
    first, *rest = rank_sentences(ranks)
    table = ReportTable(title, (*words("rank"), *numbers(*columns)), rows)
    points = (Points(tuple(rest)),) if rest else ()
    note = Text(
        say("report.ranks.note", computing=ranks.accounts and say("report.ranks.computing")),
        note=True,
    )
    return section("Ranks", *points, table, note, summary=first, anchor="ranks", link="Ranks")


def rank_steps(ranks: Ranks | None) -> list[tuple[Finding, Sentence]]:
    """Return what to do first about the slowest rank; nothing without one."""
    if ranks is None:
        return []
    text, measured = " ".join(rank_sentences(ranks)), probability("measured")
    if not ranks.accounts:
        longest = longest_computing(ranks)
        if longest is None:
            return []
        more = longest.computing_us - min(each.computing_us for each in ranks.times)
        found = choice(("slow_rank",), longest.computing_us, more, more, measured)
        return [(found, _less(longest, text, Situation()))]
    if (last := ranks.slowest) is None:
        return []
    most = ranks.waits_most
    found = choice(("slow_rank",), most.step_us, most.waiting_us, most.waiting_us, measured)
    gain = say("report.ranks.waits", most=most, share=most.waiting_us / most.step_us)
    if ranks.computes_more:
        return [(found, replace(_less(last, text, of_account(ranks.accounts[0])), gain=gain))]
    title = say("report.ranks.last", last=last)
    return [(found, Sentence("do", "high", text, title, gain))]


def _less(rank: RankTime, text: str, here: Situation) -> Sentence:
    """Return that a rank computes too much, with what helps in its situation."""
    remedy = remedy_for("uneven_ranks", here)
    text = " ".join(filter(None, (remedy.sentences, text)))
    title = say("report.ranks.less", rank=rank)
    return Sentence(
        "do", "high", text, title, f"{micros(rank.computing_us)} of kernels", remedy.line
    )


def phases_section(phases: Sequence[PhaseTimes]) -> Section | None:
    """Return what a step of each phase takes, and its classes of kernels; None without phases."""
    if not phases:
        return None
    columns = ("a step, µs", "kernels, µs", "no kernel in it, µs", "before it, µs", "kernels")
    steps = []
    for each in phases:
        sizes = (each.whole_us, each.kernels_us, each.idle_us, each.before_us, each.launches)
        steps.append([Cell(each.kind), Cell(f"{each.steps}"), *map(amount, sizes)])
    by_class = []
    classes = [dict(each.classes) for each in phases]
    for name in dict.fromkeys(name for times in classes for name in times):
        row = [Cell(name)]
        for each, times in zip(phases, classes, strict=True):
            us = times.get(name, math.nan)
            row += [amount(us), share(us / each.kernels_us)]
        by_class.append(row)
    heads = [head for each in phases for head in (f"{each.kind}, µs a step", "of its kernels")]
    head = (*words("phase"), *numbers("steps", *columns))
    return section(
        "Prefill and decode" if len(phases) > 1 else f"A {phases[0].name}",
        ReportTable("Median step of each phase", head, steps),
        ReportTable("Time by class of kernels", (*words("class"), *numbers(*heads)), by_class),
        summary=phase_sentence(phases).text,
        anchor="phases",
        link="Phases",
    )


def phase_sentence(phases: Sequence[PhaseTimes]) -> Sentence:
    """Say what a step of each phase takes."""
    texts = []
    for each in phases:
        text = f"a {each.name} takes {micros(each.whole_us)}"
        if each.kind == DECODE:
            text += f" ({1e6 / each.whole_us:,.0f} tokens a second for each sequence)"
        if each.before_us > 0:
            text += f", of which the device waits {micros(each.before_us)} for it to begin"
        texts.append(f"{text} (median of {each.steps})")
    return Sentence("time", "high", f"{capital('; '.join(texts))}.")


def step_section(step: StepComparison) -> Section:
    """Return two sides on the clock: the verdict, its first cause, what to do, and all parts."""
    points = [text for text in (step_cause(step), _do(step)) if text]
    rows = [[Cell(name), Cell(step.names[us > 0]), amount(us)] for name, us in _rows(step)]
    table = ReportTable(
        f"What the difference of a {step.unit} is made of; the parts add up",
        (
            *words("part", "more of it in"),
            *numbers(say("report.step.more", step=step)),
        ),
        rows,
        title="Where the difference is",
    )
    unit = "" if step.unit == "recording" else f"a {step.unit} "
    time = "in all" if step.summed else f"{unit}on the clock"
    title = f"{step.names[1]} against {step.names[0]}, {time}"
    notes = [Text(f"{text}", note=True) for text in step_notes(step)]
    return section(title, Points(tuple(points)), table, *notes, summary=step_verdict(step))


def _rows(step: StepComparison) -> list[tuple[str, float]]:
    """Return the parts of the difference in words and microseconds; they add up to it."""
    words = {each.id: each.words for each in step.changes}
    words |= {name: say(f"report.step.{name}", unit=step.unit) for name in ("rest", "all")}
    return [(words[name], us) for name, us in step.rows]


def step_notes(step: StepComparison) -> tuple[str, ...]:
    """Say it of each side, and what to believe of steps that are mostly idle."""
    sides = (step.baseline, step.target)
    notes = tuple(map(step_sentence, sides, step.names))
    if step.often != 1:
        notes = (*notes, say("report.step.often", side=step.names[1], often=step.often))
    if not step.lengthened or not all(side.host for side in sides):
        return notes
    one, other = (side.busiest.step.computing_us for side in sides)
    return (*notes, say("report.step.idle", target=other, baseline=one))


def _do(step: StepComparison) -> str:
    action = step_action(step)
    return f"do ({IN_WORDS[step.confidence]}): {action}" if action else ""


def step_differences(step: StepComparison) -> list[Sentence]:
    """Return what to do first about the difference of two steps, and the verdict of the clock."""
    differs = step.verdict in ("slower", "faster")
    said = f"{step.names[1]} against {step.names[0]}, {step_verdict(step)}."
    sentences = [Sentence("time", of_ratio(step.verdict, interval=False), said)]
    if differs and step.first is not None:
        lost = step.difference_us > 0
        gain = f"{micros(abs(step.difference_us))} a step {'lost' if lost else 'gained'}"
        text = f"{step.remedy.sentences} Why: {step_cause(step)}."
        do = Sentence("do", step.confidence, text, f"A step is {step.verdict}", gain)
        sentences.insert(0, replace(do, command=step.remedy.line, look="lost" if lost else ""))
    return sentences


def step_sentences(account: Account, name: str = "") -> list[Sentence]:
    """Say what a step takes on the clock; `name` is whose it is, empty where there is one."""
    said = " ".join(filter(None, (step_sentence(account, name), longest_kernel(account))))
    told = [Sentence("time", "medium", text)] if (text := profiled(account)) else []
    return [Sentence("time", of_measured(enough=account.agree), said), *told]
