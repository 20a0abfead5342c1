"""The document of the verb predict."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from perfml.cli.documents.common import MaybeMicroseconds, Microseconds, Number, Warnings


class UnusualCount(TypedDict):
    """A count of a layer beside what its peers have."""

    metric: str
    value: float
    usual: Annotated[float, "median of its peers, for the same bound"]
    factor: float


class PeerLayer(TypedDict):
    """A layer of the reference that resembles this one."""

    workload: str
    layer: str
    kind: str
    time_us: Microseconds
    bound_us: Microseconds


class FoundHazard(TypedDict):
    """What rules of advice found."""

    rules: list[str]
    hazard: str
    evidence: str
    mitigation: str
    kernel: str | None


class SlowestKernel(TypedDict):
    """The kernel in which a layer spends most: its bare name, its launches and their time."""

    name: str
    launches: int
    time_us: Microseconds


class WhySlow(TypedDict):
    """What is known of why a layer is slow."""

    by_work: Annotated[Number, "factor that counted work explains; null without counters"]
    beyond_work: Annotated[Number, "factor beyond it"]
    unusual: list[UnusualCount]
    reasons: list[FoundHazard]
    peers: list[PeerLayer]
    kernel: Annotated[SlowestKernel | None, "null without launches"]
    sentence: str


class PredictedLayer(TypedDict):
    """A layer beside layers like it."""

    layer: str
    kind: str | None
    workload: str | None
    backend: str | None
    precision: str | None
    batch: int | None
    device: str | None
    copies: Annotated[int, "equal layers of the network that this stands for"]
    time_us: Annotated[float, "microseconds, of one of them"]
    expected_us: MaybeMicroseconds
    low_us: MaybeMicroseconds
    high_us: MaybeMicroseconds
    ratio: Annotated[Number, "measured over expected"]
    excess_us: Annotated[Number, "microseconds beyond the expected, of all copies"]
    share_slower: Annotated[Number, "share of layers like it that are as slow or slower"]
    verdict: Literal["slower", "usual", "faster", "not compared"]
    compared_by: str | None
    note: str | None
    limits: Annotated[FoundHazard | None, "the first that the rules of advice find in it"]
    why: WhySlow | None


class Predict(TypedDict):
    """Layers beside layers like them; the slow ones first, by the time they lose."""

    dataset: str
    reference: str
    networks: int
    distinct_layers: int
    confidence: float
    shift: Annotated[Number, "median of measured over expected"]
    compared: int
    slower: int
    summary: str
    layers: list[PredictedLayer]
    warnings: Warnings
