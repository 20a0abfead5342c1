"""The shapes of layers, from the run manifests in the provenance, and the study's table 2.3."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfml.report._labels import clean

MANY_FILTERS = 128
"""Where the study divides few from many filters (Nazir 2024, table 2.3)."""

EXTREMES = 5
"""How many layers count as fast, and how many as slow (the same table)."""


@dataclass(frozen=True)
class Shape:
    """One layer's shape, as far as the manifest tells it."""

    layer: str
    size: int | None
    filters: int | None
    stride: int | None
    input: str
    output: str
    flops: float

    @property
    def group(self) -> tuple[str, str] | None:
        """Filter size and number of filters, as the columns and rows of table 2.3."""
        if self.size is None or self.filters is None:
            return None
        few = f"< {MANY_FILTERS}" if self.filters < MANY_FILTERS else f"≥ {MANY_FILTERS}"
        return f"{self.size}×{self.size}", few


def layer_shapes(provenance: Mapping[str, Any] | None) -> dict[str, Shape]:
    """Return the shapes of layers by name; empty when no manifest describes them.

    Parameters
    ----------
    provenance
        The document of a table: ``runs`` is a list of manifests with ``layers``, or ``layers``
        stands in the document itself. Anything else in these places is ignored: shapes are an
        addition to the times, never needed.
    """
    if not isinstance(provenance, Mapping):
        return {}
    runs = provenance.get("runs")
    sources = [provenance, *(runs if isinstance(runs, list) else [])]
    found: dict[str, Shape] = {}
    for source in sources:
        rows = source.get("layers") if isinstance(source, Mapping) else None
        for row in rows if isinstance(rows, list) else []:
            shape = _shape(row) if isinstance(row, Mapping) else None
            if shape is not None:
                found.setdefault(shape.layer, shape)
    return found


def _shape(row: Mapping[str, Any]) -> Shape | None:
    name = row.get("layer", row.get("name"))
    if not isinstance(name, str) or not name:
        return None
    flops = row.get("flops")
    return Shape(
        clean(name, 200),
        _whole(row.get("size")),
        _whole(row.get("filters")),
        _whole(row.get("stride")),
        _extent(row.get("input")),
        _extent(row.get("output")),
        float(flops) if isinstance(flops, (int, float)) else math.nan,
    )


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        match = re.match(r"\s*(\d+)", value)
        return int(match[1]) if match else None
    if isinstance(value, (list, tuple)) and value:
        return _whole(value[0])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if math.isfinite(value) else None


def _extent(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "×".join(clean(part, 12) for part in value)
    return clean(value, 40).replace("x", "×") if isinstance(value, str) else "–"


def speed_classes(medians: pd.Series) -> dict[str, str]:
    """Return ``fast``, ``slow`` or ``middle`` a layer, by the study's rule.

    Parameters
    ----------
    medians
        Microseconds, indexed by layer.

    Returns
    -------
    dict
        The five fastest are fast, the five slowest slow; of fewer than ten layers a half each.
    """
    order = medians.dropna().sort_values(kind="stable")
    extremes = min(EXTREMES, len(order) // 2)
    names = [str(name) for name in order.index]
    fast, slow = set(names[:extremes]), set(names[len(names) - extremes :])
    return {
        name: "fast" if name in fast else "slow" if name in slow else "middle" for name in names
    }


def filter_groups(
    medians: pd.Series, shapes: Mapping[str, Shape]
) -> dict[tuple[str, str], list[tuple[str, float, str]]]:
    """Return table 2.3: the layers of every filter size and number of filters.

    Parameters
    ----------
    medians
        Microseconds, indexed by layer, of one backend.
    shapes
        From `layer_shapes`.

    Returns
    -------
    dict
        ``(size, filters)`` to ``(layer, microseconds, class)`` in the order of `medians`; layers
        without a known shape are left out.
    """
    known = {str(name): shapes[str(name)].group for name in medians.index if str(name) in shapes}
    inside = medians[[known.get(str(name)) is not None for name in medians.index]].dropna()
    classes = speed_classes(inside)
    groups: dict[tuple[str, str], list[tuple[str, float, str]]] = {}
    for name, value in inside.items():
        key = known[str(name)]
        if key is not None:
            groups.setdefault(key, []).append((str(name), float(value), classes[str(name)]))
    return groups
