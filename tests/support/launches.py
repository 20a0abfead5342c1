"""Launches made up for tests of the physics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfml.chips import chip
from perfml.explain.launches import Launch


def launch(row: Mapping[str, Any]) -> Launch:
    """Return a launch from its kernel, time, compute capability, and counters by name."""
    texts = ("kernel", "time_us", "capability")
    counters = {name: value for name, value in row.items() if name not in texts}
    known = str(row.get("kernel", "")), row["time_us"], counters
    return Launch(*known, chip=chip(capability=row.get("capability")))
