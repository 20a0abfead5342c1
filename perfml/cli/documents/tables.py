"""Documents of the verbs that make and look at tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from perfml.explain.gaps import Timeline
from perfml.ingest.merge.write import Run
from perfml.metrics.catalogue import Metric


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
    clock: Annotated[Timeline | None, "of the usual iteration, where starts are known"]
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
