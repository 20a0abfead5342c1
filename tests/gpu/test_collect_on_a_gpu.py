"""Collect on a real GPU: built-in workloads, and three programs not written for perfml."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from collectors.collect import collect
from perfml.ingest.profiles import ingest
from perfml.readers import read
from tests.support.attention_sources import NO_RESCALE, replace_once
from tests.support.processes import ran

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.gpu


def one(results):
    (result,) = results
    assert result.status == "done", result.message
    return result


@pytest.fixture(scope="module")
def vectors(build):
    return build("vectors")


def test_a_cuda_program(vectors, tmp_path):
    result = one(collect(command=[vectors], out=tmp_path))
    assert result.record["profiler"] == "cupti", result.warnings
    assert result.record["timing"]["source"] == "cupti-activity"
    frame = ingest([tmp_path]).frame
    # the launch before the iterations is none of theirs
    assert frame["layer"].tolist() == ["update/scale", "update", "reduce"] * 2
    assert frame["time_source"].eq("timing").all()
    assert frame["gld_efficiency"].notna().all()


def test_chosen_launches_of_a_program(vectors, tmp_path):
    result = one(collect(command=[vectors], out=tmp_path, kernel="add", launches="1:"))
    frame = ingest([tmp_path]).frame
    assert len(frame) == result.record["launches_profiled"] == 1
    assert frame["gld_efficiency"].notna().all()
    assert frame["time_source"].eq("timing").all()


def test_a_pytorch_program(tmp_path):
    command = [sys.executable, str(PROGRAMS / "small_torch.py")]
    one(collect(command=command, out=tmp_path, metric_iterations=1))
    frame = ingest([tmp_path]).frame
    assert set(frame["layer"].dropna()) == {"layer_0", "layer_1", "layer_2"}
    assert set(frame["iteration"]) == {0, 1, 2}
    layered = frame[frame["layer"].notna()]
    assert layered["achieved_occupancy"].notna().all()


def test_a_jax_program(tmp_path):
    command = [sys.executable, str(PROGRAMS / "small_jax.py")]
    result = one(collect(command=command, out=tmp_path))
    assert result.record["profiler"] == "cupti", result.warnings
    # XLA's own trial runs are not among them: they come to 250 launches without a warm cache
    assert result.record["launches_profiled"] < 60
    profiled = read(result.folder / "metrics.csv").frame
    timed = read(result.folder / "timing.csv").frame
    assert profiled["layer"].fillna("-").tolist() == timed["layer"].fillna("-").tolist()
    layer = profiled[profiled["layer"].str.contains("jit_layer", na=False)]
    assert layer["iteration"].tolist() == [0, 0, 1, 1, 2, 2]
    assert layer["achieved_occupancy"].notna().all()
    assert ingest([tmp_path]).frame["time_source"].eq("timing").all()


def test_a_program_timed_by_ncu_alone(vectors, tmp_path):
    result = one(collect(command=[vectors], out=tmp_path, timing="ncu"))
    assert not (result.folder / "timing.csv").exists()
    assert ingest([tmp_path]).frame["time_source"].eq("ncu").all()


def test_a_wrong_kernel_is_not_measured_and_the_next_one_is(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "data")
    shutil.copytree(ROOT / "studies", tmp_path / "studies", ignore=ignored)
    replace_once(tmp_path / "studies/workloads/attention/mma.cu", *NO_RESCALE)
    words = ["attention", "--backend", "mma", "--backend", "wmma", "--precision", "fp16"]
    words += ["--set", "sizes=6x1000x64", "--metrics", "achieved_occupancy"]
    command = [sys.executable, "-m", "perfml", "collect", *words, "--json", "--out", "runs"]
    # what lies on the path already stays there: a library that perfml needs may
    path = filter(None, [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = ran(*command, cwd=tmp_path, env=environment)
    assert done.returncode == 1, done.stderr
    assert '"runs"' in done.stdout, done.stdout + done.stderr
    wrong, right = json.loads(done.stdout)["runs"]
    assert [wrong["status"], right["status"]] == ["failed", "done"], done.stdout
    assert wrong["message"].startswith("b6_n1000_d64/o, rising scores: a kernel's output is wrong")
    check = right["record"]["check"]
    assert [row["output"] for row in check["outputs"]] == [
        "b6_n1000_d64/o, rising scores",
        "b6_n1000_d64/o",
    ]
    assert check["passed"]
