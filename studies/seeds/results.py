"""What was measured for the four documents, as the one file that the page rests on.

``python -m studies.seeds.results FOLDER`` reads what `measure` recorded (its archive, unpacked) and
writes ``benchmarks/results/seeds-h200.json``; with ``--add`` it puts what a later FOLDER has beside
that: totals of attention (``attention.json``, ``slow.json``), and the run of `sweep.yaml` that asks
for Nsight Compute's speed of light.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.ingest.profiles import IngestSettings, ingest
from perfml.readers.source import ReadOptions
from perfml.util.files import write_text
from studies.ladders.qkv_columns import qkv_columns

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/seeds-h200.json"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts.sum"
COUNTERS = {
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "wavefronts_a_load": "shared_load_transactions_per_request",
    "l2_reads": "l2_read_transactions",
    "copy_efficiency": "ldgsts_efficiency",
    "registers": "registers_per_thread",
    "instructions": "inst_executed",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "occupancy": "achieved_occupancy",
}
"""Name here to the column; counts are summed over a layer's kernels, the others are means."""
LIGHT = {
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
SUMMED = ("conflicts", "shared_wavefronts", "l2_reads", "instructions")
KEYS = ["workload", "backend", "layer"]


def layer_rows(kernels: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row a backend and layer: median time, kernels, counters."""
    rows = []
    for key, some in kernels.groupby(KEYS, sort=False):
        times = some.groupby("iteration")["time_us"].sum()
        row: dict[str, Any] = dict(zip(KEYS, key, strict=True))
        row |= {"us": round(float(times.median()), 3), "iterations": len(times)}
        row["kernels"] = round(len(some) / len(times), 2)
        for name, column in COUNTERS.items():
            if column not in some.columns:
                continue
            values = pd.to_numeric(some[column], errors="coerce")
            if name.startswith("dram") or name in SUMMED:
                value = values.groupby(some["iteration"]).sum(min_count=1).median()
            else:
                value = values.mean()
            row[name] = None if pd.isna(value) else float(f"{value:.6g}")
        rows.append(row)
    return rows


def request_rows(kernels: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the columns of the QKV ladder, and L1's rounds for a request of a load.

    Stores take a round each; what is left belongs to the loads, since these kernels have no shared
    memory.
    """
    mine = kernels[kernels["workload"] == "qkv"]
    table = qkv_columns(mine)
    means = mine.groupby(["backend", "layer"])[
        [WAVEFRONTS, "global_load_requests", "global_store_requests", "achieved_occupancy"]
    ].mean()
    rows = []
    for row in table.to_dict("records"):
        of = means.loc[(row["backend"], row["layer"])]
        rounds = (of[WAVEFRONTS] - of["global_store_requests"]) / of["global_load_requests"]
        names = ("insn_per_iteration", "issue", "sectors_per_request", "cycles_per_request")
        names += ("reads", "gb_per_s", "time_us")
        kept = {name: float(f"{row[name]:.6g}") for name in names}
        rows.append(
            {"backend": row["backend"], "layer": row["layer"], **kept}
            | {"rounds_a_load": float(f"{rounds:.6g}")}
            | {"resident_warps": float(f"{64 * of['achieved_occupancy']:.4g}")}
        )
    return rows


def document(folder: Path) -> dict[str, Any]:
    """Return what is kept of a recording."""
    kernels = ingest(
        [folder / "runs"], settings=IngestSettings(options=ReadOptions(raw=True))
    ).frame
    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/run.json"))]
    machine = manifests[0]["environment"]
    kept = ("gpu", "driver", "cuda", "torch", "perfml", "time")
    found = {name: machine[name] for name in kept if name in machine}
    found["profiler"] = f"{manifests[0]['profiler']} {manifests[0]['profiler_version']}"
    checks = [row for each in manifests for row in each["check"]["outputs"]]
    result = {
        "machine": found,
        "state": [
            {name: row[name] for name in ("part", "what", "seconds") if name in row}
            for row in json.loads((folder / "state.json").read_text())
        ],
        "checked": {
            "outputs": len(checks),
            "worst": max(row["relative_error"] / row["limit"] for row in checks),
        },
        "layers": layer_rows(kernels),
        "qkv": request_rows(kernels),
    }
    for name in ("conv", "attention"):
        result |= json.loads((folder / f"{name}.json").read_text())
    return result


def with_more(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a document with what a later folder has; a case and version is there once."""
    rows = {(row["case"], row["version"]): row for row in found["attention"]}
    for name in ("attention", "slow"):
        path = folder / f"{name}.json"
        if path.is_file():
            for row in json.loads(path.read_text())[name]:
                rows[row["case"], row["version"]] = row
    result = found | {"attention": list(rows.values())}
    light = speed_of_light(folder / "runs")
    return result | ({"speed_of_light": light} if light else {})


def speed_of_light(runs: Path) -> list[dict[str, Any]]:
    """Return Nsight Compute's shares of what the GPU can do, of the TF32 convolution, in percent.

    Of the elapsed cycles, L1 of the active ones. Empty if `runs` has no such run.
    """
    for path in sorted(runs.glob("conv-wmma-tf32-*/run.json")):
        if LIGHT["compute"] not in path.read_text():
            continue
        frame = ingest([path.parent], settings=IngestSettings(options=ReadOptions(raw=True))).frame
        means = frame.groupby("layer", observed=True)[list(LIGHT.values())].mean()
        return [
            {"layer": layer, **{name: float(f"{row[raw]:.4g}") for name, raw in LIGHT.items()}}
            for layer, row in means.iterrows()
        ]
    return []


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--add", action="store_true", help="what a later recording has")
    given = parser.parse_args(arguments)
    if given.add:
        found = with_more(json.loads(RESULTS.read_text(encoding="utf-8")), given.folder)
    else:
        found = document(given.folder)
    write_text(RESULTS, json.dumps(found, indent=1, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
