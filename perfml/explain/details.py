"""One layer of two sides in detail: what counters and a model say of it.

A layer's time is what its device was busy with it. Counters speak of single launches, so that

    layer = launches x time of one launch x (busy / sum of the kernels' times)

and the first and the last factor are causes of their own, ``launch_count`` and ``side_by_side``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml.account.time_sources import only_kernels
from perfml.experiments.responses import Responses
from perfml.experiments.verdicts import Finding, claimed_of, examine
from perfml.explain.advice.finding import Gain
from perfml.explain.advice.first_fix import actions_of, first_fix, numbers_on_both, on_side
from perfml.explain.advice.measured import confidence_by
from perfml.explain.changed_metrics import ModelAttribution, compare_metrics, sort_metrics
from perfml.explain.compared import Launched, Side, same_device
from perfml.explain.confidence import MOST
from perfml.explain.launches import (
    Change,
    Launch,
    Launches,
    LaunchReader,
    changes_between,
    changes_table,
    launches_table,
    merged_launch,
)
from perfml.explain.results import LayerDiff
from perfml.explain.times import Ratio, compare_times
from perfml.explain.tree.causes import ONE_SIDED, TERMS, Contribution
from perfml.explain.tree.layer import kernel_causes, layer_causes
from perfml.explain.tree.layer_causes import Causes, PairCauses, Untold
from perfml.util.findings import Remark
from perfml.util.words import say

if TYPE_CHECKING:
    from perfml.explain.model import Explainer

_LEAST = 1e-3  # a factor nearer to 1 is none


@dataclass(frozen=True)
class LayerParts:
    """What lies between a layer's time and its launches', on the baseline and on the target."""

    launches: tuple[float, float]  # how often what is compared is launched; 1 for a layer
    # the sum of the kernels' times over the time in which one of them ran; 1 for one after another
    overlap: tuple[float, float]

    @classmethod
    def of(
        cls, before: pd.DataFrame, after: pd.DataFrame, launched: tuple[Launched, Launched] | None
    ) -> LayerParts:
        """Return what the rows of a layer and its counted launches tell."""
        often = (1.0, 1.0) if launched is None else (launched[0].launches, launched[1].launches)
        return cls(often, (_overlap(before), _overlap(after)))

    def kernels_us(self, time: Ratio) -> tuple[float, float]:
        """Return the sum of the kernels' times in one launch of what is compared, microseconds."""
        both = zip((time.baseline_us, time.target_us), self.overlap, self.launches, strict=True)
        before, after = (us * overlap / launches for us, overlap, launches in both)
        return before, after

    def joined(self, causes: Causes) -> Causes:
        """Return the causes of the kernels with those of the layer; they add up to its ratio."""
        parts = []
        if (count := math.log(self.launches[1] / self.launches[0])) != 0:
            term = Contribution(TERMS["launch_count"], *self.launches, count)
            names = dict.fromkeys(pair.kernels for pair in causes.pairs)
            parts.append(PairCauses(", ".join(names), None, (term,)))
        if abs(beside := math.log(self.overlap[0] / self.overlap[1])) > _LEAST:
            hidden, hides = (1 - 1 / each for each in self.overlap)
            term = Contribution(TERMS["side_by_side"], hidden, hides, beside)
            parts.append(PairCauses("all launches", None, (term,)))
        ratio = causes.log_ratio + sum(part.contributions[0].log_ratio for part in parts)
        return replace(causes, pairs=(*causes.pairs, *parts), log_ratio=ratio) if parts else causes


def _overlap(rows: pd.DataFrame) -> float:
    """Return the sum of a layer's kernels over its time, the mean over its repeats."""
    if "kernels_us" not in rows.columns:
        return 1.0
    share = rows["kernels_us"].to_numpy(dtype=float) / rows["time_us"].to_numpy(dtype=float)
    return float(np.exp(np.log(share).mean()))


def pieces_apart(
    layer: str, time: Ratio, causes: Causes, sides: tuple[Side, Side]
) -> Untold | None:
    """Return that a layer's causes cannot be told, where ranges within it hold most of it."""
    # It is told where ranges within it that the other side lacks take at least half as long as what
    # differs between the sides; else None is returned. The layer has one name on both sides.
    known = [side.names for side in sides]
    apart = [
        (_time(side, name), name)
        for side, mine, others in zip(sides, known, reversed(known), strict=True)
        for name in sorted(mine - others)
        if name.startswith(f"{layer}/")
    ]
    inside = sum(us for us, _ in apart)
    along = causes.towards(time.log_ratio)
    if not along or inside < MOST * abs(time.target_us - time.baseline_us):
        return None
    names = [name for _, name in sorted(apart, reverse=True)]
    first = along[0].term
    other = "kernels_appeared" if first.id != "kernels_appeared" else "kernels_vanished"
    numbers = {"inside": inside, "names": names}
    return Untold((TERMS[other],), first, share=1.0, reason="pieces", numbers=numbers)


def _time(side: Side, layer: str) -> float:
    times = side.rows(layer)["time_us"].to_numpy(dtype=float)
    return compare_times(times, times).baseline_us


_Counted = tuple[
    tuple[Launches, Launches],
    tuple[Change, ...],
    tuple[tuple[Launch, ...], tuple[Launch, ...]],
    Causes,
]
"""What a layer launches on both sides and what changed, launches (single or merged), causes."""


@dataclass(frozen=True)
class DetailReader:
    """Explains the layers of two sides; their tables are taken apart once."""

    sides: tuple[Side, Side]
    explainer: Explainer | None  # a model that has learned; None for no attribution

    @cached_property
    def _readers(self) -> tuple[LaunchReader, LaunchReader]:
        return LaunchReader(self.sides[0]), LaunchReader(self.sides[1])

    def read(
        self,
        names: tuple[str, str],
        aligned_by: str,
        time: Ratio,
        launched: tuple[Launched, Launched] | None,
    ) -> LayerDiff:
        """Return what is to be said of two layers that answer to each other, by their names.

        `launched` is None where a row is a whole layer.
        """
        rows = [side.rows(name) for side, name in zip(self.sides, names, strict=True)]
        orders, changes, launches, causes = self._counted(
            names, time, LayerParts.of(rows[0], rows[1], launched), rows
        )
        left, right = self.sides
        called = (left.name, right.name)
        fix = first_fix(time, causes, called, launches, tables=not left.by)
        unseen = time.slower is None and only_kernels(*rows)
        attribution = None if self.explainer is None else self.explainer.attribute(*rows)
        metrics = compare_metrics(*rows)
        if attribution is not None:
            metrics = sort_metrics(metrics, attribution.by_metric)
        made = LayerDiff(
            names=called,
            layer=names[0],
            target_layer=names[1],
            aligned_by=aligned_by,
            time=time,
            kernels=changes_table(changes, *orders),
            launches=launches_table(changes, *orders),
            metrics=metrics,
            causes=causes,
            model=attribution,
            disagreements=find_disagreements(time, causes, attribution, metrics),
            warnings=tuple(
                say("explain.layer.usual", side=side, held=held, repeats=held.others + held.repeats)
                for side, held in zip(self.sides, orders, strict=True)
                if held.others
            ),
            fix=fix,
            actions=actions_of(time, causes, launches),
            numbers=numbers_on_both(time, causes, launches),
            unseen=say("explain.layer.unseen") if unseen else "",
        )
        proved = [side.proved for side in self.sides]
        # two sides of one table: nothing tells of which its experiments are
        return _explained(made, proved) if any(proved) and proved[0] is not proved[1] else made

    def _counted(
        self, names: tuple[str, str], time: Ratio, parts: LayerParts, rows: Sequence[pd.DataFrame]
    ) -> _Counted:
        """Return what a layer launches on both sides, and what counters say of that."""
        kernels_us = parts.kernels_us(time)
        before, after = (
            reader.read(name, us)
            for reader, name, us in zip(self._readers, names, kernels_us, strict=True)
        )
        changes = changes_between(before.names, after.names)
        alike = same_device(*self.sides)
        if before.launches is not None and after.launches is not None:
            launches = before.launches, after.launches
            causes = kernel_causes(changes, before, after, same_device=alike)
        else:
            merged = [merged_launch(*side) for side in zip(rows, kernels_us, strict=True)]
            launches = (merged[0],), (merged[1],)
            causes = layer_causes(merged[0], merged[1], same_device=alike)
        causes = parts.joined(causes)
        layer, partner = names
        if layer == partner and (apart := pieces_apart(layer, time, causes, self.sides)):
            causes = replace(causes, untold=apart)
        return (before, after), changes, launches, causes


def _explained(detail: LayerDiff, sides: Sequence[Sequence[Responses]]) -> LayerDiff:
    fix, slow = detail.fix, detail.time.log_ratio > 0
    if fix is None:
        return detail
    layer, claimed = (detail.layer, detail.target_layer)[slow], claimed_of(detail.time.log_ratio)
    asked = Finding(layer, fix.term.id, fix.term.label, fix.confidence, fix.kernel, claimed)
    (said,) = examine([asked], sides[slow])
    if not said.tells:
        return detail
    confidence, gains = confidence_by(said, fix.confidence), said.gains
    if gains is not None:
        share = _share(fix.kernel, detail.causes, int(slow))
        likely, low, high = (fix.now - fix.now.without(share * gain) for gain in gains)
        gain = Gain(likely, high, "measured", low)
        fix = replace(fix, gain=gain, unknown=None, unsaid=None)
    causes = replace(detail.causes, tested=confidence)
    fix = replace(fix, confidence=confidence)
    return replace(detail, fix=fix, proved=said.said, causes=causes)


def _share(kernel: str, causes: Causes, side: int) -> float:
    """Return what part of a layer's time one of its kernels takes; 1 where nothing tells."""
    times = [(on_side(pair.kernels, side), pair.times_us[side]) for pair in causes.pairs]
    whole = sum(us for _, us in times)
    return sum(us for name, us in times if name == kernel) / whole if whole > 0 else 1.0


SLACK = 0.25
"""A held-out prediction off by more than this factor of the log ratio's own size is no evidence."""

MAJOR = 1 / 3
"""A share of all (absolute) terms that counts as a main cause."""


def find_disagreements(
    time: Ratio, causes: Causes, model: ModelAttribution | None, metrics: pd.DataFrame
) -> tuple[Remark, ...]:
    """Return what the reader must not miss; empty where nothing contradicts."""
    if model is None:
        return ()
    against = _against_measurement(time, model)
    if time.slower is None:
        return tuple(against)
    sizes = sum(abs(total.log_ratio) for total in causes.totals)
    one_sided = [total.log_ratio for total in causes.totals if total.term.id in ONE_SIDED]
    if sum(map(abs, one_sided)) > MAJOR * sizes:
        against.append(Remark("explain.model.one_sided", {"factor": math.exp(sum(one_sided))}))
    first = model.values.iloc[0] if len(model.values) else None
    if first is not None and abs(first["log_ratio"]) > 0:
        row = metrics[metrics["metric"] == first["metric"]]
        if len(row) and row["changed"].iloc[0] is not pd.NA and not bool(row["changed"].iloc[0]):
            against.append(Remark("explain.model.noise", {"metric": first["metric"]}))
    return tuple(against)


def _against_measurement(time: Ratio, model: ModelAttribution) -> list[Remark]:
    if model.held_out_log_ratio is None:
        return [Remark("explain.model.untested")]
    held, measured = model.held_out_log_ratio, time.log_ratio
    equal = time.verdict == "no difference"
    if time.verdict == "undecided" or (equal and abs(held) <= SLACK):
        return []
    kind = "same" if equal else "direction" if held * measured <= 0 else "size"
    if kind == "size" and abs(held - measured) <= max(SLACK * abs(measured), 0.05):
        return []
    numbers = {"predicted": math.exp(held), "measured": time.ratio}
    return [Remark(f"explain.model.{kind}", numbers)]
