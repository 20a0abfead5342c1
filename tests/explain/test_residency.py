"""How many blocks fit: as Nsight Compute says it, where no profiler did."""

import pandas as pd
import pytest

from perfml.datasets import find
from perfml.explain import load_tables
from perfml.explain.launches import COLUMN, LIMITS, SHAPE, resident_blocks, with_limits, with_waves


@pytest.fixture(scope="module")
def recorded():
    _, kernels = load_tables(find("h200-strangers"))
    return kernels


@pytest.mark.parametrize("name", ["registers", "warps", "slots"])
def test_blocks_that_fit_are_those_that_nsight_compute_says(recorded, name):
    ours = resident_blocks(recorded)[name]
    assert (ours == recorded[f"{COLUMN}{name}"].astype(float)).mean() > 0.95


def test_a_table_that_has_them_stays_as_it_is(recorded):
    assert with_limits(recorded) is recorded


def test_blocks_of_sixteen_threads_run_out_of_places():
    row = dict(zip(SHAPE, (20.0, 0.0, "(16, 1, 1)", "9.0"), strict=True))
    (found,) = with_limits(pd.DataFrame([row])).to_dict("records")
    assert {name: found[f"{COLUMN}{name}"] for name in LIMITS} == {
        "registers": 85.0,
        "shared_memory": 228.0,
        "warps": 64.0,
        "slots": 32.0,
    }
    assert with_limits(pd.DataFrame([{**row, "compute_capability": "1.0"}])).shape == (1, 4)


def test_a_grid_of_one_block_is_the_wave_that_its_multiprocessor_is_busy_for():
    row = {f"{COLUMN}{name}": 4.0 for name in LIMITS} | {f"{COLUMN}warps": 2.0}
    row |= {"sm_active_cycles_mean": 1000.0, "sm_active_cycles_max": 132_000.0}
    printed = pd.DataFrame([{**row, "waves_per_sm": waves} for waves in (0.0, 0.02, float("nan"))])
    waves = with_waves(printed)["waves_per_sm"].tolist()
    assert waves[:2] == pytest.approx([1 / 132 / 2, 0.02])
    assert pd.isna(waves[2])
    uncounted = printed.drop(columns="sm_active_cycles_max")
    assert with_waves(uncounted) is uncounted
