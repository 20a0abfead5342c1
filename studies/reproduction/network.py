"""Tables 2.3 and 2.4 and figures 2-1, 2-4 and 2-5 from a recording of all 21 layers."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd

from perfml.datasets import find
from perfml.reproduce.published import Recording
from studies.reproduction import published
from studies.reproduction.published import SHAPES, layer_number

EXTREMES = 5
"""Fast and slow layers of table 2.3, a number each."""

COPY = re.compile(r"im2col|unfold|fill|memset", re.IGNORECASE)
MULTIPLY = re.compile(r"gemm|gemv|cutlass|_mma_|matmul", re.IGNORECASE)


def medians(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the median time in microseconds, a row a layer of the network, a column a backend."""
    known = layers[layers["layer"].map(layer_number).isin(SHAPES)]
    table = known.pivot_table(
        index="layer", columns="backend", values="time_us", aggfunc="median", observed=True
    )
    return table.sort_index()


def filter_table(times: pd.DataFrame, backend: str) -> pd.DataFrame:
    """Return table 2.3: ``layer, filter, input_channels, many_channels, time_us, speed``."""
    order = times[backend].dropna().sort_values()
    count = min(EXTREMES, len(order) // 2)
    fast, slow = set(order.index[:count]), set(order.index[len(order) - count :])
    rows = []
    for name, value in order.items():
        number = layer_number(name)
        shape = SHAPES[int(number or 0)]
        speed = "fast" if name in fast else "slow" if name in slow else "intermediate"
        rows.append(
            {
                "layer": number,
                "filter": f"{shape.size}x{shape.size}",
                "input_channels": shape.input[2],
                "many_channels": shape.input[2] >= published.MANY_CHANNELS,
                "published_cell": number
                in published.FILTER_CELLS[(shape.size, shape.input[2] >= published.MANY_CHANNELS)],
                "time_us": float(value),
                "speed": speed,
            }
        )
    return pd.DataFrame(rows).sort_values("layer", ignore_index=True)


def structure_table() -> pd.DataFrame:
    """Return table 2.4 next to the network that perfml runs."""
    rows = []
    for number, told in published.STRUCTURES.items():
        shape = SHAPES[number]
        ours = (
            shape.filters,
            shape.filter_text,
            "x".join(map(str, shape.input)),
            "x".join(map(str, shape.output)),
        )
        for what, theirs, mine in zip(
            ("filters", "size/stride/pad", "input", "output"), told, ours, strict=True
        ):
            rows.append((number, what, str(theirs), str(mine), str(theirs) == str(mine)))
    return pd.DataFrame(rows, columns=["layer", "what", "published", "network", "match"])


def layer_kernels(kernels: pd.DataFrame, layer: str = "conv_03") -> pd.DataFrame:
    """Return figure 2-5: ``backend, kernel, launches`` (an iteration), ``time_us`` (mean)."""
    mine = kernels[kernels["layer"] == layer]
    iterations = mine.groupby("backend", observed=True)[["run_id", "iteration"]].apply(
        lambda part: len(part.drop_duplicates())
    )
    found = (
        mine.groupby(["backend", "kernel"], observed=True, sort=False)["time_us"]
        .agg(["size", "sum"])
        .reset_index()
    )
    per = found["backend"].map(iterations).astype(float)
    found["launches"] = found.pop("size") / per
    found["time_us"] = found.pop("sum") / per
    return found


def network_facts(recording: Recording | None) -> dict[str, Any] | None:
    """Return everything the claims about layers and kernels need, or None without a recording."""
    if recording is None:
        return None
    times = medians(recording.layers)
    if times.empty:
        return None
    backend = "cublas" if "cublas" in times.columns else str(times.columns[0])
    device = recording.layers["device"].dropna().unique().tolist()
    return {
        "name": recording.name,
        "device": ", ".join(map(str, device)) or "unknown GPU",
        "backends": [str(name) for name in times.columns],
        "times": times,
        "filters": filter_table(times, backend),
        "filters_backend": backend,
        "structures": structure_table(),
        "kernels": layer_kernels(recording.kernels),
        "rows": len(recording.layers),
        "about": machine(recording.name),
        "units": unit_table(recording.kernels),
    }


def judged_on(facts: dict[str, Any]) -> str:
    """Return what a verdict rests on: data, GPU and libraries."""
    about = facts["about"]
    versions = [facts["device"]]
    if about.get("cuda"):
        versions.append(f"cuBLAS of CUDA {about['cuda']}")
    if about.get("cudnn"):
        versions.append(f"cuDNN {cudnn_version(int(about['cudnn']))}")
    if about.get("torch"):
        versions.append(f"torch {about['torch']}")
    return f"{facts['name']} ({', '.join(versions)})"


def cudnn_version(number: int) -> str:
    """Return cuDNN's version from its number.

    Examples
    --------
    >>> cudnn_version(91900)
    '9.19'
    """
    return f"{number // 10000}.{number // 100 % 100}"


UNITS = ("dram_utilization", "l2_utilization", "single_precision_fu_utilization")


def unit_table(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return how busy DRAM, L2 and the FP32 units are in what cuBLAS launches in layers 3 and 20.

    A row a layer and part, ``copy`` (im2col) and ``multiply``, weighted by time; empty where the
    metrics were not collected.
    """
    rows = []
    known = [name for name in UNITS if name in kernels.columns]
    for layer in ("conv_03", "conv_20"):
        mine = kernels[(kernels["layer"] == layer) & (kernels["backend"] == "cublas")]
        for part, pattern in (
            ("copy", re.compile("im2col", re.IGNORECASE)),
            ("multiply", MULTIPLY),
        ):
            some = mine[mine["kernel"].map(lambda name, of=pattern: bool(of.search(str(name))))]
            some = some.dropna(subset=known)
            if some.empty or len(known) < len(UNITS):
                continue
            weights = some["time_us"] / some["time_us"].sum()
            rows.append(
                {"layer": layer, "part": part}
                | {name: float((some[name] * weights).sum()) for name in UNITS}
            )
    return pd.DataFrame(rows, columns=["layer", "part", *UNITS])


def machine(name: str) -> dict[str, Any]:
    """Return what the first run of a recording says of its machine; empty without manifests."""
    folder = find(name)
    for path in sorted(folder.glob("runs/*/run.json")) if folder is not None else ():
        about = json.loads(path.read_text(encoding="utf-8")).get("environment")
        if isinstance(about, dict):
            return about
    return {}
