"""Record a ladder: measure every version that is right, pack, print the table.

`studies.seeds.measure` calls it. ``perfml collect`` compares every version with its
reference before it measures it. Finished runs are kept, so a second call on the same machine does
what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.profilers.gpu import gpus

KEPT = ("run.json", "metrics.csv", "timing.csv", "log.txt")
PACKED = "recording.tar.xz"
LEAST_S = 25.0
"""A run takes at least so long on an H200; with less left none is begun."""


@dataclass(frozen=True)
class Wanted:
    """One run.

    Attributes
    ----------
    backend, precision
        Of the workload.
    layers
        Regular expression of the layers to profile; all by default. All are timed.
    settings
        ``KEY=VALUE`` of the workload, in place of the recording's.
    """

    backend: str
    precision: str = "fp32"
    layers: str | None = None
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.backend, self.precision, *self.settings))


@dataclass(frozen=True)
class Recording:
    """What to record.

    Attributes
    ----------
    workload
        Its name.
    runs
        The most important first.
    metrics
        As for ``perfml collect --metrics``.
    metric_iterations
        Profiled iterations.
    settings
        ``KEY=VALUE`` of the workload, for runs without their own.
    shown
        Layers whose steps are printed at the end; all are in the files.
    """

    workload: str
    runs: tuple[Wanted, ...]
    metrics: tuple[str, ...]
    metric_iterations: int = 2
    settings: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def command(self, run: Wanted, folder: Path) -> list[str]:
        """Return the command of one run."""
        command = [sys.executable, "-m", "perfml", "collect", self.workload, "--json"]
        command += ["--backend", run.backend, "--precision", run.precision, "--warmup", "3"]
        command += ["--metric-iterations", str(self.metric_iterations), "--out", str(folder)]
        for name in self.metrics:
            command += ["--metrics", name]
        for pair in run.settings or self.settings:
            command += ["--set", pair]
        return [*command, "--layer", run.layers] if run.layers else command


def main(recording: Recording, arguments: Sequence[str] | None = None) -> int:
    """Run a ``record.py``; return 1 if a version is wrong or a run failed."""
    parser = argparse.ArgumentParser(description=f"Record the {recording.workload} ladder.")
    parser.add_argument("--out", type=Path, required=True, help=f"gets {PACKED} and four others")
    parser.add_argument("--runs", type=Path, help="where finished runs are kept")
    parser.add_argument("--seconds", type=float, default=540.0, help="no run is begun after these")
    parser.add_argument("--only", default="", help="backends, comma-separated")
    given = parser.parse_args(arguments)
    names = [name for name in given.only.split(",") if name]
    runs = [run for run in recording.runs if not names or run.backend in names]
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    # not in the folder that is given back: that takes few files
    folder = given.runs or Path(tempfile.gettempdir()) / f"perfml-{recording.workload}"
    folder.mkdir(parents=True, exist_ok=True)
    state = _measure(recording, runs, folder, end)
    _finish(recording, folder, given.out)
    for run, what in state.items():
        sys.stdout.write(f"{run}: {what}\n")
    return 0 if all("exit 0" in what for what in state.values()) else 1


def _measure(
    recording: Recording, runs: Sequence[Wanted], folder: Path, end: float
) -> dict[str, str]:
    """Measure the runs, one at a time on each GPU."""
    jobs: queue.Queue[Wanted] = queue.Queue()
    for run in runs:
        jobs.put(run)
    state: dict[str, str] = {}
    if not runs:
        return state

    def work(gpu: str) -> None:
        aside = Path(f"/tmp/perfml-gpu{gpu}")
        aside.mkdir(exist_ok=True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "TMPDIR": str(aside)}
        while True:
            try:
                run = jobs.get_nowait()
            except queue.Empty:
                return
            state[str(run)] = _one(recording.command(run, folder), environment, end)

    workers = [threading.Thread(target=work, args=(gpu,)) for gpu in _visible()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return state


def _visible() -> list[str]:
    """Return the GPUs that this process may use."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",") if chosen else [str(gpu) for gpu in range(len(gpus()))]


def _one(command: list[str], environment: dict[str, str], end: float) -> str:
    left = end - time.monotonic()
    if left < LEAST_S:
        return "no time left"
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        return f"cut after {time.monotonic() - began:.0f} s"
    told = "" if done.returncode == 0 else f" {_why(done)}"
    return f"{time.monotonic() - began:.0f} s, exit {done.returncode}{told}"


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """Return why ``perfml collect --json`` failed: its run's message, or what it printed last."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return "; ".join(str(run["message"]) for run in json.loads(done.stdout)["runs"])
    return (done.stderr or done.stdout)[-400:]


def _finish(recording: Recording, folder: Path, out: Path) -> None:
    """Make the table of launches, pack what was recorded, print the ladder.

    `out` then has five files at most: the recording, the launches and the ladder twice.
    """
    kernels = out / "kernels.parquet"
    # hundreds of raw columns make pandas warn of fragments, and only the end of the output is kept
    perfml = [sys.executable, "-W", "ignore", "-m", "perfml"]
    subprocess.run(
        [*perfml, "ingest", str(folder), "--raw", "--quiet", "--out", str(kernels)], check=False
    )
    with tarfile.open(out / PACKED, "w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.name in KEPT:
                archive.add(path, Path("runs") / path.relative_to(folder))
    for path in sorted(folder.glob("*/run.json")):
        record = json.loads(path.read_text())
        sys.stdout.write(
            f"{path.parent.name}: {record.get('launches_profiled')} launches, "
            f"{record.get('passes')} passes, {record.get('seconds_per_launch')} s a launch\n"
        )
    sys.stdout.flush()
    table = [sys.executable, "-m", "studies.ladders.measure", str(kernels)]
    table += ["--runs", str(folder), "--write", str(out)]
    for layer in recording.shown:
        table += ["--show", layer]
    subprocess.run(table, check=False)
    sys.stdout.flush()
