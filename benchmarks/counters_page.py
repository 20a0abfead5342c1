"""Write the tables of ``benchmarks/COUNTERS.md`` from what was recorded.

``python -m benchmarks.counters_page``, after a new recording is laid into ``benchmarks/results``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.agreement import RESULTS as AGREEMENT
from benchmarks.agreement import kinds_table, metrics_table, sums_table
from studies.page_tables import write_tables

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = Path(__file__).with_name("COUNTERS.md")
COSTS = RESULTS / "collect-h200-once.json"
PROGRAMS = RESULTS / "counted-programs-h200.json"
NETWORKS = {"yolov4-tiny": "YOLOv4-Tiny", "resnet34": "ResNet-34"}


def recorded(path: Path) -> dict[str, Any]:
    """Return a file of results."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def costs_table(costs: Sequence[dict[str, Any]]) -> str:
    """Return what commands and their counters cost, in ms a launch."""
    head = "network, metrics | by | passes | whole | counters | again | ncu divided by again"
    lines = [f"| {head} |", "|---|---|---|---|---|---|---|"]
    for cost in costs:
        name, again = (cost["network"], cost["metrics"]), cost["again_ms_a_launch"]
        theirs = [
            other["counter_ms_a_launch"]
            for other in costs
            if (other["network"], other["metrics"]) == name and other["tool"].startswith("ncu")
        ]
        cells = [
            f"{NETWORKS[cost['network']]}, {cost['metrics']}",
            cost["tool"],
            str(cost["passes"]),
            f"{cost['ms_a_launch']:.1f}",
            f"{cost['counter_ms_a_launch']:.1f}",
            f"{again:.1f}" if again else "",
            f"{theirs[0] / again:.1f}" if again and theirs else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def programs_table(programs: Sequence[dict[str, Any]]) -> str:
    """Return how each kind of program was measured and what was said of it."""
    lines = ["| program | measured by | starts | launches | said |", "|---|---|---|---|---|"]
    for row in programs:
        by = f"{row['profiler']}, replay by {row['replay']}" if row["profiler"] else "nothing"
        said = "; ".join(row["said"]).replace("|", "\\|") or "nothing"
        cells = [row["what"], by, row["runs"] or "", row["launches_profiled"] or "", said]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


TABLES = {
    "costs": lambda: costs_table(recorded(COSTS)["costs"]),
    "programs": lambda: programs_table(recorded(PROGRAMS)["programs"]),
    "kinds": lambda: kinds_table(recorded(AGREEMENT)),
    "sums": lambda: sums_table(recorded(AGREEMENT)),
    "metrics": lambda: metrics_table(recorded(AGREEMENT)),
}
"""The page's tables by their names."""


def main() -> int:
    """Put the tables between their marks."""
    write_tables(PAGE, TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
