"""What predict returns: a verdict a layer, as dataclasses, with JSON and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pandas as pd

from perfml.util.json_values import json_object
from perfml.util.shown import Shown
from perfml.util.words import count, micros

_TELLING = 1.15
"""Factor from which on launches are told as what makes a layer slow."""

Verdict = Literal["slower", "usual", "faster", "not compared"]


@dataclass(frozen=True)
class Unusual:
    """A count of a layer beside what its peers have, at the same bound.

    Attributes
    ----------
    metric
        Its name.
    value, usual
        The layer's, and the median of its peers, scaled to the layer's bound where it is a count.
    factor
        The first over the second.
    """

    metric: str
    value: float
    usual: float
    factor: float


@dataclass(frozen=True)
class Peer:
    """A layer of the reference that resembles the one in question."""

    workload: str
    layer: str
    kind: str
    time_us: float
    bound_us: float


@dataclass(frozen=True)
class Reason:
    """A hazard that advice found in the layer, and in which kernel."""

    rules: tuple[str, ...]
    hazard: str
    evidence: str
    mitigation: str
    kernel: str | None = None


@dataclass(frozen=True)
class SlowestKernel:
    """The kernel in which a layer spends most: its bare name, its launches and their time."""

    name: str
    launches: int
    time_us: float


@dataclass(frozen=True)
class Why:
    """What is known of why a layer is slow.

    Attributes
    ----------
    by_launches
        Factor by which layers that launch such kernels take longer than layers of this shape.
    counted
        Whether counters were collected.
    unusual
        Counts in which it differs most from its peers.
    reasons
        Findings of the rules, the most costly first.
    peers
        Layers of the reference that it was compared with.
    kernel
        Where its time goes; None without launches.
    """

    by_launches: float | None = None
    counted: bool = False
    unusual: tuple[Unusual, ...] = ()
    reasons: tuple[Reason, ...] = ()
    peers: tuple[Peer, ...] = ()
    kernel: SlowestKernel | None = None

    JSON: ClassVar = (
        *("by_launches", "counted", "unusual", "reasons", "peers", "kernel"),
        "sentence",
    )

    @property
    def sentence(self) -> str:
        """What its launches explain, in words."""
        if self.by_launches is None:
            said = "What it launches was not compared with what layers like it launch."
        elif self.by_launches >= _TELLING:
            said = (
                f"Layers that launch such kernels take {self.by_launches:.2f} times what layers of "
                "its shape take: look at what it launches."
            )
        else:
            said = "Other layers of its shape that launch such kernels take less."
        return said if self.counted else f"{said} Counters were not collected."


@dataclass(frozen=True)
class PredictedLayer:
    """A layer beside layers like it.

    Attributes
    ----------
    layer, kind, workload, backend, precision, batch, device
        Which it is; ``kind`` None where the profile does not tell.
    copies
        How many equal layers of the network this stands for; times are of one.
    time_us
        Measured, mean of the repeats.
    expected_us, low_us, high_us
        What layers like it usually take, and where 90 % of them lie; None where not compared.
        Layers like it launch such kernels, too, where the launches are known.
    shape_us, shape_high_us
        What layers of its shape usually take, whatever they launch, and what 1 % of them exceed;
        None where the launches are not known.
    ratio
        Measured over what is usual: `shape_us` where that is known and `compared_by` is ``shape``,
        else `expected_us`.
    excess_us
        Measured less the usual, of all copies.
    verdict
        ``slower`` and ``faster`` lie outside the interval; ``slower`` is also what takes longer
        than `shape_high_us`, because it launches what takes longer.
    compared_by
        ``shape and launches``, ``shape`` or ``counted work``.
    note
        Why it was not compared, or what makes the comparison weaker.
    why
        For the slow ones that are shown.
    """

    layer: str
    kind: str | None
    workload: str | None
    backend: str | None
    precision: str | None
    batch: int | None
    device: str | None
    copies: int
    time_us: float
    expected_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    shape_us: float | None = None
    shape_high_us: float | None = None
    ratio: float | None = None
    excess_us: float | None = None
    verdict: Verdict = "not compared"
    compared_by: str | None = None
    note: str | None = None
    limits: Reason | None = None
    why: Why | None = None

    @property
    def by_launches(self) -> float | None:
        """Factor by which what it launches takes longer than layers of its shape."""
        return self.expected_us / self.shape_us if self.expected_us and self.shape_us else None

    @property
    def name(self) -> str:
        """The layer, with its equal ones."""
        return self.layer if self.copies == 1 else f"{self.layer} and {self.copies - 1} equal"


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Layers beside layers like them.

    Attributes
    ----------
    reference
        What was learned from: its name.
    networks, distinct_layers
        How many it holds.
    layers
        The slow ones first, by the time they lose; then the others.
    confidence
        Of the intervals.
    shift
        Median of measured over expected: what all layers have in common, such as another clock.
    warnings
        Sentences for the top of every output.
    """

    reference: str
    networks: int
    distinct_layers: int
    layers: tuple[PredictedLayer, ...]
    confidence: float
    shift: float | None
    warnings: tuple[str, ...] = field(default=())

    @property
    def slower(self) -> tuple[PredictedLayer, ...]:
        """The layers that are slower than layers like them, the largest loss first."""
        return tuple(layer for layer in self.layers if layer.verdict == "slower")

    @property
    def compared(self) -> int:
        """Number of layers that were compared, equal ones counted once."""
        return sum(layer.verdict != "not compared" for layer in self.layers)

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        slow, compared = len(self.slower), self.compared
        chance = compared * (1 - self.confidence) / 2
        lost = sum(each.excess_us or 0.0 for each in self.slower)
        total = sum(layer.time_us * layer.copies for layer in self.layers)
        every = sum(layer.copies for layer in self.layers if layer.verdict != "not compared")
        whole = count(compared, "layer") if every == compared else f"{compared} different layers"
        if not slow:
            return f"None of {whole} is slower than layers like it usually are."
        return (
            f"{slow} of {whole} {'is' if slow == 1 else 'are'} slower than "
            "layers like "
            f"{'it' if slow == 1 else 'them'} usually are, by {micros(lost)} of {micros(total)}. "
            f"By chance it would be about {chance:.2g}."
        )

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the answer and the layers, the slow ones first."""
        columns = {
            "layer": [layer.name for layer in self.layers],
            "verdict": [layer.verdict for layer in self.layers],
            "µs": [layer.time_us for layer in self.layers],
            "usual µs": [layer.shape_us or layer.expected_us for layer in self.layers],
            "ratio": [layer.ratio for layer in self.layers],
            "backend": [layer.backend for layer in self.layers],
            "precision": [layer.precision for layer in self.layers],
        }
        return self.summary, self.warnings, pd.DataFrame(columns), (), ".layers"

    @property
    def slower_count(self) -> int:
        """Number of layers that are slower."""
        return len(self.slower)

    JSON: ClassVar = (
        *("reference", "networks", "distinct_layers", "confidence", "shift", "compared"),
        *(("slower", "slower_count"), "summary", "layers", "warnings"),
    )
    to_dict = json_object
