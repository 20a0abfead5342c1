"""Record this dataset: every run once, one process a GPU, then the range-replay check.

Run it from the repository's root on a machine with H200s (any number of them)::

    PYTHONPATH=. python3 datasets/h200-yolov4-tiny/record.py --out OUT --seconds 540

Finished runs are kept, so a second call does what is missing. It ends with a table.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

BACKENDS = ("cublas", "cudnn", "inductor")
PRECISIONS = ("fp32", "fp16", "tf32")
BATCHES = (1, 8)
METRICS = ("published", "ldgsts_efficiency")
WIDE = (*METRICS, "stalls", "roofline", "sm_efficiency", "ipc")
"""Asked of cudnn and inductor at batch 8, whose few launches leave the time for it."""
RANGE_LAYERS = ("conv_01", "conv_03", "conv_06", "conv_15", "conv_20", "conv_21")


def collect_command(backend: str, precision: str, batch: int, out: Path) -> list[str]:
    """Return the command of one run."""
    command = [sys.executable, "-m", "perfml", "collect", "yolov4-tiny", "--backend", backend]
    command += ["--precision", precision, "--batch", str(batch), "--layers", "conv_.*"]
    command += ["--iterations", "10", "--metric-iterations", "3", "--out", str(out), "--json"]
    for name in METRICS if batch == 1 or backend == "cublas" else WIDE:
        command += ["--metrics", name]
    return command


def range_command(backend: str, out: Path) -> list[str]:
    """Return the command that measures whole layers by range replay."""
    from perfml.metrics import load_catalogue

    request = load_catalogue().ncu_request(["published"])
    kept = [name for name in request if not name.startswith("smsp__sass")]
    command = ["ncu", "--metrics", ",".join(kept), "--nvtx", "--clock-control", "none"]
    command += ["--replay-mode", "range", "--import-sass", "no", "--disable-extra-suffixes"]
    for layer in RANGE_LAYERS:
        command += ["--nvtx-include", f"iter_0/{layer}/"]
    command += ["--force-overwrite", "--export", str(out / f"range_{backend}")]
    command += [sys.executable, "-m", "collectors.workloads.runner", "yolov4-tiny"]
    return [*command, "--backend", backend, "--iterations", "1", "--out", str(out / backend)]


def work(gpu: int, jobs: queue.Queue[tuple[str, list[str]]], state: dict[str, object]) -> None:
    """Do jobs on one GPU until there are none, or no time."""
    folder = Path(f"/tmp/perfml-gpu{gpu}")
    folder.mkdir(exist_ok=True)
    # ncu takes a lock in TMPDIR, so processes on other GPUs would wait for each other
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "TMPDIR": str(folder)}
    while True:
        try:
            name, command = jobs.get_nowait()
        except queue.Empty:
            return
        left = float(state["end"]) - time.monotonic()
        if left < 20:
            state[name] = "no time left"
            continue
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            state[name] = f"cut after {time.monotonic() - began:.0f} s on GPU {gpu}"
            continue
        tail = "" if done.returncode == 0 else (done.stderr or done.stdout)[-400:]
        state[name] = (
            f"{time.monotonic() - began:.0f} s on GPU {gpu}, exit {done.returncode} {tail}"
        )


def main() -> None:
    """Record what is missing, pack it, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    given = parser.parse_args()
    runs, ranges = given.out / "runs", given.out / "range"
    ranges.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    gpus = len(listed.stdout.strip().splitlines())
    jobs: queue.Queue[tuple[str, list[str]]] = queue.Queue()
    # the longest runs first: cuBLAS launches eight im2col and GEMM pairs a layer at batch 8
    for backend in BACKENDS:
        for batch in reversed(BATCHES):
            for precision in PRECISIONS:
                name = f"{backend} {precision} b{batch}"
                jobs.put((name, collect_command(backend, precision, batch, runs)))
        if not (ranges / f"range_{backend}.csv").exists():
            jobs.put((f"range {backend}", range_command(backend, ranges)))
    state: dict[str, object] = {"end": time.monotonic() + given.seconds}
    workers = [threading.Thread(target=work, args=(gpu, jobs, state)) for gpu in range(gpus)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for report in sorted(ranges.glob("*.ncu-rep")):
        table = subprocess.run(
            ["ncu", "--import", str(report), "--csv", "--page", "raw"],
            capture_output=True,
            check=False,
        )
        report.with_suffix(".csv").write_bytes(table.stdout)
    with tarfile.open(given.out / "recording.tar.xz", "w:xz") as archive:
        for path in sorted(given.out.rglob("*")):
            kept = path.name in {"run.json", "metrics.csv", "timing.csv", "log.txt"}
            if path.is_file() and (kept or path.parent == ranges or path.suffix == ".log"):
                archive.add(path, path.relative_to(given.out))
    for path in sorted(runs.glob("*/run.json")):
        record = json.loads(path.read_text())
        sys.stdout.write(
            f"{path.parent.name}: {record.get('launches_profiled')} launches, "
            f"{record.get('passes')} passes, {record.get('seconds_per_launch')} s a launch\n"
        )
    del state["end"]
    for name, what in state.items():
        sys.stdout.write(f"{name}: {what}\n")


if __name__ == "__main__":
    main()
