"""Experiments on a real GPU: the program's results stay, and kernels stand at their limits."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = tmp_path_factory.mktemp("build") / "accumulates"
    source = ROOT / "tests" / "gpu" / "programs" / "accumulates.cu"
    subprocess.run([shutil.which("nvcc"), "-O2", "-arch=native", "-o", made, source], check=True)
    return str(made)


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
