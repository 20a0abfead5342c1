"""What was asked once, and other people's methods, stand on the atlas's page as they came out."""

from __future__ import annotations

import numpy as np

from perfml.datasets import find
from perfml.datasets.parts import read_parts
from studies.atlas.checked import COMMON, found, mapie
from studies.atlas.confirm import CLAIMED, ENDS, ENOUGH, REPETITIONS
from studies.atlas.record import REST


def test_the_verdict_is_that_of_the_rule_that_was_written_down():
    one = found("confirm")
    enlarged, new = one["enlarged"], one["new"]
    assert (tuple(one["claimed"]), one["repetitions"], one["enough"]) == (
        CLAIMED,
        REPETITIONS,
        ENOUGH,
    )
    assert enlarged["success"] == (enlarged["same"] >= ENOUGH)
    assert new["success"] == (set(new["metrics"]) == set(CLAIMED))
    assert one["met"] == (enlarged["success"] and new["success"])
    assert len(enlarged["own_ends"]) == ENDS
    same = [set(each) == set(enlarged["metrics"]) for each in enlarged["own_ends"]]
    assert enlarged["same_with_own_ends"] == float(np.mean(same))


def test_the_new_networks_are_in_the_later_runs_and_not_in_the_atlas():
    later = set(read_parts(find("atlas") / "later", "layers").frame["workload"])
    known = set(read_parts(find("atlas"), "layers").frame["workload"])
    assert later - known == set(found("confirm")["new"]["networks"])
    asked = {each["workload"] for each in found("unseen")["networks"]}
    assert asked < later - known


def test_the_last_runs_are_of_the_atlas_networks_but_not_in_what_was_fitted():
    atlas, rest = (read_parts(find("atlas") / each, "layers").frame for each in ("", REST))
    assert set(rest["workload"]) <= set(atlas["workload"])
    assert not set(rest["run_id"]) & set(atlas["run_id"])
    condition = ["workload", "backend", "precision", "batch"]
    assert rest[condition].merge(atlas[condition]).empty
    assert len(found("rest")["runs"]) == rest["run_id"].nunique()
    told = sum(each["layers"] + each["not_compared"] for each in found("rest")["runs"])
    assert told == len(rest)
    card = (find("atlas") / "README.md").read_text(encoding="utf-8")
    assert f"{len(rest):,} rows of {rest['run_id'].nunique()} runs" in card


def test_families_that_are_compared_with_mapie_are_those_in_many_networks():
    assert set(COMMON) <= set(found("beside")["mapie"]["families"])
    assert "perfml" in mapie()
