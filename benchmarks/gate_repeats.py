"""Does the gate cry wolf, and does it find 2 % more work? On recorded repeats of the same code.

``python -m benchmarks.gate_repeats`` compares what the data sets hold twice: iterations of one
program (halves against each other), the planted kernels of two recordings on one H200, and of an
H200 against an H100. Every comparison is one layer, in both directions; in "networks" it is all
layers of a condition, and the two processes that each network of the atlas was timed in. Beside
the gate stand, on the same pairs, the rule of nvbench's ``nvbench_compare.py`` (the means differ by
more than the smaller of both relative standard deviations) and a threshold of 5 % on the mean time.

Planted: each counter of one in eight layers grown by 2 %, with a time that grew by 2 % too, in one
direction and, of the iterations, in odd against even ones.

``--json FILE`` keeps the counts, as ``benchmarks/results/gate-repeats.json`` has them; ``--quick``
takes some layers only. ``FIRST SECOND`` are two folders that ``perfml collect`` wrote of one
workload, compared in place of the data sets.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.data import ROOT
from perfml.datasets import DATASETS, load
from perfml.gate import Verdict, judge
from perfml.gate.work import COUNTED, LAUNCHES
from perfml.metrics.sets import INSTRUCTIONS

GROWTH = 1.02
THRESHOLD = 1.05
UNUSED = (
    *("atlas", "nazir2024", "h100-experiments", "h200-experiments", "h100-factorial"),
    *("h200-ladders", "__pycache__"),
)
"""The atlas is taken by processes, one has to be fetched, three are no tables of repeats, and one
was recorded after the counts of the gate's page."""
QUICK = 60
"""Of so many pairs one is taken with ``--quick``."""
PLANTED_EVERY = 8
"""In one of so many layers work is planted, counter by counter."""
PLANTED = ("h200-planted", "h200-planted-causes", "h100-planted-causes")
NVBENCH = "nvbench's rule: "
CONDITION = ["workload", "backend", "precision", "batch", "device"]
LAYER = [*CONDITION[:-1], "layer"]

Pair = tuple[str, pd.DataFrame, pd.DataFrame]
"""What differs between two sides, and the rows of one layer on each."""


def main() -> None:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sides", nargs="*", metavar="FOLDER", help="two collected runs")
    parser.add_argument("--json", type=Path, help="write the counts here too")
    parser.add_argument("--quick", action="store_true", help="some pairs only")
    given = parser.parse_args()
    if len(given.sides) not in (0, 2):
        parser.error("give two folders, or none for the data sets")
    pairs = list(between("runs", *map(_collected, given.sides)) if given.sides else recorded())
    if given.quick:
        pairs = pairs[::QUICK]
    text = json.dumps(counted(pairs), indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")


def recorded() -> Iterator[Pair]:
    """Yield the pairs of equal code that the data sets hold."""
    folders = sorted(path.name for path in (ROOT / "studies/data").iterdir() if path.is_dir())
    names = [name for name in (*DATASETS, *folders) if name not in UNUSED]
    tables = {name: load(name).frame for name in names}
    for table in tables.values():
        yield from _halves(table)
    first, second, other = (tables[name] for name in PLANTED)
    # the later recording has counters that the earlier one has not
    yield from between("two recordings", first, second[first.columns.intersection(second.columns)])
    yield from between("an H200 and an H100", second, other)
    yield from _two_processes()


def _collected(folder: str) -> pd.DataFrame:
    from perfml.ingest import ingest
    from perfml.ingest.merge import merge

    return merge(ingest([folder]).frame)


def _halves(table: pd.DataFrame) -> Iterator[Pair]:
    """Yield odd against even iterations, and the earlier against the later ones."""
    middle = table["iteration"].nunique() // 2
    has = table.get(INSTRUCTIONS, pd.Series(index=table.index, dtype=float)).notna()
    for later in (table["iteration"] % 2 == 1, table["iteration"] >= middle):
        for rows, lacking in ((has, ""), (~has, " without counted instructions")):
            what = f"iterations of one run{lacking}"
            halves = table[rows & ~later], table[rows & later]
            yield from between(what, *halves)
            yield from between(f"networks: {what}", *halves, keys=CONDITION[:-1])


def _two_processes() -> Iterator[Pair]:
    """Yield each network of the atlas as its two processes timed it, with its counters."""
    layers = load("atlas").frame.drop_duplicates(["run_id", "layer"])
    times = pd.read_parquet(ROOT / "datasets" / "atlas" / "times.parquet")
    rows = times.merge(
        layers.drop(columns=["time_us", "iteration", "process"]), on=["run_id", "layer"]
    )
    sides = (rows[rows["process"] == number] for number in sorted(rows["process"].unique()))
    yield from between("networks: two processes", *sides, keys=["run_id"])


def between(
    what: str, left: pd.DataFrame, right: pd.DataFrame, keys: Sequence[str] = LAYER
) -> Iterator[Pair]:
    """Yield each layer, or what else the keys tell, that both sides have, in both directions."""
    sides = [dict(iter(side.groupby([*keys], dropna=False))) for side in (left, right)]
    for key in sides[0]:
        if key in sides[1]:
            before, after = sides[0][key], sides[1][key]
            yield what, before, after
            yield what, after, before


def counted(pairs: list[Pair]) -> dict[str, dict[str, int]]:
    """Return how often each rule said what, by what differs between the sides."""
    counts: dict[str, Counter[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for what, before, after in pairs:
        found = counts.setdefault(what, Counter())
        found.update(["comparisons", f"gate: {_verdict(before, after)}"])
        found.update(times_say(before, after))
        key = (what, *map(str, before[LAYER].iloc[0]))
        if key in seen or found["gate: not comparable"] or what.startswith("networks"):
            continue
        seen.add(key)
        if len(seen) % PLANTED_EVERY:
            continue
        more = counts.setdefault(f"{what}, 2 % more of one counter", Counter())
        for counter in COUNTED:
            if counter != LAUNCHES and counter in after and (after[counter] > 0).all():
                more.update(_planted(before, after, counter))
        if not more:
            del counts[f"{what}, 2 % more of one counter"]
    return {what: dict(sorted(found.items())) for what, found in counts.items()}


def _verdict(before: pd.DataFrame, after: pd.DataFrame) -> str:
    return judge(before, after).verdict.value


def _planted(before: pd.DataFrame, after: pd.DataFrame, counter: str) -> Iterator[str]:
    """Yield what each rule says where one counter and the time have grown."""
    grown = after.assign(**{counter: after[counter] * GROWTH, "time_us": after["time_us"] * GROWTH})
    yield "comparisons"
    (layer,) = judge(before, grown).layers
    yield f"gate: {layer.verdict.value}"
    if layer.verdict is Verdict.WORSE and layer.changed[0].counter == counter:
        yield "gate: worse, and that counter named"
    yield from times_say(before, grown)


def times_say(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    """Yield what the two rules about times say."""
    means = [side["time_us"].mean() for side in (before, after)]
    ratio = means[1] / means[0]
    yield f"5 % threshold: {'worse' if ratio > THRESHOLD else 'same or better'}"
    if min(len(before), len(after)) < 2:
        yield f"{NVBENCH}cannot tell"
        return
    noise = min(side["time_us"].std() / side["time_us"].mean() for side in (before, after))
    yield f"{NVBENCH}{'worse' if ratio - 1 > noise else 'same or better'}"


def tables(counts: dict[str, dict[str, int]]) -> str:
    """Return the counts as the tables of ``docs/howto/gate.md``."""
    times = ["nvbench's rule: worse", "5 % on the time: worse"]
    said = ["worse", "slower", "not comparable", "cannot tell"]
    equal = ["the same code, between", "comparisons", *(f"gate: {word}" for word in said), *times]
    more = ["2 % more of a counter and of the time, between", "comparisons"]
    more += ["gate: worse, that counter named", *times]
    lines, planted = (
        [_row(head), _row(["---", *["---:"] * len(head[1:])])] for head in (equal, more)
    )
    for what, found in counts.items():
        count = Counter(found)
        whole = count["comparisons"]
        asked = whole - count[NVBENCH + "cannot tell"]
        times = [f"{count[NVBENCH + 'worse']:,} of {asked:,}", f"{count['5 % threshold: worse']:,}"]
        name, _, grown = what.partition(",")
        words = ["worse, and that counter named"] if grown else said
        cells = [name, f"{whole:,}", *(f"{count[f'gate: {word}']:,}" for word in words), *times]
        (planted if grown else lines).append(_row(cells))
    return "\n".join([*lines, "", *planted])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
