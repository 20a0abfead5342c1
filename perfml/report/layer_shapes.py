"""The filters of layers, as far as run manifests tell them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfml.modeling.layer_shapes import described_layers
from perfml.report.labels import clean


@dataclass(frozen=True)
class Shape:
    """One layer's filters, as far as the manifest tells them."""

    size: int | None
    filters: int | None
    stride: int | None

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

    What is malformed in a table's document is ignored: shapes are an addition to the times, never
    needed.
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
