"""Recordings of ladders and of planted causes: what is in them, and what their raw files give."""

import json

import pandas as pd
import pytest

from collectors.workloads import workload
from perfml.datasets import find, load
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.tables import read_table
from studies.workloads.conv.problems import DEFAULT_SIZES, parse_sizes
from studies.workloads.planted.definition import truth_document
from studies.workloads.planted.families import FAMILIES

pytestmark = pytest.mark.long

RAW = ("h200-attention", "h200-conv", "h200-planted", "h200-planted-causes", "h200-qkv")
"""Recordings whose runs are kept; those of others are in the repository's history only."""
PLANTED = {"h200-planted": (19, 4), "h200-planted-causes": (43, 2), "h100-planted-causes": (24, 2)}
"""Numbers of families and of their sizes that were recorded."""
LEVELS = ("base", "level_1", "level_2", "level_3")
LATER = {
    "fused_streams", "rolled_tile8", "rolled_tile32", "constant_tile8",
    "wmma_fp16_rolled", "wmma_fp16_unrolled", "wmma_fp16_tile16",
}  # fmt: skip
"""Versions that were written after the recording of conv (studies/seeds measures them)."""

every_planted = pytest.mark.parametrize("name", PLANTED)


def stored(name):
    return read_table(find(name) / "kernels.parquet", kind="kernels").frame


def truth_of(name):
    return json.loads((find(name) / "truth.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", RAW)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_tables_are_what_the_runs_give(name):
    kernels = ingest([find(name) / "runs"])
    pd.testing.assert_frame_equal(kernels.frame, stored(name))
    merged = merge(kernels.frame)
    pd.testing.assert_frame_equal(merged, load(find(name)).frame[merged.columns])


def test_every_version_of_the_convolution_solved_every_problem():
    conv = load("h200-conv").frame
    solved = conv.groupby(["backend", "precision"])["layer"].unique()
    recorded = set(solved.index.get_level_values("backend"))
    assert set(workload("conv").backends()) - recorded == LATER
    assert set(solved["cudnn"].index) == {"fp32", "tf32", "fp16"}
    problems = tuple(DEFAULT_SIZES.split(","))
    for (backend, _), layers in solved.items():
        assert tuple(layers) == (problems[:6] if backend == "constant" else problems), backend
    assert set(conv.groupby(["run_id", "layer"])["iteration"].nunique()) == {10}


def test_launches_have_the_grids_of_their_problems():
    fused = stored("h200-conv").query("backend == 'fused'").drop_duplicates("layer")
    fused = fused.set_index("layer")
    for problem in parse_sizes(DEFAULT_SIZES):
        grid = (-(-problem.pixels // 16), -(-problem.maps // 16), problem.images)
        assert fused.loc[problem.name, "grid"] == str(grid)
    own = stored("h200-qkv").query("backend != 'cublas'")
    warps = own["layer"].str.extract(r"_w(\d+)", expand=False).astype(int)
    assert set(own["grid"]) == {"(132, 1, 1)"}
    assert (own["block"] == [f"({32 * each}, 1, 1)" for each in warps]).all()


@every_planted
def test_every_family_was_recorded_at_every_size_and_level(name):
    families, sizes = PLANTED[name]
    frame, truth = load(name).frame, truth_of(name)
    recorded = {layer for family in truth["families"] for layer in family["layers"][:sizes]}
    assert (len(truth["families"]), len(recorded)) == (families, families * sizes)
    assert set(frame["layer"]) == recorded
    assert set(frame["backend"]) == set(LEVELS)
    assert (frame.groupby(["layer", "backend"]).size() == 3).all()
    assert len(frame) == 3 * 4 * len(recorded)
    assert (frame["time_us"] > 0).all()


@pytest.mark.parametrize("name", ["h200-planted-causes", "h100-planted-causes"])
def test_the_truth_beside_a_recording_is_what_the_families_say_today(name):
    truth = truth_of(name)
    today = {each["family"]: each for each in truth_document(0, FAMILIES)["families"]}
    assert truth["families"] == [today[each["family"]] for each in truth["families"]]


@pytest.mark.parametrize("name", [name for name in PLANTED if name in RAW])
def test_what_ran_is_what_the_truth_says_was_planted(name):
    planted = {each["family"]: each for each in truth_of(name)["families"]}
    ran = {level: set() for level in LEVELS}
    for path in (find(name) / "runs").glob("*/run.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        # the first recording is older than the check
        assert name == "h200-planted" or record["check"]["passed"]
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


@every_planted
def test_knobs_slow_their_family_down_and_move_the_metrics_of_their_cause(name):
    means = load(name).frame.groupby(["layer", "backend"]).mean(numeric_only=True)
    newer = {each["family"] for each in truth_of("h100-planted-causes")["families"]}
    for family in truth_of(name)["families"]:
        least = 1.6 if family["family"] in newer else 1.25
        for layer in family["layers"][: PLANTED[name][1]]:
            low, high = means.loc[(layer, "base")], means.loc[(layer, "level_3")]
            if family["family"] != "launch_gaps":
                assert high["time_us"] > least * low["time_us"], layer
            for metric, way in (family["cause"]["direction"] | family["along"]).items():
                assert (high[metric] - low[metric]) * way > 0, (layer, metric)
