"""The verb prove, on recorded experiments."""

import json
import lzma

import pytest

from tests.support.command_line import run as command
from tests.support.paths import ROOT


@pytest.fixture
def recorded_run(tmp_path):
    source = ROOT / "studies" / "data" / "h100-experiments" / "probe.csv.xz"
    (tmp_path / "experiments.csv").write_bytes(lzma.decompress(source.read_bytes()))
    return str(tmp_path)


def run(*words):
    return command("prove", *words)


def test_launches_are_listed_with_their_limit_the_longest_first(recorded_run):
    lines = run(recorded_run, "--top", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["sfu", "tail", "l1"]
    assert "units of the multiprocessor" in lines[1]


def test_what_was_not_measured_is_a_line_a_reason_and_the_others_are_counted():
    table = ROOT / "studies" / "data" / "h100-experiments" / "repairs-base.csv.xz"
    skipped = json.loads(run(str(table), "--json").stdout)["skipped"]
    reasons = {each["reason"] for each in skipped}
    lines = run(str(table)).stderr.splitlines()
    assert len(lines) == 6 < len(reasons) < len(skipped)
    assert str(len(reasons) - 5) in lines[-1]


def test_a_cause_is_said_to_be_plausible_or_implausible_where_only_limits_tell(recorded_run):
    asked = ("--layer", "stream", "--cause", "dram_bytes")
    assert "Plausible" in run(recorded_run, *asked).stdout
    found = json.loads(run(recorded_run, *asked, "--json").stdout)
    (launch,), (said,) = found["launches"], found["findings"]
    assert said["verdict"]["verdict"] == "plausible"
    assert sum(launch["shares"].values()) == pytest.approx(1)
    assert "Implausible" in run(recorded_run, "--layer", "fma", "--cause", "dram_bytes").stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--layer", "conv_1"), "no layer is called"),
        (("--cause", "launch_gaps"), "no experiment on one launch can tell this cause"),
        (("--cause", "nonsense"), "no experiment on one launch can tell this cause"),
    ],
)
def test_what_cannot_be_asked_is_an_error(recorded_run, words, problem):
    found = run(recorded_run, *words)
    assert found.exit_code != 0
    assert problem in found.stderr


def test_a_backend_is_for_built_in_workloads(tmp_path):
    found = run("--backend", "cudnn", "--out", str(tmp_path / "out"), "--", "./program")
    assert "--backend is for built-in workloads" in found.stderr


def test_a_recorded_table_is_asked_as_a_folder_is():
    table = ROOT / "studies" / "data" / "h200-experiments" / "transpose.csv.xz"
    found = json.loads(run(str(table), "--cause", "bank_conflicts", "--json").stdout)["findings"]
    said = {each["layer"]: each["verdict"] for each in found}
    # NVIDIA's own fix, a padded tile, takes 147.6 of 328.2 us
    proven = said["transposeCoalesced"]
    assert proven["verdict"] == "proven"
    assert proven["repair"]["factor"] == pytest.approx(147.6 / 328.2, rel=0.02)
    assert "proven" not in {said[each]["verdict"] for each in said if each != "transposeCoalesced"}


def test_a_damaged_answer_is_a_line_and_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "answer.json").write_text("{")
    found = run("--out", str(tmp_path), "--", "./nothing")
    assert "warning" in found.stderr
    assert "this is no answer" in found.stderr
    found = run("--out", str(tmp_path / "answer.json" / "below"), "--", "./nothing")
    assert found.exit_code == 1
    assert found.stderr.splitlines()[-1] == "Name another folder."


def test_trying_repairs_needs_the_program_and_its_build_command(recorded_run):
    for words in ((recorded_run, "--build", "make"), ("--", "./program")):
        found = run("--try", *words)
        assert found.exit_code != 0
        assert "--try builds and runs the program" in found.stderr
