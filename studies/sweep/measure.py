"""Sweeps on one GPU and on several: speed, and equal metrics.

Run it from the repository's root on a machine with several GPUs, nvcc and ncu::

    PYTHONPATH=. python3 -m studies.sweep.measure --out OUT --gpus 1,2 --seconds 320

Each case (``cases.py``) is one sweep of twelve runs, measured on every number of GPUs, the
cheapest case first; one that does not fit into the time that is left is skipped, and one that
takes longer than it is interrupted. ``--only`` chooses cases, ``--probes`` times what takes turns.
What a kill costs is tested with stand-ins (``tests/collectors/sweep``).

The goal is a sweep of at least twelve runs at 1.8 times the speed on two GPUs. Which sweep decides:
a launch of microseconds that is profiled in many passes is the kernel driver's work, which it does
for one GPU after another, so no collector can double that (``--probes driver`` shows it). So the
exit status speaks of `PRIMARY`, whose time is the GPUs' own, and every case's ratio is printed
beside it. Exit 1 if that misses the goal, a run failed or metrics differ by more than repeats
do; 2 if `PRIMARY` was not measured on one GPU and on two.

What was found is the table at the end and OUT/results.json. Dask has to be importable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from studies.sweep.cases import CASES, PROGRAM, ROOT, RUNS, WORK, build, compared, machine
from studies.sweep.probes import GROUPS, probes

GOAL, ON = 1.8, "2"
WITHIN, MARGIN = 0.95, 0.03
"""Share of values that must agree: as many as repeats on one GPU do, less a margin."""
PRIMARY = "long"
_PROBE_S = 32.0


def warm(names: list[str]) -> None:
    """Run what the sweeps start: a cold disk would count against the first one."""
    collect = ["-m", "perfml", "collect", "-q", "--out", str(WORK / "warm"), "--"]
    starts = [[*collect, str(PROGRAM), "1", "1"], ["-c", "import distributed"]]
    for name in names:
        matrix = CASES[name].matrix
        for backend in matrix.get("backend", ()):
            workload = [
                "-m",
                "collectors.workloads.runner",
                matrix["workload"],
                "--backend",
                backend,
            ]
            options = ["--mode", "timing", "--iterations", "1", "--out", str(WORK / backend)]
            starts.append([*workload, *options])
    for words in starts:
        subprocess.run([sys.executable, *words], check=True)


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def save(out: Path, results: dict[str, Any]) -> None:
    temporary = out / "results.tmp"
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(temporary, out / "results.json")


def measure_cases(given: argparse.Namespace, end: float, results: dict[str, Any]) -> None:
    chosen = sorted((CASES[name] for name in given.only), key=lambda each: each.need_s(given.gpus))
    for case in chosen:
        left, need = end - time.monotonic(), case.need_s(given.gpus)
        if left < need:
            reason = f"{left:.0f} s left, about {need:.0f} s needed"
            results["cases"][case.name] = {"skipped": reason, "stands_for": case.stands_for}
        else:
            results["cases"][case.name] = compared(case, given.gpus, min(left, 1.5 * need))
        say({case.name: results["cases"][case.name]})
        save(given.out, results)


def verdict(results: dict[str, Any]) -> int:
    """Say what is right and what is not; return the exit status."""
    right: dict[str, bool] = {}
    for name, case in results["cases"].items():
        for count, one in case.get("by_gpus", {}).items():
            right[f"{name} on {count}: all runs"] = one.get("done") == RUNS
        for count, ratio in case.get("ratio", {}).items():
            metrics = case["metrics"][count]
            repeats = metrics.get("repeats_within")
            same = metrics["within"] >= (WITHIN if repeats is None else repeats - MARGIN)
            right[f"{name} on {count}: metrics"] = same
            if name == PRIMARY and count == ON:
                right[f"{name} on {count}: {ratio} x, the goal"] = ratio >= GOAL
            else:
                print(f"{name} on {count}: {ratio} x")
    print("; ".join(f"{name} {'ok' if good else 'MISSED'}" for name, good in right.items()))
    if not all(right.values()):
        return 1
    return 0 if ON in results["cases"].get(PRIMARY, {}).get("ratio", {}) else 2


def words(known: Any) -> Any:
    def split(text: str) -> list[str]:
        found = [each for each in text.split(",") if each]
        if not set(found) <= set(known):
            msg = f"{text}: known are {', '.join(known)}"
            raise argparse.ArgumentTypeError(msg)
        return found

    return split


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=320)
    parser.add_argument(
        "--gpus", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2]
    )
    parser.add_argument("--only", type=words(CASES), default=list(CASES))
    parser.add_argument("--probes", type=words(GROUPS), default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    build()
    warm(given.only)
    results: dict[str, Any] = {"machine": machine(), "cases": {}, "probes": []}
    say(results["machine"])
    measure_cases(given, end, results)
    for found in probes(given.probes, max(given.gpus), end - _PROBE_S):
        results["probes"].append(found)
        say(found)
        save(given.out, results)
    for log in WORK.glob("*.log"):
        shutil.copy(log, given.out / log.name)
    return verdict(results)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
