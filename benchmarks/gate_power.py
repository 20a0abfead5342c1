"""How often the gate finds planted work, and how often it closes on none, over a grid.

``python -m benchmarks.gate_power`` takes recorded layers of three data sets in which every repeat
was counted (`DATA`), gives each side some of the repeats, changes one counter of one side, disturbs
the tables and asks the gate. ``benchmarks/results/gate-power.json`` keeps the counts; ``--quick``
asks less often and keeps nothing.

A change of 0 shows false alarms, a negative one improvements. What is disturbed (`DISTURBANCES`) is
the counter that changes: a repeat lacks it, or is an outlier of 25 %.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.datasets import load
from perfml.gate import Verdict, judge
from perfml.gate.work import COUNTED, LAUNCHES
from perfml.util.files import write_text

RESULTS = Path(__file__).resolve().parent / "results" / "gate-power.json"
DATA = ("h200-yolov4-tiny", "h200-attention", "h200-conv", "h200-qkv")
CHANGES = (-0.1, -0.02, 0.0, 0.01, 0.02, 0.05, 0.1)
REPEATS = (1, 2, 3, 5)
OUTLIER = 1.25
NOT_OF: dict[int, tuple[str, ...]] = {1: ("one ", "two ", "most "), 2: ("two ",)}
"""Disturbances of as many repeats as a side has: then all of it is disturbed."""
ASKED, QUICK = 60, 3
"""Layers and counters asked for a cell of the grid."""

Sides = tuple[pd.DataFrame, pd.DataFrame]
Generator = np.random.Generator


def _lacking(side: pd.DataFrame, counter: str, repeats: int) -> pd.DataFrame:
    cells = side[counter].to_numpy(dtype=float, copy=True)
    cells[:repeats] = np.nan
    return side.assign(**{counter: cells})


def _odd(side: pd.DataFrame, counter: str, repeats: int) -> pd.DataFrame:
    cells = side[counter].to_numpy(dtype=float, copy=True)
    cells[:repeats] *= OUTLIER
    return side.assign(**{counter: cells})


DISTURBANCES: dict[str, Callable[[pd.DataFrame, pd.DataFrame, str], Sides]] = {
    "nothing": lambda before, after, counter: (before, after),
    "one new repeat lacks it": lambda before, after, counter: (
        before, _lacking(after, counter, 1),
    ),
    "most new repeats lack it": lambda before, after, counter: (
        before, _lacking(after, counter, len(after) // 2 + 1),
    ),
    "one baseline repeat +25 %": lambda before, after, counter: (_odd(before, counter, 1), after),
    "one new repeat +25 %": lambda before, after, counter: (before, _odd(after, counter, 1)),
    "two baseline repeats +25 %": lambda before, after, counter: (
        _odd(before, counter, 2), after,
    ),
    "new side on another GPU": lambda before, after, counter: (
        before, after.assign(device="NVIDIA H100 80GB HBM3"),
    ),
    "new side at 1,500 of 1,980 MHz": lambda before, after, counter: (
        before.assign(sm_clock_mhz=1980.0),
        after.assign(sm_clock_mhz=1500.0, time_us=after["time_us"] * 1980 / 1500),
    ),
    "new side 5 % slower, clock unknown": lambda before, after, counter: (
        before, after.assign(time_us=after["time_us"] * 1.05),
    ),
}  # fmt: skip
"""What happens to the sides of a comparison, by its name."""


@dataclass(frozen=True)
class Case:
    """One recorded layer, ten iterations or so of it, and one of its counters that is not 0."""

    rows: pd.DataFrame
    counter: str

    def sides(self, repeats: int, change: float, disturbance: str, random: Generator) -> Sides:
        """Return two disjoint sets of its repeats, the second with a changed counter."""
        order = random.permutation(len(self.rows))[: 2 * repeats]
        before, after = (self.rows.iloc[part] for part in (order[:repeats], order[repeats:]))
        after = after.assign(**{self.counter: after[self.counter] * (1 + change)})
        return DISTURBANCES[disturbance](before, after, self.counter)


def cases() -> list[Case]:
    """Return every recorded layer with every counter that it has in all repeats."""
    keys = ["workload", "backend", "precision", "batch", "layer"]
    found = []
    for name in DATA:
        for _, rows in load(name).frame.groupby(keys, dropna=False):
            held = (counter for counter in COUNTED if counter != LAUNCHES and counter in rows)
            found += [Case(rows, each) for each in held if (rows[each] > 0).all() and len(rows) > 9]
    return found


def grid(asked: int) -> list[dict[str, object]]:
    """Return how often which verdict was given, cell by cell."""
    known = cases()
    cells: list[dict[str, object]] = []
    for number, cell in enumerate(itertools.product(DISTURBANCES, REPEATS, CHANGES)):
        disturbance, repeats, change = cell
        if disturbance.startswith(NOT_OF.get(repeats, ())):
            continue
        random = np.random.default_rng(number)
        chosen = random.integers(len(known), size=asked)
        verdicts = Counter(
            judge(*known[place].sides(repeats, change, disturbance, random)).verdict.value
            for place in chosen
        )
        cells.append({"disturbed": disturbance, "repeats": repeats, "change": change, **verdicts})
    return cells


def table(cells: list[dict[str, object]]) -> str:
    """Return the grid as Markdown: the share called worse, and after it what nobody could tell."""
    heads = [f"{change:+.0%}" if change else "none" for change in CHANGES]
    lines = [f"| disturbed | repeats | {' | '.join(heads)} |", "|---|--:|" + "--:|" * len(heads)]
    rows = itertools.groupby(cells, key=lambda cell: (cell["disturbed"], cell["repeats"]))
    for (disturbance, repeats), row in rows:
        lines.append(f"| {disturbance} | {repeats} | {' | '.join(map(_shown, row))} |")
    return "\n".join(lines)


def _shown(cell: dict[str, object]) -> str:
    counts = {word: int(str(cell[word])) for word in map(str, Verdict) if word in cell}
    whole = sum(counts.values())
    return ", ".join(f"{word} {count / whole:.0%}" for word, count in counts.items())


def main() -> None:
    """Ask, print the table and keep the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} layers a cell, kept nowhere")
    quick = parser.parse_args().quick
    cells = grid(QUICK if quick else ASKED)
    if not quick:
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        write_text(RESULTS, f"[\n{lines}\n]\n")
    print(table(cells))


if __name__ == "__main__":
    main()
