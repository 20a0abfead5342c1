"""perfml predict: what has no layers to compare, and what is no reference."""

import pytest

from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.modeling_data import networks_with_law

pytestmark = pytest.mark.long


def test_a_profile_without_ranges_has_no_layers(recorded):
    result = run("predict", str(recorded / "nvprof" / "trace.csv"))
    assert result.exit_code == 1
    assert "perfml.layers(model)" in result.stderr


def test_a_reference_without_shapes_is_refused(tmp_path):
    mine = networks_with_law(networks=1, layers=30).assign(device="NVIDIA H200")
    write_table(mine, tmp_path / "mine.parquet", kind="layers", provenance={})
    words = ["predict", str(tmp_path / "mine.parquet"), "--reference", "h200-qkv"]
    result = run(*words)
    assert result.exit_code == 1
    assert "does not say what its layers compute" in result.stderr
