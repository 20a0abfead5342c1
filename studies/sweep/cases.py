"""The sweeps that studies/sweep/measure.py times, and how two of one kind are compared."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(os.environ.get("PERFML_BENCHMARK_WORK", "/tmp/perfml-sweep-benchmark"))
"""On a local disk of the GPU's machine; a sweep that is taken up must lie where it was left."""
PROGRAM = WORK / "sweep_program"
FEW = "stall_inst_fetch,warp_execution_efficiency,achieved_occupancy"
THREE = "gld_efficiency,gst_efficiency,shared_efficiency"
RUNS = int(os.environ.get("PERFML_BENCHMARK_RUNS", "12"))
"""Twelve where something is measured; a test of this program needs fewer."""
NOISE = 0.02
"""Largest difference of a metric, all of which are fractions, that counts as noise."""
_START_S, _SLOWER = 5.0, 1.15


@dataclass(frozen=True)
class Case:
    """One sweep of `RUNS` runs of the small CUDA program, or of a built-in workload.

    Attributes
    ----------
    name, stands_for
        What it is called, and what a user does that is like it.
    arguments
        The program's, with ``{i}`` for the number of the run; empty with `matrix`.
    options
        Options of every run.
    run_s
        About how long a run takes on one GPU, to know whether it fits into the time that is left.
    matrix
        Of a built-in workload.
    """

    name: str
    stands_for: str
    arguments: str
    options: dict[str, Any] = field(default_factory=dict)
    run_s: float = 6.0
    matrix: dict[str, Any] = field(default_factory=dict)

    @property
    def repeat_by(self) -> list[str]:
        """What launches agree in that are repeats: the program's steps are, a layer's seeds are."""
        return ["kernel", "grid", "block", *(["layer"] if self.matrix else [])]

    def write(self) -> Path:
        """Write the sweep's file."""
        commands = [
            [str(PROGRAM), *self.arguments.format(i=number).split()]
            for number in range(1, RUNS + 1)
        ]
        matrix = self.matrix or {"command": commands}
        options = dict(self.options)
        metrics = options.pop("metrics", "published").split(",")
        defaults = {"metric_iterations": 1000, "metrics": metrics, **options}
        path = WORK / f"{self.name}.json"
        path.write_text(json.dumps({"matrix": matrix, "defaults": defaults}))
        return path

    def need_s(self, gpus: list[int]) -> float:
        """Return about how long it takes on each of these numbers of GPUs, one after another."""
        return sum(_START_S + RUNS * self.run_s / n * (_SLOWER if n > 1 else 1) for n in gpus)


CASES = {
    case.name: case
    for case in (
        Case(
            "kernel-replay",
            "the published metrics, in 8 passes over short kernels",
            "4 {i}",
            run_s=5.0,
        ),
        Case(
            "one-pass",
            "metrics of a plan that fits into one pass, over many short kernels",
            "50 {i}",
            {"metrics": FEW},
            run_s=6.3,
        ),
        Case(
            "long",
            "the published metrics over kernels of about 0.1 s: the GPU's own work dominates",
            "6 2 110{i:02d}",
            run_s=9.8,
        ),
        Case(
            "network",
            "YOLOv4-Tiny under two libraries, in two precisions, three repeats, one pass",
            "",
            {"metrics": FEW, "metric_iterations": 1, "iterations": 5, "layers": "conv_0[1-4]"},
            run_s=11.5,
            matrix={
                "workload": "yolov4-tiny",
                "backend": ["cublas", "cudnn"],
                "precision": ["fp32", "fp16"],
                "seed": [0, 1, 2],
            },
        ),
    )
}


def build() -> None:
    """Compile the program."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    source = Path(__file__).with_name("program.cu")
    command = ["nvcc", "-O2", "-o", str(PROGRAM), str(source)]
    # machine code of this GPU: else every start of the program would compile it
    if subprocess.run([*command, "-arch=native"], check=False).returncode != 0:
        subprocess.run(command, check=True)


def sweep(file: Path, out: Path, *arguments: str) -> subprocess.Popen:
    """Start a sweep; what it says goes beside its folder."""
    command = [sys.executable, "-m", "perfml", "sweep", str(file), "--out", str(out), "--json"]
    with out.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )


def finish(process: subprocess.Popen, started: float, limit_s: float = 300) -> dict[str, Any]:
    """Wait for a sweep's document; one that takes longer than its limit is interrupted."""
    try:
        answer = process.communicate(timeout=max(1.0, limit_s - (time.monotonic() - started)))[0]
        stopped = False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        answer, stopped = process.communicate(timeout=60)[0], True
    document = json.loads(answer) if answer and not stopped else {}
    wall = time.monotonic() - started
    return {**document, "code": process.returncode, "wall_s": wall, "stopped": stopped}


def timed(case: Case, file: Path, count: int, limit_s: float) -> dict[str, Any]:
    """Run a case on some GPUs; return what it took."""
    out = WORK / f"{case.name}-{count}"
    started = time.monotonic()
    found = finish(sweep(file, out, "--gpus", str(count)), started, limit_s)
    if found["stopped"] or "runs" not in found:
        return {"stopped_after_s": round(found["wall_s"], 1), "code": found["code"]}
    records = [json.loads(path.read_text()) for path in sorted(out.glob("*/run.json"))]
    summary = found["summary"]

    def median(name: str, within: str = "") -> float:
        values = [(each.get(within, {}) if within else each).get(name) for each in records]
        return round(statistics.median([each or 0.0 for each in values] or [0.0]), 4)

    return {
        "code": found["code"],
        "wall_s": round(found["wall_s"], 2),
        "gpu_s": summary["gpu_seconds"],
        "to_first_run_s": summary["seconds_to_first_run"],
        "outside_of_runs_s": round(found["wall_s"] - summary["gpu_seconds"] / count, 2),
        "done": summary["done"],
        "launches": summary["launches"],
        "passes": max((each["passes"] for each in records), default=None),
        "run_s": round(statistics.median(each["seconds"] for each in found["runs"]), 2),
        "seconds_per_launch": median("seconds_per_launch"),
        "profiling_s": median("profiling_seconds"),
        "conversion_s": median("conversion_seconds"),
        "timing_s": median("seconds", within="timing"),
        "failed": {e["run_id"]: e["message"][:300] for e in found["runs"] if e["message"]},
    }


def compared(case: Case, counts: list[int], limit_s: float) -> dict[str, Any]:
    """Run a case on each number of GPUs; return times, speed-ups and differences of metrics."""
    file, end = case.write(), time.monotonic() + limit_s
    found: dict[str, Any] = {"stands_for": case.stands_for, "runs": RUNS, "by_gpus": {}}
    for count in counts:
        left = end - time.monotonic()
        found["by_gpus"][str(count)] = timed(case, file, count, max(left, 1.0))
    walls = {n: each.get("wall_s") for n, each in found["by_gpus"].items()}
    first = str(counts[0])
    found["ratio"] = {
        n: round(walls[first] / wall, 3)
        for n, wall in walls.items()
        if n != first and wall and walls[first]
    }
    found["metrics"] = {
        n: differences(WORK / f"{case.name}-{first}", WORK / f"{case.name}-{n}", case.repeat_by)
        for n in found["ratio"]
    }
    return found


def differences(one: Path, two: Path, repeat_by: list[str]) -> dict[str, Any]:
    """Compare the metrics of the same launches in both sweeps, and of repeats within the first.

    Launches of runs that differ in their number or seed only, and agree in `repeat_by`, are
    repeats: how far they differ is noise.
    """
    import numpy as np
    import pandas as pd

    from perfml.metrics import load_catalogue
    from perfml.readers import read

    names = list(load_catalogue().select(["published"]))
    values, frames = [], []
    for path in sorted(one.glob("*/metrics.csv")):
        other = two / path.parent.name / "metrics.csv"
        if not other.is_file():
            return {"same_kernels": False, "run": path.parent.name, "within": 0.0}
        left, right = read(path).frame, read(other).frame
        if list(left["kernel"]) != list(right["kernel"]):
            return {"same_kernels": False, "run": path.parent.name, "within": 0.0}
        have = [name for name in names if name in left]
        values.append(np.abs(left[have].to_numpy(float) - right[have].to_numpy(float)).ravel())
        frames.append(left.assign(condition=path.parent.name.rpartition("-")[0]))
    every = np.concatenate(values) if values else np.array([])
    every = every[~np.isnan(every)]
    if not len(every):
        return {"same_kernels": False, "within": 0.0}
    whole = pd.concat(frames, ignore_index=True)
    noise = whole.groupby(["condition", *repeat_by], dropna=False)[have].diff().abs().to_numpy()
    noise = noise[~np.isnan(noise)]
    return {
        "same_kernels": True,
        "values": len(every),
        "median": float(np.median(every)),
        "largest": float(every.max()),
        "within": float((every <= NOISE).mean()),
        "repeats": len(noise),
        "repeats_median": float(np.median(noise)) if len(noise) else None,
        "repeats_within": float((noise <= NOISE).mean()) if len(noise) else None,
    }


def machine() -> dict[str, Any]:
    """Return what can be known of the machine."""
    asked = "name,driver_version,persistence_mode"
    said = subprocess.run(
        ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "gpus": said.stdout.strip().splitlines(),
        "kernel": os.uname().release,
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
