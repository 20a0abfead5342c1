"""Small Layers tables for the tests of modeling."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfml.metrics import PUBLISHED

CONDITION_TIMES = {
    ("conv_03", "trt"): 264.0,
    ("conv_03", "cublas"): 982.0,
    ("conv_03", "cudnn"): 357.0,
    ("conv_20", "trt"): 355.0,
    ("conv_20", "cublas"): 798.0,
    ("conv_20", "cudnn"): 659.0,
}


def six_conditions(repeats: int = 20, seed: int = 0) -> pd.DataFrame:
    """Return a table like the published one: six conditions, gld_efficiency names each of them.

    ``special_fu_utilization`` is constant, ``stall_sync`` and ``achieved_occupancy`` rank the
    rows alike, all other metrics are noise in steps of 0.01.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number, ((layer, backend), time) in enumerate(CONDITION_TIMES.items()):
        for repeat in range(repeats):
            row = {name: round(float(rng.uniform(0.2, 0.8)), 2) for name in PUBLISHED}
            row["gld_efficiency"] = 0.5 + 0.05 * number
            row["special_fu_utilization"] = 0.1
            row["achieved_occupancy"] = 1.0 - row["stall_sync"]
            rows.append(_identity(layer, backend, repeat) | {"time_us": time} | row)
            rows[-1]["time_us"] = time * (1 + 0.003 * rng.standard_normal())
    return pd.DataFrame(rows)


def linear_layers(layers: int = 12, repeats: int = 2, seed: int = 1) -> pd.DataFrame:
    """Return layers whose time depends on two metrics in the same way everywhere.

    The time is ``100 + 900 * dram_utilization + 700 * stall_sync`` microseconds, so a model can
    predict a layer it never saw; the other metrics are noise.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(layers):
        for backend in ("cublas", "cudnn", "trt"):
            metrics = dict(zip(PUBLISHED, rng.uniform(0.1, 0.9, len(PUBLISHED)), strict=True))
            metrics["tex_fu_utilization"] += {"cublas": 0.0, "cudnn": 1.0, "trt": 2.0}[backend]
            time = 100 + 900 * metrics["dram_utilization"] + 700 * metrics["stall_sync"]
            rows += [
                _identity(f"conv_{number:02d}", backend, repeat) | {"time_us": time} | metrics
                for repeat in range(repeats)
            ]
    return pd.DataFrame(rows)


KINDS = ("Conv2d", "Linear", "BatchNorm2d", "ReLU")
"""Kinds of layers of `networks_with_law`; the first two compute, the others only move bytes."""


def networks_with_law(networks: int = 6, layers: int = 24, seed: int = 0) -> pd.DataFrame:
    """Return layers of made-up networks whose time follows a law of their work.

    Every layer takes 4 microseconds, and 2.5 times what 60 TFLOP/s (500 in fp16) and 4 TB/s allow;
    a network has a factor of its own within 3 %, a layer within 5 %. ``inst_executed`` and
    ``dram_read_bytes`` are the work, ``ipc`` follows from the time. Half of the rows are fp16, the
    last network ran on another GPU.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for network in range(networks):
        own = float(np.exp(0.03 * rng.standard_normal()))
        for place in range(layers):
            kind = KINDS[place % len(KINDS)]
            size = int(2 ** rng.integers(3, 7))
            channels = int(2 ** rng.integers(5, 10))
            moved = 4.0 * size * size * channels
            weights = 4.0 * channels * channels * (9 if kind == "Conv2d" else 1)
            weights = weights if place % len(KINDS) < 2 else 0.0
            flops = 2.0 * size * size * weights / 4
            precision = "fp16" if place % 2 == network % 2 else "fp32"
            bytes_ = 2 * moved + weights
            peak = {"fp32": 60e12, "fp16": 500e12}[precision]
            bound = max(flops / peak, bytes_ / 4e12) * 1e6
            time = (4.0 + 2.5 * bound) * own * float(np.exp(0.05 * rng.standard_normal()))
            instructions = flops / 64 + bytes_ / 16
            rows.append(
                _identity(f"layer{place}", "cudnn", 0)
                | {
                    "run_id": f"net{network}",
                    "workload": f"torch:made-up/net{network}",
                    "device": "NVIDIA H100 80GB HBM3" if network == networks - 1 else "NVIDIA H200",
                    "compute_capability": "9.0",
                    "precision": precision,
                    "kernels": 1,
                    "kernel_names": f"kernel_{kind}",
                    "time_us": time,
                    "kind": kind,
                    "input": f"1x{channels}x{size}x{size}",
                    "output": f"1x{channels}x{size}x{size}",
                    "parameters": weights / 4,
                    "flops": flops,
                    "weight_bytes": weights,
                    "input_bytes": moved,
                    "output_bytes": moved,
                    "inst_executed": instructions,
                    "dram_read_bytes": moved + weights,
                    "ipc": instructions / time / 1e4,
                    "threads": moved / 4,
                }
            )
    return pd.DataFrame(rows)


def _identity(layer: str, backend: str, repeat: int) -> dict[str, object]:
    return {
        "run_id": f"run_{repeat}",
        "workload": "net",
        "backend": backend,
        "precision": "fp32",
        "batch": 1,
        "iteration": repeat,
        "layer": layer,
    }
