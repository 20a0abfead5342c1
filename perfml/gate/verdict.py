"""The rule: worse, better, same or unclear, layer by layer and in all.

Per layer, with the tolerances of a `Policy`:

1. A counter of work grew and none fell: worse. One fell and none grew: better.
2. None changed: same, if enough of them were collected. A time that rose beyond its own interval
   with equal work is unclear: another clock, another occupancy, another machine.
3. Some grew and some fell, or work grew and the time fell (or the other way round): the time
   decides if its interval is clear, else it is unclear. More instructions that run faster are
   what tiling does.

In all: worse if a layer is worse; else unclear if one is; else better if one is; else same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.explain.align import align_layers
from perfml.explain.results import Ratio
from perfml.explain.times import (
    OVERLAP,
    compare_times,
    may_overlap,
    processes_of,
    without_verdict,
)
from perfml.gate.policy import Policy
from perfml.gate.work import FEW, LAUNCHES, WorkChange, work_changes
from perfml.time_sources import not_comparable, time_notes
from perfml.util.words import Readable


class Verdict(StrEnum):
    """What the gate says."""

    WORSE = "worse"
    UNCLEAR = "cannot tell"
    BETTER = "better"
    SAME = "same"


EXIT_CODES = {Verdict.SAME: 0, Verdict.BETTER: 0, Verdict.WORSE: 1, Verdict.UNCLEAR: 3}
"""Exit code of the command a verdict."""


@dataclass(frozen=True)
class LayerVerdict:
    """The verdict on one layer.

    Attributes
    ----------
    layer
        Its name on the baseline's side.
    verdict
        What the gate says of it.
    reason
        Why, as one sentence.
    changed
        Counters that changed by more than is tolerated, the largest change first.
    time
        Ratio of the times, or None where a side has none.
    """

    layer: str
    verdict: Verdict
    reason: str
    changed: tuple[WorkChange, ...]
    time: Ratio | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; a counter that was 0 before has no growth."""
        return {
            "layer": self.layer,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "changed": [
                {
                    "counter": change.counter,
                    "baseline": change.baseline,
                    "new": change.new,
                    "growth": change.growth if change.baseline else None,
                }
                for change in self.changed
            ],
            "time": None if self.time is None else self.time.to_dict(),
        }


@dataclass(frozen=True)
class GateResult:
    """What the gate says of two tables.

    Attributes
    ----------
    verdict
        In all.
    layers
        One entry a layer, in the baseline's order.
    missing
        Layers of the baseline that the new side lacks.
    added
        Layers of the new side that the baseline lacks.
    time_notes
        What to know of times that come from under a profiler (`perfml.time_sources`).
    """

    verdict: Verdict
    layers: tuple[LayerVerdict, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]
    time_notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 0 for same or better, 1 for worse, 3 for unclear."""
        return EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "verdict": self.verdict.value,
            "exit_code": self.exit_code,
            "layers": [layer.to_dict() for layer in self.layers],
            "only_baseline": list(self.missing),
            "only_new": list(self.added),
            "time_notes": list(self.time_notes),
        }

    def of(self, verdict: Verdict) -> tuple[LayerVerdict, ...]:
        """Return the layers with a verdict."""
        return tuple(layer for layer in self.layers if layer.verdict is verdict)


def judge(baseline: pd.DataFrame, new: pd.DataFrame, policy: Policy | None = None) -> GateResult:
    """Judge a new version against a baseline.

    Parameters
    ----------
    baseline, new
        Layers tables of one backend, precision and batch each; every row of a layer is a repeat.
    policy
        Tolerances; those of `Policy` without.

    Raises
    ------
    PerfmlError
        If no layer of one side answers to one of the other, or a side holds several backends,
        precisions or batches.
    """
    rules = policy or Policy()
    for name, table in (("baseline", baseline), ("new", new)):
        _one_condition(name, table)
    alignment = align_layers(baseline, new)
    unlike = not_comparable(("the baseline", baseline), ("the new version", new))
    layers = tuple(
        _judge_layer(
            str(pair["layer"]),
            baseline[baseline["layer"] == pair["layer"]],
            new[new["layer"] == pair["target_layer"]],
            rules,
            unlike,
        )
        for pair in alignment.pairs.to_dict(orient="records")
    )
    verdicts = {layer.verdict for layer in layers}
    if alignment.only_baseline or alignment.only_target:
        # a layer without a partner was not compared, so nothing is known of it
        verdicts.add(Verdict.UNCLEAR)
    overall = next(verdict for verdict in Verdict if verdict in verdicts)
    notes = time_notes(("baseline", baseline), ("new version", new))
    return GateResult(overall, layers, alignment.only_baseline, alignment.only_target, notes)


def _one_condition(name: str, table: pd.DataFrame) -> None:
    for column in ("backend", "precision", "batch"):
        values = sorted(map(str, table[column].dropna().unique()))
        if len(values) > 1:
            msg = f"the {name} side holds several values of {column}"
            raise PerfmlError(
                msg,
                found=", ".join(values[:6]),
                cure=f"Keep one, such as: --where {column}={values[0]}",
            )


def _judge_layer(
    layer: str, before: pd.DataFrame, after: pd.DataFrame, policy: Policy, unlike: str
) -> LayerVerdict:
    changes = work_changes(before, after)
    tolerance = policy.work_of(layer)
    changed = sorted(
        (change for change in changes if change.beyond(tolerance)),
        key=lambda change: -abs(change.growth),
    )
    counters = [change for change in changes if change.counter != LAUNCHES]
    if unlike and len(counters) < FEW:
        # a profiler of counters measures the launches that it was asked for
        return LayerVerdict(layer, Verdict.UNCLEAR, unlike, (), None)
    time = None if unlike else _time(before, after, policy)
    verdict, reason = _decide(changed, time, enough=len(counters) >= FEW)
    return LayerVerdict(layer, verdict, reason, tuple(changed), time)


def _time(before: pd.DataFrame, after: pd.DataFrame, policy: Policy) -> Ratio | None:
    timed = [rows[rows["time_us"].notna()] for rows in (before, after)]
    if any(rows.empty for rows in timed):
        return None
    ratio = compare_times(
        *(rows["time_us"] for rows in timed),
        baseline_process=processes_of(timed[0]),
        target_process=processes_of(timed[1]),
        tolerance=policy.time,
    )
    return without_verdict(ratio, OVERLAP) if any(map(may_overlap, timed)) else ratio


def _decide(changed: list[WorkChange], time: Ratio | None, *, enough: bool) -> tuple[Verdict, str]:
    """Return the verdict of a layer and why, after the rule of this module."""
    repeated = time is not None and time.log_low is not None
    slower = repeated and time is not None and time.verdict == "slower"
    faster = repeated and time is not None and time.verdict == "faster"
    if not changed:
        if slower:
            return Verdict.UNCLEAR, "slower with the same counted work: measure both sides again"
        if not enough:
            return Verdict.UNCLEAR, "too few counters of work: collect with --metrics default"
        return Verdict.SAME, "the same counted work"
    grew = [change for change in changed if change.growth > 0]
    fell = [change for change in changed if change.growth < 0]
    if grew and not fell and not faster:
        return Verdict.WORSE, f"{_words(grew[0])}{_confirmed(slower, repeated=repeated)}"
    if fell and not grew and not slower:
        return Verdict.BETTER, f"{_words(fell[0])}{_confirmed(faster, repeated=repeated)}"
    traded = f"{_words(changed[0])}, and the time "
    if faster:
        return Verdict.BETTER, f"{traded}fell"
    if slower:
        return Verdict.WORSE, f"{traded}rose"
    return Verdict.UNCLEAR, f"{_words(grew[0])} and {_words(fell[0])}; the time does not tell"


def _words(change: WorkChange) -> str:
    if change.baseline == 0:
        return f"{change.counter}: {change.new:,.0f} where there were none"
    return f"{change.counter} {Readable(change.growth):+.1%}"


def _confirmed(confirmed: bool, *, repeated: bool) -> str:
    if not repeated:
        return ", without repeats by which the time could confirm it"
    return ", confirmed by the time" if confirmed else ", not seen in the time"
