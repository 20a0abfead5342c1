"""The sizes of a layer's products of matrices, which no counter tells: from a run's manifest."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from perfml.tables import PRODUCT_COLUMNS

_BITS = re.compile(r"[a-z]+([0-9]+)")
"""Of a data type such as ``float16``, ``bfloat16``, ``int8`` or ``float8_e4m3fn``."""


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
