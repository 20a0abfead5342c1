"""Recorded experiments, and the busiest unit by the counters of the same kernels.

Counters of the planted kernels are those of ``h100-planted-causes``, recorded on another
day and card; those of YOLOv4-Tiny were recorded on the same card, right after the experiments.
"""

from __future__ import annotations

import io
import lzma
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.experiments.record import read_experiments
from perfml.experiments.responses import Responses, responses
from studies.data import load

FOLDER = Path(__file__).parents[1] / "data" / "h100-experiments"
LEVELS = ("base", "level_1", "level_2", "level_3")
BUSY = 0.6
"""A unit is the limit where it is busy for so much of the time; else latency is."""
_OF_ACTIVE = (
    "tex_fu_utilization", "lsu_data_utilization", "mio_utilization", "alu_utilization",
    "fma_heavy_utilization", "single_precision_fu_utilization", "double_precision_fu_utilization",
    "special_fu_utilization", "cf_fu_utilization", "tensor_cycles_utilization",
    "issue_slot_utilization", "ldst_fu_utilization",
)  # fmt: skip
"""Of the time of multiprocessors that have a block: times ``sm_efficiency`` of all time."""
RIGHT = {
    "multiprocessor": {"multiprocessor"},
    "dram": {"dram"},
    "l2": {"l2"},
    "latency": {"warps", "memory_latency", "launch", "fixed"},
}
"""Limit by counters to the limits by experiment that say the same."""


@dataclass(frozen=True)
class Case:
    """A launch with both: its responses, and its limit by counters (a key of `RIGHT`).

    Attributes
    ----------
    family
        What is left out together: a planted family, or a kernel of a library.
    level
        Of the planted family; empty for a library's kernel.
    layer
        Name of its range.
    responses
        By experiment.
    limit
        By counters.
    busy
        Share of the time for which the busiest unit is busy.
    """

    family: str
    level: str
    layer: str
    responses: Responses
    limit: str
    busy: float


def by_counters(row: Mapping[str, float]) -> tuple[str, float]:
    """Return the limit by counters, and for which share of the time the busiest unit is busy."""
    active = row.get("sm_efficiency", 1.0)
    units = {
        "dram": [row.get("dram_utilization", 0.0)],
        "l2": [row.get("l2_utilization", 0.0), row.get("l2_atomic_utilization_max", 0.0)],
        "multiprocessor": [
            row.get("shared_utilization", 0.0),
            row.get("constant_cache_utilization", 0.0),
            *(active * row.get(name, 0.0) for name in _OF_ACTIVE),
        ],
    }
    busy = {name: float(np.nanmax(values)) for name, values in units.items()}
    name = max(busy, key=lambda each: busy[each])
    return (name if busy[name] >= BUSY else "latency"), busy[name]


def planted() -> list[Case]:
    """Return the planted kernels that have counters of an H100."""
    frame = load("h100-planted-causes", as_frame=True).frame
    counted = frame.groupby(["backend", "layer"]).median(numeric_only=True)
    cases = []
    for level in LEVELS:
        for each in responses(read_experiments(FOLDER / f"planted-{level}.csv.xz")):
            layer = each.launch.ranges[-1]
            if (level, layer) not in counted.index:
                continue
            limit, busy = by_counters(counted.loc[level, layer])
            family = re.sub(r"_s\d+$", "", layer)
            cases.append(Case(family, level, layer, each, limit, busy))
    return cases


def network() -> list[Case]:
    """Return the kernels of YOLOv4-Tiny on cuDNN."""
    text = lzma.decompress((FOLDER / "yolov4-tiny-cudnn-fp32-counters.csv.xz").read_bytes())
    counted = pd.read_csv(io.BytesIO(text))
    rows = {layer: iter(group.to_dict("records")) for layer, group in counted.groupby("layer")}
    return list(_paired(rows))


def _paired(rows: dict[str, Iterator[dict[str, float]]]) -> Iterator[Case]:
    for each in responses(read_experiments(FOLDER / "yolov4-tiny-cudnn-fp32.csv.xz")):
        layer = each.launch.ranges[-1]
        row = next(rows[layer])
        if str(row["kernel"]) != each.launch.kernel[:60]:
            msg = f"{layer}: the counters are of another kernel"
            raise ValueError(msg)
        limit, busy = by_counters(row)
        yield Case(each.launch.kernel, "", layer, each, limit, busy)
