"""What counters tell of a layer: every cause in every pair of kernels, and their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, TypedDict

import pandas as pd

from perfml.explain.confidence import Confidence
from perfml.explain.tree.ambiguity import Reason, Untold
from perfml.explain.tree.causes import Contribution, Kind, Term
from perfml.util.json_values import json_object


@dataclass(frozen=True)
class PairCauses:
    """What counters say of one pair of kernels, or of a kernel that one side lacks.

    Attributes
    ----------
    kernels
        Their names.
    resource
        The unit whose work their time was counted in (``FP32 pipe``, ``DRAM bytes``, ...); None
        where no work was counted on both sides.
    contributions
        Parts of the layer's log ratio.
    times_us
        Of the baseline's launch and of the target's; 0 for one that is not there.
    unlike
        Whether they are different kernels that neither side's author wrote.
    unlike_product
        Whether, of these, one is a library's: a product of matrices, a convolution, attention.
    """

    kernels: str
    resource: str | None
    contributions: tuple[Contribution, ...]
    times_us: tuple[float, float] = (0.0, 0.0)
    unlike: bool = False
    unlike_product: bool = False


@dataclass(frozen=True)
class TermTotal:
    """A term over all kernels of a layer.

    Attributes
    ----------
    term
        The cause.
    log_ratio
        Its part of the layer's log ratio.
    """

    term: Term
    log_ratio: float

    @property
    def factor(self) -> float:
        """What it multiplies the time by."""
        return math.exp(self.log_ratio)


class TermRow(TypedDict):
    """A cause over all kernels of a layer; log ratios add up to the layer's.

    Attributes
    ----------
    term
        Its id.
    residual
        Whether it is a rest that names no cause.
    share
        Of all terms that point the same way, so no term has more than the whole.
    """

    term: str
    label: str
    kind: Kind
    log_ratio: float
    factor: float
    residual: bool
    share: float


class KernelTermRow(TypedDict):
    """A cause in one pair of kernels."""

    kernels: str
    resource: str | None
    term: str
    label: str
    baseline: float
    target: float
    log_ratio: float


@dataclass(frozen=True)
class Causes:
    """What made a layer slower or faster, by counters alone; nothing was trained.

    Attributes
    ----------
    pairs
        Kernel by kernel, in launch order.
    log_ratio
        Of the layer's time, as in its `Ratio`; all contributions add up to it.
    missing
        Counters that would split a term further, and were not collected.
    untold
        What stands against the first cause; None where the confidence is high.
    probability
        That the first cause is right, as measured (`perfml.explain.tree.confidence`).
    """

    pairs: tuple[PairCauses, ...]
    log_ratio: float
    missing: tuple[str, ...] = ()
    untold: Untold | None = None
    probability: float = 0.0

    @cached_property
    def totals(self) -> tuple[TermTotal, ...]:
        """Every term over all kernels, the largest first."""
        sums: dict[str, TermTotal] = {}
        for part in (part for pair in self.pairs for part in pair.contributions):
            known = sums.get(part.term.id, TermTotal(part.term, 0.0)).log_ratio
            sums[part.term.id] = TermTotal(part.term, known + part.log_ratio)
        return tuple(sorted(sums.values(), key=lambda total: -abs(total.log_ratio)))

    @property
    def confidence(self) -> Confidence:
        """How sure the first cause is; high: held-out answers like it were right in 95 %."""
        named = bool(self.totals) and self.log_ratio != 0
        if named and self.untold is None and self.probability > 0:
            return "high"
        pieces = self.untold is not None and self.untold.reason is Reason.PIECES
        return "medium" if self.probability >= 0.5 and not pieces else "low"

    @cached_property
    def terms(self) -> Annotated[pd.DataFrame, TermRow]:
        """One `TermRow` a term."""
        sizes = {True: 0.0, False: 0.0}
        for total in self.totals:
            sizes[total.log_ratio > 0] += abs(total.log_ratio)
        rows = []
        for total in self.totals:
            term, value = total.term, total.log_ratio
            share = abs(value) / (sizes[value > 0] or 1.0)
            row = (term.id, term.label, str(term.kind), value, total.factor, term.residual, share)
            rows.append(row)
        return pd.DataFrame(rows, columns=list(TermRow.__annotations__))

    @cached_property
    def by_kernel(self) -> Annotated[pd.DataFrame, KernelTermRow]:
        """One `KernelTermRow` a term of a pair, in launch order."""
        rows = [
            (pair.kernels, pair.resource, term.id, term.label, one.baseline, one.target, value)
            for pair in self.pairs
            for one in pair.contributions
            for term, value in ((one.term, one.log_ratio),)
        ]
        return pd.DataFrame(rows, columns=list(KernelTermRow.__annotations__))

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The short list: the log ratio of every kind of term, the largest first."""
        sums: dict[Kind, float] = {}
        for total in self.totals:
            sums[total.term.kind] = sums.get(total.term.kind, 0.0) + total.log_ratio
        return dict(sorted(sums.items(), key=lambda entry: -abs(entry[1])))

    JSON: ClassVar = (
        *("log_ratio", "terms", "by_kernel", "by_kind", "missing", "confidence"),
        *("probability", "untold"),
    )
    to_dict = json_object
