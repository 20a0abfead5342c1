"""What a possible cause is, and what it contributes: the types of the vocabulary of causes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from perfml.metrics.expressions import Expression

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
    action
        What to do about it.
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
    """

    id: str
    label: str
    kind: Kind
    evidence: tuple[str, ...]
    action: str
    words: str = "{baseline:.3g} -> {target:.3g}"
    falls: bool = False
    or_evidence: tuple[str, ...] = ()
    level: Expression | None = None
    limits: tuple[str, ...] = ()
    none_where: tuple[str, ...] = ()
    place: bool = False
    resolved_by: str = ""
    author_only: bool = False

    JSON_ID: ClassVar = "id"

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

    def with_part(self, log_ratio: float) -> Contribution:
        """Return it with another part of the logarithm."""
        return Contribution(self.term, self.baseline, self.target, log_ratio)
