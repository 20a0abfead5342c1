"""Make ``datasets/atlas`` of recorded runs: small enough for a repository, whole enough to study.

``python -m studies.atlas.pack RUNS [--out datasets/atlas]``
``python -m studies.atlas.pack RUNS --later`` for runs that came after `perfml predict` had learned:
a row for equal layers of a run, in ``datasets/atlas/later``, without launches and single repeats.
``datasets/atlas/rest`` was made by ``--later --counted --out datasets/atlas/rest``.

- ``layers-NN.parquet``: a row a layer and timed process: the median of its repeats, metrics merged
  with the weights of all repeats (so that a row's own time is in none of them), and what the run
  says of the layer.
- ``kernels-NN.parquet``: a row a launch, its time the mean of the repeats.
- ``times.parquet``: every single repeat of every layer.

Counts are kept in single precision, other metrics to 12 bits (0.012 %; a repeated measurement
differs by 2 %). Rates, which are counts over the time, are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.datasets.redact import redact_table
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.metrics import clock_of, load_catalogue
from perfml.modeling import with_layer_facts
from perfml.modeling.layer_shapes import average_copies, average_repeats
from perfml.tables import Table, metric_columns
from studies.atlas.record import LATER
from studies.parts import LARGEST, write_parts

ROOT = Path(__file__).resolve().parents[2]
ATLAS = ROOT / "datasets" / "atlas"
TIMES = "times.parquet"
_PARTS_OF_SUMS = ("_add", "_mul", "_fma")
_UNSAID = (
    *("layers", "sources", "commands", "options", "metrics_requested", "warnings", "timing"),
    # of runs that waited for their turn on the GPU
    *("profiling_seconds", "seconds_per_launch"),
)


def packed_run(folder):
    """Return layers, launches, times and the manifest of one run."""
    found = ingest([folder])
    table, _ = redact_table(Table(found.frame, "kernels", found.provenance))
    kernels = _lean(found.frame)
    layers = with_layer_facts(merge(kernels, weights="layer-mean"), found.provenance)
    layers["workload"] = table.frame["workload"].iloc[0]
    manifest = {
        name: value for name, value in table.provenance["runs"][0].items() if name not in _UNSAID
    }
    times = layers[["run_id", "layer", "process", "iteration", "time_us"]]
    return _by_process(layers), _one_repeat(kernels), times, manifest


def _lean(kernels):
    """Leave out rates, parts of sums and the profiler's own duration."""
    catalogue = load_catalogue()
    metrics = metric_columns(kernels)
    dropped = [
        name
        for name in metrics
        if catalogue[name].kind == "rate"
        or (name.startswith("flop_count") and name.endswith(_PARTS_OF_SUMS))
        or kernels[name].isna().all()
    ]
    return kernels.drop(columns=[*dropped, "ncu_time_us", "metrics_iteration", "launches"])


def _by_process(layers):
    """Return the median repeat of each process; everything but the times is the same in all."""
    keys = ["run_id", "layer", "process"]
    groups = layers.groupby(keys, sort=False, dropna=False)
    first = groups.head(1).reset_index(drop=True)
    first["time_us"] = groups["time_us"].median().to_numpy()
    first["repeats"] = groups.size().to_numpy(dtype="int16")
    first["iteration"] = first["process"].to_numpy(dtype="int64") - 1
    return rounded(first)


def rounded(table):
    """Return a table whose metrics take half the room: float32, and 12 bits where not counted."""
    catalogue = load_catalogue()
    columns = {}
    for name in metric_columns(table):
        values = table[name].to_numpy(dtype="float32").copy()
        if catalogue[name].merge != "sum":
            bits = values.view("uint32")
            # half of the last bit that stays is added, so that it rounds instead of cutting
            kept = (bits + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)
            values = np.where(np.isfinite(values), kept.view("float32"), values)
        columns[name] = values
    return table.assign(**columns)


def _one_repeat(kernels):
    """Return one repeat, each launch with the mean of its times."""
    place = kernels.groupby(["iteration", "layer"], sort=False, dropna=False).cumcount()
    keys = ["layer", "kernel", "grid", "block", "place"]
    placed = kernels.assign(place=place)
    groups = placed.groupby(keys, sort=False, dropna=False)
    first = groups.head(1).drop(columns=["place", "process"])
    first["time_us"] = groups["time_us"].mean().to_numpy()
    usual = placed.groupby("iteration").size().median()
    if abs(len(first) - usual) > 0.02 * usual:
        sys.stderr.write(f"{kernels['run_id'].iloc[0]}: {usual:.0f} launches became {len(first)}\n")
    first["time_us"] = first["time_us"].round(4)
    return rounded(first.assign(iteration=0).reset_index(drop=True))


def pack(folders, out):
    """Write the data set of some runs."""
    parts = []
    for number, folder in enumerate(folders):
        parts.append(packed_run(folder))
        sys.stdout.write(f"\r{number + 1} of {len(folders)}")
        sys.stdout.flush()
    sys.stdout.write("\n")
    out.mkdir(parents=True, exist_ok=True)
    provenance = {"runs": [part[3] for part in parts]}
    for kind, at in (("layers", 0), ("kernels", 1)):
        frame = pd.concat([part[at] for part in parts], ignore_index=True)
        for path in write_parts(frame, out, kind=kind, provenance=provenance):
            sys.stdout.write(f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB\n")
    times = pd.concat([part[2] for part in parts], ignore_index=True)
    times["time_us"] = times["time_us"].astype("float32")
    times[["process", "iteration"]] = times[["process", "iteration"]].astype("int16")
    times.to_parquet(out / TIMES, index=False, compression="zstd")
    size = (out / TIMES).stat().st_size
    assert size <= LARGEST, size
    sys.stdout.write(f"{TIMES}: {size / 2**20:.2f} MiB, {len(times)} rows\n")


def pack_later(folders, out, counted=False):
    """Write a row a distinct layer of some runs, beside the atlas that models were fitted on."""
    parts = [packed_run(folder) for folder in folders]
    frame = pd.concat([_one_a_layer(part[0]) for part in parts], ignore_index=True)
    if counted:
        shares = [name for name in metric_columns(frame) if clock_of(name) != "counted"]
        frame = frame.drop(columns=shares)
    out.mkdir(parents=True, exist_ok=True)
    provenance = {"runs": [part[3] for part in parts]}
    for path in write_parts(frame, out, kind="layers", provenance=provenance):
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 2**10:.0f} KiB, {len(frame)} rows\n")


def _one_a_layer(layers):
    """Return one row for equal layers of a run: the mean of its processes' medians."""
    repeats = int(layers.groupby("layer")["repeats"].sum().min())
    one = average_copies(average_repeats(layers)).drop(columns="copies")
    one["time_us"] = one["time_us"].astype("float32")
    return rounded(one.assign(iteration=0, repeats=np.int16(repeats))).drop(columns="process")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--later", action="store_true", help="a row a layer, beside the atlas")
    parser.add_argument("--counted", action="store_true", help="of those, only what was counted")
    given = parser.parse_args()
    folders = sorted(path.parent for runs in given.runs for path in runs.glob("*/run.json"))
    if given.later:
        pack_later(folders, given.out or ATLAS / LATER, given.counted)
    else:
        pack(folders, given.out or ATLAS)


if __name__ == "__main__":
    main()
