"""What the speed table holds: its columns, its rows, and where it stands in the docs.

Apart from the program that measures, because a test compares the page with this and needs none of
the rivals for it.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).with_name("RESULTS.md")
MARKS = ("<!-- table: written by benchmarks/run.py -->", "<!-- end of table -->")

COLUMNS = (
    "work",
    "other side",
    "perfml, s",
    "other, s",
    "times faster",
    "min to max",
    "in processor time",
    "note",
)

ROWS: dict[str, tuple[str, ...]] = {
    "csv": (
        "pandas, same work",
        "Polars, same work",
        "DuckDB, same work",
        "csv module, same work",
        "pandas, chosen columns",
        "Polars, chosen columns",
        "DuckDB, chosen columns",
    ),
    "report": ("loop over ncu_report, same work", "loop over ncu_report, values alone"),
    "merge": (
        "pandas, vectorised",
        "Polars, pandas in and out",
        "DuckDB, pandas in and out",
        "Polars, its own table",
        "DuckDB, an Arrow table",
        "pandas, groupby-apply",
    ),
    "suite": ("plain scikit-learn",),
    "start": ("import pandas", "import pandas"),
    "collect": ("plain ncu, the same metrics", "plain ncu, --set full"),
}
"""Rooms in order, and the other side of each row."""


def on_page(page: str) -> list[dict[str, str]]:
    """Return the rows of the table in the docs, by column."""
    table = page[page.index(MARKS[0]) : page.index(MARKS[1])]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    header, _, *rows = cells
    return [dict(zip(header, row, strict=True)) for row in rows]
