"""Copies, fills and sizes of products, as they are collected on a real GPU.

With ``PERFML_KEEP=FOLDER`` the recordings stay there.
"""

import os
import sys
from pathlib import Path

import pytest

from collectors.collect import collect
from perfml.ingest.profiles import ingest

PROGRAMS = Path(__file__).parent / "programs"
MIB = 1 << 20
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Return a function that collects once under a name, and returns its result."""
    kept = os.environ.get("PERFML_KEEP")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("runs")

    def recorded(name, *words, **options):
        (result,) = collect(*words, out=folder / name, **options)
        assert result.status == "done", result.message
        return result

    return recorded


@pytest.fixture(scope="module")
def copies(build):
    return build("copies")


def moved(result, layer, what):
    """Return what a layer moves in one iteration, from its iterations the middle one."""
    frame = ingest([result.folder]).frame
    rows = frame[frame["layer"] == layer]
    return rows.groupby("iteration")[what].sum().median()


@pytest.mark.parametrize("profiler", ["cupti", "ncu"])
def test_each_layer_has_the_bytes_that_it_copies_and_fills(copies, record, profiler):
    options = {"profiler": profiler, "metrics": ["achieved_occupancy"], "metric_iterations": 1}
    result = record(f"copies_{profiler}", command=[copies], **options)
    for layer, column, size in (
        ("upload", "to_device", MIB),
        ("clear", "filled", MIB // 4),
        ("turn", "copied", MIB // 2),
        ("download", "to_host", MIB),
    ):
        for each in ("to_device", "to_host", "copied", "filled"):
            expected = size if each == column else 0
            assert moved(result, layer, f"{each}_bytes") == expected, (layer, each)
    # no bus between host and GPU carries more than 100 GB/s
    assert moved(result, "upload", "to_device_us") > 10
    assert moved(result, "download", "to_host_us") > 10


def test_a_layer_of_pytorch_says_what_goes_to_the_host_and_back(record):
    command = [sys.executable, str(PROGRAMS / "copies.py")]
    result = record("torch_host", command=[*command, "host"], metric_iterations=1)
    assert moved(result, "centre", "to_host_bytes") == 4 * MIB
    assert moved(result, "centre", "to_device_bytes") == 4096
    assert moved(result, "product", "to_host_bytes") == 0
    result = record("torch_device", command=[*command, "device"], metric_iterations=1)
    frame = ingest([result.folder]).frame
    assert "to_host_us" not in frame or not frame["to_host_us"].any()


@pytest.mark.parametrize(("name", "size"), [("odd", 4093), ("even", 4096)])
def test_the_sizes_of_products_travel_with_a_built_in_run(record, name, size):
    workload = f"torch:{PROGRAMS / 'odd_sizes.py'}:{name}"
    options = {"precisions": ["fp16"], "backends": ["cudnn"], "iterations": 3}
    result = record(name, workload, metric_iterations=1, **options)
    layers = {row["layer"]: row for row in result.record["layers"]}
    (deep,), (wide,) = layers["deep"]["products"], layers["wide"]["products"]
    assert (deep["k"], deep["n"], deep["dtype"]) == (size, 4096, "float16")
    assert (wide["k"], wide["n"], wide["count"]) == (4096, size, 1)
