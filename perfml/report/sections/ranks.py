"""The ranks of one job: which of them the others wait for, and what a step of each takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfml.account.words import longest_computing, rank_sentences, rank_table
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
    from perfml.account.ranks import Ranks, RankTime

_EVEN = "sampler = DistributedSampler(dataset, drop_last=True)  # batches of one size on all ranks"
_EXPLAINS = 0.5
"""What a rank computes more explains the waits for it if it is at least this part of them."""
_NOTE = (
    "Computing runs beside communication that is not exposed. Waiting is what a collective takes "
    "more than on the rank that came last."
)
_NEVER = "Times of ranks are not added up."


def ranks_section(ranks: Ranks | None) -> Section | None:
    """Return what a step of each rank takes; None where there are none."""
    if ranks is None:
        return None
    title, columns, times = rank_table(ranks)
    rows = [[Cell(rank), *map(amount, us)] for rank, us in times]
    first, *rest = rank_sentences(ranks)
    table = ReportTable(title, (*words("rank"), *numbers(*columns)), rows)
    points = (Points(tuple(rest)),) if rest else ()
    summary = first.removesuffix(".")
    note = Text(f"{_NOTE if ranks.accounts else ''} {_NEVER}".strip(), note=True)
    return section("Ranks", *points, table, note, summary=summary, anchor="ranks", link="Ranks")


def rank_steps(ranks: Ranks | None) -> list[Sentence]:
    """Return what to do first about the slowest rank; nothing without one."""
    if ranks is None:
        return []
    text = " ".join(rank_sentences(ranks))
    if not ranks.accounts:
        longest = longest_computing(ranks)
        return [] if longest is None else [_less(longest, text)]
    if (last := ranks.slowest) is None:
        return []
    others = [each for each in ranks.times if each is not last]
    most = max(others, key=lambda each: each.waiting_us)
    more = last.computing_us - max(each.computing_us for each in others)
    share = Readable(most.waiting_us / most.step_us)
    gain = f"rank {most.rank} waits {micros(most.waiting_us)} of {micros(most.step_us)} a step"
    gain = f"{gain} ({share:.0%})"
    if more >= _EXPLAINS * most.waiting_us:
        return [replace(_less(last, text), gain=gain)]
    title = f"Find what holds rank {last.rank} back, which the others wait for"
    return [Sentence("do", "high", text, title, gain)]


def _less(rank: RankTime, text: str) -> Sentence:
    title = f"Give rank {rank.rank} less to compute"
    return Sentence("do", "high", text, title, f"{micros(rank.computing_us)} of kernels", _EVEN)
