"""The tables about sweeps in docs/scale.md; ``python tests/_sweep_page.py`` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path

from _page_tables import markdown, table_on, write_tables

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/scale.md"
RESULTS = ROOT / "benchmarks/results/sweep-2026-11-21.json"


def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def _each(values, digits):
    return " and ".join(dict.fromkeys(f"{value:.{digits}f}" for value in values))


def sweeps():
    """The two sweeps of twelve runs."""
    found = results()
    names = {
        "sweep": "8 passes, four runs of YOLOv4-Tiny and eight of a CUDA program, 174 launches",
        "one pass": "1 pass, twelve runs of the program, 300 launches each",
    }
    rows = []
    for key, name in names.items():
        one = found[key]
        rows.append(
            [
                name,
                *(f"{each:.1f}" for each in one["wall_s"]),
                f"{one['ratio']:.2f}",
                *(" / ".join(f"{each:.1f}" for each in one["gpu_s"]),),
                " / ".join(f"{each:.3f}" for each in one["seconds_per_launch"]),
            ]
        )
    header = ["sweep", "one GPU, s", "two, s", "times faster", "GPU s", "s a launch"]
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


TABLES = {each.__name__: each for each in (sweeps, launches, attempts)}


def table_of(name):
    return table_on(PAGE, name)


if __name__ == "__main__":
    write_tables(PAGE, TABLES)
