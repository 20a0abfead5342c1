"""Estimates for exams that no formula and no width was made with: the first answers, as they were.

They were asked once, when both exams had been recorded and none of their pairs read (commit
4f9addd). Asked again, after pairs were read, it is no such test, so only the answers are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from studies.page_tables import markdown

KEPT = Path(__file__).resolve().parents[2] / "tests/data/truth/fixes_unseen.csv"
UNSEEN = ("h200-strangers4", "h200-torch-pairs2")
KINDS = ("number", "interval", "nothing")


def scored(rows: pd.DataFrame) -> dict[str, Any]:
    """Return for each kind how many there are, median and mean error, and the share held."""
    found = {}
    for kind in KINDS:
        some = rows[rows["said"] == kind]
        error = (some["estimate_us"] / some["after_us"] - 1).abs()
        held = some["after_us"].between(some["low_us"], some["high_us"])
        found[kind] = {
            "pairs": len(some),
            "median": error.median(),
            "mean": error.mean(),
            "held": held.mean(),
        }
    return found


def table() -> str:
    """Return the first answers' scores, for the page."""
    kept = pd.read_csv(KEPT)
    cells = []
    for (exam, half), rows in [
        *kept.groupby(["exam", "half"], sort=True),
        *(((exam, "both"), rows) for exam, rows in kept.groupby("exam")),
    ]:
        found = scored(rows)
        line = [exam, half, len(rows)]
        for kind in KINDS[:2]:
            each = found[kind]
            line += [each["pairs"], f"{each['median']:.0%}, {each['mean']:.0%}"]
            line.append(f"{each['held']:.0%}")
        cells.append([*line, found["nothing"]["pairs"]])
    header = ["exam", "half", "pairs", "a number", "its error", "in its interval"]
    header += ["only an interval", "error of its middle", "in it", "nothing"]
    return markdown(header, cells)
