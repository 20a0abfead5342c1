"""What was asked once, and other people's methods, stand on the atlas's page as they came out."""

from __future__ import annotations

from perfml.datasets import find
from perfml.datasets.table_files import read_parts
from studies.atlas.checked import found
from studies.atlas.record import REST


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
