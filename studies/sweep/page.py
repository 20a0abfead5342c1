"""The tables about sweeps in RESULTS.md; ``python -m studies.sweep.page`` writes them anew."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

from perfml.util.words import Readable
from studies.page_tables import markdown, write_tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
FOLDER = ROOT / "benchmarks/results"


def results(name="first"):
    return json.loads((FOLDER / f"sweep-{name}.json").read_text(encoding="utf-8"))


def _each(values, digits):
    return " and ".join(dict.fromkeys(f"{value:.{digits}f}" for value in values))


NAMES = {
    "long": "CUDA program, 6 launches of 0.1 s a run, 8 passes",
    "network": "YOLOv4-Tiny, 12 to 21 launches a run, 1 pass",
    "kernel-replay": "CUDA program, 12 launches of microseconds a run, 8 passes",
}
EARLIER = {
    "one pass": "CUDA program, 300 launches a run, 1 pass (earlier)",
    "sweep": "YOLOv4-Tiny and CUDA program, 14.5 launches a run, 8 passes (earlier)",
}


def cases():
    """Name to seconds of the sweep, of a run and of a launch, on one GPU and on two."""
    rows = []
    for key, name in NAMES.items():
        both = [results(key)["cases"][key]["by_gpus"][count] for count in ("1", "2")]
        fields = ("wall_s", "run_s", "seconds_per_launch")
        rows.append((name, *([one[field] for one in both] for field in fields)))
    for key, name in EARLIER.items():
        one = results()[key]
        runs = one["run_s"]
        if isinstance(runs, dict):
            runs = [statistics.median(each[place] for each in runs.values()) for place in (0, 1)]
        rows.append((name, one["wall_s"], runs, one["seconds_per_launch"]))
    return rows


def sweeps():
    """The sweeps of twelve runs."""
    rows = [
        [
            name,
            *(f"{each:.1f}" for each in wall),
            f"{wall[0] / wall[1]:.2f}",
            " / ".join(f"{each:.1f}" for each in run),
            " / ".join(f"{each:.3f}" for each in launch),
        ]
        for name, wall, run, launch in cases()
    ]
    header = ["twelve runs of", "one GPU, s", "two, s", "times faster", "s a run", "s a launch"]
    return markdown(header, rows, numbers=True)


def driver():
    """Where a profiler's time goes, alone and beside a second one."""
    alone, two = (each for each in results("network-cold")["probes"] if "driver" in each["what"])

    def both(key, digits=1):
        return f"{alone[key][0]:.{digits}f}", _each(two[key], digits)

    rows = [
        ["the whole program under ncu, s", *both("wall_s")],
        ["its calls into the kernel driver, s", *both("driver_s")],
        ["of these, registers of the counters, s", *both("register_s")],
        ["their number", *(f"{each['register_calls'][0]:,}" for each in (alone, two))],
    ]
    return markdown(["24 launches, 8 passes", "alone", "two at once"], rows, numbers=True)


FOUR = {
    "one-pass": "CUDA program, 3 launches of 1 pass a run",
    "kernel-replay": "CUDA program, 3 launches of 8 passes a run",
    "long": "CUDA program, 1 launch of 0.1 s in 6 passes a run",
}


def four():
    """Sweeps on one, two and four GPUs, and what they would take if no run made another wait."""
    rows = []
    for key, name in FOUR.items():
        of = "long" if key == "long" else "short"
        by_gpus = results(f"four-{of}")["cases"][key]["by_gpus"]
        one = by_gpus["1"]
        for gpus, case in by_gpus.items():
            free = case["outside_of_runs_s"] + math.ceil(12 / int(gpus)) * one["run_s"]
            seconds = [case[each] for each in ("wall_s", "run_s", "outside_of_runs_s")]
            times = [f"{one['wall_s'] / wall:.2f}" for wall in (case["wall_s"], free)]
            wall, *inner = (f"{each:.1f}" for each in seconds)
            rate = f"{int(gpus) / case['run_s']:.2f}"
            rows.append([name, gpus, wall, times[0], *inner, rate, f"{free:.1f} ({times[1]})"])
    header = ["twelve runs of", "GPUs", "s", "times faster", "s a run", "outside of runs, s"]
    header += ["runs a second", "s with runs as short as alone (times faster)"]
    return markdown(header, rows, numbers=True)


def metrics():
    """How far the metrics of a sweep on two GPUs are from those on one."""
    rows = []
    for key, name in NAMES.items():
        found = results(key)["cases"][key]["metrics"]["2"]
        assert found["same_kernels"]
        rows.append([name, *(found.get(each) for each in ("values", "within", "median"))])
        if "repeats" in found:
            few = (found[each] for each in ("repeats", "repeats_within", "repeats_median"))
            rows.append(["its repeats on one GPU", *few])
    rows = [
        [name, f"{n:,}", f"{Readable(part):.0%}", f"{median:.5f}"] for name, n, part, median in rows
    ]
    header = ["twelve runs of", "values", "within 0.02", "median difference"]
    return markdown(header, rows, numbers=True)


def launches():
    """What a launch costs alone, and beside a second profiler."""
    probes = {each["what"]: each for each in results()["probes"]}
    rows = []
    for passes in ("1 pass", "3 passes", "8 passes"):
        alone, two = (probes[f"{passes}, {how}"]["seconds_per_launch"] for how in ("alone", "two"))
        beside = sum(two) / len(two)
        rows.append(
            [
                passes,
                f"{alone[0]:.4f}",
                _each(two, 4),
                f"{beside / alone[0]:.2f}",
            ]
        )
    header = ["kernel replay", "one profiler, s a launch", "two at once", "times longer"]
    return markdown(header, rows, numbers=True)


def attempts():
    """What did not change it."""
    probes = {each["what"]: each for each in results()["probes"]}
    names = {
        "8 passes, two": "as a sweep does it: all cores, a `TMPDIR` each",
        "8 passes, two, half the cores each": "half of the cores each (`--pin`)",
        "8 passes, two, other GPU hidden": "the other GPU's device hidden",
        "8 passes, two, one TMPDIR": "one `TMPDIR` for both",
        "8 passes, two, caches not flushed": "caches not flushed (`--cache-control none`)",
    }
    rows = [[text, _each(probes[name]["seconds_per_launch"], 3)] for name, text in names.items()]
    return markdown(["8 passes, two profilers at once", "s a launch"], rows, numbers=True)


TABLES = {each.__name__: each for each in (sweeps, four, driver, launches, attempts, metrics)}


if __name__ == "__main__":
    write_tables(PAGE, TABLES)
