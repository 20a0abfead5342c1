"""Record a ladder: check every version first, measure those that are right, pack, print the table.

What the ``record.py`` of a dataset calls. Finished runs are kept, so a second call on the same
machine does what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
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
from typing import Any

from collectors.profilers._gpu import gpus

from . import Options, parse_settings, workload
from .run import write_json

KEPT = ("run.json", "metrics.csv", "timing.csv", "log.txt")
PACKED = "recording.tar.xz"
CHECK_S = 300.0
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
        return [*command, "--layers", run.layers] if run.layers else command


def check(recording: Recording, runs: Sequence[Wanted], path: Path) -> None:
    """Compare with the reference what `path` has no row of yet; print a line a version.

    Ends early where a kernel has broken the process (an illegal address fails every call after
    it): the caller starts another.
    """
    import torch

    rows = _rows(path)
    known = {row["run"] for row in rows}
    for run in (each for each in runs if str(each) not in known):
        # a process that dies here has left this row
        rows.append({"run": str(run), "passed": False, "outputs": [], "settings": {}})
        write_json(path, rows)
        began = time.monotonic()
        rows[-1] |= _checked(recording, run)
        write_json(path, rows)
        worst = max((each.get("relative_error") or 0.0 for each in rows[-1]["outputs"]), default=0)
        verdict = "right" if rows[-1]["passed"] else "WRONG"
        seconds = time.monotonic() - began
        sys.stdout.write(f"check {run}: {verdict}, worst error {worst:.1e}, {seconds:.1f} s\n")
        for each in rows[-1]["outputs"]:
            if not each["passed"]:
                sys.stdout.write(f"  {json.dumps(each)}\n")
        sys.stdout.flush()
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except (RuntimeError, AssertionError):  # the latter is torch without CUDA
            return


def _checked(recording: Recording, run: Wanted) -> dict[str, Any]:
    settings = parse_settings(run.settings or recording.settings)
    options = Options(run.backend, run.precision, settings=settings, cudnn_benchmark=False)
    try:
        session = workload(recording.workload).session(options)
        with session.active():
            found = session.check()
    except Exception as error:
        return {"outputs": [{"output": f"{type(error).__name__}: {error}"[:300], "passed": False}]}
    outputs = [
        {
            "output": row.output,
            "relative_error": row.error if math.isfinite(row.error) else None,
            "limit": row.limit,
            "passed": row.passed,
        }
        for row in found
    ]
    passed = all(row.passed for row in found)
    return {"passed": passed, "outputs": outputs, "settings": session.describe()["settings"]}


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def check_all(recording: Recording, runs: Sequence[Wanted], script: list[str], path: Path) -> None:
    """Check every run, in as many processes as it takes; `script` checks what has no row yet.

    They are processes of their own, so that their memory is not there when others are measured.
    """
    path.unlink(missing_ok=True)
    while True:
        before = len(_rows(path))
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(script, check=False, timeout=CHECK_S)  # noqa: S603 - our own script
        after = len(_rows(path))
        if after == before or after >= len(runs):
            return


def main(recording: Recording, arguments: Sequence[str] | None = None) -> int:
    """Run a ``record.py``; return 1 if a version is wrong or a run failed."""
    parser = argparse.ArgumentParser(description=f"Record the {recording.workload} ladder.")
    parser.add_argument("--out", type=Path, required=True, help=f"gets {PACKED} and five others")
    parser.add_argument("--runs", type=Path, help="where finished runs are kept")
    parser.add_argument("--seconds", type=float, default=540.0, help="no run is begun after these")
    parser.add_argument("--only", default="", help="backends, comma-separated")
    parser.add_argument("--check-only", action="store_true")
    given = parser.parse_args(arguments)
    names = [name for name in given.only.split(",") if name]
    runs = [run for run in recording.runs if not names or run.backend in names]
    given.out.mkdir(parents=True, exist_ok=True)
    checked = given.out / "check.json"
    if given.check_only:
        check(recording, runs, checked)
        return 0
    end = time.monotonic() + given.seconds
    again = [sys.executable, sys.argv[0], "--check-only", "--out", str(given.out)]
    check_all(recording, runs, [*again, "--only", given.only], checked)
    right = {row["run"] for row in _rows(checked) if row["passed"]}
    # not in the folder that is given back: that takes few files
    folder = given.runs or Path(tempfile.gettempdir()) / f"perfml-{recording.workload}"
    folder.mkdir(parents=True, exist_ok=True)
    state = _measure(recording, [run for run in runs if str(run) in right], folder, end)
    state |= {str(run): "not measured: WRONG" for run in runs if str(run) not in right}
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
        aside = Path(f"/tmp/perfml-gpu{gpu}")  # noqa: S108 - ncu's lock file, one a GPU
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
        done = subprocess.run(  # noqa: S603 - a list of our own
            command, env=environment, capture_output=True, text=True, timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        return f"cut after {time.monotonic() - began:.0f} s"
    tail = "" if done.returncode == 0 else f" {(done.stderr or done.stdout)[-400:]}"
    return f"{time.monotonic() - began:.0f} s, exit {done.returncode}{tail}"


def _finish(recording: Recording, folder: Path, out: Path) -> None:
    """Make the table of launches, pack what was recorded, print the ladder.

    `out` then has six files at most: the recording, the checks, the launches and the ladder twice.
    """
    kernels = out / "kernels.parquet"
    # hundreds of raw columns make pandas warn of fragments, and only the end of the output is kept
    perfml = [sys.executable, "-W", "ignore", "-m", "perfml"]
    subprocess.run(  # noqa: S603 - our own command line
        [*perfml, "ingest", str(folder), "--raw", "--quiet", "--out", str(kernels)], check=False
    )
    with tarfile.open(out / PACKED, "w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.name in KEPT:
                archive.add(path, Path("runs") / path.relative_to(folder))
        if (out / "check.json").is_file():
            archive.add(out / "check.json", "check.json")
    for path in sorted(folder.glob("*/run.json")):
        record = json.loads(path.read_text())
        sys.stdout.write(
            f"{path.parent.name}: {record.get('launches_profiled')} launches, "
            f"{record.get('passes')} passes, {record.get('seconds_per_launch')} s a launch\n"
        )
    sys.stdout.flush()
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "ladder.py"
    table = [sys.executable, str(script), str(kernels), "--runs", str(folder), "--write", str(out)]
    for layer in recording.shown:
        table += ["--show", layer]
    subprocess.run(table, check=False)  # noqa: S603 - our own script
    sys.stdout.flush()
