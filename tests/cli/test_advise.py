"""perfml advise: what it says of a recorded layer, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from perfml.cli import app

pytestmark = pytest.mark.long


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def test_the_verb_says_hazard_numbers_and_what_helps(root):
    folder = root / "datasets" / "h200-yolov4-tiny"
    words = ["--where", "batch=1", "--where", "precision=fp32", "--layer", "conv_20", "-q"]
    result = run("advise", folder, *words)
    assert result.exit_code == 0, result.output
    assert "multiprocessors run out of blocks" in result.stdout
    assert "the blocks are 0.13 waves" in result.stdout
    document = json.loads(run("advise", folder, *words, "--json").stdout)
    causes = {cause for each in document["findings"] for cause in each["rules"]}
    assert {"wave_quantization", "transform_kernels"} <= causes
    assert {"gain", "gain_high", "evidence", "source"} <= set(document["findings"][0])


def test_the_verb_refuses_a_layer_that_does_not_exist(root):
    result = run("advise", root / "datasets" / "h200-yolov4-tiny", "--layer", "conv_99")
    assert result.exit_code == 1
    assert "conv_99" in result.stderr


def test_what_helps_several_layers_is_told_once(recorded):
    shown = run("advise", recorded / "ncu" / "vectors.csv", "-q").stdout
    told = [line for line in shown.splitlines() if "what to do: " in line]
    actions = [line for line in told if "As above, for" not in line]
    assert 0 < len(set(actions)) == len(actions) < len(told)
