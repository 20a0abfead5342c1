"""Experiments on a real GPU: the program's results stay, and kernels stand at their limits."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def program(build):
    return build("accumulates", arch="sm_90")


def run(*command):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, env=environment
    ).stdout


def test_a_program_is_examined_and_its_results_stay(program, tmp_path):
    out = tmp_path / "prove"
    undisturbed = run(program)
    perfml = (sys.executable, "-m", "perfml", "prove", "--json")
    document = json.loads(run(*perfml, "--out", str(out), "--", program))
    assert (out / "log.txt").read_text().splitlines()[-1] == undisturbed.splitlines()[-1]
    limits = {each["kernel"].split("(")[0]: each["limit"] for each in document["launches"]}
    assert limits["multiply"] == "multiprocessor"
    assert limits["stream"] == "dram"
    assert document["left"] == 0
    again = json.loads(run(*perfml, str(out), "--cause", "dram_bytes"))
    verdicts = {
        each["kernel"].split("(")[0]: each["verdict"]["verdict"] for each in again["launches"]
    }
    assert (verdicts["stream"], verdicts["multiply"]) == ("proven", "refuted")


def test_a_measured_repair_is_near_the_real_one_and_results_stay(build, tmp_path):
    program = build("repaired", arch="sm_90")
    out = tmp_path / "prove"
    undisturbed = run(program)
    perfml = (sys.executable, "-m", "perfml", "prove", "--json", "--out", str(out), "--", program)
    launches = {each["kernel"].split("(")[0]: each for each in json.loads(run(*perfml))["launches"]}
    assert (out / "log.txt").read_text().splitlines()[-1] == undisturbed.splitlines()[-1]
    habits = {"strided": "dense_loads", "doubles": "single_precision", "columns": "dense_stores"}
    for kernel, mutation in habits.items():
        slow = launches[kernel]
        gained = {each["mutation"]: each["factor"] for each in slow["repairs"]}
        real = launches[f"{kernel}_repaired"]["time_us"] / slow["time_us"]
        assert gained[mutation] == pytest.approx(real, rel=0.35), kernel
    gained = {each["mutation"]: each["factor"] for each in launches["crowd"]["repairs"]}
    assert gained["no_global_atomics"] < 0.5
