import json
import os
import stat

import pyarrow.parquet as pq
import pytest

from perfml.errors import InputError, TableError
from perfml.ingest.merge.rule import merge
from perfml.tables import METADATA_KEY, read_table, replacing, validate_kernels, write_table
from tests.support.tables import make_kernels


@pytest.fixture
def kernels():
    return make_kernels([{"achieved_occupancy": 0.5}, {"layer": None, "achieved_occupancy": 0.1}])


def test_a_table_comes_back_with_its_provenance(tmp_path, kernels):
    path = tmp_path / "k.parquet"
    write_table(kernels, path, kind="kernels", provenance={"device": "NVIDIA H200"})
    back = read_table(path, kind="kernels")
    assert back.frame["achieved_occupancy"].tolist() == [0.5, 0.1]
    assert back.frame["layer"].isna().tolist() == [False, True]
    assert back.provenance["device"] == "NVIDIA H200"
    assert json.loads(pq.read_schema(path).metadata[METADATA_KEY])["kind"] == "kernels"


def test_a_kernels_table_is_refused_where_layers_are_needed(tmp_path, kernels):
    path = tmp_path / "k.parquet"
    write_table(kernels, path, kind="kernels", provenance={})
    with pytest.raises(InputError, match="perfml merge"):
        read_table(path, kind="layers")


def test_a_layers_table_made_from_a_kernels_table_comes_back_as_layers(tmp_path, kernels):
    path = tmp_path / "layers.parquet"
    write_table(kernels, path, kind="kernels", provenance={})
    provenance = read_table(path).provenance
    write_table(merge(kernels), path, kind="layers", provenance=provenance)
    assert read_table(path, kind="layers").kind == "layers"


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1 cut"])
def test_what_is_no_parquet_file_is_an_error_and_no_traceback(tmp_path, content):
    path = tmp_path / "k.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_table(path)


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="a directory"):
        read_table(tmp_path)


def test_a_foreign_parquet_file_is_called_that_and_its_columns_are_named(tmp_path, kernels):
    path = tmp_path / "k.parquet"
    kernels[["kernel"]].to_parquet(path)
    with pytest.raises(InputError, match=r"not a table of perfml.*columns kernel"):
        read_table(path)


def test_text_in_a_numeric_column_is_shown(kernels):
    with pytest.raises(TableError, match="column time_us must hold numbers"):
        validate_kernels(kernels.assign(time_us="fast"))


def test_a_launch_without_a_name_is_an_error(kernels):
    with pytest.raises(TableError, match="no kernel name"):
        validate_kernels(kernels.assign(kernel=""))


def test_a_written_file_is_readable_like_any_other(tmp_path):
    with replacing(tmp_path / "result.txt") as temporary:
        temporary.write_text("whole")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "result.txt").stat().st_mode) == 0o666 & ~mask
