"""The vocabulary of causes: every one that an explanation by counters can name.

A cause is identified by its id everywhere: in frames, JSON, planted truth and studies. Its label is
for people and may change. `TERMS` is the one registry, read from ``causes.toml``.

Here to change: a new cause is a section of ``causes.toml``, named by a limit, a factor or a
replacement of ``limits.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from perfml.explain.launches import Launch
from perfml.metrics import load_catalogue
from perfml.metrics.expressions import Expression, parse
from perfml.util.files import read_rows, record

SHARE_OF_TIME = "{target:.0%} of the warps' time, {baseline:.0%} in the baseline"
"""What the levels of a cause mean that warps wait for."""


class Kind(StrEnum):
    """What a term is about; the coarse view of an explanation has one line a kind."""

    WORK = "work"
    MEMORY = "memory"
    OCCUPANCY = "occupancy"
    WAVES = "waves"
    STALL = "stall"
    LAUNCH = "launch"
    MEASUREMENT = "measurement"
    RESIDUAL = "residual"


@dataclass(frozen=True)
class Term:
    """A possible cause of a difference in time.

    Attributes
    ----------
    id
        Its identity.
    label
        What people read.
    kind
        What it is about.
    evidence
        Counters (names of the catalogue, or columns of a launch) that prove it.
    words
        What its two levels mean, with the fields ``baseline`` and ``target`` (and ``us`` and
        ``kernels`` for launches that one side lacks).
    falls
        Whether a lower level makes a launch slower; by default a higher one does.
    or_evidence
        Other counters that prove it as well.
    level
        Formula of the number that `words` says of either side; None where there is none.
    limits
        Ids of the limits (``limits.toml``) whose time it holds where its counters were not
        collected.
    none_where
        Quantities that rule it out by being 0.
    place
        Whether it says where the time goes, and not why.
    resolved_by
        What to look at, or to run, that tells whether it is the cause.
    author_only
        Whether only the author of a kernel can do that.
    beside
        What has to be seen beside it where it is true: formulas over a pair (`Pair.quantity`)
        that are above 0 then, by why it is no cause where they are not.
    gives
        The cause that has its part where it is denied; empty where the rest has it.
    capability
        The compute capability from which devices can have it.
    """

    id: str
    label: str
    kind: Kind
    evidence: tuple[str, ...]
    words: str = "{baseline:.3g} -> {target:.3g}"
    falls: bool = False
    or_evidence: tuple[str, ...] = ()
    level: Expression | None = None
    limits: tuple[str, ...] = ()
    none_where: tuple[str, ...] = ()
    place: bool = False
    resolved_by: str = ""
    author_only: bool = False
    beside: Mapping[str, Expression] = field(default_factory=dict)
    gives: str = ""
    capability: float = 0.0

    JSON_ID: ClassVar = "id"

    def possible(self, launch: Launch) -> bool:
        """Whether the device of a launch can have it; one that is not known can."""
        known = launch.chip.capability
        return known is None or not float(known) < self.capability

    @property
    def compares(self) -> bool:
        """Whether its words are the levels of both sides, one after the other."""
        return "->" in self.words

    @property
    def residual(self) -> bool:
        """Whether this is what no counter separates, not a cause."""
        return self.kind is Kind.RESIDUAL


@dataclass(frozen=True)
class Contribution:
    """What one term contributes to the logarithm of a time ratio.

    Attributes
    ----------
    term
        The cause.
    baseline, target
        Its level on either side.
    log_ratio
        Its part of the logarithm; above 0 it makes the target slower.
    """

    term: Term
    baseline: float
    target: float
    log_ratio: float

    @property
    def factor(self) -> float:
        """What it multiplies the time by."""
        return math.exp(self.log_ratio)

    def with_part(self, log_ratio: float) -> Contribution:
        """Return it with another part of the logarithm."""
        return Contribution(self.term, self.baseline, self.target, log_ratio)


ONE_SIDED = ("kernels_appeared", "kernels_vanished", "launch_count")
"""Ids of the causes that are launches which one side lacks."""


_WAITS = "section SourceCounters shows at which instructions warps wait"
_RESOLVED_BY = {
    Kind.WORK: "section ComputeWorkloadAnalysis shows how busy each pipe is",
    Kind.MEMORY: "section SourceCounters shows the sectors of single loads and stores",
    Kind.LAUNCH: "put a range (NVTX) around each step: then kernels of one step are compared",
    Kind.STALL: _WAITS,
    Kind.RESIDUAL: _WAITS,
}
"""What tells whether a cause of a kind is the one, where its row says nothing else."""


_ONE_SIDE = ("ideal", "symptom")
"""What a section says of launches on one side: `perfml.explain.tree.ideal` and advice read it."""


def _term(name: str, row: Mapping[str, Any]) -> Term:
    kind = Kind(row["kind"])
    usual: dict[str, Any] = {"id": name, "evidence": (), "resolved_by": _RESOLVED_BY.get(kind)}
    if kind is Kind.STALL:
        usual |= {
            "evidence": (name,),
            "level": f"wait.{name}",
            "words": SHARE_OF_TIME,
            "beside": {
                "warps wait for it no longer": f"slow.wait.{name} * slow.time"
                f" - fast.wait.{name} * fast.time"
            },
        }
    said = usual | {key: value for key, value in row.items() if key not in _ONE_SIDE}
    level = parse(said["level"]) if "level" in said else None
    beside = {why: parse(formula) for why, formula in said.get("beside", {}).items()}
    return record(Term, said, kind=kind, level=level, beside=beside)


ROWS = read_rows("perfml.explain.tree", "causes.toml")
"""What ``causes.toml`` says of every cause; its head describes the fields."""

TERMS: dict[str, Term] = {name: _term(name, row) for name, row in ROWS.items()}
"""Every cause by its id."""


def is_proven(term: Term, *launches: Launch) -> bool:
    """Return whether the counters of a term were collected."""
    return any(
        (names or term.residual)
        and all(is_collected(name, launch) for name in names for launch in launches)
        for names in (term.evidence, term.or_evidence)
    )


def is_collected(name: str, launch: Launch) -> bool:
    """Return whether a counter was collected; one that means nothing for a launch was."""
    if name == "time_us":
        return True
    value = launch.counters.get(name)
    if value is None or not math.isnan(value):
        return value is not None
    catalogue = load_catalogue()
    if name not in catalogue:
        return False
    return catalogue[name].zero_undefined or catalogue[name].guard is not None
