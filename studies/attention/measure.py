"""Attention on one GPU: correct, tiles, and speed beside PyTorch's FlashAttention-2 and cuDNN.

From the repository's root, on a machine with torch, cupy and nvcc::

    PYTHONPATH=. python3 -m studies.attention.measure --out OUT --seconds 420

Every kernel is checked first, on fresh inputs and into poisoned outputs, against double precision;
times are medians by CUDA events, taken in turns. Parts run in processes of their own with a limit
each, so a kernel that hangs costs its part only. Exit 1 if a check fails or neither wmma nor mma is
as fast as FlashAttention-2 at 25,600 tokens. The tables at the end are also OUT/attention.json;
``--json`` prints that instead.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perfml.util.files import write_text
from studies.attention.parts import MARK, PARTS, TOKENS
from studies.workloads.attention import launch

ROOT = Path(__file__).resolve().parents[2]
OWN = ("wmma", "mma", "wgmma")
GOAL_BACKENDS = ("wmma", "mma")
RIVAL = "torch-fa2"
REFERENCES = ("torch-fa2", "torch-cudnn", "torch-efficient")
WHOLE = ("tokens", "ladder")
PATIENCE = 2
"""So many times a part may run out of time."""
RETRIES = 4
"""A part is started again without what stopped it, so many times."""
THROUGHPUT = ("dram__bytes.sum.per_second", "lts__t_bytes.sum.per_second")
PROFILED_TOKENS = 6400
REGISTERS, THREADS, SHARED = 65_536, 2048, 228 * 1024
"""Of a multiprocessor of compute capability 9.0; a block's shared memory costs 1 KiB more."""


class Run:
    """The benchmark's state: what is left of the time, and what was found.

    Parameters
    ----------
    seconds
        Limit for everything.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.notes: list[str] = []
        self.failures: list[str] = []

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.end - time.monotonic()

    def part(self, name: str, given: dict[str, Any], limit: float) -> list[dict[str, Any]]:
        """Run a part; start it again without what stopped it."""
        results: list[dict[str, Any]] = []
        skip: list[str] = []
        slow = 0
        for _ in range(RETRIES):
            room = min(limit, self.left())
            if room < 10:
                self.notes.append(f"{name}: no time left")
                break
            lines, why = _process(name, given | {"skip": skip}, room)
            results += [line for line in lines if "start" not in line]
            if not why:
                break
            started = [line["start"] for line in lines if "start" in line]
            last = started[-1] if started else ""
            # PyTorch's others may lack a case: that is worth a note, not a failure of ours.
            theirs = last.startswith("torch-") and last != RIVAL
            kept = self.notes if theirs else self.failures
            kept.append(" ".join((name, given.get("backend", ""), f"{last}: {why}")))
            slow += "not done" in why
            if not started or slow == PATIENCE:
                break
            # Of parts that build on all of their members, only the one that failed is left out.
            skip = [*skip, *(started[-1:] if name in WHOLE else started)]
        return results


def _process(name: str, given: dict[str, Any], limit: float) -> tuple[list[dict[str, Any]], str]:
    """Run a part; return its results and, if it did not end well, why."""
    command = [sys.executable, __file__, "--part", name, "--given", json.dumps(given)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            done = subprocess.run(command, stdout=out, stderr=err, timeout=limit, check=False)
            why = "" if done.returncode == 0 else f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"not done in {limit:.0f} s"
        out.seek(0)
        err.seek(0)
        text, last = out.read(), err.read().strip().splitlines()[-1:]
    lines = [line[len(MARK) :] for line in text.splitlines() if line.startswith(MARK)]
    if why and last:
        why += f" ({last[0][:200]})"
    return [json.loads(line) for line in lines], why


def blocks(row: dict[str, Any]) -> int:
    """Return how many blocks fit on a multiprocessor, by registers, threads and shared memory."""
    registers = -(-row["registers"] // 8) * 8 * row["threads"]
    limits = (
        REGISTERS // registers,
        THREADS // row["threads"],
        SHARED // (row["shared_bytes"] + 1024),
    )
    return min(limits)


def throughput(run: Run, tiles: list[str]) -> dict[str, dict[str, float]]:
    """Return bytes a second of each tile by Nsight Compute; empty without it."""
    ncu = shutil.which("ncu")
    if ncu is None or run.left() < 30 or not tiles:
        run.notes.append("throughput: no ncu or no time left")
        return {}
    given = json.dumps({"tokens": PROFILED_TOKENS, "variants": tiles})
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", "attention_wmma", "--metrics", ",".join(THROUGHPUT),
        sys.executable, __file__, "--part", "once", "--given", given,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=min(120, run.left()), check=False
        )
    except subprocess.TimeoutExpired:
        run.notes.append("throughput: ncu took too long")
        return {}
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        run.notes.append(f"throughput: ncu said {(done.stdout + done.stderr).strip()[-200:]}")
        return {}
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]
    return {
        tile: {name: float(row[name].replace(",", "")) for name in THROUGHPUT}
        for tile, row in zip(tiles, rows, strict=False)
    }


def is_tile(row: dict[str, Any]) -> bool:
    """Whether a row is one of the study's tiles, not a further variant of one."""
    return row["backend"] == "wmma" and row["variant"].count("_") == 1


def best(rows: list[dict[str, Any]], backend: str) -> str | None:
    """Return the fastest right variant of a backend."""
    right = [row for row in rows if row["backend"] == backend and row["ms"] is not None]
    return min(right, key=lambda row: row["ms"])["variant"] if right else None


def teraflops(row: dict[str, Any]) -> float:
    return row["flops"] / row["ms"] / 1e9 if row["ms"] else float("nan")


# ---- tables --------------------------------------------------------------------------------------


# ---- the whole -----------------------------------------------------------------------------------


def verdict(run: Run, found: dict[str, Any]) -> None:
    """Add what fails: a wrong result, or no kernel of ours as fast as FlashAttention-2."""
    for row in (*found["variants"], *found["tokens"], *found["other"]):
        if row["error"] is None or row["error"] > launch.LIMITS["fp16"]:
            run.failures.append(f"{row['backend']} {row['variant']}: error {row['error']}")
    for row in found["ladder"]:
        if "check" in row and (row["error"] is None or row["error"] > launch.LIMITS["fp32"]):
            run.failures.append(f"{row['check']} d {row['dim']}: error {row['error']}")
    at_goal = {row["backend"]: row["ms"] for row in found["tokens"] if row["tokens"] == TOKENS}
    ours = [at_goal[name] for name in GOAL_BACKENDS if name in at_goal]
    if RIVAL not in at_goal or not ours:
        run.failures.append(f"{TOKENS} tokens: not measured beside {RIVAL}")
    elif min(ours) > at_goal[RIVAL]:
        run.failures.append(f"{TOKENS} tokens: {min(ours):.2f} ms against {at_goal[RIVAL]:.2f}")


def measure(run: Run, sizes: str, repeats: int) -> dict[str, Any]:
    """Run the parts, what the verdict needs first."""
    found: dict[str, Any] = {"variants": [], "tokens": [], "other": [], "ladder": [], "rates": {}}
    started = time.monotonic()
    run.part("build", {}, 240)
    run.notes.append(f"compiled in {time.monotonic() - started:.0f} s")
    for backend in OWN:
        found["variants"] += run.part("variants", {"backend": backend}, 50)
    chosen = {name: best(found["variants"], name) for name in OWN}
    backends = {name: variant for name, variant in chosen.items() if variant}
    # A process each: PyTorch may lack one of its own here.
    for group in ([*backends, RIVAL, "torch-cudnn"], ["torch-efficient"]):
        asked = {name: backends.get(name, "") for name in group}
        given = {"backends": asked, "repeats": repeats}
        found["tokens"] += run.part("tokens", given, 120)
    for name in (*backends, "torch-fa2", "torch-cudnn"):
        found["other"] += run.part("other", {"backends": [name]}, 60)
    found["ladder"] = run.part("ladder", {"sizes": sizes}, 150)
    tiles = [
        row["variant"] for row in found["variants"]
        if is_tile(row) and row["ms"] is not None
    ]  # fmt: skip
    found["rates"] = throughput(run, tiles)
    return found


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--out", type=Path, help="folder for attention.json")
    made.add_argument("--seconds", type=float, default=420, help="limit for everything")
    made.add_argument("--sizes", choices=("small", "published"), default="published")
    made.add_argument("--repeats", type=int, default=7)
    made.add_argument("--json", action="store_true")
    made.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    made.add_argument("--given", default="{}", help=argparse.SUPPRESS)
    given = made.parse_args()
    if given.part:
        PARTS[given.part](json.loads(given.given))
        return 0
    run = Run(given.seconds)
    found = measure(run, given.sizes, given.repeats)
    verdict(run, found)
    found |= {"notes": run.notes, "failures": run.failures}
    lines = [
        *(f"note: {note}" for note in run.notes),
        *(f"FAILED: {failure}" for failure in run.failures),
        f"{'failed' if run.failures else 'passed'}, {given.seconds - run.left():.0f} s",
    ]
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        write_text(given.out / "attention.json", json.dumps(found, indent=1) + "\n")
    print(json.dumps(found) if given.json else "\n".join(lines))
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
