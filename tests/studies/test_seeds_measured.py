"""What is measured for the four documents: commands that are accepted, totals that are right."""

import json
import subprocess
import tarfile

import numpy as np
import pytest
from typer.testing import CliRunner

from collectors.workloads import Options, workload
from perfml.cli import app
from studies.seeds import measure, totals
from tests.support.attention_sources import (
    in_double,
    inputs,
    off,
)
from tests.support.compiling import host_compiler

RUNS = [part for part in measure.PARTS if part.run]


@pytest.mark.parametrize("part", RUNS, ids=lambda part: f"{part.name} {part.run}")
def test_every_run_is_a_command_that_perfml_collect_takes(part, tmp_path):
    assert part.run.backend in workload(part.name).backends()
    words = measure.command(part, tmp_path, 100)[3:]
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.exit_code == 0, done.output
    options = Options(part.run.backend, part.run.precision, settings=_settings(words))
    plan = {"qkv": "layers", "conv": "problems"}.get(part.name)
    if plan:
        assert getattr(workload(part.name), plan)(options)


def _settings(words):
    pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    return tuple(tuple(pair.split("=", 1)) for pair in pairs)


def test_a_part_for_which_there_is_no_time_is_not_begun_and_the_next_one_is(monkeypatch, tmp_path):
    parts = [measure.Part("slow totals", 200), measure.Part("conv totals", 20)]
    monkeypatch.setattr(measure, "command", lambda part, folder, left: ["echo", part.name])
    state = measure.measure(tmp_path, 100, parts)
    assert [row["what"] for row in state] == ["no time left", "exit 0"]


def test_a_part_that_fails_is_told_and_the_rest_is_measured_and_packed(monkeypatch, tmp_path):
    def command(part, folder, _left):
        (folder / "runs" / part.name).mkdir(parents=True)
        (folder / "runs" / part.name / "run.json").write_text("{}")
        return ["sh", "-c", "echo wrong; false"] if part.name == "a" else ["true"]

    monkeypatch.setattr(measure, "command", command)
    monkeypatch.setattr(measure, "PARTS", (measure.Part("a", 1), measure.Part("b", 1)))
    monkeypatch.setattr(measure.measure, "__defaults__", (measure.PARTS,))
    assert measure.main(["--out", str(tmp_path), "--seconds", "60"]) == 1
    with tarfile.open(tmp_path / measure.PACKED) as archive:
        assert {"runs/a/run.json", "runs/b/run.json", "state.json"} <= set(archive.getnames())
        state = json.load(archive.extractfile("state.json"))
    assert [row["what"] for row in state] == ["exit 1", "exit 0"]
    assert "wrong" in state[0]["told"]


# ---- totals ----


def test_the_program_of_one_core_computes_attention_and_tells_its_times(tmp_path):
    host_compiler()
    program = totals.compile_sequential(tmp_path)
    q, k, v = inputs(2, 96, 32, np.float32)
    (tmp_path / "in").write_bytes(b"".join(each.tobytes() for each in (q, k, v)))
    words = ["2", "96", "32", str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    made = np.fromfile(tmp_path / "out", np.float32).reshape(q.shape)
    assert off(made.astype(float), in_double(q, k, v)) < 1e-6
    assert len([float(word) for word in done.stdout.split()]) == 3
    assert subprocess.run([program, "2", "90", *words[2:]], check=False).returncode == 2
