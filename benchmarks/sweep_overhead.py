"""What perfml itself takes of a sweep, on any machine: the profiler is the tests' stand-in.

Sweeps of one run and of several on one pretended GPU. Told are the seconds of a sweep outside of
its runs, the seconds from the end of one profiler to the start of the next (which hold the
stand-in's conversion, about 0.08 s), and processor seconds. ``--tree`` measures other checkouts in
turn with this one, so that a change can be told from the load of the machine.

Run: ``python -m benchmarks.sweep_overhead [--turns 4] [--tree DIR]``. Needs Dask.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DROPPED = ("FAKE_NCU", "FAKE_GPU", "FAKE_WORKLOAD", "CUDA_VISIBLE_DEVICES")


def sweep(tree: Path, runs: int, folder: Path) -> dict[str, float]:
    """Sweep once with the package in `tree`."""
    tools = ROOT / "tests/data/fake_tools"
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    variables = {
        "PATH": f"{tools / 'two_gpus'}:{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(tree),
        "TMPDIR": str(folder),
        **{f"FAKE_{name.upper()}": str(folder / name) for name in ("notes", "hold", "fail")},
    }
    commands = [f"./p {number}" for number in range(runs)]
    plan = {"matrix": {"command": commands}, "defaults": {"timing": "ncu"}}
    (folder / "sweep.yaml").write_text(json.dumps(plan))
    words = ["sweep", "sweep.yaml", "--out", "runs", "--gpus", "1", "--json", "-q"]
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "perfml", *words],
        cwd=folder,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(answer[-2000:])
    entries = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
    entries.sort(key=lambda each: each["began"])
    gaps = [after["began"] - before["ended"] for before, after in itertools.pairwise(entries)]
    return {
        "wall_s": wall,
        "outside_s": wall - json.loads(answer)["summary"]["gpu_seconds"],
        "between_s": statistics.median(gaps) if gaps else 0.0,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tree", type=Path, action="append", default=[])
    given = parser.parse_args()
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(given.turns):
        for tree, runs in itertools.product([ROOT, *given.tree], (1, given.runs)):
            with tempfile.TemporaryDirectory(prefix="perfml-overhead-") as folder:
                one = sweep(tree.resolve(), runs, Path(folder))
            found.setdefault((str(tree), runs), []).append(one)
    print(f"least (median) of {given.turns} turns; load {os.getloadavg()[0]:.1f} at the end")
    for (tree, runs), each in found.items():
        cells = []
        for name in ("wall_s", "outside_s", "between_s", "cpu_s"):
            values = [one[name] for one in each]
            cells.append(f"{name} {min(values):.2f} ({statistics.median(values):.2f})")
        print(f"{tree}, {runs} runs: {', '.join(cells)}")


if __name__ == "__main__":
    main()
