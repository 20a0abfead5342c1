"""The GitHub Action: its steps, run as the runner runs them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml

from perfml.tables import write_table
from tests.support.paths import DATA, ROOT
from tests.support.processes import ran

pytestmark = [pytest.mark.long, pytest.mark.process]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PROFILE = str(DATA / "ncu/vectors.csv@2")


@pytest.fixture(scope="module")
def more_work(tmp_path_factory):
    """Return a kernel, and a version of it that executes more instructions."""
    launches = pd.read_parquet(ROOT / "studies/data/h100-strangers6/kernels.parquet")
    folder = tmp_path_factory.mktemp("profiles")
    paths = {}
    for side, rows in launches[launches["layer"] == "kmer_windows"].groupby("backend"):
        paths[side] = str(folder / f"{side}.parquet")
        write_table(rows.reset_index(drop=True), paths[side], kind="kernels", provenance={})
    return {"baseline": paths["before"], "candidate": paths["after"]}


def run_gate(folder, **inputs):
    """Run the step that compares, with the environment of a runner; return code and outputs."""
    step = next(each for each in ACTION["runs"]["steps"] if each.get("id") == "gate")
    given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | inputs
    environment = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step["env"].items()
    }
    command = folder / "bin/perfml"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfml "$@"\n')
    command.chmod(0o755)
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        Path(file).touch()
    path = f"{command.parent}:{os.environ['PATH']}"
    environment |= {"PYTHONPATH": str(ROOT), "PATH": path} | files
    # as the runner calls a step of `shell: bash`
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = ran(*command, cwd=folder, env=os.environ | environment)
    return done, {name: Path(file).read_text() for name, file in files.items()}


def test_equal_profiles_pass_with_a_summary_and_junit(tmp_path):
    done, files = run_gate(tmp_path, baseline=PROFILE, candidate=PROFILE)
    assert done.returncode == 0, done.stderr
    assert "exit-code=0" in files["GITHUB_OUTPUT"]
    assert files["GITHUB_STEP_SUMMARY"].strip()
    assert ElementTree.parse(tmp_path / "perfml-gate.xml").getroot().tag == "testsuite"


@pytest.mark.slow
def test_more_work_fails_the_job_and_says_why(tmp_path, more_work):
    done, files = run_gate(tmp_path, **more_work)
    assert done.returncode == 1
    assert "exit-code=1" in files["GITHUB_OUTPUT"]
    assert files["GITHUB_STEP_SUMMARY"].strip()


@pytest.mark.slow
def test_an_exit_code_that_is_allowed_does_not_fail_the_job_and_is_said(tmp_path, more_work):
    done, files = run_gate(tmp_path, **more_work, allow="1 3")
    assert done.returncode == 0
    assert "exit code 1" in files["GITHUB_STEP_SUMMARY"]


@pytest.mark.slow
def test_what_nobody_can_tell_fails_the_job(tmp_path, more_work):
    table = pd.read_parquet(more_work["baseline"])
    renamed = str(tmp_path / "renamed.parquet")
    write_table(table.assign(layer="b"), renamed, kind="kernels", provenance={})
    both = pd.concat([table, table.assign(layer="c", kernel_index=1 << 20)], ignore_index=True)
    known = str(tmp_path / "known.parquet")
    write_table(both, known, kind="kernels", provenance={})
    done, files = run_gate(tmp_path, baseline=known, candidate=renamed)
    assert done.returncode == 3
    assert files["GITHUB_STEP_SUMMARY"].startswith("**Cannot tell")


def test_an_unreadable_profile_fails_the_job_and_no_input_is_run(tmp_path):
    done, files = run_gate(tmp_path, baseline="$(touch owned)", candidate="; touch owned")
    assert done.returncode == 6
    assert not (tmp_path / "owned").exists()
    assert "exit-code=6" in files["GITHUB_OUTPUT"]


@pytest.mark.parametrize("name", ["reader", "gpu"])
def test_a_dockerfile_copies_what_is_there_and_what_the_build_needs(name):
    text = (ROOT / f"docker/{name}.Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for word in line.split()]
    assert all((ROOT / each).exists() for each in copied)
    needed = {"pyproject.toml", "README.md", "LICENSE", "perfml", "collectors", "datasets"}
    assert needed <= set(copied)
