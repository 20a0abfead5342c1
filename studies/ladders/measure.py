"""The steps of a ladder of kernels: what each gained, and the metric that explains it.

Works for any dataset whose backends are versions of one kernel (attention, conv, qkv, or your own).
A step is a pair of backends; those of a built-in workload are known, else consecutive backends
are compared, or name them: ``--steps base:strip,strip:strip_w2``. Times, ratios and reasons are
those of ``perfml explain``. For the workload qkv a second table has its instructions, L1 requests
and L1-L2 traffic.

Run: ``python -m studies.ladders.measure DATASET [--layer 'conv1_*'] [--steps A:B,...] [--json]``
Prints Markdown, or with ``--json`` one JSON document.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import lzma
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd

from collectors.workloads import workload, workloads
from perfml.datasets import find
from perfml.datasets.registry import is_dataset
from perfml.errors import PerfmlError
from perfml.explain import explain, load_tables, make_side
from studies.ladders import qkv_columns as qkv
from studies.ladders.reasons import because, causes_in_words
from studies.page_tables import markdown as table

if TYPE_CHECKING:
    from perfml.explain.compared import Side
    from perfml.explain.results import LayerDiff

HEADINGS = {
    "layer": "layer",
    "step": "step",
    "after_us": "time, us",
    "ratio": "x the step before",
    "busy_us": "busy, us",
    "busy_ratio": "x busy",
    "because": "what explains it",
}

ALIKE = 0.02
"""Busy times this close to the times everywhere are not told."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if nothing can be compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="as for perfml explain: a dataset, a table, a runs folder")
    parser.add_argument("--steps", default="", help="A:B,B:C instead of the workload's own")
    parser.add_argument("--layer", action="append", default=[], help="names or patterns")
    parser.add_argument("--where", action="append", default=[], help="COLUMN=VALUE")
    parser.add_argument("--runs", type=Path, help="folder of the runs, for times on streams")
    parser.add_argument("--write", type=Path, help="folder: gets ladder.json and ladder.md, whole")
    parser.add_argument(
        "--show", action="append", default=[], help="print only these layers' steps"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        document = ladder(given.dataset, given.steps, given.layer, given.where, given.runs)
    except PerfmlError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if given.write is not None:
        text = json.dumps(document, indent=1, allow_nan=False)
        (given.write / "ladder.json").write_text(text + "\n", encoding="utf-8")
        (given.write / "ladder.md").write_text(markdown(document) + "\n", encoding="utf-8")
    if given.show:
        document["steps"] = [row for row in document["steps"] if _matches(row["layer"], given.show)]
    if given.json:
        print(json.dumps(document, indent=1, allow_nan=False))
        return 0
    print(markdown(document))
    return 0


def ladder(
    dataset: str,
    steps: str = "",
    layers: Sequence[str] = (),
    where: Sequence[str] = (),
    runs: Path | None = None,
) -> dict[str, Any]:
    """Return the document.

    ``times`` has one row a layer, microseconds by backend; ``steps`` one row a step and layer;
    ``qkv`` the columns of that workload.
    """
    table, kernels = load_tables(dataset, list(where))
    chosen = steps_of(table, steps)
    busy = busy_times(runs or _folder(dataset))
    rows: list[dict[str, Any]] = []
    for before, after in chosen:
        rows += step_rows(table, kernels, before, after, layers, busy)
    if not rows:
        msg = "no step of the ladder was measured on both of its sides"
        found = ", ".join(map(str, table["backend"].unique()))
        raise PerfmlError(msg, where=dataset, found=found, cure="Name the steps: --steps A:B")
    document: dict[str, Any] = {
        "dataset": dataset,
        "times": times(table, layers, chosen),
        "steps": rows,
        "qkv": [],
    }
    if kernels is not None and set(kernels["workload"]) == {"qkv"}:
        document["qkv"] = [_clean(row) for row in qkv.qkv_columns(kernels).to_dict("records")]
    return document


def _folder(dataset: str) -> Path:
    """Return a dataset's folder: its path, or that of the shipped one of its name."""
    path = Path(dataset)
    return (find(dataset) or path) if not path.exists() and is_dataset(dataset) else path


def times(
    table: pd.DataFrame, patterns: Sequence[str] = (), steps: Sequence[tuple[str, str]] = ()
) -> list[dict[str, Any]]:
    """Return one row a layer: its median time in microseconds under every backend.

    Backends come in the order of the steps, then those of no step.
    """
    several = table.groupby("backend")["precision"].nunique().gt(1)
    names = table["backend"].map(str)
    names += (" " + table["precision"].map(str)).where(table["backend"].map(several), "")
    wide = table.assign(name=names).pivot_table(
        index="layer", columns="name", values="time_us", aggfunc="median", sort=False
    )
    order = list(dict.fromkeys(name for step in steps for name in step))
    place = {name: order.index(name) for name in order}
    columns = sorted(map(str, wide), key=lambda name: place.get(name.split(" ")[0], len(order)))
    wide = wide[columns]
    return [
        _clean({"layer": layer, **wide.loc[layer].to_dict()})
        for layer in wide.index
        if not patterns or _matches(str(layer), patterns)
    ]


def steps_of(table: pd.DataFrame, given: str = "") -> list[tuple[str, str]]:
    """Return the steps: those named, those of the workload, or each backend after the one before.

    Raises
    ------
    PerfmlError
        If a named step is no pair.
    """
    if given:
        pairs = [tuple(word.split(":")) for word in given.split(",")]
        if any(len(pair) != 2 or not all(pair) for pair in pairs):
            msg = "a step is a pair of backends"
            raise PerfmlError(msg, where="--steps", found=given, cure="Example: base:strip")
        return [(pair[0], pair[1]) for pair in pairs]
    names = list(map(str, table["workload"].unique()))
    if len(names) == 1 and names[0] in workloads():
        own = getattr(workload(names[0]), "steps", None)
        if own is not None:
            return [(before, after) for before, after in own()]
    backends = list(map(str, table["backend"].unique()))
    return list(itertools.pairwise(backends))


def step_rows(
    table: pd.DataFrame,
    kernels: pd.DataFrame | None,
    before: str,
    after: str,
    patterns: Sequence[str],
    busy: dict[tuple[str, str], float],
) -> list[dict[str, Any]]:
    """Return the rows of one step; none if either side was not measured."""
    rows: list[dict[str, Any]] = []
    for pair in precisions(table, before, after):
        sides = [
            make_side(name, _only(table, name, precision), _only(kernels, name, precision))
            for name, precision in zip((before, after), pair, strict=True)
        ]
        there = set(sides[1].layers["layer"])
        shared = [
            name
            for name in sides[0].layers["layer"].drop_duplicates().dropna()
            if name in there and (not patterns or _matches(name, patterns))
        ]
        if shared:
            found = explain(sides[0], sides[1], layers=shared, model=None)
            rows += [_row(detail, sides, pair, busy) for detail in found.details]
    return rows


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, each) for each in patterns)


def _row(
    detail: LayerDiff,
    sides: Sequence[Side],
    pair: tuple[str, str],
    busy: dict[tuple[str, str], float],
) -> dict[str, Any]:
    times = [_busy(side.layers, detail.layer, busy) for side in sides]
    low, high = detail.time.interval or (math.nan, math.nan)
    speaking, against = causes_in_words(detail)
    return _clean(
        {
            "layer": detail.layer,
            "before": sides[0].name,
            "after": sides[1].name,
            "precision": pair[1] if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}",
            "before_us": detail.time.baseline_us,
            "after_us": detail.time.target_us,
            "ratio": detail.time.ratio,
            "low": low,
            "high": high,
            "verdict": detail.time.verdict,
            "busy_us": times[1],
            "busy_ratio": times[1] / times[0],
            "because": because(detail, sides, times),
            "speaking": speaking,
            "against": against,
        }
    )


def precisions(table: pd.DataFrame, before: str, after: str) -> list[tuple[str, str]]:
    """Return the precisions to compare two sides in: each that both have, else each one's first.

    So a yardstick measured in several precisions is compared in that of the version beside it.
    """
    mine, other = (
        list(table.loc[table["backend"] == name, "precision"].drop_duplicates().map(str))
        for name in (before, after)
    )
    if not mine or not other:
        return []
    return [(each, each) for each in mine if each in other] or [(mine[0], other[0])]


def _only(table: pd.DataFrame | None, backend: str, precision: str) -> Any:
    if table is None:
        return None
    return table[(table["backend"] == backend) & (table["precision"].map(str) == precision)]


def busy_times(dataset: Path) -> dict[tuple[str, str], float]:
    """Return how long a layer had a kernel running: (run, layer) to microseconds.

    A layer's time is the sum over its kernels; launches that overlap, on several streams, count
    once here, and gaps between launches do not count. Needs the runs' timing files in or below a
    dataset's folder; empty without them.
    """
    found: dict[tuple[str, str], float] = {}
    if not dataset.is_dir():
        return found
    for path in sorted([*dataset.rglob("timing.csv"), *dataset.rglob("timing.csv.xz")]):
        opener = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            rows = pd.read_csv(file)
        if "start_us" not in rows.columns:
            continue
        spans: dict[str, list[float]] = {}
        for (_, layer), some in rows.groupby(["iteration", "layer"]):
            spans.setdefault(str(layer), []).append(union(some["start_us"], some["time_us"]))
        found |= {(path.parent.name, layer): median(each) for layer, each in spans.items()}
    return found


def union(starts: Sequence[float] | pd.Series, lengths: Sequence[float] | pd.Series) -> float:
    """Return the length of what intervals cover together.

    Examples
    --------
    >>> union([0.0, 1.0, 9.0], [3.0, 4.0, 1.0])
    6.0
    """
    covered, end = 0.0, -math.inf
    for start, length in sorted(zip(starts, lengths, strict=True)):
        covered += max(0.0, start + length - max(start, end))
        end = max(end, start + length)
    return covered


def _busy(layers: pd.DataFrame, layer: str, known: dict[tuple[str, str], float]) -> float:
    runs = layers.loc[layers["layer"] == layer, "run_id"].unique()
    spans = [known[str(run), layer] for run in runs if (str(run), layer) in known]
    return sum(spans) / len(spans) if spans else math.nan


def markdown(document: dict[str, Any]) -> str:
    """Return the tables in Markdown: times, steps (busy times where they are known), columns."""
    steps = document["steps"]
    known = [row for row in steps if row["busy_us"] is not None]
    timed = any(abs(row["busy_us"] / row["after_us"] - 1) > ALIKE for row in known)
    names = [name for name in HEADINGS if timed or not name.startswith("busy")]
    columns = list(dict.fromkeys(name for row in document["times"] for name in row))
    tables = [table(columns, [[_cell(row[n]) for n in columns] for row in document["times"]])]
    rows = []
    for layer in dict.fromkeys(row["layer"] for row in steps):
        for row in (each for each in steps if each["layer"] == layer):
            shown = {**row, "step": f"{row['before']} -> {row['after']} ({row['precision']})"}
            rows.append([_cell(shown[name]) for name in names])
    tables.append(table([HEADINGS[name] for name in names], rows))
    if document["qkv"]:
        columns = ["backend", "layer", *qkv.COLUMNS]
        rows = [
            [f"`{row[n]}`" if n == "bars" else _cell(row[n]) for n in columns]
            for row in document["qkv"]
        ]
        tables.append(table([qkv.COLUMNS.get(name, name) for name in columns], rows))
    return "\n\n".join(tables)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and value < 1000 else _plain(value)


def _plain(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _clean(row: dict[Any, Any]) -> dict[str, Any]:
    """Return JSON values: a number that is not known is None."""
    return {
        str(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


if __name__ == "__main__":
    sys.exit(main())
