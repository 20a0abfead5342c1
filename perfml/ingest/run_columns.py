"""Columns that a run's own files give its launches: sizes of products, and elasticities.

The sizes of a layer's products of matrices, which no counter tells, come from the run's manifest;
elasticities from experiments on the same program.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.experiments.record import FILE, read_experiments
from perfml.experiments.responses import Responses, responses
from perfml.tables import PRODUCT_COLUMNS

_BITS = re.compile(r"[a-z]+([0-9]+)")
"""Of a data type such as ``float16``, ``bfloat16``, ``int8`` or ``float8_e4m3fn``."""


CONDITIONS = {
    "elasticity_sm": "sm_half",
    "elasticity_warps": "warps_half",
    "elasticity_dram": "dram_traffic",
    "elasticity_l2": "l2_traffic",
}
"""Column to the condition whose elasticity it holds."""


def with_products(frame: pd.DataFrame, manifest: dict[str, Any]) -> pd.DataFrame:
    """Return launches with the largest product of their layer, where the manifest has any.

    The manifest of the run (``run.json``) has ``layers`` with ``products``
    (`collectors.workloads.torch_models.work`). `perfml.tables.PRODUCT_COLUMNS` are missing in
    layers without a product.
    """
    rows = manifest.get("layers")
    sizes = {
        str(row["layer"]): (*largest, _flops(row))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and (largest := _largest(row.get("products"))) is not None
    }
    if not sizes:
        return frame
    layers = frame["layer"].astype(object)
    columns = {
        name: pd.to_numeric(layers.map({layer: size[place] for layer, size in sizes.items()}))
        for place, name in enumerate(PRODUCT_COLUMNS)
    }
    return frame.assign(**{name: column.astype("float64") for name, column in columns.items()})


def _flops(row: dict[str, Any]) -> float:
    """Return what a layer computes; NaN where that is not known."""
    flops = row.get("flops")
    return float(flops) if isinstance(flops, int | float) else float("nan")


def _largest(products: Any) -> tuple[float, float, float, float] | None:
    """Return m, n, k and bytes of an element of the product with the most work."""
    known = []
    for product in products if isinstance(products, list) else []:
        if not isinstance(product, dict):
            continue
        bits = _BITS.match(str(product.get("dtype")))
        try:
            m, n, k, count = (float(product[name]) for name in ("m", "n", "k", "count"))
        except (KeyError, TypeError, ValueError):
            continue
        if bits is not None:
            known.append((m * n * k * count, (m, n, k, int(bits.group(1)) / 8)))
    return max(known)[1] if known else None


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
