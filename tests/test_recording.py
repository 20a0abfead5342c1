"""Recording a ladder: check, measure what is right, whatever one version does."""

import contextlib
import json
import sys

import pytest

from collectors.workloads import CheckRow, _recording
from collectors.workloads._recording import Recording, Wanted
from perfml.errors import PerfmlError

RECORDING = Recording(
    "conv",
    runs=(Wanted("fused"), Wanted("tile8"), Wanted("wmma_fp16", "fp16", "conv[12]_b1000")),
    metrics=("published", "roofline"),
    settings=("sizes=conv1_b10",),
)


class FakeSession:
    def __init__(self, error):
        self.error = error

    def active(self):
        return contextlib.nullcontext()

    def check(self):
        return [CheckRow("conv1_b10/y", self.error, 1e-5)]

    def describe(self):
        return {"settings": {"compiler": "none"}, "layers": []}


class FakeWorkload:
    def session(self, options):
        assert options.settings == (("sizes", "conv1_b10"),)
        if options.backend == "fused":
            msg = "nvcc refuses a source of perfml"
            raise PerfmlError(msg)
        return FakeSession(3e-7 if options.backend == "tile8" else float("nan"))


@pytest.fixture
def fake(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(_recording, "workload", lambda name: FakeWorkload())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def test_a_version_that_fails_does_not_keep_the_others_from_being_checked(fake, tmp_path, capsys):
    path = tmp_path / "check.json"
    _recording.check(RECORDING, RECORDING.runs, path)
    rows = json.loads(path.read_text())
    assert [row["run"] for row in rows] == ["fused fp32", "tile8 fp32", "wmma_fp16 fp16"]
    assert [row["passed"] for row in rows] == [False, True, False]
    assert "nvcc refuses" in rows[0]["outputs"][0]["output"]
    assert rows[1]["outputs"][0]["relative_error"] == 3e-7
    assert rows[2]["outputs"][0]["relative_error"] is None
    told = capsys.readouterr().out
    assert "check tile8 fp32: right, worst error 3.0e-07" in told
    assert "check wmma_fp16 fp16: WRONG" in told


def test_a_check_goes_on_after_what_is_known(fake, tmp_path, capsys):
    path = tmp_path / "check.json"
    path.write_text(json.dumps([{"run": "tile8 fp32", "passed": True, "outputs": []}]))
    _recording.check(RECORDING, RECORDING.runs, path)
    assert len(json.loads(path.read_text())) == 3
    assert "tile8" not in capsys.readouterr().out


# a kernel that breaks its process: one row a process, and then it is gone
DYING = """
import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
rows = json.loads(path.read_text()) if path.exists() else []
if len(rows) < int(sys.argv[2]):
    path.write_text(json.dumps([*rows, {"run": str(len(rows)), "passed": True}]))
sys.exit(139)
"""


@pytest.mark.parametrize("rows", [3, 2])
def test_processes_are_started_until_all_is_checked_or_nothing_moves(tmp_path, rows):
    path = tmp_path / "check.json"
    path.write_text(json.dumps([{"run": "of the recording before", "passed": True}]))
    script = [sys.executable, "-c", DYING, str(path), str(rows)]
    _recording.check_all(RECORDING, RECORDING.runs, script, path)
    assert [row["run"] for row in json.loads(path.read_text())] == ["0", "1", "2"][:rows]


def test_only_what_is_right_is_measured(monkeypatch, tmp_path, capsys):
    def checked(recording, runs, script, path):
        found = [{"run": str(run), "passed": run.backend == "tile8"} for run in runs]
        path.write_text(json.dumps(found))

    measured = []

    def measure(recording, runs, folder, end):
        measured.extend(map(str, runs))
        return {str(run): "12 s, exit 0" for run in runs}

    monkeypatch.setattr(_recording, "check_all", checked)
    monkeypatch.setattr(_recording, "_measure", measure)
    monkeypatch.setattr(_recording, "_finish", lambda *given: None)
    out = ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    assert _recording.main(RECORDING, out) == 1
    assert measured == ["tile8 fp32"]
    told = capsys.readouterr().out
    assert "tile8 fp32: 12 s, exit 0" in told
    assert "fused fp32: not measured: WRONG" in told
    assert _recording.main(RECORDING, [*out, "--only", "tile8"]) == 0


def test_a_run_is_the_command_that_perfml_collect_takes(tmp_path):
    command = RECORDING.command(RECORDING.runs[2], tmp_path)
    text = " ".join(command[1:])
    assert text.startswith("-m perfml collect conv --json --backend wmma_fp16 --precision fp16")
    assert "--metrics published --metrics roofline --set sizes=conv1_b10" in text
    assert text.endswith("--layers conv[12]_b1000")


def test_a_run_may_have_settings_of_its_own(tmp_path):
    own = Wanted("tile8", settings=("sizes=conv2_b10",))
    assert str(own) == "tile8 fp32 sizes=conv2_b10"
    text = " ".join(RECORDING.command(own, tmp_path))
    assert "--set sizes=conv2_b10" in text
    assert "conv1_b10" not in text


def test_a_check_uses_the_settings_of_the_run(monkeypatch):
    pytest.importorskip("torch")
    seen = []

    class Workload:
        def session(self, options):
            seen.append(options.settings)
            return FakeSession(0.0)

    monkeypatch.setattr(_recording, "workload", lambda name: Workload())
    for run in (Wanted("tile8", settings=("sizes=conv2_b10",)), Wanted("tile8")):
        assert _recording._checked(RECORDING, run)["passed"]
    assert seen == [(("sizes", "conv2_b10"),), (("sizes", "conv1_b10"),)]


def test_a_run_is_not_begun_without_the_time_for_it():
    assert _recording._one(["false"], {}, end=0.0) == "no time left"
