"""What a step of each phase takes: prefill and decode, from a table of kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.account.device_time import group_times
from perfml.account.phases import DECODE, MIXED, PREFILL, STEP


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
    busy, wall = group_times(steps.ngroup(), rows["start_us"], rows["time_us"])
    # before the first one, and before a window of a recording with holes, it is not known
    firsts = steps.head(1)[["kind", "gap_us"]].rename(columns={"gap_us": "before"})
    return firsts.assign(launches=steps.size().to_numpy(), wall=wall, waits=wall - busy)
