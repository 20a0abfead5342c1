"""What a table or a profile holds: `perfml.inspect`, and the lists that the verb inspect shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfml.errors import InputError
from perfml.util.json_values import json_object
from perfml.util.shown import Shown
from perfml.util.words import count

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """What a table or a profile holds.

    Attributes
    ----------
    kind
        ``kernels`` or ``layers``: what a row is.
    rows
        How many.
    runs
        A row a run: what it is, and ``us_per_iteration``.
    kernels
        A row a kernel, the longest in all first; empty where only merged layers are known.
    metrics
        A row a metric: in how many ``rows`` it was measured, ``low`` and ``high``.
    provenance
        Where it came from.
    """

    kind: str
    rows: int
    runs: pd.DataFrame
    kernels: pd.DataFrame
    metrics: pd.DataFrame
    provenance: Mapping[str, Any]

    to_dict = json_object

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return what it is, and its kernels; its runs where only layers are known."""
        runs = count(len(self.runs), "run")
        title = f"{self.rows} {self.kind} in {runs}, {len(self.metrics)} metrics"
        shown, rest = (self.runs, ".runs") if self.kernels.empty else (self.kernels, ".kernels")
        return title, self.provenance.get("warnings", ()), shown, (), rest


def inspect(data: str | Path) -> Inspection:
    """Say what a table or a profile holds and where it came from.

    Parameters
    ----------
    data
        The name of a profile, a folder, a table or a recorded data set.

    Returns
    -------
    Inspection
        Runs, kernels and metrics as tables.

    Raises
    ------
    PerfmlError
        If it cannot be read.

    Examples
    --------
    >>> import perfml
    >>> found = perfml.inspect("h200-yolov4-tiny")
    >>> len(found.runs), sorted(found.runs["backend"].unique())
    (18, ['cublas', 'cudnn', 'inductor'])
    """
    import pandas as pd

    from perfml.datasets.opening import read_input

    given = read_input(data)
    found = given.as_read()
    launches = found.frame if found.kind == "kernels" else given.kernels
    return Inspection(
        found.kind,
        len(found.frame),
        pd.DataFrame(run_summary(found.frame)),
        pd.DataFrame([] if launches is None else kernel_times(launches)),
        pd.DataFrame(metric_ranges(found.frame)),
        found.provenance,
    )


def run_summary(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Summarise a table by run: identity, rows, layers, iterations, time of one iteration."""
    if frame.empty:
        msg = "the table is empty"
        raise InputError(msg, cure="Ingest the profile again.")
    from perfml.account.device_time import on_busiest_device

    keys = ["run_id", "workload", "backend", "precision", "batch", "device"]
    if "launches" in frame.columns:
        frame = frame.assign(time_us=frame["time_us"] * frame["launches"].fillna(1), launches=1)
    rows = []
    for key, part in frame.groupby(keys, dropna=False, sort=False):
        # devices work side by side: their times are no sum
        total = on_busiest_device(part)["time_us"].sum(min_count=1)
        total /= max(part["iteration"].nunique(), 1)
        rows.append(
            {
                **dict(zip(keys, key, strict=True)),
                "rows": len(part),
                "layers": int(part["layer"].nunique()),
                "iterations": int(part["iteration"].nunique()),
                "us_per_iteration": None if math.isnan(total) else round(float(total), 2),
            }
        )
    return rows


def kernel_times(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return how often each kernel was launched and how long it took, the longest in all first.

    A row that stands for several launches has their mean time: their least and largest are not
    known then. Each kernel has its ``kernel``, ``calls``, ``share`` of all kernels' time, and
    ``total_us``, ``mean_us``, ``least_us`` and ``largest_us``; NaN where times are missing.
    """
    import pandas as pd

    calls = pd.Series(1.0, index=frame.index)
    if "launches" in frame.columns:
        calls = frame["launches"].astype("Float64").fillna(1.0).astype(float)
    times = frame["time_us"].astype("Float64").astype(float)
    rows = pd.DataFrame({"calls": calls, "total_us": times * calls, "us": times})
    groups = rows.groupby(frame["kernel"].astype(str), sort=False)
    found = groups[["calls", "total_us"]].sum(min_count=1)
    # a sum of which a part is not known is not known
    found["total_us"] = found["total_us"].mask(groups["us"].count() < groups.size())
    found["mean_us"] = found["total_us"] / found["calls"]
    alone = groups["calls"].max() == 1
    found["least_us"] = groups["us"].min().where(alone)
    found["largest_us"] = groups["us"].max().where(alone)
    found["share"] = found["total_us"] / found["total_us"].sum()
    found = found.sort_values("total_us", ascending=False, kind="stable").reset_index()
    found["calls"] = found["calls"].round().astype(int)
    found = found.rename(columns={found.columns[0]: "kernel"})
    return [{str(key): value for key, value in row.items()} for row in found.to_dict("records")]


def metric_ranges(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return of each metric in how many rows it was measured, its least and largest value."""
    from perfml.tables import metric_columns

    return [
        {
            "metric": name,
            "rows": int(frame[name].notna().sum()),
            "low": float(frame[name].min()),
            "high": float(frame[name].max()),
        }
        for name in metric_columns(frame)
    ]
