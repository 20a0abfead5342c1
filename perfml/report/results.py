"""What a report says, computed once from its tables; its sections take nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.account.account import Account
from perfml.account.phase_times import PhaseTimes
from perfml.account.ranks import Ranks, account_in
from perfml.errors import PerfmlError
from perfml.modeling.layer_shapes import described_layers
from perfml.report.conditions import Condition, settings
from perfml.report.figures.comparisons import Roofs, layer_roofs
from perfml.report.figures.style import PALETTE
from perfml.report.kernels import PackedKernels
from perfml.report.labels import clean

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.settings import SettingGain
    from perfml.explain.results import Explanation
    from perfml.explain.roofs.peaks import Peaks
    from perfml.explain.samples import SampledLine
    from perfml.explain.speed_of_light import KernelLevels
    from perfml.modeling.results import Evaluation, Ranking

MOST_FIGURES = 6
"""Conditions drawn; the others have their tables, which keeps a page small."""


@dataclass(frozen=True)
class Pair:
    """Two sides explained."""

    label: str  # what is common to both: the condition, such as ``fp32, batch 8``
    explanation: Explanation  # from `perfml.explain.explain`
    # the Layers rows of both sides, for figures of both; their ``backend`` is the side
    rows: pd.DataFrame


@dataclass(frozen=True)
class Results:
    """What a report says."""

    conditions: tuple[Condition, ...]  # times of every backend, a condition at a time
    series: Mapping[str, int]  # backend to the number of its colour
    # layer to its filters, where they are known
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)  # where the table came from
    kernels: PackedKernels | None = None  # kernels of every layer, or None
    evaluations: tuple[Evaluation, ...] = ()  # what the models say
    rankings: tuple[Ranking, ...] = ()
    roofs: Mapping[str, Roofs] = field(default_factory=dict)  # by the label of a condition
    # why backends are slower than the fastest, and what could be done, by condition
    pairs: tuple[Pair, ...] = ()
    advice: Mapping[str, Advice] = field(default_factory=dict)
    # of an ordinary report of Nsight Compute: its kernels by time, and how near to a limit
    levels: tuple[KernelLevels, ...] = ()
    # the lines with most samples, by the label of a kernel
    lines: Mapping[str, tuple[SampledLine, ...]] = field(default_factory=dict)
    gains: tuple[SettingGain, ...] = ()  # what other settings give: precision, batch
    # the mean step of prefill, decode and so on, of a program that generates tokens
    phases: tuple[PhaseTimes, ...] = ()
    ranks: Ranks | None = None  # of one job, where the table is of several of its ranks

    @cached_property
    def account(self) -> Account | None:
        """What a step takes on the clock, where the table is of one trace or job that tells."""
        return account_in(self.provenance)

    @property
    def settings(self) -> str:
        """Precisions and batch sizes of all that was measured, for the captions of pictures."""
        return settings(pd.concat([condition.rows for condition in self.conditions]))

    @property
    def palette(self) -> dict[str, str]:
        """Backend to colour."""
        return {name: PALETTE[number] for name, number in self.series.items()}

    def named(self, column: str) -> list[str]:
        """Return what a column says, such as ``device``, where it is known."""
        rows = [each.rows for each in self.conditions if column in each.rows.columns]
        values = dict.fromkeys(str(value) for each in rows for value in each[column].dropna())
        return [value for value in values if value != "unknown"]


def colour_numbers(shown: Sequence[Condition]) -> dict[str, int]:
    """Return the number of every backend's colour, in order of appearance."""
    names = dict.fromkeys(name for condition in shown for name in condition.backends)
    return {name: number % len(PALETTE) for number, name in enumerate(names)}


def roofs_of(
    shown: Sequence[Condition], peaks: Mapping[str, float] | Peaks | None
) -> dict[str, Roofs]:
    """Return the layers under their device's roofs, where its peaks and their work are known."""
    roofs = {}
    for condition in shown[:MOST_FIGURES]:
        try:
            roofs[condition.label] = layer_roofs(condition.rows, peaks)
        except PerfmlError:
            # no peaks of this device, or neither operations nor bytes
            continue
    return roofs


@dataclass(frozen=True)
class Shape:
    """One layer's filters, as far as the manifest tells them."""

    size: int | None
    filters: int | None
    stride: int | None

    @property
    def text(self) -> str:
        """The filters in short, such as ``3×3/1, 64 filters``."""
        if self.size is None:
            return "–"
        stride = "" if self.stride is None else f"/{self.stride}"
        filters = "" if self.filters is None else f", {self.filters} filters"
        return f"{self.size}×{self.size}{stride}{filters}"


def layer_shapes(provenance: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the filters of layers by name; empty when no manifest describes them.

    What is malformed in a table's document is ignored: shapes are an addition to the times, never
    needed.
    """
    shapes: dict[str, Shape] = {}
    for row in described_layers(provenance):
        filters = (_whole(row.get(name)) for name in ("size", "filters", "stride"))
        shapes.setdefault(clean(row["layer"], 200), Shape(*filters))
    return shapes


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        match = re.match(r"\s*(\d+)", value)
        return int(match[1]) if match else None
    if isinstance(value, (list, tuple)) and value:
        return _whole(value[0])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if math.isfinite(value) else None
