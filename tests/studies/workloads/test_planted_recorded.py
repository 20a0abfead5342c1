"""The recording of planted causes holds what was planted, and every knob moves its metric."""

import json

import pandas as pd
import pytest

from perfml.datasets import find, load
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.tables import read_table

pytestmark = pytest.mark.long


def test_the_planted_recording_has_every_family_at_every_size_and_level():
    folder = find("h200-planted")
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    frame = load("h200-planted").frame
    planted = [layer for family in truth["families"] for layer in family["layers"]]
    assert len(planted) == len(set(planted)) == 76
    assert set(frame["layer"]) == set(planted)
    assert set(frame["backend"]) == set(truth["levels"])
    assert (frame.groupby(["layer", "backend"]).size() == 3).all()
    assert len(frame) == 4 * 76 * 3
    assert (frame["time_us"] > 0).all()


def test_what_was_planted_is_what_every_run_says():
    folder = find("h200-planted")
    said = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    runs = sorted((folder / "runs").glob("*/run.json"))
    assert len(runs) == 4
    for path in runs:
        truth = json.loads(path.read_text(encoding="utf-8"))["settings"]["truth"]
        assert truth["backend"] == truth["levels"][truth["level"]]
        for family in truth["families"]:
            assert family["value"] == family["values"][truth["level"]]
        assert _without_level(truth) == _without_level(said)


def _without_level(truth):
    families = [
        {key: value for key, value in each.items() if key != "value"} for each in truth["families"]
    ]
    kept = {key: value for key, value in truth.items() if key not in ("level", "backend")}
    return {**kept, "families": families}


def test_the_planted_tables_are_what_their_runs_give():
    folder = find("h200-planted")
    kernels = ingest([folder / "runs"])
    stored = read_table(folder / "kernels.parquet", kind="kernels")
    pd.testing.assert_frame_equal(kernels.frame, stored.frame)
    merged = merge(kernels.frame)
    pd.testing.assert_frame_equal(merged, load(folder).frame[merged.columns])


def test_planted_knobs_move_the_metric_of_their_cause():
    truth = json.loads((find("h200-planted") / "truth.json").read_text(encoding="utf-8"))
    means = load("h200-planted").frame.groupby(["layer", "backend"]).mean(numeric_only=True)
    for family in truth["families"]:
        moves = family["cause"]["direction"].items() | family["along"].items()
        for metric, way in moves:
            for layer in family["layers"]:
                low, high = (means.loc[(layer, each), metric] for each in ("base", "level_3"))
                assert (high - low) * way > 0, (layer, metric)
