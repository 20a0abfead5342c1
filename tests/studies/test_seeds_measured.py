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
from studies.workloads.attention import launch
from studies.workloads.attention.problems import parse_sizes
from studies.workloads.conv import problems as conv_problems
from studies.workloads.conv import workload as conv
from tests.support.attention_sources import (
    CpuModule,
    compiled,
    in_double,
    inputs,
    off,
)
from tests.support.compiling import host_compiler
from tests.support.ladders_on_cpu import on_cpu

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


def test_a_case_is_read_as_it_was_written_and_lies_between_minus_three_and_three(tmp_path):
    (problem,) = parse_sizes("3x128x32")
    totals.write_case(problem, tmp_path / "case", seed=5)
    read = totals.read_case(problem, tmp_path / "case")
    assert {name: each.shape for name, each in read.items()} == dict.fromkeys("qkv", (3, 128, 32))
    assert all(-3 <= each.min() < -2.9 and 2.9 < each.max() <= 3 for each in read.values())


@pytest.mark.slow
@pytest.mark.parametrize("slow", [False, True])
def test_every_version_of_attention_is_computed_from_file_to_file(monkeypatch, tmp_path, slow):
    torch = pytest.importorskip("torch")
    macros = {"SOURCE": '"ladder.cu"', "HALF": 0}
    modules = {}
    for dim in (32, 64):
        folder = tmp_path / str(dim)
        folder.mkdir()
        modules[str(dim)] = CpuModule(compiled(folder, {**macros, "HEAD_DIM": dim}))
    monkeypatch.setattr(launch, "DEVICE", "cpu")
    monkeypatch.setattr(totals, "build", lambda _: modules)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(totals, "CASES", {"t10": "2x256x64", "t29": "1x256x32"})
    monkeypatch.setattr(totals, "SLOW_S", 1.0)
    few = ("fused", "shared_48k", "split_q", "o_registers")
    monkeypatch.setattr(totals, "LADDER", {name: totals.LADDER[name] for name in few})
    expected = tmp_path / "expected"
    rows = totals.attention_rows(totals.Deadline(100), tmp_path, expected, slow=slow)
    found = [(row["case"], row["version"]) for row in rows]
    assert all(row["passed"] and row["error"] < 1e-6 for row in rows), rows
    assert all(row["total_s"] >= row["computing_s"] > 0 for row in rows)
    if slow:
        assert found == [("t29", "shared_48k"), ("t29", "fused")]
    else:
        assert found[:2] == [("t10", "o_registers"), ("t10", "split_q")]
        assert len(found) == 4 + 2
        assert len(np.fromfile(expected, np.float32)) == 2 * 256 * 64


@pytest.mark.slow
def test_the_convolutions_times_say_whether_copies_are_in_them(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    host_compiler()
    small = {"conv1": conv_problems.Problem("", 1, 4, 1, 14, 12, 7, 0)}
    monkeypatch.setattr(conv_problems, "_SHAPES", small)
    with on_cpu(monkeypatch, conv, tmp_path):
        rows = totals.conv_rows(totals.Deadline(100), ("conv1_b5",))
    assert [(row["version"], row["copies"]) for row in rows] == [
        (version, copies) for version in totals.CONV_VERSIONS for copies in (False, True)
    ]
    assert all(row["passed"] and 0 < row["least_ms"] <= row["ms"] for row in rows)
