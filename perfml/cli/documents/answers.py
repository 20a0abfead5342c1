"""Documents of the verbs that explain, judge and show."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from perfml.explain.roofs.peaks import Peaks
from perfml.reproduce.claims import Claim


class KernelLevel(TypedDict):
    """How near a kernel is to its limits: fractions of the peak, null where not measured."""

    kernel: str
    launches: int
    time_us: Annotated[float, "microseconds of one launch, the mean"]
    share: Annotated[float | None, "of the profile's kernel time"]
    compute: float | None
    memory: float | None
    issue: float | None
    first_launch: Annotated[int, "place in the profile, from 0: FILE@3 names the fourth"]


class RoofRow(TypedDict):
    """A layer or a kernel under its device's roofs."""

    layer: str | None
    kernel: NotRequired[str]
    backend: str | None
    precision: str | None
    batch: int | None
    iteration: NotRequired[int]
    time_us: float
    ncu_time_us: NotRequired[float]
    flops: float
    flops_source: Literal["shape", "counted", "derived", "tensor pipe"] | None
    flop_rate: float
    dram_bytes: NotRequired[float]
    dram_intensity: NotRequired[float]
    dram_rate: NotRequired[float]
    l2_bytes: NotRequired[float]
    l2_intensity: NotRequired[float]
    l2_rate: NotRequired[float]
    l1_bytes: NotRequired[float]
    l1_intensity: NotRequired[float]
    l1_rate: NotRequired[float]
    bound: str
    fraction: float


class Roofline(TypedDict):
    """Layers or kernels under their device's roofs."""

    table: str
    peaks: Peaks
    rows: list[RoofRow]
    time_notes: list[str]


class GateSaved(TypedDict):
    """A baseline that was kept."""

    saved: str


class Report(TypedDict):
    """A page that was written."""

    out: str
    bytes: int
    summary: list[str]
    warnings: list[str]


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
    lookup_gld_mape: float
    order_shares: dict[str, Any]
    key_metric: dict[str, Any]
    footnotes: list[str]
    notes: list[str]
