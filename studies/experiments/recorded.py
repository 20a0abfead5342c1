"""Recorded experiments, and the busiest unit by the counters of the same kernels.

Counters of the planted kernels are those of ``h100-planted-causes`` and ``h200-planted-causes``,
recorded on another day and card; those of YOLOv4-Tiny were recorded on the same card, right after
the experiments.
"""

from __future__ import annotations

import io
import json
import lzma
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml.experiments.record import read_experiments
from perfml.experiments.responses import Responses, responses
from studies.data import load

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "h100-experiments"
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
    dram_bound
        Whether DRAM is busier than the pipes and the issue slots: the roofline's view.
    on_h200_us
        The time on an H200; NaN where it was not recorded.
    """

    family: str
    level: str
    layer: str
    responses: Responses
    limit: str
    busy: float
    dram_bound: bool
    on_h200_us: float = math.nan


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


def planted(gpu: str = "h100") -> list[Case]:
    """Return the planted kernels that have counters, by the experiments on an H100 or H200."""
    frame = load(f"{gpu}-planted-causes", as_frame=True).frame
    counted = frame.groupby(["backend", "layer"]).median(numeric_only=True)
    known = {family["family"] for family in truth()}
    cases = []
    for level in LEVELS if gpu == "h100" else LEVELS[1:]:
        name = f"planted-{level}.csv.xz"
        there = {each.launch.ranges[-1]: each.time_us for each in _recorded("h200", name)}
        for each in _recorded(gpu, name):
            layer = each.launch.ranges[-1]
            family = re.sub(r"_s\d+$", "", layer)
            if (level, layer) not in counted.index or family not in known:
                continue
            row = counted.loc[level, layer]
            after = there.get(layer, math.nan)
            cases.append(Case(family, level, layer, each, *by_counters(row), _bound(row), after))
    return cases


def truth() -> list[dict[str, Any]]:
    """Return the planted families, and what counts as naming their cause."""
    text = (DATA / "h100-planted-causes" / "truth.json").read_text(encoding="utf-8")
    families: list[dict[str, Any]] = json.loads(text)["families"]
    return families


def _recorded(gpu: str, name: str) -> list[Responses]:
    return responses(read_experiments(DATA / f"{gpu}-experiments" / name))


def _bound(row: Mapping[str, float]) -> bool:
    pipes = ("issue_slot_utilization", "alu_utilization", "single_precision_fu_utilization")
    return bool(row["dram_utilization"] > max(row[name] for name in pipes))


def network() -> list[Case]:
    """Return the kernels of YOLOv4-Tiny on cuDNN."""
    text = lzma.decompress((FOLDER / "yolov4-tiny-cudnn-fp32-counters.csv.xz").read_bytes())
    counted = pd.read_csv(io.BytesIO(text))
    rows = {layer: iter(group.to_dict("records")) for layer, group in counted.groupby("layer")}
    return list(_paired(rows))


def _paired(rows: dict[str, Iterator[dict[str, float]]]) -> Iterator[Case]:
    here, there = (_recorded(gpu, "yolov4-tiny-cudnn-fp32.csv.xz") for gpu in ("h100", "h200"))
    for each, other in zip(here, there, strict=True):
        layer, kernel = each.launch.ranges[-1], each.launch.kernel
        row = next(rows[layer])
        if str(row["kernel"]) != kernel[:60] or other.launch.kernel != kernel:
            msg = f"{layer}: the counters or the times are of another kernel"
            raise ValueError(msg)
        yield Case(kernel, "", layer, each, *by_counters(row), _bound(row), other.time_us)
