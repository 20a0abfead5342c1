"""Merging kernels past memory: perfml beside hand-written Polars and DuckDB, at growing size.

Kernels are resampled from the recorded H200 table: whole recorded runs under new names, every
time and metric scaled by its own random factor near 1, so that no column compresses away. Each
side runs in a process of its own, in turns; seconds and memory are those of the whole process as
the kernel reports them. The rivals read the same file and write the same table of layers;
``polars-categorical`` reads kernel names as categories, and the ``bare`` ones leave the names out,
which cost as text more than all metrics together.

Run: ``python -m benchmarks.scale [--rows 1e5 --rows 1e6 --rows 1e7] [--turns 5] [--json]``.
Exit 1 while, at 1e6 rows or more, perfml takes more than 1.15 times as long as the fastest side
that writes the same table of layers, names included, takes 2 GiB, or gives other numbers; the
ratios to the bare queries are reported beside it.
Needs polars and duckdb.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import scale_rivals as rivals

ROOT = Path(__file__).resolve().parent.parent
GIB = 2.0
"""The goal's memory."""

SLOWER = 1.15
"""How many times as long as the fastest side of the same result perfml may take."""

JUDGED = 1_000_000
"""Rows at which the goal holds, and above."""

WHOLE = ("polars", "polars-categorical", "duckdb")
"""Sides that also write kernel names: run `FEW` times at sizes above `OFTEN`, they take long."""

SIDES = ("perfml", "polars-bare", "duckdb-bare", *WHOLE)
OFTEN = 1_000_000
FEW = 2


@dataclass
class Side:
    """What one side took, a value a turn."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    gib: list[float] = field(default_factory=list)

    def add(self, seconds: float, cpu: float, gib: float) -> None:
        """Count a turn."""
        self.seconds.append(seconds)
        self.cpu.append(cpu)
        self.gib.append(gib)

    def summary(self, rows: int) -> dict[str, float]:
        """Return what the turns come to."""
        median = statistics.median(self.seconds)
        return {
            "turns": len(self.seconds),
            "min_s": min(self.seconds),
            "median_s": median,
            "max_s": max(self.seconds),
            "cpu_s": statistics.median(self.cpu),
            "peak_gib": max(self.gib),
            "rows_per_s": rows / median,
        }


def note(text: str) -> None:
    sys.stderr.write(text + "\n")


def timed(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its seconds, processor seconds and peak memory in GiB."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        msg = f"exit {process.returncode}: {' '.join(command)}"
        raise SystemExit(msg)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def helper(*words: object) -> Any:
    """Run a step of `_scale_rivals`: this process stays small, or its children seem large."""
    command = [sys.executable, rivals.__file__, *map(str, words)]
    return json.loads(subprocess.check_output(command, cwd=ROOT, text=True))


def command(side: str, source: Path, out: Path) -> list[str]:
    if side == "perfml":
        return [sys.executable, "-m", "perfml", "merge", str(source), "--out", str(out), "-q"]
    return [sys.executable, rivals.__file__, side, str(source), str(out)]


def merge_at(rows: int, turns: int, folder: Path) -> dict[str, Any]:
    """Run all sides at one size, in turns."""
    source = folder / "kernels.parquet"
    began = time.perf_counter()
    layers = helper("kernels", source, rows)
    note(f"{rows:,} rows written in {time.perf_counter() - began:.0f} s")
    sides = {name: Side() for name in SIDES}
    for turn in range(turns):
        for name in SIDES:
            if name in WHOLE and rows > OFTEN and turn >= FEW:
                continue
            out = folder / f"{name}.parquet"
            sides[name].add(*timed(command(name, source, out)))
            note(f"  {name}: {sides[name].seconds[-1]:.2f} s, {sides[name].gib[-1]:.2f} GiB")
    worst = max(
        helper("differences", folder / "perfml.parquet", folder / f"{name}.parquet")
        for name in ("polars", "polars-categorical")
    )
    for path in folder.iterdir():
        path.unlink()
    summaries = {name: side.summary(rows) for name, side in sides.items()}
    ratios = {
        name: [
            theirs / ours
            for theirs, ours in zip(side.seconds, sides["perfml"].seconds, strict=False)
        ]
        for name, side in sides.items()
    }
    return {
        "rows": rows,
        "layers": layers,
        "sides": summaries,
        "times_longer": {name: statistics.median(each) for name, each in ratios.items()},
        "difference": worst,
    }


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="perfml-scale-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def verdict(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Say at every size that is judged whether perfml keeps to the goal."""
    judged = [result for result in results if result["rows"] >= JUDGED] or results[-1:]
    slower = {
        result["rows"]: 1 / min(result["times_longer"][name] for name in WHOLE) for result in judged
    }
    gib = max(result["sides"]["perfml"]["peak_gib"] for result in judged)
    return {
        "times_as_long_as_the_fastest": slower,
        "fast": max(slower.values()) <= SLOWER,
        "gib": gib,
        "fits": gib < GIB,
        "agrees": all(result["difference"] <= 1e-12 for result in results),
    }


def show(document: dict[str, Any]) -> None:
    heads = " ".join(f"{head:>8}" for head in ("min", "median", "max", "cpu"))
    print(f"{'rows':>10} {'side':18} {heads} {'GiB':>6}  rows/s")
    for result in document["merge"]:
        for name, side in result["sides"].items():
            cells = (side["min_s"], side["median_s"], side["max_s"], side["cpu_s"])
            text = " ".join(f"{cell:8.2f}" for cell in cells)
            print(
                f"{result['rows']:>10,} {name:18} {text} {side['peak_gib']:6.2f}"
                f"  {side['rows_per_s']:,.0f}"
            )
        print(f"{'':10} {result['layers']:,} layers, largest difference {result['difference']:.1e}")
    print(json.dumps(document["goal"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", action="append", type=lambda text: int(float(text)))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    sizes = sorted(words.rows or [100_000, 1_000_000, 10_000_000])
    document: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_at_start": os.getloadavg()[0],
        "versions": rivals.versions(),
        "merge": [],
    }
    for rows in sizes:
        with scratch() as folder:
            document["merge"].append(merge_at(rows, words.turns, folder))
    document["goal"] = verdict(document["merge"])
    document["load_at_end"] = os.getloadavg()[0]
    if words.json:
        print(
            json.dumps(
                document, indent=1, default=lambda value: None if math.isnan(value) else value
            )
        )
    else:
        show(document)
    goal = document["goal"]
    return 0 if goal["fast"] and goal["fits"] and goal["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main())
