"""The one list of findings that every surface shows, and its one order.

Whatever can be said of a recording is a `Finding`: causes of a layer's launches, one action over
many layers, what the clock shows, what Nsight Compute's own rules said, and where to measure next
where nothing is known. The order is that of probability times likely gain, in microseconds of what
a person waits for; what has no number stands behind what has one.

Here to change: what is one finding with another, in `in_one_order`; how probable a finding is, in
`perfml.explain.confidence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import pandas as pd

from perfml.explain.advice.equal_layers import group_name
from perfml.explain.advice.file_rules import FileRule
from perfml.explain.advice.persons import person_of
from perfml.explain.advice.symptoms import Symptom, load_symptoms
from perfml.explain.confidence import TESTED, Confidence, confidence_of, probability
from perfml.explain.launches import LABEL
from perfml.explain.remedies import Remedy, Situation, remedy_for
from perfml.kernel_names import kernel_label
from perfml.util.findings import Evidence, Time
from perfml.util.json_values import json_object

_WORTH = 0.005  # an estimate of Nsight Compute below it rounds to 0 %: no finding

_LATENCY = "latency"  # the limit of a kernel none of whose units is busy (speed_of_light.py)
_LITTLE = 0.05  # of a kernel's time: what saves less is not worth a round (speed_of_light.py)

T = TypeVar("T")
KnownBy = Literal["measured", "clock", "counters", "names", "bound", "Nsight Compute"]


@dataclass(frozen=True)
class Where:
    """Where a finding is; empty or None where it is everywhere."""

    layers: Annotated[tuple[str, ...], "names of layers, the one that saves most first"] = ()
    kernel: Annotated[str, "its label"] = ""
    backend: str | None = None
    precision: str | None = None
    batch: int | None = None

    @property
    def name(self) -> str:
        """The layers and the kernel as people read them; empty where it is everywhere."""
        layer = group_name(self.layers) if self.layers else ""
        if not self.kernel or layer.startswith(self.kernel):
            return layer
        return f"{layer}: {self.kernel}" if layer else self.kernel


@dataclass(frozen=True)
class Gain:
    """What a fix saves: likely and at most, and who knows it."""

    likely: Time
    high: Time
    known_by: KnownBy


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What makes a recording slow, what to do, what that saves, and how sure it is."""

    rules: Annotated[tuple[str, ...], "ids of causes or of rules, the largest first"]
    where: Where
    holds: Annotated[Time, "the time of where it is, in one repeat"]
    gain: Annotated[Gain | None, "None where nothing tells it"]
    probability: Annotated[float, "of being right (`perfml.explain.confidence.probability`)"]
    hazard: Annotated[str, "what it is"]
    evidence: Annotated[str, "the numbers that show it"]
    numbers: Annotated[tuple[Evidence, ...], "the same as ids and numbers"] = ()
    mitigation: Annotated[str, "what to do"]
    command: Annotated[str, "a line to type"] = ""
    cost: Annotated[str, "what that costs: accuracy, memory, time"] = ""
    check: Annotated[str, "how to see that it helped, beside recording it again"] = ""
    tells: Annotated[str, "what would tell, where the confidence is low"] = ""
    says: Annotated[tuple[str, ...], "who says it"] = ("perfml",)
    tested: Confidence | None = None  # what an experiment says of it

    @property
    def confidence(self) -> Confidence:
        """The word of its probability, or what an experiment says."""
        return self.tested or confidence_of(self.probability)

    @property
    def what_to_do(self) -> str:
        """What to do and what that costs, in sentences."""
        return Remedy(say=self.mitigation, cost=self.cost).sentences

    @property
    def saved_us(self) -> float:
        """What it saves at most, microseconds; NaN where nothing tells."""
        return math.nan if self.gain is None else self.gain.high.us

    @property
    def likely_us(self) -> float:
        """What it is likely to save, microseconds; NaN where nothing tells."""
        return math.nan if self.gain is None else self.gain.likely.us

    @property
    def left_us(self) -> float:
        """What is likely left of what it holds, microseconds; NaN where nothing tells."""
        return self.holds.us - self.likely_us

    @property
    def expected_us(self) -> float:
        """Probability times likely gain."""
        return self.probability * self.likely_us

    @property
    def clock(self) -> bool:
        """Whether it is of what passes between kernels, or of all of a step."""
        return not self.where.layers and not self.where.kernel

    JSON: ClassVar = (
        *("rules", "where", "holds", "gain", "confidence", "probability", "hazard", "evidence"),
        "numbers",
        *("mitigation", "command", "cost", "check", "tells", "says"),
    )
    to_dict = json_object


def of_row(row: Mapping[str, Any]) -> Finding:
    """Return a row of `Advice.groups` as a finding."""
    time, layers = float(row["time_us"]), tuple(row.get("layers") or (str(row["layer"]),))
    own = {name: row.get(name) for name in ("backend", "precision", "batch")}
    shown = {name: value for name, value in own.items() if value is not None and value == value}
    kernel = row["kernel"] if isinstance(row["kernel"], str) else ""
    gain, high = (Time(float(row[name]) * time) for name in ("gain", "gain_high"))
    tested = row["confidence"] if row["confidence"] in ("proven", "refuted") else None
    return Finding(
        rules=tuple(row["rules"]),
        where=Where(layers, "" if kernel == "whole layer" else kernel, **shown),
        holds=Time(time),
        gain=Gain(gain, high, "measured" if row["confidence"] == "proven" else "counters"),
        probability=TESTED.get(row["confidence"], float(row["probability"])),
        tested=tested,
        hazard=str(row["hazard"]),
        evidence=str(row["evidence"]),
        numbers=tuple(row.get("numbers", ())),
        mitigation=str(row["mitigation"]),
        command=str(row.get("command", "")),
        cost=str(row.get("cost", "")),
        check=str(row.get("check", "")),
        tells=str(row["tells"]),
    )


def in_one_order(
    groups: pd.DataFrame,
    everywhere: Sequence[Finding],
    said: Sequence[FileRule],
    unexplained: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Return everything that is found as one list: what is expected to save most first.

    `groups` are of layers (`Advice.groups`), `everywhere` of many layers or the clock, `said` by
    Nsight Compute's rules, and `unexplained` is where time goes of which nothing says why.
    """
    rows: list[dict[str, Any]] = [
        {str(k): v for k, v in row.items()} for row in groups.to_dict("records")
    ]
    own = [of_row(row) for row in rows]
    # an action over many layers says what each of them would say again
    own = [one for one in own if not any(_is_part(one, all_) for all_ in everywhere)]
    together, alone = _with_rules((*everywhere, *own), said)
    found = sorted((*together, *alone), key=rank)
    numbered = sum(one.gain is not None for one in found)
    if not numbered:
        return (*unexplained, *found)
    # no unit is the limit of the longest kernel, and what is known to save is next to nothing
    lead = [one for one in unexplained[:1] if _LATENCY in one.rules]
    few = all(found[0].expected_us < _LITTLE * one.holds.us for one in lead)
    first = lead if few else []
    # where to measure next, of what no finding is about
    known = {name for one in found[:numbered] for name in (*one.where.layers, one.where.kernel)}
    rest = [one for one in unexplained[len(first) :] if known.isdisjoint(one.where.layers)]
    return (*first, *found[:numbered], *rest, *found[numbered:])


def rank(one: Finding) -> tuple[bool, float, float]:
    """Return what findings are sorted by: probability times likely gain, then those without one."""
    expected = one.expected_us
    return (True, 0.0, -one.holds.us) if math.isnan(expected) else (False, -expected, 0.0)


def in_order(groups: Iterable[Sequence[tuple[Finding, T]]]) -> list[T]:
    """Return what stands for findings in the order of all; that of one group stays."""
    keyed: list[tuple[tuple[bool, float, float], T]] = []
    for group in groups:
        keys = [rank(one) for one, _ in group]
        keyed += ((min(keys[at:]), each) for at, (_, each) in enumerate(group))
    return [each for _, each in sorted(keyed, key=lambda entry: entry[0])]


def _is_part(one: Finding, other: Finding) -> bool:
    return set(one.where.layers) <= set(other.where.layers) and one.rules[0] in other.rules


def _with_rules(
    own: Iterable[Finding], said: Sequence[FileRule]
) -> tuple[list[Finding], list[Finding]]:
    """Return our findings with who else says them, and those of Nsight Compute alone."""
    book, together = load_symptoms()[0], list(own)
    alone: dict[tuple[str, str], Finding] = {}
    for rule in said:
        alike = [each for each in book if each.says(rule.rule, rule.message)]
        places = [at for at, one in enumerate(together) if _is_same(one, rule, alike)]
        for at in places:
            one = together[at]
            rules = tuple(dict.fromkeys((*one.rules, rule.rule)))
            together[at] = replace(one, rules=rules, says=("perfml", "Nsight Compute"))
        if not places and not rule.saves <= _WORTH:
            found = _of_rule(rule, alike)
            alone.setdefault((rule.kernel, found.hazard), found)
    return together, list(alone.values())


def _is_same(one: Finding, said: FileRule, alike: Sequence[Symptom]) -> bool:
    # without ranges the layer is the kernel in its shape, which is more than the kernel's name
    names = {*one.where.layers, one.where.kernel}
    here = said.kernel in names or kernel_label(said.name, LABEL) in names
    return here and any(not set(each.causes).isdisjoint(one.rules) for each in alike)


def _of_rule(said: FileRule, alike: Sequence[Symptom]) -> Finding:
    """Return what Nsight Compute alone says; our remedy that means the same names what helps."""
    first, _, rest = said.message.partition(". ")
    hazard, evidence, remedy = first, "", Remedy(say=rest)
    if alike:
        hazard, evidence = alike[0].hazard, f"{first}."
        here = Situation(person_of(said.name), said.name)
        remedy = remedy_for(alike[0].causes[0], here)
    # an estimate of one unit's use is rarely reached: it is no time
    known = said.saves >= 0 and said.scope != "local"
    saved = Time(said.saved_us)
    return Finding(
        rules=(said.rule,) if said.rule else (),
        where=Where((said.kernel,)),
        holds=Time(said.time_us),
        gain=Gain(saved, saved, "Nsight Compute") if known else None,
        probability=probability("rule"),
        hazard=hazard,
        evidence=evidence,
        mitigation=remedy.say,
        command=remedy.line,
        cost=remedy.cost,
        check=remedy.check,
        says=("Nsight Compute",),
    )
