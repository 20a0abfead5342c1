"""A finding: one record for all that can be said of a recording; several of them as one.

Findings of equal layers, of a kernel in its shapes, of a network and of Nsight Compute's own rules
are grouped by one function, `grouped`; what they have in common is its key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Annotated, ClassVar, Literal, TypeVar

import pandas as pd

from perfml.explain.confidence import Confidence, confidence_of
from perfml.explain.launches import known
from perfml.explain.remedies import Person, Remedy
from perfml.util.findings import Evidence, Time
from perfml.util.json_values import exported, json_object, row_of
from perfml.util.words import about, first_few, micros, percent

T = TypeVar("T")
KnownBy = Literal["measured", "clock", "counters", "names", "bound", "Nsight Compute"]

_GUESSED = frozenset({"clock", "names"})
"""Who knows a gain as a fixed part of some time (``saves`` of account/causes.toml)."""
_HAZARDS = 2  # of several findings that one thing to do helps against


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
        layer = group_name(self.layers, self.kernel) if self.layers else ""
        if not self.kernel or layer.startswith(self.kernel):
            return layer
        return f"{layer}: {self.kernel}" if layer else self.kernel


@dataclass(frozen=True)
class Gain:
    """What a fix saves: likely, at most and at least, and who knows it."""

    likely: Time
    high: Time
    known_by: KnownBy
    low: Annotated[Time | None, "None where only the likely one is known"] = None


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
    person: Annotated[Person, "whom the mitigation is for"] = Person.AUTHOR
    for_author: Annotated[str | None, "what the author could do, if another person"] = None
    source: Annotated[str, "where the hazard is described"] = ""
    share: Annotated[float, "of the time, that the launches take which have it"] = 1.0
    level: Annotated[float, "how near its ceiling its limit stands; 0 without one"] = 0.0
    lost: Annotated[float, "what it takes beside all other causes, of what it holds"] = 0.0
    # of ``known``, ``potential``, ``idle`` and ``counted`` those that it is: what its place among
    # the findings of its layer, and its probability, rest on
    marks: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def confidence(self) -> Confidence:
        """The word of its probability, or what an experiment says."""
        return self.tested or confidence_of(self.probability)

    @property
    def what_to_do(self) -> str:
        """What to do and what that costs, in sentences."""
        return Remedy(say=self.mitigation, cost=self.cost).sentences

    @property
    def saved_us(self) -> Annotated[float, "at most, microseconds; null where nothing tells"]:
        """What it saves at most, microseconds; NaN where nothing tells."""
        return math.nan if self.gain is None else self.gain.high.us

    @property
    def likely_us(self) -> float:
        """What it is likely to save, microseconds; NaN where nothing tells."""
        return math.nan if self.gain is None else self.gain.likely.us

    @property
    def least_us(self) -> float:
        """What it saves at least, microseconds: the likely time where nothing tells less."""
        low = None if self.gain is None else self.gain.low
        return self.likely_us if low is None else low.us

    @property
    def left_us(self) -> float:
        """What is likely left of what it holds, microseconds; NaN where nothing tells."""
        return self.holds.us - self.likely_us

    @property
    def part(self) -> Annotated[float, "likely, of ``time_us``"]:
        """What it is likely to save of what it holds."""
        return self.likely_us / self.holds.us if self.holds.us else math.nan

    @property
    def part_high(self) -> Annotated[float, "at most, of ``time_us``"]:
        """What it saves at most of what it holds."""
        return self.saved_us / self.holds.us if self.holds.us else math.nan

    @property
    def expected_us(self) -> float:
        """Probability times likely gain."""
        return self.probability * self.likely_us

    @property
    def clock(self) -> bool:
        """Whether it is of what passes between kernels, or of all of a step."""
        return not self.where.layers and not self.where.kernel

    @property
    def layer(self) -> Annotated[str, "the layer that saves most; empty where it is everywhere"]:
        """The layer that saves most; empty where it is everywhere."""
        return self.where.layers[0] if self.where.layers else ""

    JSON: ClassVar = (
        *("rules", "where", "holds", "gain", "confidence", "probability", "hazard", "evidence"),
        "numbers",
        *("mitigation", "command", "cost", "check", "tells", "says"),
    )
    ROW: ClassVar = (
        *("layer", ("layers", "where.layers"), ("backend", "where.backend")),
        *(("precision", "where.precision"), ("batch", "where.batch"), ("kernel", "where.kernel")),
        *("rules", "hazard", "evidence", "numbers", "mitigation", "command", "cost", "check"),
        *(("gain", "part"), ("gain_high", "part_high"), "share", ("time_us", "holds.us")),
        *("saved_us", "source", "person", "for_author", "confidence", "probability", "tells"),
        *("level", "says"),
    )
    to_dict = json_object


FINDING_ROW = row_of(Finding, "A finding as a row of a table.")


def table_of(findings: Iterable[Finding]) -> pd.DataFrame:
    """Return findings as a table, a row each, in their order."""
    columns = exported(Finding, "ROW")
    cells = attrgetter(*columns.values())
    return pd.DataFrame([cells(one) for one in findings], columns=list(columns))


def grouped(findings: Iterable[Finding], by: Callable[[Finding], Hashable]) -> list[Finding]:
    """Return findings of which all with one key are one; each stands where the first of it did."""
    together: dict[Hashable, list[Finding]] = defaultdict(list)
    for one in findings:
        together[by(one)].append(one)
    return [_joined(same) for same in together.values()]


def _joined(same: Sequence[Finding]) -> Finding:
    """Return findings that one thing to do helps against as one, of all their layers.

    What they hold and save adds up, and is no more in a layer than it takes. The evidence is of
    that which is expected to save most. The probability is the mean of theirs by their likely
    gains: so what is expected of a group is the sum of what is expected of its members.
    """
    first, *others = sorted(same, key=lambda one: -known(one.expected_us))
    if not others:
        return first
    rules, said = defaultdict[str, float](float), dict[str, str]()
    times, likely, high = (defaultdict[tuple[str, ...], float](float) for _ in range(3))
    least = 0.0
    for one in (first, *others):
        layers, most = one.where.layers, known(one.saved_us)
        times[layers] = one.holds.us
        likely[layers] = min(likely[layers] + known(one.likely_us), one.holds.us)
        high[layers] = min(high[layers] + most, one.holds.us)
        cause = one.rules[0] if one.rules else ""  # a page may not name its rules
        rules[cause] += most
        least += known(one.least_us)
        said.setdefault(cause, one.hazard.split("; ")[0])
    order = sorted(rules, key=lambda name: -rules[name])
    hazards = list(dict.fromkeys(said[name] for name in order))
    several = len({one.rules for one in same}) > 1
    weights = [known(one.likely_us) if sum(likely.values()) else 1.0 for one in same]
    gain = first.gain
    if gain is not None:
        of = first.holds.of
        ends = (min(least, sum(likely.values())), sum(likely.values()), sum(high.values()))
        low, middle, top = (Time(us, of) for us in ends)
        gain = replace(gain, low=low, likely=middle, high=top)
    verdicts = {one.tested for one in same}
    return replace(
        first,
        rules=tuple(filter(None, order)) if several else first.rules,
        hazard="; ".join(hazards[:_HAZARDS]) if several else first.hazard,
        where=replace(first.where, layers=tuple(dict.fromkeys(chain(*likely)))),
        holds=replace(first.holds, us=sum(times.values())),
        gain=gain,
        probability=sum(w * one.probability for w, one in zip(weights, same, strict=True))
        / sum(weights),
        tells=next((one.tells for one in (first, *others) if one.tells), ""),
        tested=verdicts.pop() if len(verdicts) == 1 else None,
        says=tuple(dict.fromkeys(name for one in same for name in one.says)),
    )


def saving(one: Finding) -> str:
    """Say what a finding saves, or where its time is: on every surface."""
    if one.gain is None:
        of = "a step" if one.holds.of == "step" else "in all"
        return f"{micros(one.holds.us)} {of}, what can be saved is not known"
    likely, high, time = (micros(us) for us in (one.likely_us, one.saved_us, one.holds.us))
    # a fixed part of some time is known no better
    said = about(one.likely_us) if one.gain.known_by in _GUESSED else likely
    step = " a step" if one.holds.of == "step" else ""
    text = f"likely saves {said} of {time}{step} ({percent(one.part, 2)})"
    return text if high == likely else f"{text}, at most {high}"


def rank(one: Finding) -> tuple[bool, float, float]:
    """Return what findings are sorted by: probability times likely gain, then those without one."""
    expected = one.expected_us
    return (True, 0.0, -one.holds.us) if math.isnan(expected) else (False, -expected, 0.0)


def in_order(groups: Iterable[Sequence[tuple[Finding, T]]]) -> list[T]:
    """Return what stands for findings in the order of all; that of one group stays."""
    keyed: list[tuple[tuple[bool, float, float], T]] = []
    for group in groups:
        keys = [rank(one) for one, _ in group]
        keyed += ((min(keys[at:]), one) for at, (_, one) in enumerate(group))
    return [one for _, one in sorted(keyed, key=lambda entry: entry[0])]


def group_name(layers: Sequence[str], kernel: str = "") -> str:
    """Return what several equal layers are called, or a kernel that is launched in several shapes.

    Examples
    --------
    >>> group_name(["stem"]), group_name(["blocks.0.fc", "blocks.1.fc"])
    ('stem', 'blocks.0.fc and 1 equal')
    >>> group_name(["gemm (4, 1, 1)x(8, 1, 1)", "gemm (6, 1, 1)x(8, 1, 1)"], "gemm")
    'gemm in 2 shapes'
    """
    if len(layers) == 1:
        return layers[0]
    shapes = kernel and all(name.startswith(kernel) for name in layers)
    return (
        f"{kernel} in {len(layers)} shapes"
        if shapes
        else f"{layers[0]} and {len(layers) - 1} equal"
    )


def listed_layers(layers: Sequence[str], most: int = 4) -> str:
    """Return names of layers, and how many more there are.

    Examples
    --------
    >>> listed_layers(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return first_few(list(dict.fromkeys(layers)), most)
