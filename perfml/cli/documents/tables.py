"""Documents of the verbs that make and look at tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from perfml.cli.documents.common import Failed, MaybeMicroseconds, Number, Timeline, Warnings
from perfml.merge.coverage import Coverage
from perfml.merge.rule import Weights


class Run(TypedDict):
    """One run of a table."""

    run_id: str | None
    workload: str | None
    backend: str | None
    precision: str | None
    batch: int | None
    device: str | None
    rows: int
    layers: int
    iterations: int
    us_per_iteration: MaybeMicroseconds


class Ingest(TypedDict):
    """Profiles read into one table."""

    out: str
    kernels: int
    backends: list[str]
    runs: list[Run]
    metrics: list[str]
    warnings: Warnings
    time_notes: list[str]


class LeftOut(Failed):
    """What could not be read, and what to do."""

    source: str


class IngestParts(TypedDict):
    """Profiles read into a folder, a file a run."""

    out: str
    kernels: int
    added: list[str]
    replaced: list[str]
    present: list[str]
    failed: list[LeftOut]
    warnings: Warnings


class Outside(TypedDict):
    """What of a run lies outside every layer."""

    run_id: str | None
    launches: int
    time_us: MaybeMicroseconds
    share: Number


class Merge(TypedDict):
    """Kernels merged into layers."""

    out: str
    kernels: int
    rows: int
    layers: int
    weights: Weights
    runs: list[Run]
    unattributed: list[Outside]
    coverage: list[Coverage]
    time_notes: list[str]


class MetricRange(TypedDict):
    """A metric of a table."""

    metric: str
    rows: int
    low: Number
    high: Number


class KernelTimes(TypedDict):
    """How often a kernel was launched, and how long it took."""

    kernel: str
    calls: int
    total_us: MaybeMicroseconds
    mean_us: MaybeMicroseconds
    least_us: Annotated[float | None, "microseconds; null where rows are means of launches"]
    largest_us: Annotated[float | None, "microseconds; null where rows are means of launches"]
    share: Annotated[Number, "of the time of all kernels"]


class Inspect(TypedDict):
    """What a table holds."""

    table: str
    kind: Literal["kernels", "layers"]
    rows: int
    runs: list[Run]
    time_notes: list[str]
    kernels: Annotated[list[KernelTimes], "the longest in all first; empty of merged layers"]
    clock: Annotated[Timeline | None, "of the usual iteration, where starts are known"]
    metrics: list[MetricRange]
    provenance: dict[str, Any]


class InspectRun(TypedDict):
    """A run's folder, redacted."""

    out: str
    written: list[str]
    left: list[str]


class Metric(TypedDict):
    """A metric of the catalogue."""

    metric: str
    unit: str
    kind: str
    merge: str
    match: str
    ncu: str | None
    description: str
    note: str


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
