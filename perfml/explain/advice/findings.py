"""Findings: what the launches of a layer lose, taken together by what helps against it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.advice.referee import judged, least_saved, saved_alone, without
from perfml.explain.advice.symptoms import Symptom, filled, numbers_of, situation_of, symptom_of
from perfml.explain.confidence import probability
from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.remedies import Person, Remedy, Situation, remedy_for
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.ideal import needs_all, unknown_needs
from perfml.explain.tree.layer_causes import resolved_by
from perfml.explain.tree.limits import nearness, unit_ids
from perfml.explain.tree.one_side import SPLIT, Loss, losses
from perfml.explain.tree.thresholds import MAJORITY
from perfml.util.findings import Evidence, Time
from perfml.util.json_values import is_missing
from perfml.util.words import count, micros

_MATTERS = 0.1
"""A part of a finding that a cause has to have to be named, and of a layer that is much."""
_LEAST = 1e-3  # a smaller part of a layer is nowhere said
_SMALL = 0.01  # what is likely to gain less of a layer gains no more at most
_NUMBERED = 3  # kernels with one remedy whose numbers are shown


@dataclass(frozen=True)
class Layer:
    """A layer of one condition, with its product and the device's peak where they are known."""

    row: Mapping[str, Any]  # what it is called, with ``layer_us``
    launches: tuple[Launch, ...]  # its usual ones; of a merged row the layer as if it were one
    labels: tuple[str, ...] = ()  # what people read of each
    convolves: bool = False  # whether convolutions run in it
    # ``product_m``, ``product_n``, ``product_k``, ``product_bytes`` and ``product_flops`` of its
    # largest product; empty where nobody recorded them
    product: Mapping[str, float] = field(default_factory=dict)
    peak: float = math.nan  # FLOP/s of the device in the layer's precision; NaN if not known

    @property
    def time_us(self) -> float:
        """The time of its launches."""
        return sum(one.time_us for one in self.launches)


@dataclass(frozen=True)
class _Part:
    """What one cause takes of one launch."""

    launch: Launch
    state: LaunchState
    label: str
    share: float  # of the layer's time
    loss: Loss
    symptom: Symptom
    here: Situation
    most: float  # of the launch's time, that goes without the cause

    @property
    def remedy(self) -> Remedy:
        """What helps."""
        return remedy_for(self.loss.cause, self.here)

    @property
    def lost(self) -> float:
        """What the cause takes beside all others, of the layer's time."""
        return self.loss.part * self.share

    @property
    def potential(self) -> bool:
        """Whether it is what idle machinery could do if the work allows it."""
        author = self.here.reader is Person.AUTHOR
        # that a multiprocessor has no block is a fact, and comes first
        split = self.loss.cause == SPLIT and not self.loss.known and self.state["at_work"] == 1
        return split or (author and self.loss.cause == "instructions")

    def together(self) -> tuple[str, ...]:
        """Return what parts have in common that one thing to do helps against."""
        mark = "potential" if self.potential else ""
        if self.here.reader is Person.AUTHOR:
            return self.label, self.symptom.id, mark
        if self.remedy.fuses:
            return "", "fused", mark
        return self.label, self.remedy.text, mark


def launch_findings(layer: Layer, *, merged: bool = False) -> list[Finding]:
    """Return what a layer's launches lose, what they lose most by first.

    `merged` says that the launches are merged layers.
    """
    whole = layer.time_us
    # what several launches hand over through memory can be fused
    alone = len(layer.launches) == 1
    together: dict[tuple[str, ...], list[_Part]] = defaultdict(list)
    for launch, label in zip(layer.launches, layer.labels, strict=True):
        share, state = launch.time_us / whole, LaunchState.of(launch)
        here = situation_of(launch, convolves=layer.convolves)
        for claimed in losses(launch):
            if claimed.part * share < _LEAST or symptom_of(claimed.cause) is None:
                continue
            fuses = remedy_for(claimed.cause, here).fuses
            if alone and not fuses and needs_all(state, claimed.cause):
                continue
            cause, most = judged(state, claimed.cause, claimed.limit)
            symptom, known = symptom_of(cause), claimed.known and cause == claimed.cause
            loss = replace(claimed, cause=cause, part=min(claimed.part, most), known=known)
            if symptom is not None and loss.part * share >= _LEAST:
                part = _Part(launch, state, label, share, loss, symptom, here, most)
                together[part.together()].append(part)
    findings = (_finding(parts, layer, merged) for parts in together.values())
    return sorted(findings, key=lambda one: -one.lost)


def _finding(parts: Sequence[_Part], layer: Layer, merged: bool) -> Finding:
    lost = sum(part.lost for part in parts)
    causes: dict[str, float] = defaultdict(float)
    for part in parts:
        causes[part.loss.cause] += part.lost
    order = sorted(causes, key=lambda name: -causes[name])
    named = tuple(name for name in order if causes[name] >= _MATTERS * lost)
    first = max((p for p in parts if p.loss.cause == named[0]), key=lambda p: p.lost)
    symptoms = list(dict.fromkeys(symptom_of(name) for name in named))
    kernels = list(dict.fromkeys(p.label for p in sorted(parts, key=lambda p: -p.lost)))
    likely, most = _gain(parts, named, layer, lost)
    term = TERMS[named[0]]
    marks = {
        "known": first.loss.known and not first.potential,
        "potential": first.potential,
        "idle": first.loss.cause in unknown_needs() and first.loss.level < MAJORITY,
        "counted": not first.potential and term.kind not in (Kind.STALL, Kind.OCCUPANCY),
    }
    return finding_of(
        layer,
        named[0],
        (lost, likely, most),
        first.here,
        kernel="" if merged else kernels[0],
        share=sum({id(part.launch): part.share for part in parts}.values()),
        rules=named,
        hazard="; ".join(_hazard(each, parts) for each in symptoms[:2] if each is not None),
        evidence=_evidence(parts, kernels, layer, merged),
        numbers=_numbers(first),
        level=first.loss.level,
        tells=resolved_by(term, first.launch.kernel),
        marks=frozenset(name for name, holds in marks.items() if holds),
    )


def _numbers(part: _Part) -> tuple[Evidence, ...]:
    """Return what shows a cause in a launch, as it is and as it would be without the cause."""
    without_cause = without(part.state, part.loss.cause)
    slow, fast = part.state.__getitem__, without_cause.__getitem__
    return numbers_of(part.symptom.evidence, slow, fast)


def _hazard(symptom: Symptom, parts: Sequence[_Part]) -> str:
    """Return the hazard in words that agree with how busy its unit is over the launch."""
    mine = (part for part in parts if part.symptom is symptom and part.loss.limit in unit_ids())
    return symptom.hazard_at(
        max((nearness(one.state, one.loss.limit) for one in mine), default=0.0)
    )


def finding_of(
    layer: Layer, cause: str, gains: tuple[float, float, float], here: Situation, **said: Any
) -> Finding:
    """Return a finding of a layer.

    `gains` are of the layer's time: what is lost beside all other causes, what is likely saved
    where this alone is mended, and at most. `here` says who can do something about it, and `said`
    what else differs from a finding of the whole layer.
    """
    time = Time(float(layer.row["layer_us"]))
    lost, likely, high = (min(max(gain, 0.0), 1.0) for gain in gains)
    remedy, symptom = remedy_for(cause, here), symptom_of(cause)
    whose, own = "", None
    if here.reader is not Person.AUTHOR:
        whose = f"The kernel is {here.reader.whose}. "
        own = remedy_for(cause, replace(here, reader=Person.AUTHOR)).say
    texts = {
        "mitigation": whose + remedy.say,
        "command": remedy.line,
        "cost": remedy.cost,
        "check": remedy.check,
        "source": "" if symptom is None else symptom.source,
    }
    where = Where((str(layer.row["layer"]),), said.pop("kernel", ""), **condition_of(layer.row))
    ends = (likely, high, least_saved(likely))
    middle, top, least = (Time(part * time.us) for part in ends)
    gain = Gain(middle, top, "counters", least)
    known: dict[str, Any] = {"marks": frozenset({"known", "counted"}), **texts, **said}
    one = Finding(
        where=where,
        holds=time,
        gain=gain,
        lost=lost,
        probability=0.0,
        person=here.reader,
        for_author=own,
        **known,
    )
    one = replace(one, probability=probability("launch", evidence_of(one)))
    return one if one.confidence == "low" else replace(one, tells="")


def condition_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return backend, precision and batch of a layer, those that are known."""
    names = ("backend", "precision", "batch")
    values = {name: row[name] for name in names if not is_missing(row.get(name))}
    return {name: int(value) if name == "batch" else str(value) for name, value in values.items()}


def as_probable(one: Finding, cause: str, launch: Launch, likely: float) -> float:
    """Return how probable a finding of a launch is that others name, as one of ours is.

    `likely` is the part of the launch's time that goes without the cause.
    """
    nothing = Loss(cause, 0.0, "", 0.0, known=False)
    loss = next((loss for loss in losses(launch) if loss.cause == cause), nothing)
    marks = {
        "known": loss.known,
        "counted": TERMS[cause].kind not in (Kind.STALL, Kind.OCCUPANCY),
    }
    gain = Gain(time := replace(one.holds, us=likely * one.holds.us), time, "counters")
    gain = replace(gain, low=replace(time, us=least_saved(likely) * one.holds.us))
    ours = replace(one, rules=(cause,), gain=gain, lost=loss.part, level=loss.level)
    ours = replace(ours, marks=frozenset(name for name, holds in marks.items() if holds))
    return probability("launch", evidence_of(ours))


def evidence_of(one: Finding) -> dict[str, float]:
    """Return what speaks for a finding of one side, by name."""
    term = TERMS.get(one.rules[0])
    kind = "layer" if term is None else str(term.kind)
    return {
        **{name: float(name in one.marks) for name in ("known", "potential", "counted")},
        "lost": one.lost,
        "level": one.level,
        "share": one.share,
        "least": one.least_us / one.holds.us,
        "log_lost": math.log(max(one.lost, _SMALL)),
        "place": float(term is not None and term.place),
        f"kind_{kind}": 1.0,
    }


def _gain(
    parts: Sequence[_Part], named: Sequence[str], layer: Layer, lost: float
) -> tuple[float, float]:
    """Return what goes without the causes where nothing else is mended: as estimated, at most.

    The most is what the laws allow of each launch, or what goes where launches become one.
    """
    if lost < _SMALL:
        return lost, lost
    saved: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for part in parts:
        if part.loss.cause in named:
            alone = known(saved_alone(part.launch, part.loss.cause), part.loss.part)
            likely, most = saved[id(part.launch)]
            ends = max(likely, alone * part.share), max(most, part.most * part.share)
            saved[id(part.launch)] = ends
    likely, most = (sum(each) for each in zip(*saved.values(), strict=True))
    # who calls a library can ask for all of the layer in one call; an author changes own kernels
    every = parts[0].remedy.fuses or parts[0].here.reader is not Person.AUTHOR
    those = {id(part.launch): part.launch for part in parts}.values()
    most = max(most, as_one(layer.launches if every else those) / layer.time_us)
    return likely, max(likely, most)


def as_one(launches: Collection[Launch]) -> float:
    """Return what goes at most where launches become one, microseconds."""
    # what the longest reads or what it writes stays: its neighbours hand over one of both
    times = [one.time_us for one in launches]
    return sum(times) - max(times) / 2 if len(times) > 1 else 0.0


def _evidence(parts: Sequence[_Part], kernels: Sequence[str], layer: Layer, merged: bool) -> str:
    """Return the numbers that show it, of the launch that loses most of each kernel."""
    said = []
    for label in kernels[:_NUMBERED]:
        mine = [part for part in parts if part.label == label]
        first = max(mine, key=lambda part: part.lost)
        text = filled(first.symptom.evidence, first.state.__getitem__)
        launches = {id(part.launch): part.share for part in mine}
        many = f"{len(launches)} launches, " if len(launches) > 1 else ""
        time, share = float(layer.row["layer_us"]), sum(launches.values())
        where = f"{many}{micros(time * share)} of the layer's {micros(time)}"
        # a kernel that is all of a layer needs no words on its part
        text = text if merged or (share == 1 and not many) else f"{where}: {text}"
        said.append(text if len(kernels) == 1 else f"{label}: {text}")
    more = len(kernels) - _NUMBERED
    return "; ".join([*said, *([f"and {count(more, 'more kernel')}"] if more > 0 else [])])


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a layer in the order in which people read them."""
    # The cause that takes most of the layer's time is first. A gain that assumes independent work
    # comes after those from counters, and idle multiprocessors come after findings of all launches
    # of the layer. Work of a unit below half of its peak, which may all be needed, is no finding.
    by_loss = sorted(findings, key=lambda one: -one.lost)
    order = []
    for place, one in enumerate(by_loss):
        behind = [
            at
            for at in range(place + 1, len(by_loss))
            if by_loss[at].lost >= _MATTERS and _stands_behind(one, by_loss[at])
        ]
        order.append((max([place, *behind]), bool(behind), place))
    places = (place for *_, place in sorted(order))
    return [by_loss[place] for place in places if "idle" not in by_loss[place].marks]


def _stands_behind(one: Finding, other: Finding) -> bool:
    if "potential" in one.marks:
        return "counted" in other.marks
    term = TERMS.get(one.rules[0])
    idle = term is not None and term.kind in (Kind.WAVES, Kind.OCCUPANCY)
    return idle and other.rules[0] not in TERMS
