"""What cannot be told: counters that are missing, and causes that stand too near to each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from perfml.explain.advice.persons import Person, person_of
from perfml.explain.confidence import NAMED
from perfml.explain.launches import Launch
from perfml.explain.tree.causes import Kind, Term
from perfml.metrics import HOPPER, load_catalogue
from perfml.util.json_values import json_object

_SECTIONS = (
    ("smsp__warp_issue_stalled", "WarpStateStats"),
    ("smsp__average_warp", "WarpStateStats"),
    ("smsp__thread_inst_executed_per", "WarpStateStats"),
    ("smsp__inst_executed_op_", "MemoryWorkloadAnalysis_Tables"),
    ("smsp__sass_average_data_bytes", "MemoryWorkloadAnalysis_Tables"),
    ("l1tex__", "MemoryWorkloadAnalysis_Tables"),
    ("lts__", "MemoryWorkloadAnalysis_Tables"),
    ("dram__", "MemoryWorkloadAnalysis_Tables"),
    ("launch__occupancy", "Occupancy"),
    ("launch__", "LaunchStats"),
    ("sm__warps_active", "Occupancy"),
    ("sm__maximum_warps", "Occupancy"),
    ("sm__cycles_active", "WorkloadDistribution"),
    ("sm__pipe", "ComputeWorkloadAnalysis"),
    ("sm__inst_", "ComputeWorkloadAnalysis"),
    ("smsp__inst_executed.", "InstructionStats"),
)
"""Beginning of the name of a counter, and the section of Nsight Compute that collects it, by the
section files of 2025."""


class Reason(StrEnum):
    """Why the first cause is not certain."""

    COUNTERS = "counters"
    """Counters of another cause of the same limit were not collected."""
    RIVAL = "rival"
    """A cause under another limit is nearly as large."""
    LIMIT = "limit"
    """No limit of the slow side is near its ceiling."""
    REST = "rest"
    """Much of the difference is in no limit that was counted."""
    SMALL = "small"
    """The sides differ by no more than counters do between runs."""
    PAIRING = "pairing"
    """Which kernels answer to each other is a guess, or who runs them did not write them."""
    PIECES = "pieces"
    """Ranges within the layer hold what differs, and the other side lacks them."""


@dataclass(frozen=True)
class Untold:
    """What the answer may be instead, and what would tell.

    Attributes
    ----------
    causes
        Other causes that it may be, the likeliest first.
    instead_of
        The cause that stands first.
    metrics
        Counters that would tell and were not collected.
    sections
        Sections of Nsight Compute that collect these.
    collect
        The set of perfml's ``collect --metrics`` that holds them.
    share
        How much of the difference the first cause holds.
    reason
        Why it is not certain.
    why
        The same for people; empty where counters are missing.
    check
        What to look at, or to run, that tells them apart; empty where it is what to collect.
    """

    causes: tuple[Term, ...]
    instead_of: Term
    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    collect: str = ""
    share: float = 0.0
    reason: Reason = Reason.COUNTERS
    why: str = ""
    check: str = ""

    def sentence(self) -> str:
        """Say it in words."""
        names = [_short(term) for term in self.causes[:NAMED]]
        more = len(self.causes) - len(names)
        others = " or ".join(names) + (f" ({more} more)" if more > 0 else "")
        first = "the rest" if self.instead_of.residual else _short(self.instead_of)
        if not self.causes:
            return f"cannot be certain of {first}: " + "; ".join(
                filter(None, (self.why, self.check))
            )
        said = filter(None, (self.why, self.what_tells()))
        return f"cannot tell {others} from {first}: {'; '.join(said)}"

    def what_tells(self) -> str:
        """Say what to collect, look at or run, that would settle it; empty where nothing would."""
        if not self.metrics:
            return self.check
        where = f"section {' and '.join(self.sections)}; " if self.sections else ""
        wanted = f"collect {', '.join(self.metrics)}"
        return f"{wanted} ({where}perfml collect --metrics {self.collect})"

    JSON: ClassVar = (
        *("causes", "instead_of", "metrics", "sections", "collect", "share", "reason", "check"),
        "sentence",
    )
    to_dict = json_object


_BATCH = "run it with twice the batch: less than twice the time if the GPU was not full"
_WAITS = "section SourceCounters shows at which instructions warps wait"


def resolved_by(term: Term, kernel: str = "") -> str:
    """Return what tells whether a cause is the one.

    Parameters
    ----------
    term
        The cause.
    kernel
        Its name: who calls a library's kernel cannot launch it in another way.
    """
    if not term.author_only or person_of(kernel) is Person.AUTHOR:
        return term.resolved_by
    return _BATCH if term.kind in (Kind.OCCUPANCY, Kind.WAVES) else _WAITS


def missing_counters(causes: Iterable[Term], *launches: Launch) -> tuple[str, ...]:
    """Return the counters of some causes that were not collected, each once."""
    names = dict.fromkeys(name for term in causes for name in term.evidence)
    return tuple(name for name in names if not all(is_collected(name, one) for one in launches))


def is_proven(term: Term, *launches: Launch) -> bool:
    """Return whether the counters of a term were collected."""
    for names in (term.evidence, term.or_evidence):
        if names or term.residual:
            for name in names:
                if not all(is_collected(name, launch) for launch in launches):
                    break
            else:
                return True
    return False


def is_collected(name: str, launch: Launch) -> bool:
    """Return whether a counter was collected; one that means nothing for a launch was."""
    if name == "time_us":
        return True
    value = launch.counters.get(name)
    if value is None:
        return False
    if not math.isnan(value):
        return True
    catalogue = load_catalogue()
    if name not in catalogue:
        return False
    return catalogue[name].zero_undefined or catalogue[name].guard is not None


def sections_of(names: Iterable[str]) -> Iterable[str]:
    """Yield the sections of Nsight Compute that collect the counters of some metrics."""
    catalogue = load_catalogue()
    for name in names:
        formula = catalogue[name].ncu if name in catalogue else None
        for counter in () if formula is None else formula.names:
            found = [section for start, section in _SECTIONS if counter.startswith(start)]
            yield from found[:1]


def set_of(names: Iterable[str]) -> str:
    """Return the set of ``perfml collect --metrics`` that holds some counters."""
    only_hopper = [name for name in names if name in HOPPER]
    if only_hopper:
        return " --metrics ".join(only_hopper)
    held = set(load_catalogue().computable(["default"]))
    return "default" if set(names) <= held else "causes"


def _short(term: Term) -> str:
    label = term.label.removeprefix("work: ")
    return label if term.id.startswith("stall_") else label.partition(" (")[0]
