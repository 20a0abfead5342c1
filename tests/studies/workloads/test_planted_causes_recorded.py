"""The recordings of planted causes with the counters of all causes: what is in them."""

import json

import pandas as pd
import pytest

from perfml.datasets import find, load
from perfml.ingest import ingest
from perfml.ingest.merge import merge
from perfml.tables import read_table
from studies.workloads.planted.definition import truth_document
from studies.workloads.planted.families import FAMILIES

pytestmark = pytest.mark.long

RECORDED = {"h200-planted-causes": 43, "h100-planted-causes": 24}
RUNS = "h200-planted-causes"
LEVELS = ("base", "level_1", "level_2", "level_3")


@pytest.fixture(params=RECORDED)
def name(request):
    return request.param


@pytest.fixture
def runs():
    """Return the recorded runs; those of the H100 are in the repository's history only."""
    return find(RUNS) / "runs"


def truth_of(name):
    return json.loads((find(name) / "truth.json").read_text(encoding="utf-8"))


def test_every_family_was_recorded_at_two_sizes_and_four_levels(name):
    frame = load(name).frame
    truth = truth_of(name)
    assert len(truth["families"]) == RECORDED[name]
    recorded = [layer for family in truth["families"] for layer in family["layers"][:2]]
    assert set(frame["layer"]) == set(recorded)
    assert set(frame["backend"]) == set(LEVELS)
    assert (frame.groupby(["layer", "backend"]).size() == 3).all()
    assert len(frame) == 3 * 4 * len(recorded)
    assert (frame["time_us"] > 0).all()


def test_the_truth_beside_a_recording_is_what_the_families_say_today(name):
    truth = truth_of(name)
    today = {each["family"]: each for each in truth_document(0, FAMILIES)["families"]}
    assert truth["families"] == [today[each["family"]] for each in truth["families"]]


def test_what_ran_is_what_the_truth_says_was_planted(runs):
    planted = {each["family"]: each for each in truth_of(RUNS)["families"]}
    ran = {level: set() for level in LEVELS}
    for path in runs.glob("*/run.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["check"]["passed"]
        assert record["metrics_missing"] == []
        for family in record["settings"]["truth"]["families"]:
            wanted = planted[family["family"]]
            assert family["value"] == family["values"][LEVELS.index(record["backend"])]
            # `launch_gaps` stands in a run without its rows: with the pauses of the first try
            if family["family"] != "launch_gaps" or len(record["layers"]) == 2:
                assert family["values"] == wanted["values"]
            assert (family["layers"], family["along"]) == (wanted["layers"], wanted["along"])
            ran[record["backend"]].add(family["family"])
    assert all(families == set(planted) for families in ran.values())


def test_the_tables_are_what_the_runs_give(runs):
    folder = runs.parent
    kernels = ingest([runs])
    stored = read_table(folder / "kernels.parquet", kind="kernels")
    pd.testing.assert_frame_equal(kernels.frame, stored.frame)
    merged = merge(kernels.frame)
    pd.testing.assert_frame_equal(merged, load(folder).frame[merged.columns])


def test_knobs_slow_their_family_down_and_move_the_metrics_of_their_cause(name):
    means = load(name).frame.groupby(["layer", "backend"]).mean(numeric_only=True)
    newer = {each["family"] for each in truth_of("h100-planted-causes")["families"]}
    for family in truth_of(name)["families"]:
        least = 1.6 if family["family"] in newer else 1.25
        for layer in family["layers"][:2]:
            low, high = means.loc[(layer, "base")], means.loc[(layer, "level_3")]
            if family["family"] != "launch_gaps":
                assert high["time_us"] > least * low["time_us"], layer
            for metric, way in (family["cause"]["direction"] | family["along"]).items():
                assert (high[metric] - low[metric]) * way > 0, (layer, metric)
