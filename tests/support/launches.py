"""Launches made up for tests of the physics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfml.explain.launches import Launch


def launch(row: Mapping[str, Any]) -> Launch:
    """Return a launch from its kernel, its time and counters by name."""
    counters = {name: value for name, value in row.items() if name not in ("kernel", "time_us")}
    return Launch(str(row.get("kernel", "")), row["time_us"], counters)
