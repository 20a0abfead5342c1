"""What an explanation returns: tidy frames, JSON, and a short HTML form for notebooks."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, ClassVar, TypedDict

import pandas as pd

from perfml.explain.advice.findings import SideFinding
from perfml.explain.advice.fix import Fix
from perfml.explain.certainty import Certainty, TimeVerdict
from perfml.explain.changed_metrics import ChangedMetric
from perfml.explain.gaps import Waterfall
from perfml.explain.launches import ChangeRow, LaunchRow
from perfml.explain.steps import StepComparison
from perfml.explain.tree.ambiguity import Reason, Untold
from perfml.explain.tree.causes import Contribution, Kind, Term
from perfml.util.json_values import json_object
from perfml.util.text import screen
from perfml.util.words import Readable, number, percentage, ratio_text


@dataclass(frozen=True)
class Ratio:
    """Target time over baseline time.

    Attributes
    ----------
    baseline_us, target_us
        Geometric means over the repeats, microseconds.
    log_ratio
        Natural logarithm of target over baseline; above 0 the target is slower.
    log_low, log_high
        Interval of `log_ratio`; None without repeats on both sides.
    repeats
        Of the baseline and of the target.
    verdict
        ``slower``, ``faster``, ``no difference``, or ``undecided`` where the repeats scatter too
        much to say.
    processes
        Of the baseline and of the target. The interval covers the scatter between processes only
        where both sides have several.
    p_value
        Of a difference beyond the tolerance, for this ratio alone; None without an interval.
    compared
        How many ratios were judged together (`perfml.explain.times.corrected_verdicts`).
    unclaimed
        Why nothing is claimed of these times, as the beginning of a sentence; empty else.
    """

    baseline_us: float
    target_us: float
    log_ratio: float
    log_low: float | None
    log_high: float | None
    repeats: tuple[int, int]
    verdict: TimeVerdict
    processes: tuple[int, int] = (1, 1)
    p_value: float | None = None
    compared: int = 1
    unclaimed: str = ""

    JSON: ClassVar = (
        *("baseline_us", "target_us", "ratio", "interval", "log_ratio", "repeats", "processes"),
        *("scope", "p_value", "compared", "verdict"),
    )

    @property
    def scope(self) -> str | None:
        """What the interval covers, in words; None without one."""
        if self.interval is None:
            return None
        if min(self.processes) > 1:
            return f"over {self.processes[0]} and {self.processes[1]} processes"
        return "within one process"

    @property
    def ratio(self) -> float:
        """Target over baseline."""
        return math.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of `ratio`, or None."""
        if self.log_low is None or self.log_high is None:
            return None
        return math.exp(self.log_low), math.exp(self.log_high)

    def sentence(self) -> str:
        """Say it in words."""
        where, ratio = self.interval, ratio_text(self.ratio)
        if self.unclaimed:
            return f"{self.unclaimed} (ratio {ratio})"
        if where is None:
            sure = "no interval: it takes two repeats or more on both sides"
        else:
            sure = f"95 % interval {ratio_text(where[0])} to {ratio_text(where[1])} {self.scope}"
        if self.verdict == "undecided" and where is None:
            return f"undecided: one launch is not exact to this (ratio {ratio}; {sure})"
        if self.verdict == "undecided" and where is not None:
            repeats_tell = (self.p_value or 0.0) * self.compared <= 0.05
            if min(self.processes) == 1 and (where[0] - 1) * (where[1] - 1) > 0 and repeats_tell:
                told = "two processes of one program differ by as much"
                return f"undecided: {told} (ratio {ratio}, {sure})"
            many = f" for {self.compared} layers judged together" if self.compared > 1 else ""
            return f"undecided: the repeats scatter too much{many} (ratio {ratio}, {sure})"
        if self.verdict == "no difference":
            if where is None:
                return f"no difference (ratio {ratio}; {sure})"
            most = max(abs(math.expm1(bound)) for bound in (self.log_low or 0, self.log_high or 0))
            shown = f"one above {Readable(most):.1%} would show"
            return f"no difference (ratio {ratio}, {sure}; {shown})"
        fast = f", {number(1 / self.ratio)} times as fast" if self.ratio < 1 else ""
        return f"{self.verdict}: {ratio} times the baseline's time{fast} ({sure})"

    to_dict = json_object


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
    """

    kernels: str
    resource: str | None
    contributions: tuple[Contribution, ...]
    times_us: tuple[float, float] = (0.0, 0.0)
    unlike: bool = False
    unlike_product: bool = False


@dataclass(frozen=True)
class TermTotal:
    """A term over all kernels of a layer.

    Attributes
    ----------
    term
        The cause.
    log_ratio
        Its part of the layer's log ratio.
    """

    term: Term
    log_ratio: float

    @property
    def factor(self) -> float:
        """What it multiplies the time by."""
        return math.exp(self.log_ratio)


class TermRow(TypedDict):
    """A cause over all kernels of a layer; log ratios add up to the layer's.

    Attributes
    ----------
    term
        Its id.
    residual
        Whether it is a rest that names no cause.
    share
        Of all terms that point the same way, so no term has more than the whole.
    """

    term: str
    label: str
    kind: Kind
    log_ratio: float
    factor: float
    residual: bool
    share: float


class KernelTermRow(TypedDict):
    """A cause in one pair of kernels."""

    kernels: str
    resource: str | None
    term: str
    label: str
    baseline: float
    target: float
    log_ratio: float


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
        What stands against the first cause; None where it is firm.
    probability
        That the first cause is right, as measured (`perfml.explain.tree.confidence`).
    """

    pairs: tuple[PairCauses, ...]
    log_ratio: float
    missing: tuple[str, ...] = ()
    untold: Untold | None = None
    probability: float = 0.0

    @cached_property
    def totals(self) -> tuple[TermTotal, ...]:
        """Every term over all kernels, the largest first."""
        sums: dict[str, float] = {}
        terms: dict[str, Term] = {}
        for part in (part for pair in self.pairs for part in pair.contributions):
            terms[part.term.id] = part.term
            sums[part.term.id] = sums.get(part.term.id, 0.0) + part.log_ratio
        totals = [TermTotal(terms[name], value) for name, value in sums.items()]
        return tuple(sorted(totals, key=lambda total: -abs(total.log_ratio)))

    @property
    def firm(self) -> bool:
        """Whether the first cause is certain: held-out answers like it were right in 95 %."""
        named = bool(self.totals) and self.log_ratio != 0
        return named and self.untold is None and self.probability > 0

    @property
    def certainty(self) -> Certainty:
        """How sure the first cause is, in the words of `perfml.explain.certainty`."""
        if self.firm:
            return "firm"
        pieces = self.untold is not None and self.untold.reason is Reason.PIECES
        return "likely" if self.probability >= 0.5 and not pieces else "open"

    @cached_property
    def terms(self) -> Annotated[pd.DataFrame, TermRow]:
        """One `TermRow` a term."""
        along, against = (
            sum(abs(total.log_ratio) for total in self.totals if (total.log_ratio > 0) is slower)
            for slower in (True, False)
        )
        rows = [
            (
                total.term.id,
                total.term.label,
                str(total.term.kind),
                total.log_ratio,
                total.factor,
                total.term.residual,
                abs(total.log_ratio) / whole
                if (whole := along if total.log_ratio > 0 else against)
                else 0.0,
            )
            for total in self.totals
        ]
        return pd.DataFrame(rows, columns=list(TermRow.__annotations__))

    @cached_property
    def by_kernel(self) -> Annotated[pd.DataFrame, KernelTermRow]:
        """One `KernelTermRow` a term of a pair, in launch order."""
        rows = [
            (
                pair.kernels,
                pair.resource,
                part.term.id,
                part.term.label,
                part.baseline,
                part.target,
                part.log_ratio,
            )
            for pair in self.pairs
            for part in pair.contributions
        ]
        return pd.DataFrame(rows, columns=list(KernelTermRow.__annotations__))

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The short list: the log ratio of every kind of term, the largest first."""
        sums: dict[Kind, float] = {}
        for total in self.totals:
            sums[total.term.kind] = sums.get(total.term.kind, 0.0) + total.log_ratio
        return dict(sorted(sums.items(), key=lambda entry: -abs(entry[1])))

    JSON: ClassVar = (
        *("log_ratio", "terms", "by_kernel", "by_kind", "missing", "firm", "certainty"),
        *("probability", "untold"),
    )
    to_dict = json_object


class ModelValue(TypedDict):
    """A metric's part in a model's prediction."""

    metric: str
    family: str | None
    baseline: float
    target: float
    log_ratio: float


@dataclass(frozen=True)
class ModelAttribution:
    """How a fitted model gets from the baseline's prediction to the target's.

    Attributes
    ----------
    model
        Its name in the registry; it was fitted to the logarithm of the time.
    values
        One `ModelValue` a metric: exact Shapley values with the baseline as background, which add
        up to `predicted_log_ratio`.
    predicted_log_ratio
        Of the model fitted with this layer.
    held_out_log_ratio
        Predicted by the same model fitted without this layer; None if nothing is left to fit.
    held_out_errors
        Relative errors of that model on the baseline's and the target's time, or None.
    training_rows
        Rows the model was fitted to.
    """

    model: str
    values: Annotated[pd.DataFrame, ModelValue]
    predicted_log_ratio: float
    held_out_log_ratio: float | None
    held_out_errors: tuple[float, float] | None
    training_rows: int

    @property
    def target(self) -> str:
        """What it was fitted to."""
        return "log-time"

    JSON: ClassVar = (
        *("model", "target", "values", "predicted_log_ratio", "held_out_log_ratio"),
        *("held_out_errors", "training_rows"),
    )
    to_dict = json_object


@dataclass(frozen=True)
class Line:
    """The instruction that carries most of a cause.

    Attributes
    ----------
    term
        Id of the cause, or of the rule of advice.
    kernel
        Whose instruction it is.
    offset
        Bytes from the start of the kernel's code.
    sass
        The instruction.
    share
        Its part, of 1, and that of those `alike`.
    alike
        Instructions that count as one: of the same line; without lines, those with the same
        operation and base register, which is what unrolling makes of one.
    of
        What that is a part of.
    file, line
        Of the source, or None. Of CUDA's own headers the line that calls them.
    called_at
        Where the line is code that was inlined: the line that calls it, or None.
    waits_at
        Where warps wait for the instruction: the one at which most of them do, or None.
    """

    term: str
    kernel: str
    offset: int
    sass: str
    share: float
    of: str
    alike: int = 1
    file: str | None = None
    line: int | None = None
    called_at: str | None = None
    waits_at: str | None = None

    def sentence(self) -> str:
        """Say it in words."""
        where = ""
        if self.file is not None:
            called = f" (called at {self.called_at})" if self.called_at else ""
            where = f"{file_name(self.file)}:{self.line}{called}, "
        have = "has" if self.alike == 1 else f"and {self.alike - 1} more like it have"
        return (
            f"{where}{self.sass} at {self.offset:#06x} {have} {Readable(self.share):.0%} of "
            f"{self.of}" + (f", most of them at {self.waits_at}" if self.waits_at else "")
        )


def file_name(path: str) -> str:
    """Return the last part of a path: reports come from both kinds of systems.

    A folder tells a person's name, so it is not shown.
    """
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name


@dataclass(frozen=True)
class LayerDiff:
    """One layer, both sides.

    Attributes
    ----------
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
    reasons
        The causes in sentences.
    advice
        What advice says of either side.
    fix
        What to do first about the slower side, and what that may save.
    lines
        The instructions that carry the causes, where a report tells them.
    on_the_clock
        What passed between the layer's kernels, where that is known and more than they tell.
    unseen
        That what passed between the kernels is not known, where these do not differ; empty
        otherwise.
    """

    layer: str
    target_layer: str
    aligned_by: str
    time: Ratio
    kernels: Annotated[pd.DataFrame, ChangeRow]
    launches: Annotated[pd.DataFrame, LaunchRow]
    metrics: Annotated[pd.DataFrame, ChangedMetric]
    causes: Causes
    model: ModelAttribution | None
    disagreements: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    advice: Annotated[pd.DataFrame, SideFinding] = field(default_factory=pd.DataFrame)
    fix: Fix | None = None
    lines: tuple[Line, ...] = ()
    on_the_clock: Waterfall | None = None
    unseen: str = ""

    def where(self, term: Term) -> list[str]:
        """Say which instruction carries a cause; nothing where no report tells."""
        return [line.sentence() for line in self.lines if line.term == term.id]

    JSON: ClassVar = (
        *("layer", "target_layer", "aligned_by", "time", "kernels", "launches", "metrics"),
        *("causes", "model", "disagreements", "warnings", "reasons", "unseen", "advice", "fix"),
        "lines",
    )
    to_dict = json_object


class AlignedLayer(TypedDict):
    """A layer of the baseline and its counterpart.

    Attributes
    ----------
    aligned_by
        ``name``, ``shape``, ``signature``, ``place``, ...
    share
        Of the sum of absolute time differences.
    """

    layer: str
    target_layer: str
    aligned_by: str
    baseline_us: float
    target_us: float
    ratio: float
    low: float
    high: float
    share: float
    verdict: TimeVerdict


@dataclass(frozen=True, repr=False)
class Explanation:
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
        What to know of times from under a profiler (`perfml.account.time_sources`), and of what
        times of kernels do not show (`perfml.explain.gaps`).
    pairing
        How kernels were paired where no ranges told, in sentences.
    gaps
        Both sides on the clock, with the gaps between kernels; None unless both are traces.
    step
        A step of both sides on the clock; `total` is its ratio then. None unless both are traces
        that tell what the host did.
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
    gaps: Waterfall | None = None
    step: StepComparison | None = None

    @property
    def headline(self) -> str:
        """What people wait for: the time on the clock, where times of kernels hide it."""
        clock = None if self.gaps is None or not self.gaps.hidden else self.gaps.sentence()
        total = self.total.sentence()
        return total if clock is None else f"{clock}. The kernels alone: {total}"

    @property
    def further_notes(self) -> tuple[str, ...]:
        """The notes on times that the headline does not say."""
        return tuple(note for note in self.time_notes if not self.headline.startswith(note))

    to_dict = json_object

    def __repr__(self) -> str:
        order = ["layer", "baseline_us", "target_us", "ratio", "verdict", "share", "low", "high"]
        table = self.layers.sort_values("share", ascending=False)[order]
        for name in ("baseline_us", "target_us"):
            table[name] = table[name].map(number)
        table["share"] = table["share"].map(lambda value: percentage(value, 2))
        sides = (self.baseline, self.target)
        if self.baseline == self.target:
            sides = ("baseline", "target")
        heads = {"baseline_us": f"{sides[0]}, µs", "target_us": f"{sides[1]}, µs"}
        table = table.rename(columns={**heads, "share": "difference share"})
        reasons = [f"{each.layer}: {line}" for each in self.details for line in each.reasons[:2]]
        title = f"{self.target} against {self.baseline}: {self.headline}"
        return screen(title, self.warnings, table, after=reasons, rest=".layers")

    def _repr_html_(self) -> str:
        parts = [
            f"<h4>{html.escape(self.target)} against {html.escape(self.baseline)}</h4>",
            f"<p>{html.escape(self.headline)}</p>",
            *(f"<p><b>Warning:</b> {html.escape(each)}</p>" for each in self.warnings),
            *(f"<p>{html.escape(note)}</p>" for note in self.further_notes),
            _html(self.layers),
        ]
        for each in self.details:
            parts.append(f"<h5>{html.escape(each.layer)}</h5>")
            parts.append(f"<p>{html.escape(each.time.sentence())}</p>")
            parts += [f"<p>{html.escape(line)}</p>" for line in each.reasons]
            parts.append(_html(each.kernels))
            parts += ["<p>Causes</p>", _html(each.causes.terms.drop(columns="term"))]
            if each.model is not None:
                parts.append(f"<p>Model {html.escape(each.model.model)}</p>")
                parts.append(_html(each.model.values))
            parts += [f"<p>{html.escape(line)}</p>" for line in each.disagreements]
            if len(each.advice):
                shown = ["side", "kernel", "hazard", "evidence", "mitigation", "gain_high"]
                parts.append(_html(each.advice[shown]))
        return "<div>" + "".join(parts) + "</div>"


def _html(frame: pd.DataFrame) -> str:
    text: str = frame.to_html(index=False, border=0, float_format=lambda value: f"{value:.4g}")
    return text
