"""Prefill and decode: what a step of each takes, which classes of kernels take it, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.account.device_time import group_times
from perfml.account.phases import DECODE, MIXED, PREFILL, STEP
from perfml.report.document import Cell, ReportTable, Section, Sentence, numbers, section, words
from perfml.report.labels import capital
from perfml.report.tables import amount, share
from perfml.util.words import micros


@dataclass(frozen=True)
class PhaseTimes:
    """The median step of one kind, such as ``decode``; microseconds.

    Attributes
    ----------
    kind, steps, launches
        What it is for, how many were recorded, and the kernels of one.
    wall_us
        From the start of its first kernel to the end of its last; NaN where starts are not known.
    idle_us
        Of `wall_us`, while no kernel runs.
    before_us
        From the end of the step before to its first kernel, which is not of `wall_us`.
    classes
        Time of the kernels of each class, the longest first.
    replayed
        Part of the kernels' time that is replayed from CUDA graphs.
    """

    kind: str
    steps: int
    launches: float
    wall_us: float
    idle_us: float
    before_us: float
    classes: tuple[tuple[str, float], ...]
    replayed: float

    @property
    def name(self) -> str:
        """What a step of it is called."""
        return self.kind if self.kind == STEP else f"{self.kind} step"

    @property
    def kernels_us(self) -> float:
        """What its kernels take, one after another."""
        return math.fsum(us for _, us in self.classes)

    @property
    def whole_us(self) -> float:
        """What a step takes with the wait before it; without a clock its kernels' sum."""
        clock = self.wall_us + float(np.nan_to_num(self.before_us))
        return self.kernels_us if math.isnan(clock) else clock


def phase_times(kernels: pd.DataFrame) -> tuple[PhaseTimes, ...]:
    """Return the median step of each kind; none of a program that does not decode."""
    if "phase" not in kernels.columns or kernels["phase"].isna().all():
        return ()
    rows = kernels.dropna(subset=["phase", "layer"]).rename(columns={"phase": "kind"})
    rows["what"] = [
        layer.removeprefix(f"{kind}/")
        for kind, layer in zip(rows["kind"], rows["layer"], strict=True)
    ]
    for name in ("start_us", "gap_us", "replay"):
        rows[name] = rows.get(name, np.nan)
    steps, times = _steps(rows), []
    for kind in [kind for kind in (PREFILL, MIXED, DECODE, STEP) if kind in set(rows["kind"])]:
        own, mine = steps[steps["kind"] == kind], rows[rows["kind"] == kind]
        classes = mine.groupby("what")["time_us"].sum().sort_values(ascending=False) / len(own)
        replayed = mine.loc[mine["replay"].notna(), "time_us"].sum() / mine["time_us"].sum()
        launches, wall, waits, before = (
            float(own[name].median()) for name in ("launches", "wall", "waits", "before")
        )
        named = tuple((str(name), float(us)) for name, us in classes.items())
        times.append(
            PhaseTimes(kind, len(own), launches, wall, waits, before, named, float(replayed))
        )
    return tuple(times)


def _steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each step: its kind, launches, wall, waits in it and before it."""
    rows = rows.sort_values("start_us", kind="stable")
    steps = rows.groupby(["run_id", "iteration", "kind"], sort=False, dropna=False)
    times = group_times(steps.ngroup(), rows["start_us"], rows["time_us"])
    # before the first one, and before a window of a recording with holes, it is not known
    firsts = steps.head(1)[["kind", "gap_us"]].rename(columns={"gap_us": "before"})
    return firsts.assign(launches=steps.size().to_numpy(), wall=times.wall_us, waits=times.idle_us)


def phases_section(phases: Sequence[PhaseTimes]) -> Section | None:
    """Return what a step of each phase takes, and its classes of kernels; None without phases."""
    if not phases:
        return None
    columns = ("a step, µs", "kernels, µs", "no kernel in it, µs", "before it, µs", "kernels")
    steps = []
    for each in phases:
        sizes = (each.whole_us, each.kernels_us, each.idle_us, each.before_us, each.launches)
        steps.append([Cell(each.kind), Cell(f"{each.steps}"), *map(amount, sizes)])
    by_class = []
    classes = [dict(each.classes) for each in phases]
    for name in dict.fromkeys(name for times in classes for name in times):
        row = [Cell(name)]
        for each, times in zip(phases, classes, strict=True):
            us = times.get(name, math.nan)
            row += [amount(us), share(us / each.kernels_us)]
        by_class.append(row)
    heads = [head for each in phases for head in (f"{each.kind}, µs a step", "of its kernels")]
    head = (*words("phase"), *numbers("steps", *columns))
    return section(
        "Prefill and decode" if len(phases) > 1 else f"A {phases[0].name}",
        ReportTable("Median step of each phase", head, steps),
        ReportTable("Time by class of kernels", (*words("class"), *numbers(*heads)), by_class),
        summary=phase_sentence(phases).text.removesuffix("."),
        anchor="phases",
        link="Phases",
    )


def phase_sentence(phases: Sequence[PhaseTimes]) -> Sentence:
    """Say what a step of each phase takes."""
    texts = []
    for each in phases:
        text = f"a {each.name} takes {micros(each.whole_us)}"
        if each.kind == DECODE:
            text += f" ({1e6 / each.whole_us:,.0f} tokens a second for each sequence)"
        if each.before_us > 0:
            text += f", of which the device waits {micros(each.before_us)} for it to begin"
        texts.append(f"{text} (median of {each.steps})")
    return Sentence("time", "high", f"{capital('; '.join(texts))}.")
