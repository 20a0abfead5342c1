"""What an explanation returns: tidy frames, JSON, and a short HTML form for notebooks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, ClassVar

import pandas as pd

from perfml.explain.advice.fix import Fix
from perfml.explain.advice.symptoms import filled, symptom_of
from perfml.explain.changed_metrics import ChangedMetric, ModelAttribution
from perfml.explain.confidence import IN_WORDS, TimeVerdict
from perfml.explain.launches import ChangeRow, LaunchRow
from perfml.explain.steps import StepComparison
from perfml.explain.times import TOLERANCE, Ratio
from perfml.explain.tree.causes import Contribution, Term
from perfml.explain.tree.layer_causes import Causes, sided_causes
from perfml.explain.words import levels_in_words, step_verdict
from perfml.util.findings import Evidence, Remark
from perfml.util.json_values import Document, json_object
from perfml.util.lazy import drawn_by
from perfml.util.shown import Shown
from perfml.util.words import ended, multiple, number, percent, say


@dataclass(frozen=True)
class Line:
    """The instruction that carries most of a cause."""

    term: Annotated[str, "id of the cause, or of the rule of advice"]
    kernel: Annotated[str, "whose instruction it is"]
    offset: Annotated[int, "bytes from the start of the kernel's code"]
    sass: Annotated[str, "the instruction"]
    share: Annotated[float, "its part, of 1, and that of those `alike`"]
    of: Annotated[str, "what that is a part of"]
    alike: Annotated[int, "instructions of its line, or unrolled from one"] = 1
    file: Annotated[str | None, "of the source; of CUDA's own headers what calls them"] = None
    line: Annotated[int | None, "of the source; of CUDA's own headers what calls them"] = None
    called_at: Annotated[str | None, "the line that calls it, where it was inlined"] = None
    waits_at: Annotated[str | None, "where most warps wait for it"] = None

    @property
    def place(self) -> str:
        """Its line of the source; empty where no report tells it."""
        if self.file is None:
            return ""
        return say("explain.layer.place", file=file_name(self.file), line=self)

    def sentence(self) -> str:
        """Say it in words."""
        more = self.alike - 1
        have = say("explain.layer.have", more=more) if more else say("explain.layer.has")
        return say("explain.layer.line", line=self, have=have)


def file_name(path: str) -> str:
    """Return the last part of a path: reports come from both kinds of systems."""
    # A folder tells a person's name, so it is not shown.
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name


_OTHERS, _MISSING = 3, 6  # further causes, and counters, that are named

POINTS: Mapping[str, str] = {
    "do": "do",
    "saves": "saves",
    "why": "why",
    "where": "where",
    "stay": "if you stay",
    "also": "also",
    "doubt": "doubt",
    "check": "to check",
    "caution": "caution",
}
"""What is said of a layer of two sides, in order, and the words before it."""

_AGAINST = 0.1
"""From a tenth of the time on what works against the causes is told."""

_FIRST = 3  # lines of a layer in a notebook: what to do, what it saves, why
_LITTLE = 0.02  # layers that make less of the difference are no part of a short answer


@dataclass(frozen=True)
class LayerDiff:
    """One layer, both sides.

    Attributes
    ----------
    names
        What the baseline and the target are called.
    layer, target_layer, aligned_by
        Names on both sides; ``name``, ``shape``, or ``only one``.
    time
        The time ratio.
    kernels
        One `ChangeRow` a run of the launch order. Times are missing where only a Layers table was
        given.
    launches
        One `LaunchRow` a launch.
    metrics
        One `ChangedMetric` a metric: first those that changed, by the model's attribution or else
        by size.
    causes
        What the counters say, kernel by kernel.
    model
        What a fitted model says.
    disagreements
        Where they contradict each other, or the measurement.
    warnings
        Sentences about this layer.
    fix
        What to do first about the slower side, and what that may save.
    actions
        What to do about every cause on the slower side, by its id.
    numbers
        The numbers that show a cause, by its id: of the slower side and of the other.
    lines
        The instructions that carry the causes, where a report tells them.
    unseen
        That what passed between the kernels is not known, where these do not differ; empty
        otherwise.
    proved
        What an experiment says of the first cause; empty where there was none.
    """

    names: tuple[str, str]
    layer: str
    target_layer: str
    aligned_by: str
    time: Ratio
    kernels: Annotated[pd.DataFrame, ChangeRow]
    launches: Annotated[pd.DataFrame, LaunchRow]
    metrics: Annotated[pd.DataFrame, ChangedMetric]
    causes: Causes
    model: ModelAttribution | None
    disagreements: tuple[Remark, ...] = ()
    warnings: tuple[str, ...] = ()
    fix: Fix | None = None
    actions: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    unseen: str = ""
    proved: str = ""

    def action(self, term: Term) -> str:
        """Say what to do about a cause on the slower side."""
        if self.fix is not None and self.fix.term == term:
            return self.fix.action
        return self.actions.get(term.id, "")

    @property
    def reasons(self) -> tuple[str, ...]:
        """The points in lines, after what an experiment says, and before what nobody recorded."""
        sure = self.causes.confidence
        marks = {
            # of two sides the slower one is to be changed
            "do": f" in {self.names[0]}" if self.time.verdict == "faster" else "",
            "why": f" ({IN_WORDS[sure]})" if sure != "high" else "",
        }
        points = points_of(self).items()
        lines = (f"{POINTS[name]}{marks.get(name, '')}: {text}" for name, text in points)
        return tuple(filter(None, (self.proved, *lines, self.unseen)))

    def against(self, causes: Sequence[Contribution]) -> float:
        """Return the logarithm of what all but some causes make, where it works against them.

        0 where it does not, or is less than a tenth of the time.
        """
        rest = self.time.log_ratio - sum(total.log_ratio for total in causes)
        return rest if rest * self.time.log_ratio < 0 and abs(rest) >= _AGAINST else 0.0

    JSON: ClassVar = (
        *("layer", "target_layer", "aligned_by", "time", "kernels", "launches", "metrics"),
        *("causes", "numbers", "model", "disagreements", "warnings", "reasons", "unseen", "fix"),
        "lines",
    )
    to_dict = json_object
    plot = drawn_by("perfml.report.figures.comparisons", "attribution")


def points_of(detail: LayerDiff) -> Mapping[str, str]:
    """Return what people read of a layer, by the ids of `POINTS`; every surface lays out these."""
    causes, _ = sided_causes(detail.time, detail.causes)
    if not causes:
        return {} if detail.time.slower is None else {"why": say("explain.layer.unsplit")}
    first, *others = causes
    fix = detail.fix if detail.fix is not None and detail.fix.term == first.term else None
    saves = stay = ""
    do = detail.action(first.term)
    if fix is not None:
        do, saves, stay = fix.do, fix.saves, fix.stay
    elif first.term.residual and detail.causes.missing:
        missing = ", ".join(detail.causes.missing[:_MISSING])
        do = say("explain.layer.collect", missing=missing)
    untold = detail.causes.untold
    rivals = untold.sentence() if untold is not None and untold.causes else ""
    against = detail.against(causes)
    rest = math.exp(against) if against else None
    points = {
        "do": do,
        "saves": saves,
        "why": say("explain.layer.why", cause=first, shown=shown_by(detail, first), rest=rest),
        "where": "; ".join(_places(detail)),
        "stay": stay,
        "also": ", ".join(map(_cause, others[:_OTHERS])),
        "doubt": rivals,
        "check": "" if untold is None or rivals else untold.what_tells(),
        "caution": next((each.text for each in detail.disagreements), ""),
    }
    return {name: text for name, text in points.items() if text}


def shown_by(detail: LayerDiff, cause: Contribution) -> str:
    """Say what shows a cause: its levels, and the first numbers of either side's longest."""
    symptom, slow = symptom_of(cause.term.id), detail.time.slower or 0
    numbers = detail.numbers.get(cause.term.id, ())
    shown = [levels_in_words(cause, detail.causes, detail.names[0])]
    for at, side in enumerate((detail.names[slow], detail.names[1 - slow])):
        # parts of the time are levels, which are said; counts say what makes them
        units = {one.quantity: (one.slow, one.fast)[at] for one in numbers if one.unit}
        known = defaultdict(lambda: math.nan, units)
        text = symptom and filled(symptom.evidence, known.__getitem__, 1)
        shown.append(say("explain.layer.on_side", side=side, shown=text) if text else "")
    return "; ".join(filter(None, shown))


def _places(detail: LayerDiff) -> list[str]:
    """Say which instructions carry the causes."""
    labels = {total.term.id: total.term.label for total in detail.causes.totals}
    several = len(detail.lines) > 1
    named = ((labels.get(each.term, each.term) if several else "", each) for each in detail.lines)
    return [say("explain.layer.where", label=label, line=line.sentence()) for label, line in named]


def _cause(total: Contribution) -> str:
    return say("explain.layer.cause", cause=total)


AlignedLayer = Document(
    "AlignedLayer",
    {
        "layer": str,
        "target_layer": str,
        "aligned_by": (str, "``name``, ``shape``, ``signature``, ``place``, ..."),
        "baseline_us": float,
        "target_us": float,
        "ratio": float,
        "low": float,
        "high": float,
        "share": (float, "of the sum of absolute time differences"),
        "verdict": TimeVerdict,
    },
    words="A layer of the baseline and its counterpart.",
)


def by_difference(layers: pd.DataFrame) -> pd.DataFrame:
    """Return layers by their share of the difference, first those that changed for certain."""
    order = (layers["share"] + _certain(layers)).sort_values(ascending=False, kind="stable")
    return layers.loc[order.index]


def _certain(layers: pd.DataFrame) -> pd.Series:
    """Tell which layers changed for certain, and by more than a little of the difference."""
    return layers["verdict"].isin(("slower", "faster")) & (layers["share"] >= _LITTLE)


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Two sides compared.

    Attributes
    ----------
    baseline, target
        What the sides are called.
    total
        Of all aligned layers together.
    layers
        One `AlignedLayer` a layer that both sides have.
    details
        The layers that were asked for, or those with the largest differences.
    only_baseline, only_target
        Layers without a counterpart.
    warnings
        Sentences for the top of every output.
    time_notes
        What to know of times from under a profiler (`perfml.account.time_sources`).
    pairing
        How kernels were paired where there are no ranges, in sentences.
    step
        Both sides on the clock; None unless both were recorded with times. `total` is its ratio
        where it leads.
    """

    baseline: str
    target: str
    total: Ratio
    layers: Annotated[pd.DataFrame, AlignedLayer]
    details: tuple[LayerDiff, ...]
    only_baseline: tuple[str, ...] = ()
    only_target: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    time_notes: tuple[str, ...] = ()
    pairing: tuple[str, ...] = ()
    step: StepComparison | None = None

    @property
    def by_share(self) -> Annotated[pd.DataFrame, AlignedLayer]:
        """The layers in the order of `by_difference`."""
        return by_difference(self.layers)

    @property
    def undecided(self) -> int:
        """How many layers are undecided."""
        return int((self.layers["verdict"] == "undecided").sum())

    @property
    def alone_clear(self) -> int:
        """How many of these have an interval of their own that lies clear of 1."""
        rows = self.layers[self.layers["verdict"] == "undecided"]
        clear = (rows["low"] > 1 + TOLERANCE) | (rows["high"] < 1 / (1 + TOLERANCE))
        return int(clear.sum())

    @property
    def mattering(self) -> tuple[LayerDiff, ...]:
        """Of the details those that make more than a little of the difference, or else all."""
        shares = self.layers.set_index("layer")["share"]
        large = set(shares.index[shares >= _LITTLE])
        # layers that somebody asked for are told, however small they are
        return tuple(each for each in self.details if each.layer in large) or self.details

    @property
    def headline(self) -> str:
        """What people wait for: the time on the clock, where times of kernels hide it."""
        if self.leading is None:
            return self.total.sentence()
        return "; ".join(filter(None, (step_verdict(self.leading), self.certain)))

    @property
    def headline_ratio(self) -> Ratio:
        """The ratio of the headline; `total` is of what `Ratio.of` says."""
        return self.total if self.leading is None else self.leading.total

    @property
    def certain(self) -> str:
        """What the largest layer that changed for certain does, where the clock is undecided."""
        if self.leading is None or self.leading.verdict != "undecided":
            return ""
        first = self.by_share.head(1)
        rows = first[_certain(first)].to_dict("records")
        return "".join(f"{r['layer']} is {r['verdict']} ({multiple(r['ratio'])})" for r in rows)

    @property
    def leading(self) -> StepComparison | None:
        """The comparison on the clock, where it decides, or says more than the kernels do.

        What it says is the first sentence of every surface.
        """
        step = self.step
        if step is None:
            return None
        return step if step.leads or step.verdict != "undecided" else None

    @property
    def further_notes(self) -> tuple[str, ...]:
        """The notes on times that the headline does not say."""
        return tuple(note for note in self.time_notes if not self.headline.startswith(note))

    JSON: ClassVar = (
        *("baseline", "target", ("headline", "headline_ratio"), "total", "layers", "details"),
        *("only_baseline", "only_target", "warnings", "time_notes", "pairing", "step"),
    )
    to_dict = json_object
    plot = drawn_by("perfml.report.figures.comparisons", "time_ratios")

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the layers as people read them, and the first reasons of each that is detailed."""
        order = ["layer", "baseline_us", "target_us", "ratio", "verdict", "share", "low", "high"]
        table = self.by_share[order]
        for name in ("baseline_us", "target_us"):
            table[name] = table[name].map(number)
        table["share"] = table["share"].map(lambda value: percent(value, 2))
        sides = (self.baseline, self.target)
        if self.baseline == self.target:
            sides = ("baseline", "target")
        heads = {"baseline_us": f"{sides[0]}, µs", "target_us": f"{sides[1]}, µs"}
        lines = ((each.layer, line) for each in self.details for line in each.reasons[:_FIRST])
        said = [ended(f"{layer}: {line}") for layer, line in lines]
        title = f"{self.target} against {self.baseline}: {self.headline}"
        table = table.rename(columns={**heads, "share": "difference share"})
        return title, (*self.warnings, *self.further_notes), table, said, ".layers"
