"""perfml beside what an engineer would write instead: one table, all sides in one run.

Every side is run in turns, at least five times; a ratio is how many times longer the other side
took in the same turn, so that whatever else the machine does hits both. Answers are compared
before anything is timed. Above 1 perfml is ahead.

Run: ``make bench``, or ``python -m benchmarks.run [--rows csv,report] [--turns 5] [--quick]
[--markdown] [--json FILE]``; ``--markdown`` writes the table into RESULTS.md, ``--quick``
takes smaller tables and then runs every other benchmark in its smallest form (`benchmarks.quick`).
The rivals need polars and duckdb.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import lzma
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from benchmarks import data, quick, rivals, waits
from benchmarks.rows import COLUMNS, DOCS, MARKS, ROWS

PACKAGES = ("pandas", "polars", "duckdb", "pyarrow", "scikit-learn")

SAME = "perfml hashes the file and looks at every row besides"
LESS = "does less: trusts units, locale, ranges and rows"
"""Why a plain reader may be ahead."""


@dataclass
class Row:
    """One comparison.

    Attributes
    ----------
    room, work, rival
        Which table row, what is done, and by whom else.
    perfml_s, rival_s
        Median seconds.
    ratios
        Rival over perfml, one a turn.
    cpu_ratio
        The same of processor time, of all threads: the middle of the turns. None where no
        processor time was taken.
    note
        What to know about the comparison, and why perfml is not ahead where it is not.
    """

    room: str
    work: str
    rival: str
    perfml_s: float
    rival_s: float
    ratios: list[float]
    note: str = ""
    cpu_ratio: float | None = None

    @property
    def median(self) -> float:
        """The middle ratio."""
        return statistics.median(self.ratios)


Works = dict[str, tuple[Callable[[], Any], str]]


def compare(room: str, work: str, ours: Callable[[], Any], others: Works, turns: int) -> list[Row]:
    """Time perfml and its rivals in turns."""
    taken: dict[str, list[float]] = {name: [] for name in ("", *others)}
    used: dict[str, list[float]] = {name: [] for name in ("", *others)}
    for turn in range(turns + 1):
        for name, run in (("", ours), *((name, run) for name, (run, _) in others.items())):
            start, before = time.perf_counter(), processor_time()
            run()
            if turn:  # the first turn loads libraries and files
                taken[name].append(time.perf_counter() - start)
                used[name].append(processor_time() - before)
    mine, own_cpu = taken.pop(""), used.pop("")
    return [
        Row(
            room,
            work,
            name,
            statistics.median(mine),
            statistics.median(times),
            [theirs / own for theirs, own in zip(times, mine, strict=True)],
            others[name][1],
            statistics.median(
                theirs / own for theirs, own in zip(used[name], own_cpu, strict=True)
            ),
        )
        for name, times in taken.items()
    ]


def processor_time() -> float:
    """Return seconds that this process, its threads and its ended children have computed."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def agree(found: pd.DataFrame, layers: pd.DataFrame) -> None:
    """Check that a rival's answer is perfml's."""
    assert found["layer"].tolist() == layers["layer"].tolist()
    assert np.allclose(found["time_us"].to_numpy(float), layers["time_us"].to_numpy(float))
    occupancy = found["sm__warps_active.avg.pct_of_peak_sustained_active"].to_numpy(float) / 100
    assert np.allclose(occupancy, layers["achieved_occupancy"].to_numpy(float))
    assert found["kernel_names"].tolist() == layers["kernel_names"].tolist()


def csv_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """Ncu CSV to merged layers."""
    from perfml.ingest.merge.rule import merge
    from perfml.readers import read

    kernels = 10_000 if quick else 100_000
    metrics = data.chosen_metrics()
    path = folder / "export.csv"
    data.write_export(path, kernels, metrics)

    def ours() -> pd.DataFrame:
        return merge(read(path).frame)

    same = {
        "pandas": rivals.same_pandas,
        "Polars": rivals.same_polars,
        "DuckDB": rivals.same_duckdb,
        "csv module": rivals.same_csv,
    }
    plain = {
        "pandas": rivals.plain_pandas,
        "Polars": rivals.plain_polars,
        "DuckDB": rivals.plain_duckdb,
    }
    layers = ours()
    others: Works = {}
    for name, function in same.items():
        agree(function(path, metrics), layers)
        others[f"{name}, same work"] = (lambda f=function: f(path, metrics), SAME)
    for name, function in plain.items():
        others[f"{name}, chosen columns"] = (lambda f=function: f(path, metrics), LESS)
    work = f"ncu CSV to layers, {kernels:,} kernels x {len(metrics)} metrics"
    yield from compare("csv", work, ours, others, turns)


def report_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """Reports through NVIDIA's reader."""
    from perfml.metrics import load_catalogue
    from perfml.readers import read
    from perfml.readers.ncu.launches import needed

    path = folder / "report.ncu-rep"
    path.write_bytes(lzma.decompress(data.REPORT.read_bytes()))
    metrics = list(load_catalogue().ncu_request(["published"]))[:24]
    frame = read(path).frame
    layers = frame["layer"].tolist()
    found = rivals.same_report(path, needed())
    for name in ("layer", "iteration", "kernel", "grid", "block", "device", "compute_capability"):
        assert found[name].tolist() == frame[name].tolist(), name
    count = sum("__" in str(name) for name in found.columns)
    others: Works = {
        "loop over ncu_report, same work": (
            lambda: rivals.same_report(path, needed()),
            "two thirds are NVIDIA's reader on both sides",
        ),
        "loop over ncu_report, values alone": (
            lambda: rivals.plain_report(path, metrics),
            "does less: 24 metrics known beforehand, no units, shapes, ranges or formulas",
        ),
    }
    work = f".ncu-rep to a table, {len(layers)} kernels x {count} metrics"
    yield from compare("report", work, lambda: read(path), others, turns)


def merge_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """The merge alone, in memory."""
    from perfml.ingest.merge.rule import merge
    from perfml.readers import read
    from perfml.tables import metric_columns

    kernels = 10_000 if quick else 100_000
    path = folder / "merge.csv"
    data.write_export(path, kernels, data.chosen_metrics())
    frame = read(path).frame.assign(run_id="run", backend="cudnn")
    metrics = metric_columns(frame)
    frame = frame.astype(dict.fromkeys(metrics, "float64"))
    chosen = frame[[*rivals.KEYS, "kernel", "kernel_index", "time_us", *metrics]]
    fast = pl.from_pandas(chosen)
    arrow = fast.to_arrow()
    few = frame.iloc[: kernels // 50]
    layers = merge(frame)
    found = rivals.merge_pandas(frame, metrics).reset_index()
    assert np.allclose(found["time_us"], layers["time_us"])
    assert np.allclose(found["achieved_occupancy"], layers["achieved_occupancy"], equal_nan=True)
    others: Works = {
        "pandas, vectorised": (lambda: rivals.merge_pandas(frame, metrics), ""),
        "Polars, pandas in and out": (
            lambda: rivals.merge_polars(pl.from_pandas(chosen), metrics).to_pandas(),
            "",
        ),
        "DuckDB, pandas in and out": (
            lambda: rivals.merge_duckdb(arrow_of(chosen), metrics).read_all().to_pandas(),
            "",
        ),
        "Polars, its own table": (
            lambda: rivals.merge_polars(fast, metrics),
            "does less: no pandas table in or out, nothing checked",
        ),
        "DuckDB, an Arrow table": (
            lambda: rivals.merge_duckdb(arrow, metrics),
            "does less: no pandas table in or out, nothing checked",
        ),
    }
    work = f"merge in memory, {kernels:,} kernels x {len(metrics)} metrics"
    yield from compare("merge", work, lambda: merge(frame), others, turns)
    slow: Works = {"pandas, groupby-apply": (lambda: rivals.merge_apply(few, metrics), "")}
    work = f"merge in memory, {len(few):,} kernels x {len(metrics)} metrics"
    yield from compare("merge", work, lambda: merge(few), slow, turns)


def arrow_of(frame: pd.DataFrame) -> Any:
    """Return a pandas table as an Arrow one."""
    import pyarrow as pa

    return pa.Table.from_pandas(frame, preserve_index=False)


def suite_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """The six models with stability, against the same in plain scikit-learn."""
    from benchmarks import modeling_suite as suite
    from perfml.datasets import load

    named = os.environ.get("PERFML_DATA")
    if named:
        layers = load(named).frame
        what = "the published file"
    else:
        layers = load("h200-yolov4-tiny").frame
        layers = layers[
            (layers["precision"] == "fp32")
            & (layers["batch"] == 1)
            & layers["layer"].isin(["conv_03", "conv_20"])
        ].reset_index(drop=True)
        what = "two layers of the H200 dataset"
    splits = 4 if quick else 20
    others: Works = {"plain scikit-learn": (lambda: list(suite.plain(layers, splits)), "")}
    work = f"suite with stability, {what}: {len(layers)} rows, {splits} splits x 6 models"
    # one process on both sides; by default perfml takes all cores for a suite of this size
    yield from compare("suite", work, lambda: list(suite.ours(layers, splits, 1)), others, turns)


def start_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """Start-up of the command line and of the package."""

    def started(*command: str) -> Callable[[], Any]:
        whole = [sys.executable, *command]
        return lambda: subprocess.run(whole, check=True, capture_output=True)

    pandas: Works = {"import pandas": (started("-c", "import pandas"), "")}
    yield from compare("start", "perfml --help", started("-m", "perfml", "--help"), pandas, turns)
    package = started("-c", "import perfml")
    yield from compare("start", "import perfml", package, pandas, turns)


RECORDED = "recorded on one NVIDIA H200 with Nsight Compute 2025.3.1, not run here"
PLAIN_NCU = {"plain ncu, the same metrics": 0.17, "plain ncu, --set full": 1.75}
"""Seconds a kernel of the same network (cudnn, fp32, batch 1) on the same card."""


def collect_rows(folder: Path, quick: bool, turns: int) -> Iterator[Row]:
    """Seconds a kernel of collection: recorded, because it needs the card."""
    from perfml.tables import read_table

    path = data.ROOT / "datasets" / "h200-yolov4-tiny" / "kernels.parquet"
    runs = [
        run["seconds_per_launch"]
        for run in read_table(path).provenance["runs"]
        if len(run.get("metrics_requested") or ()) == 27 and run.get("seconds_per_launch")
    ]
    work = f"collect the 19 metrics, seconds a kernel, {len(runs)} runs"
    for name, seconds in PLAIN_NCU.items():
        ratios = [seconds / own for own in runs]
        yield Row("collect", work, name, statistics.median(runs), seconds, ratios, RECORDED)


ROOMS: dict[str, Callable[[Path, bool, int], Iterator[Row]]] = {
    "csv": csv_rows,
    "report": report_rows,
    "merge": merge_rows,
    "suite": suite_rows,
    "start": start_rows,
    "collect": collect_rows,
}


def cells(row: Row) -> list[str]:
    """Return a row of the table as text."""
    note = row.note
    if row.median < 1 and not note:
        note = "behind"
    ratios = f"{min(row.ratios):.2f} to {max(row.ratios):.2f}"
    seconds = [_seconds(row.perfml_s), _seconds(row.rival_s)]
    cpu = f"{row.cpu_ratio:.2f}" if row.cpu_ratio is not None else ""
    return [row.work, row.rival, *seconds, f"{row.median:.2f}", ratios, cpu, note]


def _seconds(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def machine(turns: int) -> str:
    """Say what the table was measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        model = found.group(1) if found else model
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return (
        f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {versions}; "
        f"{turns} turns; load {os.getloadavg()[0]:.1f} at the end."
    )


def markdown(rows: list[Row], where: str) -> str:
    """Return the table for the docs."""
    out = io.StringIO()
    aligned = ["---"] * 2 + ["---:"] * 5 + ["---"]
    out.write(f"| {' | '.join(COLUMNS)} |\n| {' | '.join(aligned)} |\n")
    for row in rows:
        out.write(f"| {' | '.join(cells(row))} |\n")
    return f"{MARKS[0]}\n\n{out.getvalue()}\nMeasured on {where}\n\n{MARKS[1]}"


def write_docs(text: str) -> None:
    """Put the table into the docs, whole or not at all."""
    from perfml.tables import replacing

    page = DOCS.read_text(encoding="utf-8")
    start, end = page.index(MARKS[0]), page.index(MARKS[1]) + len(MARKS[1])
    with replacing(DOCS) as temporary:
        temporary.write_text(page[:start] + text + page[end:], encoding="utf-8")


def show(row: Row) -> None:
    """Print a row as soon as it is measured."""
    work, rival, mine, theirs, ratio, spread, cpu, note = cells(row)
    times = f"{mine:>8} {theirs:>8} {ratio:>7} {spread:>16} {cpu:>7}"
    print(f"{work[:62]:<62} {rival:<34} {times}  {note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROOMS), help=f"of {', '.join(ROOMS)}")
    parser.add_argument("--turns", type=int, help="5; with --quick 1")
    parser.add_argument(
        "--quick", action="store_true", help="smaller tables, and every other benchmark once"
    )
    parser.add_argument("--markdown", action="store_true", help=f"write {DOCS.name}")
    parser.add_argument("--json", type=Path, help="also write the rows, with every ratio")
    options = parser.parse_args()
    turns = options.turns or (1 if options.quick else 5)
    chosen = options.rows.split(",")
    unknown = [name for name in chosen if name not in ROOMS]
    if unknown:
        parser.error(f"no row is called {unknown[0]}")
    if options.markdown and chosen != list(ROOMS):
        parser.error("--markdown needs all rows")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="perfml-bench-") as name:
        for room in chosen:
            for row in ROOMS[room](Path(name), options.quick, turns):
                rows.append(row)
                show(row)
            found = tuple(row.rival for row in rows if row.room == room)
            if not options.quick and found != ROWS[room]:
                parser.error(f"the rows of {room} are {found}; rows.py says {ROWS[room]}")
    where = machine(turns)
    print(f"measured on {where}")
    if options.json:
        document = {"where": where, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.markdown:
        write_docs(markdown(rows, where))
    if not options.quick and chosen == list(ROOMS):
        waits.show()
    if options.quick and chosen == list(ROOMS):
        sys.exit(1 if quick.run_all() else 0)


if __name__ == "__main__":
    main()
