"""Tables of RESULTS.md from ``grid.json``; ``python -m studies.ranking.page`` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studies.page_tables import markdown, write_tables
from studies.ranking.field import RESULTS as FIELD
from studies.ranking.grid import RESULTS

PAGE = Path(__file__).with_name("RESULTS.md")

SINGLE = ("spearman", "pearson", "monotone", "shape", "pair")


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


def rivals() -> list[dict[str, Any]]:
    """Return what the methods of the field gave, without those that were not installed."""
    found: list[dict[str, Any]] = json.loads(FIELD.read_text(encoding="utf-8"))
    return [row for row in found if "missing" not in row]


def field() -> str:
    """Return the tables in which a method shows the effect, and its seconds."""
    kinds = list(rivals()[0]["shown"])
    rows = []
    for row in rivals():
        shown = (f"{row['shown'][kind]} of {row['tables']}" for kind in kinds)
        rows.append([row["method"], *shown, f"{row['seconds']:.2g}"])
    return markdown(["method", *kinds, "s a table"], rows)


def real() -> str:
    """Return the first two columns of real tables, and how many stand above columns of noise."""
    names = list(rivals()[0]["real"])
    cells = {
        row["method"]: [_real(row["real"][name]) for name in names if name in row["real"]]
        for row in rivals()
    }
    return markdown(["method", *names], [[method, *row] for method, row in cells.items()])


def _real(found: dict[str, Any]) -> str:
    if "refused" in found:
        return "refused"
    shown = f", {found['shown']} shown" if "shown" in found else ""
    return f"{', '.join(found['first'])}: {found['above noise']} of {found['columns']}{shown}"


TABLES = {"power": power, "noise": noise, "field": field, "real": real}

if __name__ == "__main__":
    write_tables(PAGE, TABLES)
