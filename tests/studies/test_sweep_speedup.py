"""The benchmark of sweeps on stand-ins for a GPU's tools: device time is too dear for typos."""

import argparse
import json
import sys
import time

import pytest

from studies.sweep import cases, measure
from tests.support.paths import TOOLS
from tests.support.processes import ran
from tests.support.sweeps import two_gpus

pytestmark = pytest.mark.long

pytest.importorskip("distributed")


@pytest.fixture
def benchmark(tmp_path, short_folder, monkeypatch):
    """Run it on a host whose nvcc, ncu and nvidia-smi are stand-ins."""
    tools = tmp_path / "tools"
    tools.mkdir()
    # the program it compiles launches what the recorded one did, when it is traced; it runs long
    # enough for a busy machine to see it under its profiler
    (tools / "program").write_text(
        "#!/bin/sh\nsleep 0.2\n"
        f'test -z "$PERFML_COUNTERS_DIR" || cp "{TOOLS}/recorded/activity_vectors.tsv" '
        '"$PERFML_COUNTERS_DIR/1.tsv"\n'
    )
    (tools / "nvcc").write_text(f'#!/bin/sh\ncp "{tools}/program" "$3"\nchmod +x "$3"\n')
    (tools / "nvcc").chmod(0o755)
    two_gpus(monkeypatch, tmp_path, short_folder, tools)
    monkeypatch.setenv("PERFML_BENCHMARK_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("PERFML_BENCHMARK_RUNS", "2")

    def run(*arguments):
        command = [sys.executable, "-m", "studies.sweep.measure", "--out", tmp_path / "out"]
        process = ran(*command, *arguments)
        path = tmp_path / "out/results.json"
        return process, json.loads(path.read_text()) if path.exists() else None

    return run


def test_the_sweeps_are_of_twelve_different_runs(tmp_path, monkeypatch):
    from collectors.sweep.spec import read_sweep

    monkeypatch.setattr(cases, "WORK", tmp_path)
    for case in cases.CASES.values():
        assert len(read_sweep(case.write()).runs) == cases.RUNS == 12
        assert case.need_s([1, 2]) > case.need_s([1]) > cases.RUNS * case.run_s


def test_the_long_kernels_are_of_one_length():
    loops = [int(cases.CASES["long"].arguments.format(i=i).split()[2]) for i in range(1, 13)]
    assert max(loops) < 1.01 * min(loops)
    assert 1000 * max(loops) < 2**31


@pytest.mark.slow
def test_it_times_a_sweep_on_one_gpu_and_on_two(benchmark):
    said, found = benchmark("--only", "one-pass")
    assert said.returncode == 2, said.stdout + said.stderr  # the primary sweep was not asked for
    case = found["cases"]["one-pass"]
    one, two = (case["by_gpus"][count] for count in ("1", "2"))
    assert (one["done"], two["done"], two["launches"]) == (2, 2, 2 * 7)
    assert case["ratio"]["2"] == pytest.approx(one["wall_s"] / two["wall_s"], abs=0.01)
    assert case["metrics"]["2"]["within"] == 1
    assert "one-pass on 2: all runs ok" in said.stdout


def test_a_case_that_does_not_fit_into_the_time_that_is_left_is_skipped(tmp_path):
    given = argparse.Namespace(only=["long"], gpus=[1, 2], out=tmp_path)
    results = {"cases": {}}
    measure.measure_cases(given, time.monotonic() + 60, results)
    assert "s needed" in results["cases"]["long"]["skipped"]
    assert json.loads((tmp_path / "results.json").read_text()) == results
