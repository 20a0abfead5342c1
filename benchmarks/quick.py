"""Does every benchmark still run? Each in its smallest form, one after another.

``python -m benchmarks.run --quick`` starts this after its own tables. A benchmark that misses a
goal at such a size has run; one that ends with a traceback has not.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.data import ROOT

SMALLEST: dict[str, tuple[str, ...]] = {
    "gate_repeats": ("--quick",),
    "gate_power": ("--quick",),
    "scale": ("--rows", "2e4", "--turns", "1"),
    "linear_model_tree": ("--rows", "1000", "--quick"),
    "collect": ("--help",),
    "agreement": ("--help",),
}
"""Words of each benchmark's smallest form; a test runs `gate`. Collecting needs a GPU and agreement
four recordings; these are only loaded here."""


@dataclass(frozen=True)
class Ran:
    """How one benchmark ended: its name, processor seconds and what it said last if it failed."""

    name: str
    seconds: float
    failure: str


def run(name: str) -> Ran:
    """Run the smallest form of a benchmark."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", f"benchmarks.{name}", *SMALLEST[name]]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # a missed goal is exit 1
    ran = ended.returncode in (0, 1) and "Traceback" not in ended.stderr
    failure = "" if ran else (ended.stderr.strip().splitlines() or [f"exit {ended.returncode}"])[-1]
    return Ran(name, seconds, failure)


def run_all() -> int:
    """Run every benchmark but that of the tables, print how each ended, return how many failed."""
    failed = 0
    for name in SMALLEST:
        ended = run(name)
        failed += bool(ended.failure)
        how = f"FAILED: {ended.failure[:200]}" if ended.failure else "ran"
        print(f"{name:26} {ended.seconds:6.1f} s of processor time, {how}", flush=True)
    return failed
