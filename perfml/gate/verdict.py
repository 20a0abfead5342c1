"""The rule: worse, better, same or unclear, layer by layer and in all.

Sides on two kinds of GPU are not comparable. Else per layer, with the tolerances of a `Policy`:

1. Some counter of work grew and none fell: worse, unless the time fell by more than two processes
   of one program differ. One fell and none grew: better, or slower where the time rose. A time
   without repeats that says the opposite leaves it unclear.
2. Some grew and some fell, as with tiling: the time decides if its interval is clear.
3. None changed: the same. A time that rose is slower on the clock (`Verdict.SLOWER`) where two
   processes of one program never differ so much, unclear where they rarely do. Three layers or
   more are judged together too, since their whole time is steadier.
4. A counter that too few repeats have, or on which they do not agree, is neither equal nor hidden:
   without a counter that grew, nobody can tell.
5. Without counted instructions the times decide alone, and the answer says so.

At another clock times are left out of it; without more work the layer is then not comparable.
Launches outside every layer are one layer more (`OUTSIDE`). What has no partner is not compared, so
that nobody can tell of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from perfml.account.time_sources import not_comparable, time_notes
from perfml.errors import PerfmlError
from perfml.explain.compared import Alignment, align_layers
from perfml.explain.times import SAME_WORK, Ratio
from perfml.gate.clock import (
    LAYER_SLOWER,
    NETWORK_LAYERS,
    Clock,
    layer_doubtful,
    layer_ratio,
    other_clock,
    other_conditions,
    recorded_longer,
    require_counts,
    require_one_condition,
    whole_ratio,
)
from perfml.gate.policy import EXIT_CODES, ExitCode, Policy, Verdict
from perfml.gate.work import COUNTED, LAUNCHES, Outcome, WorkChange, work_changes
from perfml.metrics.sets import INSTRUCTIONS
from perfml.util.json_values import json_object
from perfml.util.shown import Shown
from perfml.util.words import Readable, ratio_text

OUTSIDE = "(outside every layer)"
"""Name of the layer that launches without a layer make up."""

ALL = "(all layers)"
"""Name of what the verdict in all is of."""


_ONCE = "a single repeat gives no interval: record several (10 steps, or ncu --launch-count 10)"
"""What is said where times without an interval leave a verdict open."""

_OF_CLOCK = {
    "slower": Verdict.SLOWER,
    "faster": Verdict.BETTER,
    "no difference": Verdict.SAME,
    "undecided": Verdict.UNCLEAR,
}


@dataclass(frozen=True)
class _Limits:
    """Shares by which a layer with equal work is slower, and doubtful; of one process a side."""

    slower: float
    doubtful: float
    single: float  # beyond which times without repeats are doubtful


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
        Ratio of the times, or None where a side has none or they cannot be compared.
    counted
        Whether counted instructions of both sides were compared; else only times were.
    odd_repeats
        Counters of which a repeat lies apart from the others.
    """

    layer: str
    verdict: Verdict
    reason: str
    changed: tuple[WorkChange, ...] = ()
    time: Ratio | None = None
    counted: bool = False
    odd_repeats: tuple[str, ...] = ()

    JSON: ClassVar = ("layer", "verdict", "reason", "changed", "time")
    to_dict = json_object


@dataclass(frozen=True, repr=False)
class GateResult(Shown):
    """What the gate says of two tables.

    Attributes
    ----------
    overall
        The verdict in all: the first of `Verdict` that a layer has, or that their times have
        together; with the ratio of the whole times.
    layers
        One entry a layer, in the baseline's order.
    only_baseline
        Layers of the baseline that the new side lacks.
    only_new
        Layers of the new side that the baseline lacks.
    time_notes
        What to know of times: those from under a profiler (`perfml.account.time_sources`).
    """

    overall: LayerVerdict
    layers: tuple[LayerVerdict, ...]
    only_baseline: tuple[str, ...]
    only_new: tuple[str, ...]
    time_notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return the verdict in all."""
        return self.overall.verdict

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the verdict in all."""
        return EXIT_CODES[self.verdict]

    JSON: ClassVar = (
        *("verdict", "exit_code", ("reason", "overall.reason"), ("time", "overall.time")),
        *("layers", "only_baseline", "only_new", "time_notes"),
    )
    to_dict = json_object

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the verdict and the layers, those that changed first."""
        others = [verdict for verdict in Verdict if verdict is not Verdict.SAME]
        rows = [
            (layer.layer, str(layer.verdict), layer.time and layer.time.ratio, layer.reason)
            for verdict in (*others, Verdict.SAME)
            for layer in self.of(verdict)
        ]
        frame = pd.DataFrame(rows, columns=["layer", "verdict", "time ratio", "reason"])
        counts = [f"{len(self.of(each))} {each}" for each in Verdict if self.of(each)]
        alone = [
            f"Only in {side}, not compared: {', '.join(names)}."
            for side, names in (
                ("the baseline", self.only_baseline),
                ("the new version", self.only_new),
            )
            if names
        ]
        whole = self.overall.time
        time = "" if whole is None else f", time {whole.of_what} ×{ratio_text(whole.ratio)}"
        title = f"{self.verdict}{time}; layers: {', '.join(counts) or 'none compared'}"
        return title, self.time_notes, frame, alone, ".layers"

    def of(self, verdict: Verdict) -> tuple[LayerVerdict, ...]:
        """Return the layers with a verdict."""
        return tuple(layer for layer in self.layers if layer.verdict is verdict)


def judge(
    baseline: pd.DataFrame,
    new: pd.DataFrame,
    policy: Policy | None = None,
    clock: Ratio | None = None,
) -> GateResult:
    """Judge a new version against a baseline.

    Layers tables are of one backend, precision, batch and device each; every row of a layer is a
    repeat. `clock` is what a step takes, where that is known: sums of kernels say less. Raises
    `PerfmlError` if a side holds several conditions, or a count that is negative.
    """
    for name, table in (("baseline", baseline), ("new", new)):
        require_one_condition(name, table)
        require_counts(name, table)
    rules = policy or Policy()
    alignment = layer_alignment(baseline, new)
    names = alignment.names
    other = other_conditions(baseline, new)
    notes = time_notes(("baseline", baseline), ("new version", new))
    longer = recorded_longer(baseline, new)
    if longer != 1:
        summed = [name for name in ("time_us", *COUNTED) if name in new]
        new = new.assign(**{name: new[name] / longer for name in summed})
        often = f"every kernel is launched {longer:.3g} times as often"
        notes = (*notes, f"{often}: times and counts are of as many launches")
    if other:
        layers = [LayerVerdict(name, Verdict.NOT_COMPARABLE, other) for name, _ in names]
        overall = LayerVerdict(ALL, Verdict.NOT_COMPARABLE, other)
    else:
        before, after = (dict(iter(side.groupby("layer"))) for side in (baseline, new))
        sides = [(before[left], after[right]) for left, right in names]
        unlike = not_comparable(("the baseline", baseline), ("the new version", new))
        network = Clock(None if unlike else _network_ratio(sides, rules))
        limits = _limits(len(sides), network)
        layers = [
            _judge_layer(name, *side, rules, limits, unlike)
            for (name, _), side in zip(names, sides, strict=True)
        ]
        whole = None if unlike else clock or whole_ratio(baseline, new, rules)
        overall = _in_all(alignment, layers, Clock(clock) if clock else network, whole)
        if clock is not None and not any(each.counted for each in layers):
            reason = f"by the clock, as no instructions were counted: {clock.verdict}"
            overall = LayerVerdict(ALL, _OF_CLOCK[clock.verdict], reason, time=clock)
    return GateResult(overall, tuple(layers), alignment.only_baseline, alignment.only_target, notes)


def layer_alignment(baseline: pd.DataFrame, new: pd.DataFrame) -> Alignment:
    """Return which layers answer to each other; what is outside of them does by its name alone."""
    within = [side[side["layer"] != OUTSIDE] for side in (baseline, new)]
    outside = [
        len(inside) < len(side) for inside, side in zip(within, (baseline, new), strict=True)
    ]
    try:
        known = align_layers(*within)
    except PerfmlError:
        # no layer answers to one of the other side: nobody can tell
        left, right = (tuple(map(str, side["layer"].dropna().unique())) for side in within)
        known = Alignment(pd.DataFrame(columns=["layer", "target_layer"]), left, right)
    if all(outside):
        pair = pd.DataFrame({"layer": [OUTSIDE], "target_layer": [OUTSIDE]})
        return replace(known, pairs=pd.concat([known.pairs, pair], ignore_index=True))
    alone = [(OUTSIDE,) if lies else () for lies in outside]
    return replace(
        known,
        only_baseline=(*known.only_baseline, *alone[0]),
        only_target=(*known.only_target, *alone[1]),
    )


def _network_ratio(
    sides: Sequence[tuple[pd.DataFrame, pd.DataFrame]], policy: Policy
) -> Ratio | None:
    """Return the ratio of the whole times of the layers that both sides have, if they are many."""
    if len(sides) < NETWORK_LAYERS or any(other_clock(*side) for side in sides):
        return None
    before, after = (pd.concat(rows) for rows in zip(*sides, strict=True))
    return whole_ratio(before, after, policy)


def _limits(layers: int, network: Clock) -> _Limits:
    # a layer alone has to be slower by more than one of a network that is slower in all
    slower = SAME_WORK if network.moved("slower", SAME_WORK) else LAYER_SLOWER
    doubtful = layer_doubtful(layers)
    single = min(doubtful, SAME_WORK) if network.single_beyond(SAME_WORK) else doubtful
    return _Limits(slower, doubtful, single)


def _in_all(
    alignment: Alignment,
    layers: Sequence[LayerVerdict],
    network: Clock,
    whole: Ratio | None,
) -> LayerVerdict:
    """Return the verdict in all, with a reason where no layer has one for it."""
    reasons: dict[Verdict, str] = {}
    if network.moved("slower", SAME_WORK):
        reasons[Verdict.SLOWER] = "slower in all on the clock, though no layer alone is"
    if alignment.only_baseline or alignment.only_target:
        # a layer without a partner was not compared, so nothing is known of it
        reasons[Verdict.UNCLEAR] = "layers without a partner were not compared"
    if not layers:
        reasons[Verdict.UNCLEAR] = (
            "no layer of one side answers to a layer of the other: use the same range names"
        )
    if network.single_beyond(SAME_WORK):
        reasons[Verdict.UNCLEAR] = f"slower in all; {_ONCE}"
    known = {layer.verdict for layer in layers}
    verdict = next(verdict for verdict in Verdict if verdict in known or verdict in reasons)
    reason = reasons.get(verdict, "") if verdict not in known else ""
    return LayerVerdict(ALL, verdict, reason, time=whole)


def _judge_layer(
    layer: str,
    before: pd.DataFrame,
    after: pd.DataFrame,
    policy: Policy,
    limits: _Limits,
    unlike: str,
) -> LayerVerdict:
    if _same_recording(before, after):
        return LayerVerdict(layer, Verdict.SAME, "the same recording", counted=_counted(before))
    changes = work_changes(before, after, policy.work_of(layer))
    changed = sorted(
        (change for change in changes if change.outcome in (Outcome.MORE, Outcome.LESS)),
        key=lambda change: -abs(change.growth),
    )
    work = _Work(changes, changed)
    clock = other_clock(before, after)
    if clock:
        time = None
        only_more = work.first(Outcome.MORE) and not work.first(Outcome.LESS)
        verdict = Verdict.WORSE if only_more else Verdict.NOT_COMPARABLE
        reason = f"{_work_words(work)}; {clock}"
    elif unlike and not work.counted:
        # a profiler of counters measures the launches that it was asked for
        return LayerVerdict(layer, Verdict.UNCLEAR, unlike)
    else:
        time = None if unlike else layer_ratio(before, after, policy)
        verdict, reason = _decide(work, Clock(time), limits)
        if verdict is Verdict.UNCLEAR and Clock(time).single:
            reason = f"{reason}; {_ONCE}"
    odd = tuple(change.counter for change in changes if change.odd_repeats)
    return LayerVerdict(layer, verdict, reason, tuple(changed), time, work.counted, odd)


def _same_recording(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Return whether both sides hold the same measured numbers, row by row."""
    if len(before) != len(after) or before["time_us"].isna().all():
        return False
    names = ["time_us", *(name for name in COUNTED if name in before or name in after)]
    if not all(name in side for name in names for side in (before, after)):
        return False
    launched = [side["kernel_names"].tolist() for side in (before, after) if "kernel_names" in side]
    if len(launched) == 2 and launched[0] != launched[1]:
        return False  # one of them was recorded for longer
    left, right = (side[names].to_numpy(dtype=float) for side in (before, after))
    return bool(np.array_equal(left, right, equal_nan=True))


def _counted(rows: pd.DataFrame) -> bool:
    return INSTRUCTIONS in rows and bool(rows[INSTRUCTIONS].notna().any())


@dataclass(frozen=True)
class _Work:
    """What became of the counters of a layer."""

    changes: Sequence[WorkChange]
    changed: Sequence[WorkChange]

    def first(self, outcome: Outcome) -> WorkChange | None:
        """Return the counter that changed most in one direction."""
        return next((change for change in self.changed if change.outcome is outcome), None)

    @property
    def unknown(self) -> str:
        """Why nobody can tell of the first counter of which nobody can; empty if there is none."""
        return next((change.unknown for change in self.changes if change.unknown), "")

    @property
    def counted(self) -> bool:
        """Whether instructions were compared: without them, equal work is not known."""
        return any(
            change.counter == INSTRUCTIONS and change.outcome is not Outcome.UNKNOWN
            for change in self.changes
        )


def _decide(work: _Work, clock: Clock, limits: _Limits) -> tuple[Verdict, str]:
    """Return the verdict of a layer and why, after the rule of this module."""
    more, less = work.first(Outcome.MORE), work.first(Outcome.LESS)
    # how often a kernel is launched is how work is divided: it says nothing against the time
    divided = bool(work.changed) and all(each.counter == LAUNCHES for each in work.changed)
    rises = clock.moved("slower") or clock.single_beyond(limits.single)
    faster = clock.moved("faster", 0.0 if divided else SAME_WORK)
    if divided and more and clock.ratio is not None and not (rises or faster):
        return _by_time(work, clock, limits)
    if more and less:
        return _mixed(more, less, clock)
    if more:
        if faster:
            return Verdict.BETTER, f"{_words(more)}, and the time fell"
        if clock.single_beyond(limits.single, "faster"):
            return Verdict.UNCLEAR, f"{_words(more)}, yet faster"
        return Verdict.WORSE, f"{_words(more)}{_confirmed(clock, 'slower')}"
    if work.unknown:
        return Verdict.UNCLEAR, work.unknown
    if less:
        if clock.moved("slower", SAME_WORK if work.counted else 0.0):
            return Verdict.SLOWER, f"{_words(less)}, and the time rose"
        if clock.single_beyond(limits.single):
            return Verdict.UNCLEAR, f"{_words(less)}, yet slower"
        return Verdict.BETTER, f"{_words(less)}{_confirmed(clock, 'faster')}"
    return _by_time(work, clock, limits)


def _mixed(more: WorkChange, less: WorkChange, clock: Clock) -> tuple[Verdict, str]:
    words = f"mixed: {_words(more)} and {_words(less)}"
    if clock.moved("faster"):
        return Verdict.BETTER, f"{words}; the time fell"
    if clock.moved("slower"):
        return Verdict.WORSE, f"{words}; the time rose"
    return Verdict.UNCLEAR, f"{words}; the time does not tell"


def _by_time(work: _Work, clock: Clock, limits: _Limits) -> tuple[Verdict, str]:
    """Judge a layer of which no counter changed."""
    basis = "with the same counted work" if work.counted else "and no instructions were counted"
    if clock.moved("slower", limits.slower):
        return Verdict.SLOWER, f"slower on the clock, {basis}"
    if clock.moved("slower", limits.doubtful):
        return Verdict.UNCLEAR, f"slower, {basis}: time several processes a side"
    if clock.single_beyond(limits.single):
        return Verdict.UNCLEAR, f"slower, {basis}"
    if work.counted:
        return Verdict.SAME, "the same counted work"
    if clock.moved("faster", limits.doubtful):
        return Verdict.BETTER, f"faster on the clock, {basis}"
    if clock.ratio is not None and clock.ratio.verdict == "no difference":
        return Verdict.SAME, "the times agree, and no instructions were counted"
    return Verdict.UNCLEAR, "no instructions were counted: collect with --metrics default"


def _words(change: WorkChange) -> str:
    if change.baseline.median == 0:
        return f"{change.counter}: {change.new.median:,.0f} where there were none"
    return f"{change.counter} {Readable(change.growth):+.1%}"


def _work_words(work: _Work) -> str:
    if work.changed:
        return _words(work.changed[0])
    return work.unknown or "the counted work is the same"


def _confirmed(clock: Clock, verdict: str) -> str:
    if not clock.repeated:
        return ", with no repeated times to confirm it"
    if clock.moved(verdict):
        return ", confirmed by the time"
    against = {"slower": ("faster", "fell"), "faster": ("slower", "rose")}
    other, moved = against[verdict]
    return f", though the time {moved}" if clock.moved(other) else ", not seen in the time"
