"""Documents of the verbs that explain, judge and show."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from perfml.cli.documents.common import (
    MaybeMicroseconds,
    Microseconds,
    Number,
    Timeline,
    Warnings,
)
from perfml.explain.advice.network import NetworkFinding
from perfml.explain.advice.persons import Person
from perfml.explain.certainty import Certainty
from perfml.explain.results import Line, Ratio, TimeVerdict
from perfml.explain.roofs.peaks import Peaks
from perfml.explain.tree.ambiguity import Untold
from perfml.explain.tree.causes import Kind
from perfml.gate.exit_codes import Verdict
from perfml.reproduce.claims import Claim


class AlignedLayer(TypedDict):
    """A layer of the baseline and its counterpart."""

    layer: str
    target_layer: str
    aligned_by: Annotated[str, "name, shape, signature, place, ..."]
    baseline_us: Microseconds
    target_us: Microseconds
    ratio: float
    low: Number
    high: Number
    share: Annotated[float, "of the sum of absolute time differences"]
    verdict: TimeVerdict


class Change(TypedDict):
    """A run of launches that stayed, or that one side does otherwise; names one a line."""

    change: Literal["same", "variant", "replaced", "fused", "split", "vanished", "appeared"]
    baseline: str
    target: str
    baseline_us: MaybeMicroseconds
    target_us: MaybeMicroseconds


class ChangedLaunch(TypedDict):
    """A launch of either side or both."""

    run: Annotated[int, "number of the change that it belongs to"]
    change: str
    side: Literal["both", "baseline", "target"]
    kernel: str
    baseline_us: MaybeMicroseconds
    target_us: MaybeMicroseconds


class ChangedMetric(TypedDict):
    """A metric of both sides."""

    metric: str
    baseline: Number
    target: Number
    difference: Number
    noise: Number
    changed: Annotated[bool | None, "beyond its noise; null without repeats"]


class Cause(TypedDict):
    """A cause over all kernels of a layer; log ratios add up to the layer's."""

    term: Annotated[str, "its id"]
    label: str
    kind: Kind
    log_ratio: float
    factor: float
    residual: Annotated[bool, "a rest that names no cause"]
    share: Number


class KernelCause(TypedDict):
    """A cause in one pair of kernels."""

    kernels: str
    resource: str | None
    term: str
    label: str
    baseline: Number
    target: Number
    log_ratio: float


class Causes(TypedDict):
    """What counters say, nothing trained."""

    log_ratio: float
    terms: list[Cause]
    by_kernel: list[KernelCause]
    by_kind: dict[str, float]
    firm: Annotated[bool, "held-out answers as certain as this were right in 95 %"]
    certainty: Annotated[Certainty, "of the first cause"]
    probability: Annotated[float, "that the first cause is right, as measured"]
    untold: Untold | None
    missing: Annotated[list[str], "counters that would split a cause further"]


class ModelValue(TypedDict):
    """A metric's part in a model's prediction."""

    metric: str
    family: str | None
    baseline: Number
    target: Number
    log_ratio: float


class Model(TypedDict):
    """How a fitted model gets from the baseline's prediction to the target's."""

    model: str
    target: str
    values: list[ModelValue]
    predicted_log_ratio: float
    held_out_log_ratio: Number
    held_out_errors: list[float] | None
    training_rows: int


class Finding(TypedDict):
    """A hazard that a rule of advice found."""

    side: NotRequired[str]
    layer: str
    layers: NotRequired[Annotated[list[str], "of perfml advise: this one and those equal to it"]]
    backend: str | None
    precision: str | None
    batch: int | None
    kernel: str | None
    rules: list[str]
    hazard: str
    evidence: str
    mitigation: Annotated[str, "for the person"]
    gain_low: Annotated[Number, "fraction of the layer's time"]
    gain: Annotated[Number, "likely; fraction of the layer's time"]
    gain_high: Annotated[Number, "fraction of the layer's time"]
    time_us: Annotated[MaybeMicroseconds, "of all layers"]
    saved_us: Annotated[MaybeMicroseconds, "in all layers"]
    source: str
    person: Person
    for_author: Annotated[str | None, "what the kernel's author could do, where that is another"]
    faster: Annotated[str | None, "the backend of the table that runs the layer fastest"]
    certainty: Certainty
    tells: Annotated[str, "what would tell, where it is open"]
    level: Annotated[Number, "of the unit that it blames, of what that sustains; null without one"]


class Fix(TypedDict):
    """What to do first about the slower side, and the layer's time without that cause."""

    side: str
    term: str
    kernel: str
    action: str
    now_us: Microseconds
    after_us: Annotated[Number, "null where no counter tells what the fix leaves, or `unsaid`"]
    after_low_us: Annotated[Number, "the interval holds the time in 80 % of such cases"]
    after_high_us: Number
    unknown: Annotated[str | None, "what no counter tells, where there is an interval only"]
    unsaid: Annotated[str | None, "why there is no time: algorithm, several or counters"]
    certainty: Annotated[Certainty, "of the cause that it follows"]
    tells: Annotated[str, "what would tell whether it is the cause; empty where that is firm"]
    sentence: str


class Layer(TypedDict):
    """A layer in detail."""

    layer: str
    target_layer: str
    aligned_by: str
    time: Ratio
    kernels: list[Change]
    launches: list[ChangedLaunch]
    metrics: list[ChangedMetric]
    causes: Causes
    model: Model | None
    disagreements: list[str]
    warnings: Warnings
    reasons: list[str]
    unseen: str
    advice: list[Finding]
    fix: Fix | None
    lines: list[Line]


class Parts(TypedDict):
    """What makes the target take longer on the clock, in microseconds that add up."""

    kernels: Annotated[Microseconds, "the sum of the kernels' times"]
    side_by_side: Annotated[Microseconds, "kernels that ran side by side"]
    copies: Annotated[Microseconds, "copies and fills while no kernel ran"]
    idle: Microseconds


class Waterfall(TypedDict):
    """Both sides on the clock, and what makes one of them longer."""

    baseline: Timeline
    target: Timeline
    wall_us: Annotated[Microseconds, "the sum of the parts"]
    parts: Parts
    term: Annotated[str, "the cause to look at first, of gaps and copies"]


class StepChange(TypedDict):
    """What a cause makes of the difference between two steps."""

    cause: Annotated[str, "id of a cause"]
    us: Annotated[Microseconds, "what the target takes more; all of them add up to the difference"]
    operators: list[str]
    where: Annotated[str, "the range in which most of it lies, or nothing"]


class StepOnTheClock(TypedDict):
    """A step of both sides on the clock."""

    baseline_us: Microseconds
    target_us: Microseconds
    ratio: Number
    verdict: str
    difference_us: Microseconds
    first_cause: str | None
    certainty: Certainty
    do: Annotated[str | None, "a line to type on the slower side"]
    changes: list[StepChange]


class Explain(TypedDict):
    """Two sides compared."""

    tables: list[str]
    baseline: str
    target: str
    total: Ratio
    layers: list[AlignedLayer]
    details: list[Layer]
    only_baseline: list[str]
    only_target: list[str]
    warnings: Warnings
    time_notes: list[str]
    pairing: Annotated[list[str], "how kernels were paired where no ranges told"]
    gaps: Waterfall | None
    step: Annotated[StepOnTheClock | None, "of two traces that tell what the host did"]


class NotChecked(TypedDict):
    """A rule that could not be checked, and why."""

    backend: str | None
    precision: str | None
    batch: int | None
    rule: str
    missing: str
    why: str


class Advise(TypedDict):
    """What slow layers suffer from."""

    table: str
    kernels: Annotated[list[KernelLevel], "of a profile without ranges, or of Nsight Compute"]
    network: list[NetworkFinding]
    findings: list[Finding]
    listed: Annotated[list[ListedFinding], "with those of Nsight Compute in the file; else empty"]
    not_checked: list[NotChecked]
    below: int
    layers: int
    warnings: Warnings
    time_notes: list[str]


class KernelLevel(TypedDict):
    """How near a kernel is to its limits: fractions of the peak, null where not measured."""

    kernel: str
    launches: int
    time_us: Annotated[Microseconds, "of one launch, the mean"]
    share: Annotated[Number, "of the profile's kernel time"]
    compute: Number
    memory: Number
    issue: Number


class ListedFinding(TypedDict):
    """A finding of perfml, of a rule of Nsight Compute, or of both."""

    kernel: str
    time_us: Microseconds
    hazard: str
    evidence: str
    action: Annotated[str, "what to do; empty where nobody says it"]
    perfml_us: Annotated[MaybeMicroseconds, "saved at most, by perfml's estimate"]
    ncu_us: Annotated[MaybeMicroseconds, "saved at most, by Nsight Compute's estimate"]
    says: Literal["perfml", "Nsight Compute", "perfml and Nsight Compute"]
    rules: list[str]
    local: Annotated[bool, "whether Nsight Compute's estimate is of one unit's use"]


class RoofRow(TypedDict):
    """A layer or a kernel under its device's roofs."""

    layer: str | None
    kernel: NotRequired[str]
    backend: str | None
    precision: str | None
    batch: int | None
    iteration: NotRequired[int]
    time_us: MaybeMicroseconds
    ncu_time_us: NotRequired[MaybeMicroseconds]
    flops: Number
    flops_source: Literal["shape", "counted", "derived", "tensor pipe"] | None
    flop_rate: Number
    dram_bytes: NotRequired[Number]
    dram_intensity: NotRequired[Number]
    dram_rate: NotRequired[Number]
    l2_bytes: NotRequired[Number]
    l2_intensity: NotRequired[Number]
    l2_rate: NotRequired[Number]
    l1_bytes: NotRequired[Number]
    l1_intensity: NotRequired[Number]
    l1_rate: NotRequired[Number]
    bound: str
    fraction: Number


class Roofline(TypedDict):
    """Layers or kernels under their device's roofs."""

    table: str
    peaks: Peaks
    rows: list[RoofRow]
    time_notes: list[str]


class WorkChange(TypedDict):
    """A counter of work that changed."""

    counter: str
    baseline: float
    new: float
    growth: Annotated[Number, "null where there was none before"]


class GateLayer(TypedDict):
    """The verdict on one layer."""

    layer: str
    verdict: Verdict
    reason: str
    changed: list[WorkChange]
    time: Ratio | None


class Gate(TypedDict):
    """Whether a new version does more work."""

    verdict: Verdict
    exit_code: Literal[0, 1, 3, 4, 5]
    layers: list[GateLayer]
    only_baseline: list[str]
    only_new: list[str]
    time_notes: list[str]


class GateSaved(TypedDict):
    """A baseline that was kept."""

    saved: str


class Report(TypedDict):
    """A page that was written."""

    out: str
    bytes: int
    summary: list[str]
    warnings: Warnings


class Plot(TypedDict):
    """A figure that was written."""

    figure: str
    datasets: list[str]
    out: str
    bytes: int


class FigureKind(TypedDict):
    """A figure that can be drawn."""

    figure: str
    what: str
    options: str


class PlotList(TypedDict):
    """The figures."""

    figures: list[FigureKind]


class Reproduce(TypedDict):
    """The published study repeated; `claims` has a verdict each."""

    out: str
    claims: list[Claim]
    verdicts: str
    data: dict[str, Any]
    regression: dict[str, Any]
    classification: dict[str, Any]
    baselines: dict[str, Any]
    leakage: dict[str, Any]
    ranges: list[dict[str, Any]]
    perfml: Annotated[str, "perfml's version"]
    lookup_gld_mape: Number
    order_shares: dict[str, Any]
    key_metric: dict[str, Any]
    footnotes: list[str]
    notes: list[str]
