"""Elasticities of launches, from experiments on the same program: columns beside its counters."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pandas as pd

from perfml.experiments.record import FILE, read_experiments
from perfml.experiments.responses import Responses, responses

CONDITIONS = {
    "elasticity_sm": "sm_half",
    "elasticity_warps": "warps_half",
    "elasticity_dram": "dram_traffic",
    "elasticity_l2": "l2_traffic",
}
"""Column to the condition whose elasticity it holds."""


def with_experiments(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return launches with elasticities, where the run's folder has ``experiments.csv``.

    A launch is found by its layer, kernel and place among the layer's launches of that kernel; one
    iteration was examined, and every iteration has its elasticities. `CONDITIONS` are the columns,
    missing for launches that were not examined. Raises `InputError` if the table of experiments is
    damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return frame
    known: dict[tuple[str, str], list[Responses]] = defaultdict(list)
    for each in responses(read_experiments(path)):
        layer = each.launch.ranges[-1] if each.launch.ranges else ""
        known[layer, each.launch.kernel].append(each)
    layers = frame["layer"].astype(object).fillna("")
    place = frame.groupby(["iteration", layers, "kernel"], dropna=False, sort=False).cumcount()
    found = [
        launches[number] if number < len(launches := known[layer, kernel]) else None
        for layer, kernel, number in zip(layers, frame["kernel"], place, strict=True)
    ]
    columns = {
        name: [float("nan") if each is None else each.elasticity(condition) for each in found]
        for name, condition in CONDITIONS.items()
    }
    return frame.assign(**{name: pd.array(v, dtype="float64") for name, v in columns.items()})
