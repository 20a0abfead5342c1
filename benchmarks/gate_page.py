"""Write the tables of ``benchmarks/GATE.md``: ``python -m benchmarks.gate_page``."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import gate_power
from benchmarks.gate_repeats import tables
from studies.page_tables import write_tables

PAGE = Path(__file__).with_name("GATE.md")
RESULTS = Path(__file__).parent / "results" / "gate-repeats.json"


def repeats() -> str:
    """Return the counts of recorded repeats."""
    return tables(json.loads(RESULTS.read_text(encoding="utf-8")))


def power() -> str:
    """Return the grid of planted changes and disturbances."""
    return gate_power.table(json.loads(gate_power.RESULTS.read_text(encoding="utf-8")))


TABLES = {"repeats": repeats, "power": power}

if __name__ == "__main__":
    write_tables(PAGE, TABLES)
