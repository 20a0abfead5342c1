"""What `perfml collect` measures of perfml's own kernels is compared with a reference first."""

import json
import sys

import pytest
from typer.testing import CliRunner

from collectors.checks import require_right
from collectors.collect import collect
from collectors.workloads import runner as run
from collectors.workloads import workload, workloads
from perfml.cli import app
from perfml.ingest.profiles import ingest
from tests.support import checked_workload
from tests.support.checked_workload import LAUNCHER, LIMIT, Workload

pytestmark = pytest.mark.process


@pytest.fixture
def errors(tools):
    """Say how far off every output of every backend is."""
    return lambda **given: tools.setenv("FAKE_ERRORS", json.dumps(given))


def conv(out, *backends, **options):
    return collect("conv", backends=backends, out=out, launcher=LAUNCHER, **options)


def test_the_workloads_of_perfmls_own_kernels_are_checked_first():
    checked = {name for name in workloads() if workload(name).check_first}
    assert checked == {"attention", "conv", "qkv", "planted"}


def test_a_run_is_checked_before_the_warm_up_and_keeps_what_was_found(errors, tmp_path):
    errors(fused=[3.14159e-7, 9e-6])
    (result,) = conv(tmp_path, "fused", warmup=2)
    assert result.status == "done", result.message
    check = json.loads((result.folder / "run.json").read_text())["check"]
    assert check.pop("seconds") >= 0
    assert check == {
        "passed": True,
        "outputs": [
            {"output": "n8/out_0", "relative_error": 3.14e-7, "limit": LIMIT, "passed": True},
            {"output": "n8/out_1", "relative_error": 9e-6, "limit": LIMIT, "passed": True},
        ],
    }
    lines = (result.folder / "log.txt").read_text().splitlines()
    told = next(i for i, line in enumerate(lines) if "n8/out_1: relative error 9.00e-06" in line)
    assert [i for i, line in enumerate(lines) if line == "an inference"] == [told + 1, told + 2]


def test_a_kernel_above_its_limit_fails_its_run_and_no_other(errors, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NCU_ARGUMENTS", str(tmp_path / "profiled"))
    errors(fused=[2e-5, 1e-7, 0.25], tile8=[1e-7])
    failed, done = conv(tmp_path / "runs", "fused", "tile8")
    assert [failed.status, done.status] == ["failed", "done"]
    log = tmp_path / "runs" / ".failed" / failed.run_id / "log.txt"
    assert failed.message == (
        "n8/out_2: a kernel's output is wrong, so nothing was measured (found: relative error "
        "2.5e-01, the limit is 1e-05; so are 1 more of 3 outputs)\n"
        f"Mend the kernel, or leave it out with --backend or --set; {log} has the errors of all "
        "outputs."
    )
    assert "n8/out_0: relative error 2.00e-05, ABOVE the limit 1e-05" in log.read_text()
    assert "an inference" not in log.read_text()
    assert not failed.folder.exists()
    assert (tmp_path / "profiled").read_text().count("--export") == 1
    notes = (tmp_path / "runs" / "manifest.jsonl").read_text().splitlines()
    assert [json.loads(note).get("where") for note in notes] == ["n8/out_2", None]
    errors(fused=[1e-7], tile8=[1e-7])
    again = conv(tmp_path / "runs", "fused", "tile8")
    assert [each.status for each in again] == ["done", "kept"]


def test_an_output_that_is_no_number_is_the_worst(errors, tmp_path):
    errors(fused=[0.25, float("nan")])
    (failed,) = conv(tmp_path, "fused")
    assert failed.message.startswith("n8/out_1: ")
    assert "relative error not a number, the limit is 1e-05" in failed.message


def test_where_nvprof_measures_a_check_goes_first(errors, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NVPROF_ARGUMENTS", str(tmp_path / "profiled"))
    errors(fused=[0.25])
    (failed,) = conv(tmp_path / "runs", "fused", profiler="nvprof")
    assert "a kernel's output is wrong" in failed.message
    assert not (tmp_path / "profiled").exists()
    errors(fused=[1e-7])
    (done,) = conv(tmp_path / "runs", "fused", profiler="nvprof")
    assert done.status == "done", done.message
    assert done.record["check"]["passed"]
    (planned,) = conv(tmp_path / "more", "fused", profiler="nvprof", dry_run=True)
    modes = [words[words.index("--mode") + 1] for words in planned.commands]
    assert modes == ["check", "profile", "profile"]


def test_the_command_line_says_what_was_checked_also_where_an_answer_fails(
    errors, tmp_path, monkeypatch
):
    monkeypatch.setattr("perfml.explain.advise", lambda name: {}[name])
    errors(fused=[4e-7, 3e-6], tile8=[0.25])
    words = ["collect", "conv", "--launcher", LAUNCHER, "--out", str(tmp_path)]
    words += ["--backend", "fused", "--backend", "tile8", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    runs = {each["status"]: each for each in json.loads(done.stdout)["runs"]}
    assert f"{runs['done']['folder']}: no answer: KeyError" in done.stderr
    assert runs["done"]["record"]["check"]["passed"]
    assert "relative error 2.5e-01" in runs["failed"]["message"]
    words.remove("--json")
    table = CliRunner().invoke(app, words[:-2], env={"COLUMNS": "300"}).stdout
    assert "2 outputs right: errors up to 3.0e-06, limit 1e-05" in table


@pytest.mark.parametrize(("mode", "first"), [("profile", True), ("timing", False)])
def test_nothing_is_checked_under_a_profiler_or_with_a_dear_reference(
    errors, tmp_path, monkeypatch, mode, first
):
    errors(fused=[0.25])
    monkeypatch.setattr(run, "workload", lambda name: Workload(first))
    monkeypatch.setitem(run._MODES, "profile", lambda session, given: {"ranges": []})
    monkeypatch.setattr(sys, "argv", [checked_workload.__file__])
    assert run.main(["conv", "--backend", "fused", "--mode", mode, "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert mode in record
    assert "check" not in record


def test_a_description_without_a_check_is_not_wrong(tmp_path):
    require_right(tmp_path)
    for text in ("{", "[]", "{}", '{"check": null}', '{"check": {"passed": true}}'):
        (tmp_path / "run.json").write_text(text)
        require_right(tmp_path)


def test_a_checked_run_is_ingested_with_its_check(errors, tmp_path):
    errors(fused=[1e-7])
    (result,) = conv(tmp_path / "runs", "fused")
    # the stand-in profiler measured other layers than the stand-in workload timed
    (result.folder / "timing.csv").unlink()
    (described,) = ingest([result.folder]).provenance["runs"]
    assert described["check"] == result.record["check"]
