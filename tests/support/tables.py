"""Small tables for tests."""

import pandas as pd


def make_kernels(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Return a Kernels table from a few cells a row; the rest are plain values."""
    defaults: dict[str, object] = {
        "run_id": "run",
        "workload": "net",
        "backend": "cublas",
        "precision": "fp32",
        "batch": 1,
        "device": "GPU",
        "compute_capability": "9.0",
        "iteration": 0,
        "layer": "conv_01",
        "kernel": "gemm",
        "grid": "(1, 1, 1)",
        "block": "(32, 1, 1)",
        "time_us": 1.0,
    }
    return pd.DataFrame([{**defaults, "kernel_index": i, **row} for i, row in enumerate(rows)])
