"""The rule: worse, better, same or unclear, layer by layer and in all.

Sides on two kinds of GPU are not comparable. Else per layer, with the tolerances of a `Policy`:

1. Some counter of work grew and none fell: worse, unless the time fell by more than two processes
   of one program differ. One fell and none grew: better, or slower where the time rose.
2. Some grew and some fell, as with tiling: the time decides if its interval is clear.
3. None changed: the same. A time that rose is slower on the clock (`Verdict.SLOWER`) where two
   processes of one program never differ so much, unclear where they rarely do.
4. A counter that too few repeats have, or on which they do not agree, is neither equal nor hidden:
   without a counter that grew, nobody can tell.
5. Without counted instructions the times decide alone, and the answer says so.

At another clock times are left out of it; without more work the layer is then not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from perfml.account.time_sources import not_comparable, time_notes
from perfml.explain.compared import align_layers
from perfml.explain.times import (
    OVERLAP,
    SAME_WORK,
    Ratio,
    compare_times,
    may_overlap,
    processes_of,
    without_verdict,
)
from perfml.gate.conditions import (
    other_clock,
    other_device,
    require_one_condition,
    times_go_together,
)
from perfml.gate.exit_codes import EXIT_CODES, ExitCode, Verdict
from perfml.gate.policy import Policy
from perfml.gate.work import COUNTED, LAUNCHES, Outcome, WorkChange, work_changes
from perfml.metrics.sets import INSTRUCTIONS
from perfml.util.html import Shown
from perfml.util.json_values import json_object
from perfml.util.words import Readable

LAYER_SLOWER = 0.5
"""A layer that did the same work in one process a side is called slower beyond this. Of 18,413
layers in two processes each (``datasets/atlas/times.parquet``, an H200) 2 differed by more."""

NETWORK_LAYERS = 3
"""So many layers that all ran in both sides are a network, whose whole time is steadier than a
layer's: of 221 networks in two processes each none differed by more than 3.8 %, so that it is
called slower beyond `perfml.explain.times.SAME_WORK`."""


def layer_doubtful(layers: int) -> float:
    """Return by how much one of `layers` layers may be slower in another process of the program.

    In one of twenty pairs of processes the slowest of 1, 3, 10, 30 and 100 layers of the atlas'
    times is slower by 3.3, 6.1, 9.7, 15.6 and 24.4 %; the power law is fitted to these.

    Examples
    --------
    >>> [round(layer_doubtful(layers), 3) for layers in (1, 3, 10, 30, 100)]
    [0.035, 0.056, 0.094, 0.151, 0.254]
    """
    return float(0.035 * layers**0.43)


@dataclass(frozen=True)
class _Limits:
    """Shares by which a layer with equal work is slower, and doubtful; of one process a side."""

    slower: float
    doubtful: float


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
    verdict
        In all: the first of `Verdict` that a layer has.
    layers
        One entry a layer, in the baseline's order.
    only_baseline
        Layers of the baseline that the new side lacks.
    only_new
        Layers of the new side that the baseline lacks.
    time_notes
        What to know of times that come from under a profiler (`perfml.account.time_sources`).
    """

    verdict: Verdict
    layers: tuple[LayerVerdict, ...]
    only_baseline: tuple[str, ...]
    only_new: tuple[str, ...]
    time_notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the verdict in all."""
        return EXIT_CODES[self.verdict]

    JSON: ClassVar = (
        *("verdict", "exit_code", "layers", "only_baseline", "only_new", "time_notes"),
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
        title = f"{self.verdict}; layers: {', '.join(counts)}"
        return title, self.time_notes, frame, alone, ".layers"

    def of(self, verdict: Verdict) -> tuple[LayerVerdict, ...]:
        """Return the layers with a verdict."""
        return tuple(layer for layer in self.layers if layer.verdict is verdict)


def judge(baseline: pd.DataFrame, new: pd.DataFrame, policy: Policy | None = None) -> GateResult:
    """Judge a new version against a baseline.

    Layers tables are of one backend, precision, batch and device each; every row of a layer is a
    repeat. Raises `PerfmlError` if no layer of one side answers to one of the other, or a side
    holds several conditions.
    """
    for name, table in (("baseline", baseline), ("new", new)):
        require_one_condition(name, table)
    rules = policy or Policy()
    alignment = align_layers(baseline, new)
    names = [str(name) for name in alignment.pairs["layer"]]
    device = other_device(baseline, new)
    if device:
        layers = [LayerVerdict(name, Verdict.NOT_COMPARABLE, device) for name in names]
    else:
        before, after = (dict(iter(side.groupby("layer"))) for side in (baseline, new))
        pairs = zip(alignment.pairs["layer"], alignment.pairs["target_layer"], strict=True)
        sides = [(before[left], after[right]) for left, right in pairs]
        # a layer alone has to be slower by more than one of a network that is slower in all
        slower = SAME_WORK if _network_slower(sides, rules) else LAYER_SLOWER
        limits = _Limits(slower, layer_doubtful(len(sides)))
        unlike = not_comparable(("the baseline", baseline), ("the new version", new))
        layers = [
            _judge_layer(name, *side, rules, limits, unlike)
            for name, side in zip(names, sides, strict=True)
        ]
    verdicts = {layer.verdict for layer in layers}
    if alignment.only_baseline or alignment.only_target:
        # a layer without a partner was not compared, so nothing is known of it
        verdicts.add(Verdict.UNCLEAR)
    overall = next(verdict for verdict in Verdict if verdict in verdicts)
    notes = time_notes(("baseline", baseline), ("new version", new))
    return GateResult(overall, tuple(layers), alignment.only_baseline, alignment.only_target, notes)


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
        time = None if unlike else _time((before, after), policy)
        verdict, reason = _decide(work, _Clock(time), limits)
    odd = tuple(change.counter for change in changes if change.odd_repeats)
    return LayerVerdict(layer, verdict, reason, tuple(changed), time, work.counted, odd)


def _same_recording(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Return whether both sides hold the same measured numbers, row by row."""
    if len(before) != len(after) or before["time_us"].isna().all():
        return False
    names = ["time_us", *(name for name in COUNTED if name in before or name in after)]
    if not all(name in side for name in names for side in (before, after)):
        return False
    left, right = (side[names].to_numpy(dtype=float) for side in (before, after))
    return bool(np.array_equal(left, right, equal_nan=True))


def _counted(rows: pd.DataFrame) -> bool:
    return INSTRUCTIONS in rows and bool(rows[INSTRUCTIONS].notna().any())


def _time(sides: Sequence[pd.DataFrame], policy: Policy) -> Ratio | None:
    timed = [rows[rows["time_us"].notna()] for rows in sides]
    if any(rows.empty for rows in timed) or not times_go_together(*timed):
        return None
    ratio = compare_times(
        *(rows["time_us"] for rows in timed),
        baseline_process=processes_of(timed[0]),
        target_process=processes_of(timed[1]),
        tolerance=policy.time,
    )
    return without_verdict(ratio, OVERLAP) if any(map(may_overlap, timed)) else ratio


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


@dataclass(frozen=True)
class _Clock:
    """What the times of a layer tell."""

    ratio: Ratio | None

    @property
    def repeated(self) -> bool:
        """Whether there is an interval."""
        return self.ratio is not None and self.ratio.log_low is not None

    def moved(self, verdict: str, least: float = 0.0) -> bool:
        """Return whether the time rose or fell clearly; of one process a side, by so much more."""
        if self.ratio is None or not self.repeated or self.ratio.verdict != verdict:
            return False
        # several processes a side show by themselves how much they differ
        across = min(self.ratio.processes) > 1
        return across or bool(abs(self.ratio.log_ratio) > np.log1p(least))

    def single_beyond(self, share: float) -> bool:
        """Return whether times without repeats on both sides rose by more than a share."""
        if self.ratio is None or self.repeated:
            return False
        return bool(self.ratio.log_ratio > np.log1p(share))


def _decide(work: _Work, clock: _Clock, limits: _Limits) -> tuple[Verdict, str]:
    """Return the verdict of a layer and why, after the rule of this module."""
    more, less = work.first(Outcome.MORE), work.first(Outcome.LESS)
    if more and less:
        return _mixed(more, less, clock)
    if more:
        # how often a kernel is launched is how work is divided: there the time decides alone
        divided = all(change.counter == LAUNCHES for change in work.changed)
        if clock.moved("faster", 0.0 if divided else SAME_WORK):
            return Verdict.BETTER, f"{_words(more)}, and the time fell"
        return Verdict.WORSE, f"{_words(more)}{_confirmed(clock, 'slower')}"
    if work.unknown:
        return Verdict.UNCLEAR, work.unknown
    if less:
        if clock.moved("slower", SAME_WORK if work.counted else 0.0):
            return Verdict.SLOWER, f"{_words(less)}, and the time rose"
        return Verdict.BETTER, f"{_words(less)}{_confirmed(clock, 'faster')}"
    return _by_time(work, clock, limits)


def _mixed(more: WorkChange, less: WorkChange, clock: _Clock) -> tuple[Verdict, str]:
    words = f"mixed: {_words(more)} and {_words(less)}"
    if clock.moved("faster"):
        return Verdict.BETTER, f"{words}; the time fell"
    if clock.moved("slower"):
        return Verdict.WORSE, f"{words}; the time rose"
    return Verdict.UNCLEAR, f"{words}; the time does not tell"


def _by_time(work: _Work, clock: _Clock, limits: _Limits) -> tuple[Verdict, str]:
    """Judge a layer of which no counter changed."""
    basis = "with the same counted work" if work.counted else "and no instructions were counted"
    if clock.moved("slower", limits.slower):
        return Verdict.SLOWER, f"slower on the clock, {basis}"
    if clock.moved("slower", limits.doubtful):
        return Verdict.UNCLEAR, f"slower, {basis}: time several processes a side"
    if clock.single_beyond(limits.slower):
        return Verdict.UNCLEAR, f"slower in a single repeat, {basis}: time several"
    if work.counted:
        return Verdict.SAME, "the same counted work"
    if clock.moved("faster", limits.doubtful):
        return Verdict.BETTER, f"faster on the clock, {basis}"
    if clock.ratio is not None and clock.ratio.verdict == "no difference":
        return Verdict.SAME, "the times agree, and no instructions were counted"
    return Verdict.UNCLEAR, "no instructions were counted: collect with --metrics default"


def _network_slower(sides: Sequence[tuple[pd.DataFrame, pd.DataFrame]], policy: Policy) -> bool:
    """Return whether the layers together are slower by more than two processes differ."""
    if len(sides) < NETWORK_LAYERS or any(other_clock(*side) for side in sides):
        return False
    iterations = [_whole_iterations(layers) for layers in zip(*sides, strict=True)]
    return _Clock(_time(iterations, policy)).moved("slower", SAME_WORK)


def _whole_iterations(layers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the time of each iteration that has all layers, as rows of a table."""
    rows = pd.concat(layers)
    keys = [name for name in ("run_id", "process", "iteration") if name in rows]
    times = rows.groupby(keys, dropna=False)["time_us"]
    sums = times.sum()
    return sums[times.count() == len(layers)].reset_index()


def _words(change: WorkChange) -> str:
    if change.baseline.median == 0:
        return f"{change.counter}: {change.new.median:,.0f} where there were none"
    return f"{change.counter} {Readable(change.growth):+.1%}"


def _work_words(work: _Work) -> str:
    if work.changed:
        return _words(work.changed[0])
    return work.unknown or "the counted work is the same"


def _confirmed(clock: _Clock, verdict: str) -> str:
    if not clock.repeated:
        return ", with no repeated times to confirm it"
    if clock.moved(verdict):
        return ", confirmed by the time"
    against = {"slower": ("faster", "fell"), "faster": ("slower", "rose")}
    other, moved = against[verdict]
    return f", though the time {moved}" if clock.moved(other) else ", not seen in the time"
