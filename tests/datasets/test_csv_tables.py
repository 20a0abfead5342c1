"""Tables saved as CSV are the same tables, and what is no file's name is told for what it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import perfml
from perfml.errors import PerfmlError
from tests.support.paths import ROOT

PROFILE = ROOT / "tests" / "data" / "ncu" / "conv_03_cublas.csv"


@pytest.fixture(scope="module")
def kernels():
    return perfml.read(PROFILE)


@pytest.mark.parametrize(
    "how", [{}, {"index": False}, {"sep": ";", "decimal": ","}, {"encoding": "utf-8-sig"}]
)
def test_a_kernels_table_saved_as_csv_is_read_as_it_was(how, kernels, tmp_path):
    path = tmp_path / "kernels.csv"
    kernels.to_csv(path, **how)
    back = perfml.read(path)
    assert list(back.columns) == list(kernels.columns)
    pd.testing.assert_frame_equal(back, kernels, check_dtype=False)


def test_a_layers_table_saved_as_csv_is_a_data_set(kernels, tmp_path):
    layers = perfml.merge(kernels)
    layers.to_csv(tmp_path / "layers.csv.gz", index=False)
    back = perfml.load_dataset(tmp_path / "layers.csv.gz")
    assert back["layer"].tolist() == ["conv_03"]
    assert np.allclose(back["time_us"], layers["time_us"])
    assert back["kernel_names"].tolist() == layers["kernel_names"].tolist()


def test_a_cut_table_is_named(kernels, tmp_path):
    path = tmp_path / "kernels.csv"
    kernels.to_csv(path, index=False)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1] + ",1,2,3"]))
    with pytest.raises(PerfmlError, match=r"kernels\.csv"):
        perfml.read(path)


@pytest.mark.parametrize(
    "source", [[PROFILE, PROFILE], None, b"x" * 5000, pd.DataFrame({"a": [1]})]
)
def test_what_names_no_file_is_told_by_its_type(source):
    with pytest.raises(PerfmlError, match=f"found: a {type(source).__name__}"):
        perfml.read(source)


@pytest.mark.parametrize("source", [str(PROFILE), Path(PROFILE), None, [1]])
def test_merge_asks_for_a_table(source):
    with pytest.raises(PerfmlError, match=r"a pandas table is needed[^\n]*\n.*perfml\.read"):
        perfml.merge(source)


@pytest.mark.parametrize("where", ["batch=1", ["batch=1"], {"batch": 1}, {"batch": "1"}])
def test_conditions_are_text_a_list_or_a_mapping(where, kernels, tmp_path):
    path = tmp_path / "kernels.csv"
    kernels.assign(batch=1).to_csv(path, index=False)
    assert len(perfml.read(path, where=where)) == len(kernels)
    with pytest.raises(PerfmlError, match="no row has batch=2"):
        perfml.read(path, where={"batch": 2})


def test_a_binary_file_with_a_carriage_return_is_told_to_be_no_profile(tmp_path):
    path = tmp_path / "old.nvvp"
    path.write_bytes(b"\x00\x04\x00\x00program,\x01\rkernel\x02\n\x05")
    with pytest.raises(PerfmlError, match="not a profile"):
        perfml.read(path)
