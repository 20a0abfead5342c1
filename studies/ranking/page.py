"""Tables of RESULTS.md from ``grid.json``; ``python -m studies.ranking.page`` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studies.page_tables import markdown, write_tables
from studies.ranking.grid import RESULTS

PAGE = Path(__file__).with_name("RESULTS.md")

SINGLE = ("spearman", "pearson", "shape", "pair")


def cases() -> list[dict[str, Any]]:
    """Return the measured cases of the grid."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["cases"]
    return found


def percent(part: int, of: int) -> str:
    """Return a share in whole percent."""
    return f"{100 * part / of:.0f} %"


def behind() -> list[float]:
    """Return by how many points perfml is behind the best single statistic, a case with effect."""
    points = []
    for case in cases():
        if case["r2"]:
            best = max(case["shown"][name] for name in SINGLE)
            points.append(100 * (best - case["shown"]["perfml"]) / case["tables"])
    return points


def alarms() -> tuple[int, int]:
    """Return in how many tables without an effect one was shown, and how many tables these are."""
    noise = [case for case in cases() if case["r2"] == 0]
    return sum(case["shown"]["perfml"] for case in noise), sum(case["tables"] for case in noise)


def _about(case: dict[str, Any]) -> list[Any]:
    kind = f"{case['kind']}, {case['odd']}" if case["odd"] else case["kind"]
    return [kind, case["rows"], case["columns"]]


def power() -> str:
    """Return the share of tables with an effect in which each test shows it."""
    rows = [
        [*_about(case), case["r2"]]
        + [percent(case["shown"][name], case["tables"]) for name in ("perfml", "reduced", *SINGLE)]
        for case in cases()
        if case["r2"]
    ]
    head = ["effect", "rows", "columns", "R2", "perfml", "199 permutations", *SINGLE]
    return markdown(head, rows)


def noise() -> str:
    """Return the share of tables without an effect in which a test shows one."""
    rows = []
    for case in cases():
        if not case["r2"]:
            about = [case["odd"] or "plain", case["rows"], case["columns"], case["tables"]]
            counts = [case["shown"][name] for name in ("perfml", "reduced")]
            rows.append([*about, *(percent(count, case["tables"]) for count in counts)])
    return markdown(["tables", "rows", "columns", "drawn", "perfml", "199 permutations"], rows)


TABLES = {"power": power, "noise": noise}

if __name__ == "__main__":
    write_tables(PAGE, TABLES)
