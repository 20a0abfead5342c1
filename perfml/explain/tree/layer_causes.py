"""What counters tell of a layer: causes by pair of kernels, their sums, and what is not certain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from perfml.explain.confidence import NAMED, Confidence, load_model
from perfml.explain.launches import Launch
from perfml.explain.remedies import Person, person_of
from perfml.explain.times import Ratio
from perfml.explain.tree.causes import Contribution, Kind, Term, is_collected
from perfml.metrics import HOPPER, load_catalogue
from perfml.util.json_values import Document, json_object
from perfml.util.words import capital, say

_SECTIONS = {
    "WarpStateStats": (
        "smsp__warp_issue_stalled",
        "smsp__average_warp",
        "smsp__thread_inst_executed_per",
    ),
    "MemoryWorkloadAnalysis_Tables": (
        *("smsp__inst_executed_op_", "smsp__sass_average_data_bytes"),
        *("l1tex__", "lts__", "dram__"),
    ),
    "Occupancy": ("launch__occupancy", "sm__warps_active", "sm__maximum_warps"),
    "LaunchStats": ("launch__",),
    "WorkloadDistribution": ("sm__cycles_active",),
    "ComputeWorkloadAnalysis": ("sm__pipe", "sm__inst_"),
    "InstructionStats": ("smsp__inst_executed.",),
}
"""Beginnings of the names of counters by the section of Nsight Compute that collects them, by the
section files of 2025; the first that fits counts."""


Reason = Literal["counters", "rival", "limit", "rest", "small", "pairing", "pieces"]
"""Why the first cause is not certain: ``doubt`` of ``words.toml``, or counters are missing."""


@dataclass(frozen=True)
class Untold:
    """What the answer may be instead, and what would tell."""

    causes: Annotated[tuple[Term, ...], "other causes that it may be, the likeliest first"]
    instead_of: Annotated[Term, "the cause that stands first"]
    metrics: Annotated[tuple[str, ...], "counters that would tell and were not collected"] = ()
    sections: Annotated[tuple[str, ...], "sections of Nsight Compute that collect these"] = ()
    collect: Annotated[str, "the set of perfml's ``collect --metrics`` that holds them"] = ""
    share: Annotated[float, "how much of the difference the first cause holds"] = 0.0
    reason: Annotated[Reason, "why it is not certain"] = "counters"
    numbers: Annotated[Mapping[str, Any], "what the reason's words say"] = field(
        default_factory=dict
    )
    check: Annotated[str, "what to look at, or to run, that tells"] = ""

    @property
    def why(self) -> str:
        """Why it is not certain, in words; empty where counters are missing."""
        counted = self.reason == "counters"
        return "" if counted else say(f"explain.doubt.{self.reason}", **self.numbers)

    def sentence(self) -> str:
        """Say it in words."""
        names = [_short(term) for term in self.causes[: NAMED - 1]]
        residual = self.instead_of.residual
        return say(
            f"explain.doubt.{'cannot_tell' if names else 'uncertain'}",
            others=" or ".join(names),
            more=max(len(self.causes) - len(names), 0) or None,
            first=say("explain.doubt.the_rest") if residual else _short(self.instead_of),
            why=self.why,
            tells=capital(self.what_tells()),
        )

    def what_tells(self) -> str:
        """Say what to collect, look at or run, that would settle it; empty where nothing would."""
        if not self.metrics:
            return self.check
        sections = " and ".join(self.sections)
        return say("explain.doubt.counters", set=self.collect, sections=sections)

    JSON: ClassVar = (
        *("causes", "instead_of", "metrics", "sections", "collect", "share", "reason", "check"),
        "sentence",
    )
    to_dict = json_object


_LISTED = 0.02
"""Causes below 2 % of the time are not listed by themselves."""


def resolved_by(term: Term, kernel: str = "") -> str:
    """Return what tells whether a cause is the one, to the author of a kernel or to its caller."""
    if not term.author_only or person_of(kernel) is Person.AUTHOR:
        return term.resolved_by
    grid = term.kind in (Kind.OCCUPANCY, Kind.WAVES)
    return say(f"explain.doubt.{'batch' if grid else 'waits'}")


def missing_counters(causes: Iterable[Term], *launches: Launch) -> tuple[str, ...]:
    """Return the counters of some causes that were not collected, each once."""
    names = dict.fromkeys(name for term in causes for name in term.evidence)
    return tuple(name for name in names if not all(is_collected(name, one) for one in launches))


def sections_of(names: Iterable[str]) -> Iterable[str]:
    """Yield the sections of Nsight Compute that collect the counters of some metrics."""
    catalogue = load_catalogue()
    for name in names:
        formula = catalogue[name].ncu if name in catalogue else None
        for counter in () if formula is None else formula.names:
            found = [section for section, starts in _SECTIONS.items() if counter.startswith(starts)]
            yield from found[:1]


def set_of(names: Iterable[str]) -> str:
    """Return the set of ``perfml collect --metrics`` that holds some counters."""
    only_hopper = [name for name in names if name in HOPPER]
    if only_hopper:
        return " --metrics ".join(only_hopper)
    return "default" if set(names) <= set(load_catalogue().computable(["default"])) else "causes"


def _short(term: Term) -> str:
    label = term.label.removeprefix("work: ")
    return label if term.id.startswith("stall_") else label.partition(" (")[0]


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
    denied
        Why causes that grew are none, by their ids.
    """

    kernels: str
    resource: str | None
    contributions: tuple[Contribution, ...]
    times_us: tuple[float, float] = (0.0, 0.0)
    unlike: bool = False
    unlike_product: bool = False
    denied: Mapping[str, str] = field(default_factory=dict)

    def part_of(self, term: str) -> float:
        """Return what a term, by its id, has of the layer's log ratio here."""
        return sum(one.log_ratio for one in self.contributions if one.term.id == term)

    def has(self, term: str) -> bool:
        """Return whether a term, by its id, is one of its contributions."""
        return any(one.term.id == term for one in self.contributions)


def _total(term: Term, log_ratio: float) -> Contribution:
    """Return a term over all kernels of a layer, which has a level in each of them alone."""
    return Contribution(term, math.nan, math.nan, log_ratio)


TermRow = Document(
    "TermRow",
    {
        "term": (str, "its id"),
        "label": str,
        "kind": Kind,
        "log_ratio": float,
        "factor": float,
        "residual": (bool, "whether it is a rest that names no cause"),
        "share": (float, "of all terms that point the same way"),
    },
    words="A cause over all kernels of a layer; log ratios add up to the layer's.",
)


KernelTermRow = Document(
    "KernelTermRow",
    {
        "kernels": str,
        "resource": str | None,
        "term": str,
        "label": str,
        "baseline": float,
        "target": float,
        "log_ratio": float,
    },
    words="A cause in one pair of kernels.",
)


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
    tested
        What an experiment says of the first cause; None where there was none.
    """

    pairs: tuple[PairCauses, ...]
    log_ratio: float
    missing: tuple[str, ...] = ()
    untold: Untold | None = None
    probability: float = 0.0
    tested: Confidence | None = None

    @cached_property
    def totals(self) -> tuple[Contribution, ...]:
        """Every term over all kernels, the largest first."""
        sums: dict[str, Contribution] = {}
        for part in (part for pair in self.pairs for part in pair.contributions):
            known = sums.get(part.term.id, _total(part.term, 0.0)).log_ratio
            sums[part.term.id] = _total(part.term, known + part.log_ratio)
        return tuple(sorted(sums.values(), key=lambda total: -abs(total.log_ratio)))

    def largest_of(self, term: Term) -> Contribution:
        """Return the part of a term in the kernel where it is largest, with its levels there."""
        parts = (part for pair in self.pairs for part in pair.contributions if part.term == term)
        return max(parts, key=lambda part: abs(part.log_ratio))

    def towards(self, log_ratio: float) -> list[Contribution]:
        """Return the terms of the sign of a log ratio, the largest first."""
        return [each for each in self.totals if each.log_ratio * log_ratio > 0]

    @property
    def denied(self) -> dict[str, str]:
        """Why causes that grew in a kernel are none there, by their ids."""
        return {name: why for pair in self.pairs for name, why in pair.denied.items()}

    @property
    def confidence(self) -> Confidence:
        """How sure the first cause is; high: held-out answers like it were right in 95 %."""
        if self.tested is not None:
            return self.tested
        if self.totals and self.log_ratio != 0 and self.untold is None and self.probability > 0:
            return "high"
        pieces = self.untold is not None and self.untold.reason == "pieces"
        return "medium" if self.probability >= load_model()["medium"] and not pieces else "low"

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
        return pd.DataFrame(rows, columns=list(TermRow.keys))

    @cached_property
    def by_kernel(self) -> Annotated[pd.DataFrame, KernelTermRow]:
        """One `KernelTermRow` a term of a pair, in launch order."""
        rows = [
            (pair.kernels, pair.resource, term.id, term.label, one.baseline, one.target, value)
            for pair in self.pairs
            for one in pair.contributions
            for term, value in ((one.term, one.log_ratio),)
        ]
        return pd.DataFrame(rows, columns=list(KernelTermRow.keys))

    @property
    def largest(self) -> list[Contribution]:
        """Those of `totals` that are large enough to be listed."""
        return [total for total in self.totals if abs(total.log_ratio) >= _LISTED]

    @property
    def largest_by_kernel(self) -> Annotated[pd.DataFrame, KernelTermRow]:
        """Those of `by_kernel` that are large enough to be listed, the largest first."""
        size = self.by_kernel["log_ratio"].abs()
        order = size[size >= _LISTED].sort_values(ascending=False, kind="stable").index
        return self.by_kernel.loc[order]

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The short list: the log ratio of every kind of term, the largest first."""
        sums: dict[Kind, float] = {}
        for total in self.totals:
            sums[total.term.kind] = sums.get(total.term.kind, 0.0) + total.log_ratio
        return dict(sorted(sums.items(), key=lambda entry: -abs(entry[1])))

    JSON: ClassVar = (
        *("log_ratio", "terms", "by_kernel", "by_kind", "missing", "confidence"),
        *("probability", "untold", "denied"),
    )
    to_dict = json_object


SMALL = 0.1  # a cause below a tenth of the largest one is not named


def sided_causes(
    time: Ratio, causes: Causes
) -> tuple[Sequence[Contribution], Sequence[Contribution]]:
    """Return the causes that speak for the measured difference, and those against it."""
    # Those that are small beside the largest are left out, and all where nothing differs.
    if time.slower is None or not causes.totals:
        return (), ()
    sign = 1.0 if time.log_ratio > 0 else -1.0
    towards = [(total, sign * total.log_ratio) for total in causes.totals]
    limit = SMALL * max(abs(value) for _, value in towards)
    return (
        [total for total, value in towards if value > limit],
        [total for total, value in towards if value < -limit],
    )
