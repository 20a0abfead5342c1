"""Experiments on a real GPU: the program's results stay, and kernels stand at their limits."""

import json
import os
import sys

import pytest

from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.timing import trace
from tests.support.paths import ROOT
from tests.support.processes import ran

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def program(build):
    return build("accumulates", arch="sm_90")


def run(*command):
    # what lies on the path already stays there: a library that perfml needs may
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = ran(*command, timeout=300, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


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
        each["layer"].split("(")[0]: each["verdict"]["verdict"] for each in again["findings"]
    }
    assert (verdicts["stream"], verdicts["multiply"]) == ("plausible", "implausible")


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


def test_launches_that_are_hard_to_repeat_take_the_time_that_they_take_in_the_program(
    build, tmp_path
):
    program = build("replayed", arch="sm_90")
    undisturbed = run(program)
    out, perfml = tmp_path / "prove", (sys.executable, "-m", "perfml")
    proven = json.loads(run(*perfml, "prove", "--json", "--out", str(out), "--", program))
    assert (out / "log.txt").read_text().splitlines()[-1] == undisturbed.splitlines()[-1]
    launches = {each["kernel"].split("(")[0]: each for each in proven["launches"]}
    timing = trace([program], library(COUNTERS), log=tmp_path / "log.txt", timeout_s=300)
    for kernel, launch in launches.items():
        times = [
            (each.end_ns - each.start_ns) / 1e3
            for each in timing.launches
            if each.kernel.startswith(f"{kernel}(")
        ]
        # one of its launches: the first one is cold
        alone = min(times, key=lambda time: abs(time - launch["time_us"]))
        assert launch["time_us"] == pytest.approx(alone, rel=0.1, abs=0.3), (kernel, times)
    # its counter is spent after one launch: only where it is cleared again it has work
    assert launches["tiles"]["replay"] != "warm"
    assert launches["tiny"]["time_us"] < 2
    # no number of a mutant that never ends, or that takes another path
    skipped = [(each["kernel"], each["reason"]) for each in proven["skipped"]]
    assert any("converges" in kernel and "does not end" in why for kernel, why in skipped)
    assert any("tiles" in kernel and "blocks" in why for kernel, why in skipped)
    # it resets its device at its end, and fails where that is refused
    assert not any("exit status" in why for _, why in skipped)
