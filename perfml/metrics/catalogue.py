"""Read the catalogue (``catalogue.csv``) and evaluate it over a table of raw counters.

The catalogue is data: one row a metric, under the name nvprof gave it, which is the published
vocabulary. A row says how Nsight Compute expresses the metric, when that expression means
nothing (its guard is 0), what may stand in for it, and how kernels merge into a layer.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError, did_you_mean
from perfml.metrics.expressions import Array, Expression, RawCounters, parse
from perfml.metrics.sets import DEFAULT, DURATION, EVERY, GROUPS, SETS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Metric:
    """One row of the catalogue.

    Attributes
    ----------
    name, description, unit, family, note
        For people. ``unit`` is the unit of the canonical value.
    kind
        ``fraction``, ``level`` (fraction of a unit's peak), ``count``, ``bytes``, ``rate`` or
        ``ratio``.
    merge
        How kernels become a layer: ``time_weighted``, ``sum`` or ``max``.
    better
        ``higher``, ``lower`` or ``neither``.
    ncu
        The value from Nsight Compute's metrics, before `scale`; None if there is none.
    scale
        Factor from the expression to the canonical unit.
    guard
        The metric is undefined where this is 0.
    substitutes
        Tried in turn where `ncu` was not collected.
    asked
        The one of them that is asked for instead of `ncu`, since its counters are collected anyway
        or take no place in a pass of hardware counters; None: `ncu` is asked for.
    zero_undefined
        Where the guard was not collected, a 0 means undefined.
    low, high
        Limits the value is clipped to. Threads of a warp that share words, each of which counts
        them, or passes that disagree, give values beyond them.
    nvprof_unit
        The form of nvprof's own output; empty for metrics nvprof never had.
    exactness
        ``exact``, ``close``, ``approximate`` or ``none``: how near `ncu` comes to nvprof.
    published
        Place among the published 19 from 1, or None.
    """

    name: str
    description: str
    unit: str
    kind: str
    family: str
    merge: str
    better: str
    ncu: Expression | None
    scale: float
    guard: Expression | None
    substitutes: tuple[Expression, ...]
    asked: Expression | None
    zero_undefined: bool
    low: float | None
    high: float | None
    nvprof_unit: str
    exactness: str
    valid_on: str
    published: int | None
    origin: str
    note: str

    JSON: ClassVar = (
        *(("metric", "name"), "unit", "kind", "merge", ("match", "exactness"), ("ncu", "formula")),
        *("description", "note"),
    )

    @property
    def formula(self) -> str | None:
        """`ncu` as text."""
        return self.ncu.text if self.ncu else None

    @property
    def request(self) -> Expression | None:
        """What is asked for where the metric is wanted."""
        return self.asked or self.ncu

    def clip(self, values: Array) -> Array:
        """Clip to the metric's limits; NaN stays NaN."""
        if self.low is None and self.high is None:
            return values
        return np.clip(values, self.low, self.high)

    def holds(self, values: Array) -> bool:
        """Tell whether no value lies outside the metric's limits; NaN lies nowhere."""
        # two passes without a copy, where clipping and comparing takes five
        return (self.low is None or np.fmin.reduce(values, initial=np.inf) >= self.low) and (
            self.high is None or np.fmax.reduce(values, initial=-np.inf) <= self.high
        )

    def beyond(self, values: Array) -> int:
        """Return how many values lie outside the metric's limits by more than rounding (0.01)."""
        return int(np.count_nonzero(np.abs(self.clip(values) - values) > 0.01))


@dataclass(frozen=True)
class Evaluation:
    """Canonical metrics of a table, and what it took to get them.

    Attributes
    ----------
    columns
        Values of each metric that could be evaluated, shape (n,).
    index
        The raw table's.
    missing
        Metrics that the raw table does not hold, nor a substitute of.
    substituted
        Metric to the formula that stood in for it in every row.
    undefined
        Metric to the number of rows where it means nothing (NaN).
    clipped
        Metric to the number of rows that lay more than 1 % beyond a limit.
    """

    columns: dict[str, Array]
    index: pd.Index
    missing: tuple[str, ...] = ()
    substituted: dict[str, str] = field(default_factory=dict)
    undefined: dict[str, int] = field(default_factory=dict)
    clipped: dict[str, int] = field(default_factory=dict)

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """One column a metric that could be evaluated, index as the raw table's."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=self.index)


class Catalogue:
    """All metrics, in order: the published 19, the rest of nvprof's, then perfml's own."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}

    @property
    def names(self) -> tuple[str, ...]:
        """Every metric's name."""
        return tuple(self._metrics)

    def __contains__(self, name: object) -> bool:
        return name in self._metrics

    def __len__(self) -> int:
        return len(self._metrics)

    def __getitem__(self, name: str) -> Metric:
        """Return a metric.

        Raises
        ------
        PerfmlError
            If there is none of that name; the message names the nearest ones.
        """
        try:
            return self._metrics[name]
        except KeyError:
            sets = f"Sets are: {', '.join(SETS)}."
            cure = did_you_mean(name, [*self._metrics, *SETS], sets)
            msg = f"no metric or metric set is called {name!r}"
            raise PerfmlError(msg, cure=cure) from None

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Expand metric names and set names (`default`, `published`, ...), each once.

        The set `all` is every metric that Nsight Compute has a counterpart of.
        """
        groups = {**GROUPS, EVERY: tuple(name for name in self.names if self[name].ncu)}
        found: dict[str, None] = {}
        for name in names:
            for member in groups.get(name, (name,)):
                found[self[member].name] = None
        return tuple(found)

    def read_from(self, counter: str) -> tuple[str, ...]:
        """Return the metrics that are read from a counter of Nsight Compute, by its name's start.

        Raises
        ------
        PerfmlError
            If there is none; the message names the nearest counters.
        """
        start = counter.rstrip(".*…")
        read = {
            metric.name: tuple(
                dict.fromkeys(
                    counter
                    for formula in (metric.ncu, metric.guard, *metric.substitutes)
                    if formula is not None
                    for counter in formula.names
                )
            )
            for metric in self._metrics.values()
        }
        found = tuple(
            name for name, counters in read.items() if any(n.startswith(start) for n in counters)
        )
        if not found:
            known = [counter for counters in read.values() for counter in counters]
            msg = f"no metric is read from {counter!r}"
            cure = did_you_mean(counter, known, "See which there are: perfml metrics --json.")
            raise PerfmlError(msg, cure=cure)
        return found

    def lacking(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what explain, advise and roofline read and a request for `names` leaves out."""
        held = set(self.select(names))
        return tuple(name for name in DEFAULT if name not in held)

    def computable(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return every metric that a profile with Nsight Compute's counters for `names` holds.

        What a launch says of itself is among them, and metrics made of the same counters.
        """
        held = set(self.ncu_request(names))

        def is_held(formula: Expression | None) -> bool:
            return formula is not None and all(
                name in held or name.startswith("launch__") for name in formula.names
            )

        metrics = map(self.__getitem__, self.names)
        return tuple(
            metric.name for metric in metrics if is_held(metric.ncu) or is_held(metric.asked)
        )

    def ncu_request(self, names: Iterable[str] = ("published",)) -> tuple[str, ...]:
        """Return the Nsight Compute metrics to collect for these metrics, sorted.

        Guards and the launch duration are among them. Launch attributes
        (``launch__*``) come with every report and are left out.

        Raises
        ------
        PerfmlError
            If a metric is unknown, or Nsight Compute has no counterpart of it.
        """
        wanted = {DURATION}
        for name in self.select(names):
            metric = self[name]
            if metric.ncu is None:
                msg = f"Nsight Compute has no counterpart of {name}"
                raise PerfmlError(msg, cure=metric.note or "Leave it out.")
            for expression in (metric.request, metric.guard):
                if expression is not None:
                    wanted.update(expression.names)
        return tuple(sorted(name for name in wanted if not name.startswith("launch__")))

    def evaluate(
        self, raw: pd.DataFrame | Mapping[str, Array], names: Sequence[str] | None = None
    ) -> Evaluation:
        """Evaluate metrics over Nsight Compute's counters.

        Parameters
        ----------
        raw
            One row a launch, columns under Nsight Compute's names, in base units (ns, byte, %): a
            table, or arrays of one length.
        names
            Metrics or sets to evaluate; all that can be, by default.

        Returns
        -------
        Evaluation
            Values in canonical units. Undefined is NaN, never 0.
        """
        counters = RawCounters(raw)
        columns: dict[str, Array] = {}
        missing: list[str] = []
        substituted: dict[str, str] = {}
        undefined: dict[str, int] = {}
        clipped: dict[str, int] = {}
        for name in self.names if names is None else self.select(names):
            metric = self[name]
            source = _source(metric, counters)
            if source is None:
                missing.append(name)
                continue
            if source is not metric.ncu:
                substituted[name] = source.text
            values = _defined(metric, counters, source)
            if metric.scale != 1.0:
                values = values * metric.scale
            if not metric.holds(values):
                beyond = metric.beyond(values)
                if beyond:
                    clipped[name] = beyond
                values = metric.clip(values)
            empty = int(np.count_nonzero(np.isnan(values)))
            if empty:
                undefined[name] = empty
            columns[name] = values
        return Evaluation(columns, counters.index, tuple(missing), substituted, undefined, clipped)

    def scaled_from_nvprof(self, name: str, values: npt.ArrayLike) -> Array:
        """Convert nvprof's numbers (98.76 for ``98.76%``, 8 for ``High (8)``) to canonical ones.

        Rates and bytes are expected in byte/s and byte. Nothing is clipped.
        """
        unit = self[name].nvprof_unit
        factor = {"percent": 0.01, "utilization_level_0_10": 0.1}.get(unit, 1.0)
        return np.asarray(values, dtype=float) * factor


@functools.cache
def load_catalogue() -> Catalogue:
    """Return the catalogue that ships with perfml (read once a process)."""
    text = resources.files("perfml.metrics").joinpath("catalogue.csv").read_text(encoding="utf-8")
    return Catalogue(_metric(row) for row in csv.DictReader(text.splitlines()))


def _metric(row: dict[str, str]) -> Metric:
    def formula(text: str) -> Expression | None:
        return parse(text) if text else None

    def number(text: str) -> float | None:
        return float(text) if text else None

    return Metric(
        name=row["name"],
        description=row["description"],
        unit=row["unit"],
        kind=row["kind"],
        family=row["family"],
        merge=row["merge"],
        better=row["better"],
        ncu=formula(row["ncu"]),
        scale=float(row["scale"] or 1),
        guard=formula(row["guard"]),
        substitutes=tuple(
            parse(text.strip()) for text in row["substitutes"].split(";") if text.strip()
        ),
        asked=formula(row["asked"]),
        zero_undefined=row["zero_undefined"] == "yes",
        low=number(row["low"]),
        high=number(row["high"]),
        nvprof_unit=row["nvprof_unit"],
        exactness=row["exactness"],
        valid_on=row["valid_on"],
        published=int(row["published"]) if row["published"] else None,
        origin=row["origin"],
        note=row["note"],
    )


def _source(metric: Metric, raw: RawCounters) -> Expression | None:
    """Return the formula whose counters are there: the metric's own before its substitutes."""
    if metric.ncu is None:
        return None
    candidates = (metric.ncu, *metric.substitutes)
    return next((candidate for candidate in candidates if raw.cover(candidate)), None)


def _defined(metric: Metric, raw: RawCounters, source: Expression) -> Array:
    """Evaluate `source`, with NaN where the metric means nothing."""
    values = np.broadcast_to(source(raw), len(raw)).astype(float)
    if metric.guard is not None and raw.cover(metric.guard):
        guard = metric.guard(raw)
        undefined = guard == 0
        if metric.zero_undefined:
            undefined |= np.isnan(guard) & (values == 0)
    elif metric.zero_undefined:
        undefined = values == 0
    else:
        return values
    return np.where(undefined, np.nan, values)
