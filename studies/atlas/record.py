"""Record the atlas: every run of a sweep's file, as many as fit into a given time.

``python -m studies.atlas.record datasets/atlas/sweep.yaml --out runs --gpus 0,1 --seconds 480``

Several processes a GPU prepare on the CPU; one at a time has the GPU (`PERFML_GPU_TURN`). Runs
are begun in the order of `order`, so that a short lease gets every network once before it gets any
of them in all precisions, and these for the same networks. What is there already is kept, and what
``--beside`` names is left out. Ladders of kernels (``studies/data/h200-conv/sweep.yaml``) go
through it in the order of their files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from collectors.collect import collect_one
from collectors.execution import ExecutionContext
from collectors.run_spec import Run
from collectors.sweep.spec import read_sweep
from collectors.sweep.task import own_gpu
from collectors.workloads.torch_models.names import PREFIX
from collectors.workloads.turns import TURN
from perfml.datasets.table_files import part_files
from perfml.errors import PerfmlError

FIRST = (
    ("cudnn", "fp32", 1),
    ("cudnn", "fp16", 8),
    ("cublas", "fp32", 8),
    ("inductor", "fp16", 8),
)
"""Backend, precision and batch, the most wanted first, each in all networks before the next."""

ATLAS = Path(__file__).resolve().parents[2] / "datasets" / "atlas"

LATER = "later"
"""Folder of an atlas for runs that nothing was fitted on, all that `studies.atlas.confirm` has."""

REST = "rest"
"""The same, for the sweep's runs that came after that."""

TIER = 5
"""Networks that get all other configurations before the next ones get any."""

CPU_THREADS = "2"
"""Of a process that prepares: several do at once, and the reference is computed on the CPU."""


def order(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of `FIRST`, then the others by tiers of networks; else as the file has them.

    Wherever a lease ends, each of the other configurations has been recorded for nearly the same
    networks.
    """
    rank = {stage: number for number, stage in enumerate(FIRST)}
    paired = {(run.workload, run.precision, run.batch) for run in runs if run.backend == "cublas"}
    place: dict[str, int] = {}
    for run in runs:
        place.setdefault(run.workload, len(place))

    def stage(run: Run) -> int:
        if not run.workload.startswith(PREFIX):
            return 0
        # what cuDNN does in cuBLAS's place belongs beside it
        beside = (run.workload, run.precision, run.batch) in paired
        key = ("cublas" if beside else run.backend or "", run.precision or "", run.batch or 0)
        return rank.get(key, len(FIRST) + place[run.workload] // TIER)

    return sorted(runs, key=stage)


def named(run_id: str) -> str:
    """Return a run's name without the digest, which changes with the default set of metrics."""
    return run_id.rpartition("-")[0]


def recorded(folder: Path) -> set[str]:
    """Return the names of the runs that an atlas on disk holds."""
    import pyarrow.parquet as pq

    found: set[str] = set()
    folders = (folder, folder / LATER, folder / REST, folder / "bf16")
    for path in (path for each in folders for path in part_files(each, "layers")):
        runs = pq.read_table(path, columns=["run_id"]).column("run_id").unique().to_pylist()
        found |= {named(run) for run in runs}
    return found


def _begin(gpus: multiprocessing.Queue, folder: str) -> None:
    """Give a worker process its GPU, and the file that says whose turn it is there."""
    gpu = gpus.get()
    os.environ |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    os.environ[TURN] = str(Path(folder) / f"gpu-{gpu}")
    os.environ["OMP_NUM_THREADS"] = CPU_THREADS


def _measure(run: Run, out: str, deadline: float, timeout_s: float) -> tuple[str, str, str, float]:
    if time.time() > deadline:
        return run.run_id, "left out", "", 0.0
    began = time.monotonic()
    result = collect_one(run, ExecutionContext(own_gpu(), (), timeout_s), Path(out))
    return result.run_id, result.status, result.message, time.monotonic() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, and print what became of every run; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps", type=Path, nargs="+", metavar="sweep.yaml")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--beside", type=Path, help="an atlas's folder: leave out what it holds")
    parser.add_argument("--gpus", default="0", help="numbers of nvidia-smi, with commas")
    parser.add_argument("--workers", type=int, default=5, help="processes a GPU")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no run after these")
    parser.add_argument("--timeout", type=float, default=120.0, help="of a run, waiting included")
    given = parser.parse_args(arguments)
    try:
        there = recorded(given.beside) if given.beside else set()
        runs = order([run for each in given.sweeps for run in read_sweep(each).runs.values()])
        runs = [run for run in runs if named(run.run_id) not in there]
    except PerfmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + given.seconds
    context = multiprocessing.get_context("spawn")
    gpus, names = context.Queue(), given.gpus.split(",")
    workers = given.workers * len(names)
    for number in range(workers):
        gpus.put(names[number % len(names)])
    counts: dict[str, int] = {}
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="perfml-turns-") as folder,
        ProcessPoolExecutor(workers, context, _begin, (gpus, folder)) as pool,
    ):
        rest = (str(given.out), deadline, given.timeout)
        for done in as_completed([pool.submit(_measure, run, *rest) for run in runs]):
            run_id, status, message, seconds = done.result()
            counts[status] = counts.get(status, 0) + 1
            if status != "left out":
                when = time.monotonic() - began
                line = f"{when:6.0f} s  {status:6}  {seconds:5.1f} s  {run_id}  {message[:200]}"
                print(line, flush=True)
    print(
        ", ".join(f"{count} {status}" for status, count in counts.items()), f"of {len(runs)} runs"
    )
    return int("failed" in counts)


if __name__ == "__main__":
    sys.exit(main())
