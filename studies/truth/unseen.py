"""Estimates for exams that no formula and no width was made with: the first answers, as they were.

Run: ``python -m studies.truth.unseen --out FILE`` asks and writes a row for each pair that differs.
It was run once, when both exams had been recorded and none of their pairs read (commit 4f9addd);
the table on the page is of that file. Asked again, after pairs were read, it is no such test.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import find
from perfml.explain.advice.after_fix import SAID, WIDTH
from perfml.tables import replacing
from studies.page_tables import markdown
from studies.truth.fixes import exam_questions, first_cause, fixes_of

KEPT = Path(__file__).resolve().parents[2] / "tests/data/truth/fixes_unseen.csv"
UNSEEN = ("h200-strangers4", "h200-torch-pairs2")
HALVES = ("dev", "aside")
KINDS = ("number", "interval", "nothing")


def ask() -> pd.DataFrame:
    """Return today's estimates, of the cause that `explain` says first."""
    rows = []
    for exam in UNSEEN:
        folder = find(exam)
        assert folder is not None
        halves = json.loads((folder / "halves.json").read_text(encoding="utf-8"))
        for row in fixes_of(exam, map(first_cause, exam_questions(exam))):
            ends = (math.nan, math.nan)
            kind = "nothing"
            if row.unsaid is None:
                ends = WIDTH.around(row.estimate_us, row.now_us, row.told)
                kind = "number" if row.told >= SAID else "interval"
            rows.append(
                {
                    "exam": exam,
                    "half": next(name for name in HALVES if row.family in halves[name]),
                    "pair": row.family,
                    "said": kind,
                    "after_us": row.after_us,
                    "estimate_us": row.estimate_us,
                    "low_us": ends[0],
                    "high_us": ends[1],
                }
            )
    return pd.DataFrame(rows).round(2)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    with replacing(given.out) as place:
        ask().to_csv(place, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
