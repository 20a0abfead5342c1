"""The atlas: errors on networks nobody learned from, intervals and rankings, against their goals.

``python -m benchmarks.atlas`` measures everything anew (`studies.atlas.measure`), writes
``benchmarks/results/atlas.json`` and prints each goal with what was reached; ``--stored`` prints
what was measured last. Needs the extra ``atlas``. `studies.atlas.page` writes
studies/atlas/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import sys

from studies.atlas.measure import RESULTS, measure


def main() -> None:
    """Measure, and print the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", action="store_true", help="only print the last results")
    stored = parser.parse_args().stored
    result = json.loads(RESULTS.read_text(encoding="utf-8")) if stored else measure([])
    for goal in result["goals"]:
        print(f"{'met' if goal['met'] else 'MISSED':7}{goal['found']:8.3f}  {goal['goal']}")
    spent = sum(result["seconds"].values())
    print(f"{spent:.0f} s of processor time, {max(result['seconds'].values()):.0f} in one step")
    if not all(goal["met"] for goal in result["goals"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
