"""Asking Nsight Compute what sets of metrics cost, with stand-ins for the tools."""

from __future__ import annotations

import csv
import json
import os

import pytest

from perfml.metrics import load_catalogue
from studies.plan import passes
from tests.support.paths import ROOT

FAKES = ROOT / "tests" / "data/fake_tools"


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder of stand-ins first on the PATH: the recorded ncu and nvidia-smi, and a compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    compiler = folder / "nvcc"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), str(FAKES), os.environ["PATH"]]))
    return folder


def test_given_sets_are_measured_with_the_collectors_own_request(tools, tmp_path, monkeypatch):
    seen = tmp_path / "arguments"
    monkeypatch.setenv("FAKE_NCU_ARGUMENTS", str(seen))
    sets = tmp_path / "sets.txt"
    sets.write_text("stall_sync dram_utilization\ngld_efficiency\nstall_sync dram_utilization\n")
    out = tmp_path / "out"
    assert passes.main(["--out", str(out), "--sets", str(sets)]) == 0
    rows = list(csv.DictReader((out / "passes.csv").open()))
    # the recorded run took 8 passes; a set that was measured is not measured again
    assert [(row["kind"], row["passes"], row["metrics"], row["error"]) for row in rows] == [
        ("asked", "8", "stall_sync dram_utilization", ""),
        ("asked", "8", "gld_efficiency", ""),
    ]
    asked = seen.read_text().splitlines()
    assert ",".join(load_catalogue().ncu_request(("gld_efficiency",))) in asked
    document = json.loads((out / "passes.json").read_text())
    assert document["ncu"] == "2025.3.1.0"
    assert sorted(path.name for path in out.iterdir()) == [
        "log.txt",
        "passes.csv",
        "passes.json",
        "seconds.csv",
    ]


def test_what_the_profiler_refuses_is_recorded_and_ends_in_failure(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "hidden_gpu")
    sets = tmp_path / "sets.txt"
    sets.write_text("stall_sync\n")
    assert passes.main(["--out", str(tmp_path), "--sets", str(sets)]) == 1
    row = next(csv.DictReader((tmp_path / "passes.csv").open()))
    assert row["passes"] == ""
    assert row["error"]


def test_grown_sets_keep_what_leaves_the_budget_unbroken():
    asked = []

    class Counted:
        def passes(self, kind, metrics):
            asked.append((kind, metrics))
            return len(metrics)

    passes.grow(Counted(), ("a", "b", "c"))
    of_two = [metrics for kind, metrics in asked if kind == "grown-2"]
    assert of_two == [("a",), ("a", "b"), ("a", "b", "c")]
    of_one = [metrics for kind, metrics in asked if kind == "grown-1"]
    assert of_one == [("a",), ("a", "b"), ("a", "c")]
