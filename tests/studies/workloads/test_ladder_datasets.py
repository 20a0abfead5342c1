"""The recorded ladders are what their cards say, and what their raw files give."""

from __future__ import annotations

import pandas as pd
import pytest

from collectors.workloads import workload
from perfml.datasets import find, load
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.tables import read_table
from studies.data import load as load_recording
from studies.workloads.conv.problems import DEFAULT_SIZES, parse_sizes

pytestmark = pytest.mark.long

CONV_LAYERS = tuple(DEFAULT_SIZES.split(","))
LATER = {
    "conv": {
        "fused_streams", "rolled_tile8", "rolled_tile32", "constant_tile8",
        "wmma_fp16_rolled", "wmma_fp16_unrolled", "wmma_fp16_tile16",
    },
    "qkv": {"base_lean", "strip_lean"},
}  # fmt: skip
"""Versions that were written after these recordings (studies/seeds measures them)."""


@pytest.fixture(scope="module")
def conv():
    return load_recording("h200-conv", as_frame=True).frame


@pytest.fixture(scope="module")
def qkv():
    return load_recording("h200-qkv", as_frame=True).frame


@pytest.fixture(scope="module")
def kernels():
    return {
        name: read_table(find(f"h200-{name}") / "kernels.parquet", kind="kernels").frame
        for name in ("conv", "qkv")
    }


@pytest.mark.parametrize(("name", "rows", "layers"), [("conv", 2320, 1100), ("qkv", 700, 700)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_tables_are_what_the_raw_files_give(name, rows, layers, kernels):
    folder = find(f"h200-{name}")
    made = ingest([folder / "runs"])
    assert len(made.frame) == rows
    pd.testing.assert_frame_equal(made.frame, kernels[name])
    merged = merge(made.frame)
    assert len(merged) == layers
    pd.testing.assert_frame_equal(merged, load(folder).frame[merged.columns])


def test_every_version_of_the_convolution_solved_every_problem(conv):
    solved = conv.groupby(["backend", "precision"])["layer"].unique()
    recorded = set(solved.index.get_level_values("backend"))
    assert set(workload("conv").backends()) - recorded == LATER["conv"]
    assert set(solved["cudnn"].index) == {"fp32", "tf32", "fp16"}
    for (backend, _), layers in solved.items():
        wanted = CONV_LAYERS[:6] if backend == "constant" else CONV_LAYERS
        assert tuple(layers) == wanted, backend
    assert set(conv.groupby(["run_id", "layer"])["iteration"].nunique()) == {10}


def test_launches_have_the_grids_of_their_problems(kernels):
    fused = kernels["conv"].query("backend == 'fused'").drop_duplicates("layer").set_index("layer")
    for problem in parse_sizes(DEFAULT_SIZES):
        grid = (-(-problem.pixels // 16), -(-problem.maps // 16), problem.images)
        assert fused.loc[problem.name, "grid"] == str(grid)
    own = kernels["qkv"].query("backend != 'cublas'")
    warps = own["layer"].str.extract(r"_w(\d+)", expand=False).astype(int)
    assert set(own["grid"]) == {"(132, 1, 1)"}
    assert (own["block"] == [f"({32 * each}, 1, 1)" for each in warps]).all()
