"""The table of RESULTS.md from ``power.json``; ``python -m studies.ranking.page`` writes it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from studies.page_tables import markdown, write_tables
from studies.ranking.power import RESULTS

PAGE = Path(__file__).with_name("RESULTS.md")


def cases() -> list[dict[str, Any]]:
    """Return how often a signal was said, by number of columns and share of variance."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["cases"]
    return found


def power() -> str:
    """Return the share of tables in which the signal is said; with R2 of 0, any column."""
    by_columns: dict[int, dict[float, str]] = defaultdict(dict)
    for case in cases():
        if case["rows"] == [1, 1]:
            said = f"{case['said'] / case['tables']:.0%}".replace("%", " %")
            by_columns[case["columns"]][case["r2"]] = f"{said} of {case['tables']}"
    shares = sorted(next(iter(by_columns.values())))
    rows = [[columns, *(row[r2] for r2 in shares)] for columns, row in by_columns.items()]
    return markdown(["metrics", *(f"R2 {r2:g}" for r2 in shares)], rows)


def alarms() -> tuple[int, int]:
    """Return in how many tables without a signal one was said, and how many tables these are."""
    noise = [case for case in cases() if case["r2"] == 0]
    return sum(case["said"] for case in noise), sum(case["tables"] for case in noise)


TABLES = {"power": power}

if __name__ == "__main__":
    write_tables(PAGE, TABLES)
