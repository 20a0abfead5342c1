"""What a command may write, and what it says of tables and extras that it cannot use."""

import os
import pickle
import subprocess
import sys

import pytest

from perfml.cli.report import require_own
from perfml.errors import InputError, PerfmlError
from perfml.report.document import Document, Text, section
from perfml.report.render.markdown import to_markdown
from perfml.util.installed import install_command, missing_extra
from tests.support.command_line import run
from tests.support.paths import DATA, ROOT

PROFILE = DATA / "ncu" / "vectors.csv"
RECORDED = DATA / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding_gets_what_it_has_characters_for(encoding):
    def said(encoding):
        command = [sys.executable, "-m", "perfml", "advise", str(RECORDED), "--top", "1"]
        variables = {**os.environ, "PYTHONIOENCODING": encoding}
        return subprocess.run(command, env=variables, capture_output=True, check=True).stdout

    whole = said("utf-8").decode()
    assert said(encoding) == whole.encode(encoding, errors="replace")
    assert encoding != "ascii" or b"?" in said(encoding)


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.parquet"
    assert run("ingest", PROFILE, "--out", path, "-q").exit_code == 0
    return path


def test_merge_does_not_write_over_its_input(kernels):
    before = kernels.read_bytes()
    result = run("merge", kernels, "--out", kernels)
    assert result.exit_code == 1
    assert "would replace an input" in result.output
    assert kernels.read_bytes() == before


def test_ingest_does_not_write_over_a_profile(tmp_path):
    profile = tmp_path / "profile.csv"
    profile.write_bytes(PROFILE.read_bytes())
    result = run("ingest", profile, "--out", profile)
    assert result.exit_code == 1
    assert profile.read_bytes() == PROFILE.read_bytes()


def test_ingest_does_not_write_parquet_into_a_file_called_csv(tmp_path):
    result = run("ingest", PROFILE, "--out", tmp_path / "x.csv")
    assert result.exit_code == 1
    assert "written as Parquet" in result.output
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [("--backend", "cudn", "cudnn"), ("--precision", "fp99", "tf32")],
)
def test_a_dry_run_refuses_what_the_workload_does_not_have(tmp_path, option, value, known):
    result = run("collect", "yolov4-tiny", option, value, "--dry-run", "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert value in result.output
    assert known in result.output


def test_an_error_of_a_worker_arrives_as_it_was_raised():
    for error in (
        missing_extra("interpret", "explain", "the model ebm"),
        InputError("no such file", where="a.csv", cure="Check the path."),
        PerfmlError("wrong", found="x"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert copy.as_dict() == error.as_dict()


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (("file:///src/perfml", False), "pip install '/src/perfml[ncu]'"),
        (("https://host/perfml", True), "pip install 'perfml[ncu] @ git+https://host/perfml'"),
    ],
)
def test_the_source_that_pip_noted_is_used(monkeypatch, origin, command):
    monkeypatch.setattr("perfml.util.installed._installer", lambda: "pip install")
    monkeypatch.setattr("perfml.util.installed._origin", lambda: origin)
    assert install_command("ncu") == command


@pytest.mark.parametrize(
    ("note", "command"),
    [
        ("uv-receipt.toml", "uv tool install"),
        ("pipx_metadata.json", "pipx install --force"),
        (None, "uv pip install"),
    ],
)
def test_the_cure_uses_the_installer_that_was_used(note, command, monkeypatch, tmp_path):
    from perfml.util import installed

    if note is not None:
        (tmp_path / note).touch()
    monkeypatch.setattr(installed.sys, "prefix", str(tmp_path))

    class Uv:
        def read_text(self, name):
            return "uv\n" if name == "INSTALLER" else None

    monkeypatch.setattr(installed.metadata, "distribution", lambda name: Uv())
    assert install_command("ncu") == f"{command} '{ROOT}[ncu]'"


@pytest.mark.parametrize(("name", "written"), [("a.md", "# Mine\n"), ("a.html", "<p>mine</p>")])
def test_a_report_replaces_a_report_of_perfml_and_nothing_else(tmp_path, name, written):
    out = tmp_path / name
    require_own(out)
    out.write_text(written)
    with pytest.raises(PerfmlError, match="no report of perfml"):
        require_own(out)
    document = Document("Title", (section("", Text("Said.")),))
    for text in (to_markdown(document), '<meta name="generator" content="perfml 1.0">'):
        out.write_text(text)
        require_own(out)
