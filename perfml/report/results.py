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
from perfml.report.document import KernelChooser
from perfml.report.figures.comparisons import Roofs, layer_roofs
from perfml.report.figures.style import PALETTE
from perfml.report.labels import clean, is_random

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.finding import Finding
    from perfml.explain.lines import SampledLine
    from perfml.explain.results import Explanation
    from perfml.explain.roofs.peaks import Peaks
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
    # layer to the size of its filters and all of them in short, where they are known
    shapes: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)  # where the table came from
    kernels: KernelChooser | None = None  # kernels of every layer, or None
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
    gains: tuple[Finding, ...] = ()  # what other settings give: precision, batch
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


def layer_shapes(provenance: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return the size of the filters of layers, NaN if not known, and all in short, by name.

    In short they are such as ``3×3/1, 64 filters``. Empty when no manifest describes them.
    What is malformed in a table's document is ignored: shapes are an addition to the times, never
    needed.
    """
    shapes: dict[str, tuple[float, str]] = {}
    for row in described_layers(provenance):
        size, filters, stride = (_whole(row.get(name)) for name in ("size", "filters", "stride"))
        text = f"{size}×{size}" + (f"/{stride}" if stride is not None else "")
        text += f", {filters} filters" if filters is not None else ""
        shape = (math.nan, "–") if size is None else (float(size), text)
        shapes.setdefault(clean(row["layer"], 200), shape)
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


def ordered_scores(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """Return the protocols, random ones first, and the models, the last protocol's best first."""
    scores = evaluation.scores
    up = len(scores) > 0 and higher_is_better(scores["score"].iloc[0])
    protocols = sorted(dict.fromkeys(scores["protocol"]), key=lambda name: not is_random(name))
    last = scores[scores["protocol"] == protocols[-1]].sort_values("mean", ascending=not up)
    return protocols, list(dict.fromkeys([*last["model"], *scores["model"]]))


def best_scores(evaluation: Evaluation) -> dict[str, tuple[pd.Series, pd.Series | None]]:
    """Return each protocol's row of the best model, and of the best baseline (or None).

    The best model is chosen once, on the hardest protocol there is: of those that hold out whole
    layers (or more) the one on which even the best model is worst. The same model is shown under
    every protocol, the hardest first.
    """
    scores = evaluation.scores
    if scores.empty:
        return {}
    scores = scores[scores["mean"].notna()]
    baseline = scores["baseline"].astype(bool)
    models, baselines = scores[~baseline], scores[baseline]
    names = list(dict.fromkeys(scores["protocol"]))
    best = {name: _best(part) for name, part in models.groupby("protocol", sort=False)}
    if not best:
        return {}
    up = higher_is_better(scores["score"].iloc[0])
    # of those that are not random, the worst score of a best model
    names.sort(key=lambda name: (is_random(name), _hardness(best.get(name), up)))
    chosen = best[next(name for name in names if name in best)]["model"]
    rows: dict[str, tuple[pd.Series, pd.Series | None]] = {}
    for name in names:
        mine = models[(models["protocol"] == name) & (models["model"] == chosen)]
        simple = baselines[baselines["protocol"] == name]
        if len(mine):
            rows[str(name)] = (mine.iloc[0], _best(simple) if len(simple) else None)
    return rows


def higher_is_better(score: object) -> bool:
    """Return whether a larger score is the better one (accuracy), or a smaller one (an error)."""
    return str(score) == "accuracy"


def _hardness(best: pd.Series | None, up: bool) -> float:
    if best is None:
        return math.inf
    return float(best["mean"]) if up else -float(best["mean"])


def _best(rows: pd.DataFrame) -> pd.Series:
    up = higher_is_better(rows["score"].iloc[0])
    return rows.sort_values("mean", ascending=not up, kind="stable").iloc[0]
