"""Does the gate cry wolf? Two recordings of one program, each iteration against each.

``python -m benchmarks.gate_repeats FIRST SECOND`` takes two folders that ``perfml collect`` wrote
of the same workload. It counts verdicts on equal code, and how often 2 % more of one counter in one
layer is found and named. Beside it stands a plain threshold of 5 % on the mean time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator

import pandas as pd

from perfml.gate import Verdict, judge
from perfml.gate.work import COUNTED, LAUNCHES
from perfml.ingest import ingest
from perfml.merge import merge

GROWTH = 1.02
THRESHOLD = 1.05


def main() -> None:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("first")
    parser.add_argument("second")
    given = parser.parse_args()
    sides = [merge(ingest([path]).frame) for path in (given.first, given.second)]
    equal: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    for backend in sorted(set(sides[0]["backend"]) & set(sides[1]["backend"])):
        before, after = (side[side["backend"] == backend] for side in sides)
        equal.update(_equal(before, after))
        planted.update(_planted(before, after))
    print(json.dumps({"equal code": equal, "2 % more": planted}, indent=1))


def _equal(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    """Yield a verdict a layer and pair of iterations, and the threshold's where it closes."""
    for _, left in before.groupby("iteration"):
        for _, right in after.groupby("iteration"):
            for layer in judge(left, right).layers:
                yield layer.verdict.value
                if layer.time is not None and layer.time.ratio > THRESHOLD:
                    yield "5 % threshold on time: worse"


def _planted(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    for layer, rows in after.groupby("layer"):
        for counter in COUNTED:
            if counter == LAUNCHES or counter not in rows or not (rows[counter] > 0).all():
                continue
            more = after.copy()
            more.loc[more["layer"] == layer, counter] *= GROWTH
            worse = judge(before, more).of(Verdict.WORSE)
            yield "asked"
            if [row.layer for row in worse] == [layer]:
                yield "found"
                if worse[0].changed[0].counter == counter:
                    yield "named"


if __name__ == "__main__":
    main()
