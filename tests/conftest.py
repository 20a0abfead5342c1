"""What every test may use: where the recorded data lies, and small tables to work on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Return the folder of real profiler files that the tests may read."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def sweep() -> Path:
    """Return the folder of the recorded H200 sweep."""
    return ROOT / "datasets" / "h200-sweep"


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


@pytest.fixture
def kernels_of():
    """Return `make_kernels`."""
    return make_kernels
