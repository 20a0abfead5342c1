"""A large table in parts of whole runs is one table again."""

import numpy as np
import pandas as pd
import pytest

from perfml.datasets import load
from perfml.datasets.table_files import part_files, read_parts
from perfml.errors import InputError
from studies.parts import write_parts
from tests.support.modeling_data import networks_with_law

SMALL = 12_000
"""Bytes of a part in these tests: two or three runs."""


@pytest.fixture(scope="module")
def layers():
    noise = np.random.default_rng(0).random((6, 40))
    table = networks_with_law(networks=6, layers=40)
    return table.assign(ipc=noise.ravel())


def provenance(layers):
    runs = [{"run_id": run, "driver": f"driver of {run}"} for run in layers["run_id"].unique()]
    return {"created": "then", "runs": runs}


def test_parts_are_small_and_together_the_table(layers, tmp_path):
    written = write_parts(
        layers, tmp_path, kind="layers", provenance=provenance(layers), largest=SMALL
    )
    assert len(written) > 1
    assert max(path.stat().st_size for path in written) <= SMALL
    table = read_parts(tmp_path, "layers")
    pd.testing.assert_frame_equal(
        table.frame[list(layers.columns)], layers, check_dtype=False, check_exact=True
    )
    assert table.provenance["runs"] == provenance(layers)["runs"]
    # a run lies in one part
    runs = [set(pd.read_parquet(path)["run_id"]) for path in written]
    assert sum(map(len, runs)) == layers["run_id"].nunique()


def test_a_folder_of_parts_is_a_table_for_every_verb(layers, tmp_path):
    write_parts(layers, tmp_path, kind="layers", provenance=provenance(layers), largest=SMALL)
    assert len(load(tmp_path).frame) == len(layers)


def test_parts_of_an_older_table_go(layers, tmp_path):
    write_parts(layers, tmp_path, kind="layers", provenance={}, largest=SMALL)
    few = layers[layers["run_id"] == "net0"]
    (only,) = write_parts(few, tmp_path, kind="layers", provenance={})
    assert part_files(tmp_path, "layers") == [only]


def test_a_run_that_fits_in_no_part_is_an_error(layers, tmp_path):
    with pytest.raises(InputError, match="part would be too large"):
        write_parts(layers, tmp_path, kind="layers", provenance={}, largest=3_000)


def test_a_folder_without_parts_is_said(tmp_path):
    with pytest.raises(InputError, match="no parts of a layers table"):
        read_parts(tmp_path, "layers")
