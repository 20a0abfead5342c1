"""What ``--json`` prints, as types: `schema_of` turns them into JSON Schema.

Where a result is a dataclass, that is the type (`perfml.cli.verbs`); a ``TypedDict`` stands here
for what a verb alone puts together. `perfml.cli.output.VERSION` grows when a key goes or changes
its meaning; new keys come without.

Here to change: add a field to the dataclass, or a key to a verb's output and to its type;
`tests/cli/test_schema.py` validates what every verb prints, and an undeclared key fails there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from collectors.collect import RunResult
from collectors.doctor import Check
from collectors.sweep.manifest import State
from perfml.account.device_time import DeviceTime
from perfml.cli.output import VERSION
from perfml.cli.verbs import documents_of
from perfml.errors import Failed
from perfml.explain.roofs.peaks import Peaks
from perfml.ingest.merge.write import Run
from perfml.metrics.catalogue import Metric
from perfml.reproduce.claims import Claim
from perfml.util.json_values import json_schema


class Ingest(TypedDict):
    """Profiles read into one table."""

    out: str
    kernels: int
    backends: list[str]
    runs: list[Run]
    metrics: list[str]
    warnings: list[str]
    time_notes: list[str]


class MetricRange(TypedDict):
    """A metric of a table."""

    metric: str
    rows: int
    low: float
    high: float


class KernelTimes(TypedDict):
    """How often a kernel was launched, and how long it took."""

    kernel: str
    calls: int
    total_us: float
    mean_us: float
    least_us: Annotated[float, "null where rows are means of launches"]
    largest_us: Annotated[float, "null where rows are means of launches"]
    share: Annotated[float, "of the time of all kernels"]


class Inspect(TypedDict):
    """What a table holds."""

    table: str
    kind: Literal["kernels", "layers"]
    rows: int
    runs: list[Run]
    time_notes: list[str]
    kernels: Annotated[list[KernelTimes], "the longest in all first; empty of merged layers"]
    clock: Annotated[list[DeviceTime], "of each device, from its first operation to its last one"]
    metrics: list[MetricRange]
    provenance: dict[str, Any]


class InspectRun(TypedDict):
    """A run's folder, redacted."""

    out: str
    written: list[str]
    left: list[str]


class Metrics(TypedDict):
    """Metrics of the catalogue."""

    metrics: list[Metric]


class MetricRequest(TypedDict):
    """What to ask ncu --metrics for."""

    request: list[str]


class Dataset(TypedDict):
    """A data set."""

    name: str
    what: str
    path: str


class Datasets(TypedDict):
    """The data sets."""

    datasets: list[Dataset]


class DatasetPath(TypedDict):
    """Where a data set lies."""

    name: str
    path: str


class Doctor(TypedDict):
    """What works on this machine."""

    checks: list[Check]
    peaks: dict[str, Any] | None


class Collect(TypedDict):
    """Runs that were measured, or would be."""

    out: str
    runs: list[RunResult]


class Attached(TypedDict):
    """Where the run of a process lies that was measured while it ran."""

    folder: str


class PlannedRun(TypedDict):
    """A run of a sweep's plan."""

    run_id: str
    state: Literal["done", "planned"]


class SweepPlan(TypedDict):
    """What a sweep would measure."""

    out: str
    runs: list[PlannedRun]


class Sweep(TypedDict):
    """What became of a sweep."""

    file: str
    out: str
    summary: dict[str, Any]
    runs: list[State]


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


class Error(TypedDict):
    """A command that failed."""

    error: Failed


def schema_of(verb: str, *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints, errors among it.

    A verb is a key of `VERBS`; `strict` forbids keys that it does not name.
    """
    kinds = (*documents_of(verb), Error)
    schema = json_schema(kinds, title=f"perfml {verb} --json", strict=strict)
    for kind in kinds:
        name = "error" if kind is Error else verb
        found = schema["$defs"][kind.__name__]
        document = {"schema": {"const": f"{name}/{VERSION}"}}
        found["properties"] = {**document, **found["properties"]}
        found["required"] = ["schema", *found["required"]]
    return schema
