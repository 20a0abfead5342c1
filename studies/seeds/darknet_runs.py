"""Darknet itself on an H200: what its two paths launch, beside cuDNN's other algorithms.

``darknet/build.sh`` makes a program of Darknet's sources and ``darknet/layers.c``, which gives its
iterations and layers NVTX ranges; ``perfml collect --metrics default -- ./darknet_cublas CFG 60``
measures it. ``python -m studies.seeds.darknet_runs FOLDER`` keeps of these runs what the page says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.ingest.profiles import ingest
from perfml.util.files import write_text

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/darknet-h200.json"
RUNS = {
    "cublas": "darknet-cublas",
    "cudnn": "darknet-cudnn",
    "cudnn, implicit GEMM": "darknet-cudnn-0",
    "cudnn, GEMM": "darknet-cudnn-2",
    "cudnn, Winograd not fused": "darknet-cudnn-7",
}
"""What the page calls a run, to its folder; the number is that of cudnnConvolutionFwdAlgo_t."""
SHOWN = ("conv_03", "conv_20")
COLUMNS = (
    "time_us", "registers_per_thread", "shared_memory_per_block", "dram_utilization",
    "l2_utilization", "single_precision_fu_utilization", "ldst_fu_utilization",
    "achieved_occupancy",
)  # fmt: skip


def run_of(folder: Path) -> dict[str, Any]:
    """Return the median time of every convolution, and the kernels of two."""
    found = ingest([folder])
    frame = found.frame[found.frame["layer"].astype(str).str.startswith("conv")]
    sums = frame.groupby(["layer", "iteration"], observed=True)["time_us"].sum()
    times = sums.groupby("layer", observed=True).median()
    kernels: dict[str, Any] = {}
    for layer in SHOWN:
        mine = frame[frame["layer"] == layer]
        place = mine.groupby("iteration").cumcount()
        rows = mine.groupby(place, sort=True)[list(COLUMNS)].median()
        names = mine.groupby(place, sort=True)["kernel"].first()
        kernels[layer] = [
            {"kernel": names[at], **{key: _number(row[key]) for key in COLUMNS}}
            for at, row in rows.iterrows()
        ]
    return {
        "us": {str(layer): round(float(value), 3) for layer, value in times.items()},
        "kernels": kernels,
    }


def _number(value: float) -> float | None:
    return None if pd.isna(value) else float(f"{value:.4g}")


def checked(log: Path) -> list[float]:
    """Return how far each convolution was off Darknet's path on the CPU."""
    lines = [line for line in log.read_text().splitlines() if line.startswith("conv_")]
    assert not [line for line in lines if "WRONG" in line]
    return [float(line.rsplit(" ", 1)[1]) for line in lines]


def document(folder: Path) -> dict[str, Any]:
    """Return what is kept."""
    manifest = json.loads(next(folder.glob("darknet-cublas/*/run.json")).read_text())
    machine = {"gpu": manifest["device"], "driver": manifest["driver"], "time": manifest["started"]}
    return {
        "darknet": "github.com/AlexeyAB/darknet, commit 59596d78",
        "machine": machine | {"cuda": "13.0", "cudnn": "9.19", "passes": manifest["passes"]},
        "worst_error": {
            name: max(checked(folder / f"plain-{name}.log")) for name in ("cublas", "cudnn")
        },
        "runs": {name: run_of(folder / each) for name, each in RUNS.items()},
    }


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(document(Path(sys.argv[1])), indent=1, allow_nan=False) + "\n")
