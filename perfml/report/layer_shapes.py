"""The filters of layers, and the study's table 2.3: fast and slow layers by their filters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfml.modeling.layer_shapes import described_layers
from perfml.report.labels import clean

MANY_FILTERS = 128
"""Where the study divides few from many filters (Nazir 2024, table 2.3)."""

EXTREMES = 5
"""How many layers count as fast, and how many as slow (the same table)."""


@dataclass(frozen=True)
class Shape:
    """One layer's filters, as far as the manifest tells them."""

    size: int | None
    filters: int | None
    stride: int | None

    @property
    def group(self) -> tuple[str, str] | None:
        """Filter size and number of filters, as the columns and rows of table 2.3."""
        if self.size is None or self.filters is None:
            return None
        few = f"< {MANY_FILTERS}" if self.filters < MANY_FILTERS else f"≥ {MANY_FILTERS}"
        return f"{self.size}×{self.size}", few

    @property
    def text(self) -> str:
        """The filters in short, such as ``3×3/1, 64 filters``."""
        if self.size is None:
            return "–"
        stride = "" if self.stride is None else f"/{self.stride}"
        filters = "" if self.filters is None else f", {self.filters} filters"
        return f"{self.size}×{self.size}{stride}{filters}"


def layer_shapes(provenance: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the filters of layers by name; empty when no manifest describes them.

    Parameters
    ----------
    provenance
        The document of a table. What is malformed in it is ignored: shapes are an addition to
        the times, never needed.
    """
    shapes: dict[str, Shape] = {}
    for row in described_layers(provenance):
        filters = (_whole(row.get(name)) for name in ("size", "filters", "stride"))
        shapes.setdefault(clean(row["layer"], 200), Shape(*filters))
    return shapes


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        match = re.match(r"\s*(\d+)", value)
        return int(match[1]) if match else None
    if isinstance(value, (list, tuple)) and value:
        return _whole(value[0])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if math.isfinite(value) else None


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
