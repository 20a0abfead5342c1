"""The ranks of one job: which of them the others wait for, and what a step of each takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfml.account.words import RANK_COLUMNS, rank_rows, rank_sentences
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
from perfml.util.words import Readable, micros

if TYPE_CHECKING:
    from perfml.account.ranks import Ranks

_EVEN = "sampler = DistributedSampler(dataset, drop_last=True)  # batches of one size on all ranks"
_EXPLAINS = 0.5
"""What a rank computes more explains the waits for it if it is at least this part of them."""
_NOTE = (
    "Computing runs beside communication that is not exposed. Waiting is what a collective takes "
    "more than on the rank that came last. Times of ranks are not added up."
)


def ranks_section(ranks: Ranks | None) -> Section | None:
    """Return what a step of each rank takes; None where there are none."""
    if ranks is None:
        return None
    rows = [[Cell(name), *map(amount, times)] for name, *times in rank_rows(ranks)]
    head = (*words("rank"), *numbers(*(f"{name}, µs" for name in RANK_COLUMNS)))
    first, *rest = rank_sentences(ranks)
    table = ReportTable("A step of each rank, the mean of those that count", head, rows)
    points = (Points(tuple(rest)),) if rest else ()
    summary = first.removesuffix(".")
    note = Text(_NOTE, note=True)
    return section("Ranks", *points, table, note, summary=summary, anchor="ranks", link="Ranks")


def rank_steps(ranks: Ranks | None) -> list[Sentence]:
    """Return what to do first about the slowest rank; nothing without one."""
    last = None if ranks is None else ranks.slowest
    if ranks is None or last is None:
        return []
    others = [each for each in ranks.times if each is not last]
    most = max(others, key=lambda each: each.waiting_us)
    more = last.computing_us - max(each.computing_us for each in others)
    uneven = more >= _EXPLAINS * most.waiting_us
    what = "Give rank {} less to compute" if uneven else "Find what holds rank {} back"
    share = Readable(most.waiting_us / most.step_us)
    gain = f"rank {most.rank} waits {micros(most.waiting_us)} of {micros(most.step_us)} a step"
    text = " ".join(rank_sentences(ranks))
    title = f"{what.format(last.rank)}, which the others wait for"
    return [Sentence("do", "high", text, title, f"{gain} ({share:.0%})", _EVEN if uneven else "")]
