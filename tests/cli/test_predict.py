"""perfml predict: a profile's layers beside the atlas, in words and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.predict.reference import reference
from perfml.tables import write_table
from tests.support.modeling_data import networks_with_law

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    write_table(networks_with_law(), folder / "others.parquet", kind="layers", provenance={})
    mine = networks_with_law(networks=1, layers=30, seed=5)
    mine["workload"], mine["device"] = "torch:mine/net", "NVIDIA H200"
    mine.loc[mine["layer"] == "layer3", "time_us"] *= 3
    write_table(mine, folder / "mine.parquet", kind="layers", provenance={})
    bare = mine.drop(columns=["kind", "flops", "dram_read_bytes"])
    write_table(bare, folder / "bare.parquet", kind="layers", provenance={})
    yield folder
    reference.cache_clear()


def test_the_slow_layer_comes_first_with_what_is_usual(tables):
    words = ["predict", str(tables / "mine.parquet"), "--reference", str(tables / "others.parquet")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    first = next(line for line in result.stdout.splitlines() if line.startswith("layer"))
    slow = next(line for line in result.stdout.splitlines() if line.startswith("layer3 "))
    assert "usual, µs" in first
    assert result.stdout.index("layer3 ") < result.stdout.index("The others")
    assert slow
    assert "Layers like it: " in result.stdout


def test_what_cannot_be_compared_is_an_error_that_says_what_to_do(tables):
    words = ["predict", str(tables / "bare.parquet"), "--reference", str(tables / "others.parquet")]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["what"].startswith("no layer can be compared")
    assert "perfml collect torch:" in error["cure"]


def test_a_profile_without_ranges_has_no_layers(recorded):
    result = CliRunner().invoke(app, ["predict", str(recorded / "nvprof" / "trace.csv")])
    assert result.exit_code == 1
    assert "perfml.layers(model)" in result.stderr


def test_a_reference_without_shapes_is_refused(tables):
    words = ["predict", str(tables / "mine.parquet"), "--reference", "h200-qkv"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "does not say what its layers compute" in result.stderr
