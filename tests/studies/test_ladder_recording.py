"""Recording a ladder: what `perfml collect` measures of it, packed, whatever one version does."""

import json
import sys
import time

import pytest

from collectors.sweep.spec import read_sweep
from collectors.workloads import Options, workload
from collectors.workloads.base import parse_settings
from studies.ladders import recording
from studies.ladders.recording import Recording, Wanted
from studies.workloads.attention import workload as attention
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

RECORDING = Recording(
    "conv",
    runs=(Wanted("fused"), Wanted("tile8"), Wanted("wmma_fp16", "fp16", "conv[12]_b1000")),
    metrics=("published", "roofline"),
    settings=("sizes=conv1_b10",),
)

PLANS = {
    "attention": attention.plan,
    "conv": workload("conv").problems,
    "qkv": workload("qkv").layers,
}


@pytest.mark.parametrize("name", PLANS)
def test_a_ladder_is_recorded_whole_and_asks_for_problems_that_it_can_solve(name):
    runs = read_sweep(ROOT / "studies/data" / f"h200-{name}" / "sweep.yaml").runs.values()
    ladder = workload(name)
    assert {run.backend for run in runs} == set(ladder.backends())
    for run in runs:
        words = run.settings.workload_options
        pairs = parse_settings([words[i + 1] for i, word in enumerate(words) if word == "--set"])
        options = Options(run.backend, run.precision, settings=pairs)
        assert PLANS[name](options)


def test_a_version_that_fails_does_not_keep_the_others_from_being_measured(
    monkeypatch, tmp_path, capsys
):
    measured = []

    def one(command, environment, end):
        backend = command[command.index("--backend") + 1]
        measured.append(backend)
        return "9 s, exit 1 y: wrong" if backend == "fused" else "12 s, exit 0"

    monkeypatch.setattr(recording, "_one", one)
    monkeypatch.setattr(recording, "_visible", lambda: ["0"])
    monkeypatch.setattr(recording, "_finish", lambda *given: None)
    out = ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    assert recording.main(RECORDING, out) == 1
    assert measured == ["fused", "tile8", "wmma_fp16"]
    told = capsys.readouterr().out
    assert "fused fp32: 9 s, exit 1 y: wrong" in told
    assert "tile8 fp32: 12 s, exit 0" in told
    assert recording.main(RECORDING, [*out, "--only", "tile8"]) == 0


def test_a_run_is_the_command_that_perfml_collect_takes(tmp_path):
    command = RECORDING.command(RECORDING.runs[2], tmp_path)
    text = " ".join(command[1:])
    assert text.startswith("-m perfml collect conv --json --backend wmma_fp16 --precision fp16")
    assert "--metrics published --metrics roofline --set sizes=conv1_b10" in text
    assert text.endswith("--layer conv[12]_b1000")


def test_a_run_may_have_settings_of_its_own(tmp_path):
    own = Wanted("tile8", settings=("sizes=conv2_b10",))
    assert str(own) == "tile8 fp32 sizes=conv2_b10"
    text = " ".join(RECORDING.command(own, tmp_path))
    assert "--set sizes=conv2_b10" in text
    assert "conv1_b10" not in text


def test_a_run_is_not_begun_without_the_time_for_it():
    assert recording._one(["false"], {}, end=0.0) == "no time left"


def test_a_run_that_failed_says_why():
    def told(text):
        script = f"import sys; print({text!r}); sys.stderr.write('error: 1 run'); sys.exit(1)"
        return recording._one([sys.executable, "-c", script], {}, end=time.monotonic() + PATIENCE_S)

    document = {
        "runs": [{"status": "failed", "message": "conv1_b10/y: a kernel's output is wrong"}]
    }
    assert told(json.dumps(document)).endswith("exit 1 conv1_b10/y: a kernel's output is wrong")
    assert told("").endswith("exit 1 error: 1 run")
